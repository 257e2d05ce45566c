//! Transactions on the wire: from the body to the store's words, and back.

use std::collections::HashSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use fencepost_core::wire::{
    ConditionSpec, Expected, Integer, MAX_TXN_PARTS, OperationSpec, TextOrBase64, TxnRequest, TxnResult, TxnValue,
    ValueSpec,
};
use fencepost_core::{Key, ProblemKind};
use fencepost_store::record::{MAX_CONTENT_TYPE_BYTES, Value};
use fencepost_store::{Condition, Done, Operation, Transaction};

use super::answer::etag;
use super::call::{self, Request};
use super::fingerprint::fingerprint;
use super::headers;
use super::problem::Problem;

/// Decodes the body of `POST /v1/txn`.
pub(super) fn decode(request: &Request<'_>) -> Result<Transaction, Problem> {
    let headers = &request.head.headers;
    headers::none_unsupported(headers)?;
    headers::no_token(headers, "the tokens of a transaction stand in its body, one for each resource")?;
    headers::no_conditions(headers, "the conditions of a transaction stand in its body, in `if`")?;
    let example = r#"{"tokens": {"resource": "34"}, "if": […], "then": [{"put": "key", "text": "…"}]}"#;
    let TxnRequest { tokens, conditions, operations } = call::json(request.body, example)?;
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
    let once = call::once(request, || {
        let parts = [serde_json::to_vec(&conditions), serde_json::to_vec(&operations)].map(Result::unwrap_or_default);
        fingerprint(&[b"TXN", &parts[0], &parts[1]])
    })?;
    Ok(Transaction {
        tokens: tokens.into_iter().map(|(resource, token)| (resource, token.into())).collect(),
        conditions: conditions.into_iter().map(condition).collect::<Result<_, _>>()?,
        operations: operations.into_iter().map(operation).collect::<Result<_, _>>()?,
        max_bytes: request.limits.body,
        body: request.body.clone(),
        once,
    })
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

/// It is answered as a header later.
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

/// Text where JSON carries it well.
pub(super) fn text_or_base64(body: &Bytes) -> TextOrBase64 {
    match std::str::from_utf8(body) {
        // Control characters would take six bytes each.
        Ok(text) if !text.contains(|c: char| c.is_control() && !matches!(c, '\t' | '\n' | '\r')) => {
            TextOrBase64::Text(text.to_owned())
        }
        _ => TextOrBase64::Base64(STANDARD.encode(body)),
    }
}
