//! `POST /v1/txn`: conditions and operations, all or nothing.

use std::collections::HashSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use fencepost_core::wire::{
    ConditionSpec, Expected, FenceNow, Integer, MAX_TXN_PARTS, OperationSpec, TextOrBase64, TokenSpec, TxnAnswer,
    TxnRequest, TxnResult, TxnValue, ValueSpec,
};
use fencepost_core::{Access, Key, ProblemKind};
use fencepost_store::record::{MAX_CONTENT_TYPE_BYTES, Value};
use fencepost_store::{Condition, Done, Operation, RecordedTransaction, TransactOutcome, Transacted, Transaction};
use hyper::Method;
use serde_json::json;

use super::json_value::text_or_base64;
use super::replayed::replayed;
use super::{Context, HttpCall, Request};
use crate::http::Gateway;
use crate::http::answer::{self, Answer, etag};
use crate::http::body::hold_anyway;
use crate::http::fingerprint::fingerprint;
use crate::http::headers;
use crate::http::openapi::{Details, ONCE, WRITING, parts};
use crate::http::permit::Permitted;
use crate::http::problem::Problem;
use crate::http::routes::Route;

pub(super) struct Transact(Transaction);

impl HttpCall for Transact {
    const ROUTE: Route = Route::new(Method::POST, "/v1/txn", "conditions and operations, all or nothing").with_body();

    fn decode(request: Request<'_>) -> Result<Transact, Problem> {
        let headers = request.headers();
        headers::none_unsupported(headers)?;
        headers::no_token(headers, "the tokens of a transaction stand in its body, one for each resource")?;
        headers::no_conditions(headers, "the conditions of a transaction stand in its body, in `if`")?;
        let example = r#"{"tokens": {"resource": "34"}, "if": […], "then": [{"put": "key", "text": "…"}]}"#;
        let TxnRequest { tokens, conditions, operations } = request.json(example)?;
        for (what, count) in [("conditions", conditions.len()), ("operations", operations.len())] {
            if count > MAX_TXN_PARTS {
                let detail = format!("a transaction takes at most {MAX_TXN_PARTS} {what}, and has {count}");
                return Err(Problem::new(ProblemKind::TooLarge, detail));
            }
        }
        if conditions.is_empty() && operations.is_empty() {
            return Err(wrong("there is nothing to do: give conditions in `if`, operations in `then`, or both"));
        }
        let mut seen = HashSet::new();
        if let Some(twice) = operations.iter().map(OperationSpec::key).find(|key| !seen.insert(*key)) {
            return Err(wrong(format!("`{twice}` occurs twice in `then`; one key takes one operation")));
        }
        let once = request.once(|| {
            let parts =
                [serde_json::to_vec(&conditions), serde_json::to_vec(&operations)].map(Result::unwrap_or_default);
            fingerprint(&[b"TXN", &parts[0], &parts[1]])
        })?;
        Ok(Transact(Transaction {
            tokens: tokens.into_iter().map(|(resource, token)| (resource, token.into())).collect(),
            conditions: conditions.into_iter().map(condition).collect::<Result<_, _>>()?,
            operations: operations.into_iter().map(operation).collect::<Result<_, _>>()?,
            max_bytes: request.limits.body,
            body: request.body,
            once,
        }))
    }

    async fn execute(call: Permitted<Transact>, context: &Context<'_>) -> Result<Answer, Problem> {
        let (Transact(transaction), gateway) = (call.into_inner(), context.gateway);
        let reads = transaction.operations.iter().any(|(_, operation)| *operation == Operation::Get);
        let _turn = if reads { Some(context.room_for_an_answer().await?) } else { None };
        let outcome = gateway.stores.of_transaction(&transaction)?.transact(transaction).await?;
        gateway.metrics.transaction(&outcome);
        match outcome {
            TransactOutcome::Transacted(done) => Ok(transacted(gateway, *done, Vec::new())),
            TransactOutcome::Refused(refusals) => Err(Problem::all_refused(&refusals)),
            TransactOutcome::ConditionFailed(failed) => Err(Problem::txn_condition_failed(failed)),
            TransactOutcome::Impossible(addition) => Err(Problem::add_impossible(addition)),
            TransactOutcome::TooLarge(too_large) => Err(Problem::too_large(too_large)),
            TransactOutcome::Replayed(recorded, fences) => {
                // A single fence goes into a header and leaves the body unchanged.
                let (fence, fences_now) = match fences.as_slice() {
                    [(_, fence)] => (*fence, Vec::new()),
                    _ => (None, fences.into_iter().map(|(resource, fence)| FenceNow { resource, fence }).collect()),
                };
                let answered = match recorded {
                    RecordedTransaction::Transacted(done) => Ok(transacted(gateway, *done, fences_now)),
                    RecordedTransaction::ConditionFailed(failed) => Err(Problem::txn_condition_failed(failed)),
                    RecordedTransaction::Impossible(addition) => Err(Problem::add_impossible(addition)),
                };
                replayed(answered, fence)
            }
            TransactOutcome::KeyReused => Err(Problem::key_reused()),
            TransactOutcome::Abandoned => Err(Problem::abandoned()),
        }
    }

    fn describe() -> Details {
        Details::of("transactions")
            .parameters([parts::idempotency_key()])
            .body::<TxnRequest>(json!({
                "tokens": {
                    "orders/123": {"token": "34", "holder": "worker-a#9f2c", "issuer": "etcd:4711"},
                    "stock/sku-7": "12",
                },
                "if": [{"key": "orders/123", "absent": true}, {"key": "stock/sku-7", "at_least": 0}],
                "then": [
                    {"put": "orders/123", "text": "paid", "content_type": "text/plain"},
                    {"add": "stock/sku-7", "by": "5", "min": "0"},
                    {"get": "orders/123/lines"},
                ],
            }))
            .refers_to::<TokenSpec>()
            .refers_to::<ConditionSpec>()
            .refers_to::<ValueSpec>()
            .refers_to::<TextOrBase64>()
            .refers_to::<OperationSpec>()
            .refers_to::<Integer>()
            .json::<TxnAnswer>(200, "Done: one result per operation.", parts::observed().optional_replayed())
            .refers_to::<TxnResult>()
            .refers_to::<FenceNow>()
            .judged(Access::Write)
            .problems(&[
                ProblemKind::MalformedName,
                ProblemKind::UnsupportedHeader,
                ProblemKind::NotAResource,
                ProblemKind::SeveralEngines,
                ProblemKind::ConditionFailed,
                ProblemKind::AddImpossible,
            ])
            .problems(&ONCE)
            .problems(&WRITING)
    }
}

/// What was done, one result per operation.
fn transacted(gateway: &Gateway, transacted: Transacted, fences_now: Vec<FenceNow>) -> Answer {
    let observed: Vec<_> = transacted.observed.iter().map(|(_, reason)| *reason).collect();
    let results = transacted.results.into_iter().map(result).collect();
    let answer = TxnAnswer { results, fences_now };
    Answer::json_bytes(hold_anyway(answer::json(&answer), &gateway.answers)).observed(&observed)
}

fn wrong(detail: impl Into<String>) -> Problem {
    Problem::new(ProblemKind::MalformedBody, detail)
}

fn condition(spec: ConditionSpec) -> Result<(Key, Condition), Problem> {
    let condition = match spec.expected {
        Expected::Exists => Condition::Exists,
        Expected::Absent => Condition::Absent,
        Expected::Etag(etag) => Condition::AnyOf(headers::version_of(&etag).into_iter().collect()),
        Expected::Equals(ValueSpec::Text(text)) => Condition::Equals(text.into()),
        Expected::Equals(ValueSpec::Integer(number)) => Condition::Equals(number.to_string().into()),
        Expected::Equals(ValueSpec::Tagged(value)) => Condition::Equals(bytes(&spec.key, value)?),
        Expected::AtLeast(Integer(least)) => Condition::AtLeast(least),
        Expected::AtMost(Integer(most)) => Condition::AtMost(most),
    };
    Ok((spec.key, condition))
}

fn operation(spec: OperationSpec) -> Result<(Key, Operation), Problem> {
    Ok(match spec {
        OperationSpec::Put { key, value, content_type } => {
            let content_type = content_type.filter(|text| !text.is_empty());
            if content_type.as_ref().is_some_and(|text| text.len() > MAX_CONTENT_TYPE_BYTES || !is_header(text)) {
                let detail = format!("the content type of `{key}` must be 1 to {MAX_CONTENT_TYPE_BYTES} visible bytes");
                return Err(wrong(detail));
            }
            let body = bytes(&key, value)?;
            (key, Operation::Put { content_type, body })
        }
        OperationSpec::Delete { key } => (key, Operation::Delete),
        OperationSpec::Add { key, by: Integer(by), min, max } => {
            let (min, max) = (min.map_or(i64::MIN, |min| min.0), max.map_or(i64::MAX, |max| max.0));
            (key, Operation::Add { by, min, max })
        }
        OperationSpec::Get { key } => (key, Operation::Get),
    })
}

/// Whether a text can be sent as a header value, as reads will answer it.
fn is_header(text: &str) -> bool {
    hyper::header::HeaderValue::from_str(text).is_ok()
}

fn bytes(key: &Key, value: TextOrBase64) -> Result<Bytes, Problem> {
    let value = match value {
        TextOrBase64::Text(text) => text.into_bytes(),
        TextOrBase64::Base64(text) => STANDARD.decode(text).map_err(|error| {
            wrong(format!("the value of `{key}` is not base64 (standard alphabet, padded): {error}"))
        })?,
    };
    Ok(value.into())
}

/// One operation's result.
pub(super) fn result((key, done): (Key, Done)) -> TxnResult {
    let none = TxnResult { key, etag: None, absent: false, value: None, read: None };
    match done {
        Done::Put(version) => TxnResult { etag: Some(etag(version)), ..none },
        Done::Absent => TxnResult { absent: true, ..none },
        Done::Sum(version, sum) => TxnResult { etag: Some(etag(version)), value: Some(Integer(sum)), ..none },
        Done::Read(version, Value { token, content_type, body }) => {
            let read = TxnValue { token, content_type, value: text_or_base64(&body) };
            TxnResult { etag: Some(etag(version)), read: Some(read), ..none }
        }
    }
}
