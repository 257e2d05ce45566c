//! Decoding: from a request to a call, or to the reason why it is none.

use std::time::Duration;

use bytes::Bytes;
use fencepost_core::wire::{
    AcquireRequest, ClaimRequest, MAX_CLAIM_KEYS, MAX_TTL_MS, MAX_WAIT_MS, MIN_TTL_MS, ObjectsCheckRequest,
    ObjectsCollectRequest, RenewRequest, RotateAllRequest, RotatePrefixRequest, RotateRequest, header, object,
};
use fencepost_core::{IdempotencyKey, Key, Presented, ProblemKind, Resource, is_hidden, percent_decode_name};
use fencepost_store::record::LeaseId;
use fencepost_store::{AcquireLock, CallerId, ClaimKeys, Delete, Once, Put, Transaction};
use hyper::HeaderMap;
use hyper::http::request::Parts;
use serde::de::DeserializeOwned;

use super::caller::PeerAddress;
use super::credentials::{self, AskedCredentials};
use super::fingerprint::fingerprint;
use super::headers::{self, Tags};
use super::permit::Identity;
use super::problem::Problem;
use super::query::{self, ListQuery};
use super::routes::{Endpoint, Route};
use super::txn;
use crate::config::Limits;

/// What is asked for.
pub(super) enum Call {
    Put(Put),
    Get(Get),
    Delete(Delete),
    ListKeys(ListQuery),
    Claim(ClaimKeys),
    Transact(Box<Transaction>),
    S3Credentials(AskedCredentials),
    Fence(Resource),
    ListFences(ListQuery),
    Acquire(AcquireLock),
    Renew(Resource, LeaseId, Duration),
    Release(Resource, LeaseId),
    Lock(Resource),
    ListLocks(ListQuery),
    Outcome(&'static str, IdempotencyKey),
    Abandon(&'static str, IdempotencyKey),
    Admin(AdminCall),
    Healthz,
    Readyz,
    Metrics,
    OpenApi,
}

/// What only an administrator may ask for.
#[derive(Clone, Debug)]
pub(super) enum AdminCall {
    Rotate(Resource, RotateRequest),
    RotatePrefix(RotatePrefixRequest),
    RotateAll(RotateAllRequest),
    ForceRelease(Resource),
    Reload,
    CheckObjects(ObjectsCheckRequest),
    CollectObjects(ObjectsCollectRequest),
}

/// A read of a value.
pub(super) struct Get {
    pub(super) key: Key,
    pub(super) presented: Option<Presented>,
    pub(super) if_match: Option<Tags>,
    pub(super) if_none_match: Option<Tags>,
}

/// A request whose body has arrived.
pub(super) struct Request<'r> {
    pub(super) route: &'static Route,
    /// The raw name in its path.
    pub(super) name: &'r str,
    pub(super) head: &'r Parts,
    pub(super) body: &'r Bytes,
    pub(super) identity: &'r Identity,
    pub(super) peer: PeerAddress,
    pub(super) limits: &'r Limits,
}

/// Decodes a request.
pub(super) fn decode(request: &Request<'_>) -> Result<Call, Problem> {
    let Request { route, name, head, body, .. } = *request;
    let query = head.uri.query();
    match route.endpoint {
        Endpoint::ListKeys => return ListQuery::parse(query).map(Call::ListKeys),
        Endpoint::ListFences => return ListQuery::parse(query).map(Call::ListFences),
        Endpoint::ListLocks => return ListQuery::parse(query).map(Call::ListLocks),
        Endpoint::ReleaseLock => {
            headers::no_idempotency_key(&head.headers)?;
            of_a_lock(&head.headers)?;
            let lease = one_lease(headers::lease(&head.headers)?, query::lease(query)?)?;
            let missing = "a release names its lease, as it was granted: in the header fencing-lease, or as ?lease=…";
            let lease = lease.ok_or_else(|| Problem::new(ProblemKind::MalformedQuery, missing))?;
            return Ok(Call::Release(Resource::from_raw_path(name)?, lease));
        }
        _ => ListQuery::none(query)?,
    }
    Ok(match route.endpoint {
        Endpoint::PutValue => Call::Put(put(request)?),
        Endpoint::DeleteValue => Call::Delete(delete(request)?),
        Endpoint::GetValue => {
            let (if_match, if_none_match) = headers::read_conditions(&head.headers)?;
            let presented = headers::presented_for_read(&head.headers)?;
            Call::Get(Get { key: Key::from_raw_path(name)?, presented, if_match, if_none_match })
        }
        Endpoint::Claim => Call::Claim(claim(request)?),
        Endpoint::Transact => Call::Transact(Box::new(txn::decode(request)?)),
        Endpoint::IssueS3Credentials => Call::S3Credentials(credentials::decode(request)?),
        Endpoint::GetFence => Call::Fence(Resource::from_raw_path(name)?),
        Endpoint::AcquireLock => Call::Acquire(acquire(request)?),
        Endpoint::RenewLock => {
            headers::no_idempotency_key(&head.headers)?;
            of_a_lock(&head.headers)?;
            let RenewRequest { lease, ttl_ms } = json(body, r#"{"lease": "…", "ttl_ms": 30000}"#)?;
            let lease = lease.map(|lease| lease.parse::<LeaseId>()).transpose();
            let lease = lease.map_err(|why: &str| Problem::new(ProblemKind::MalformedBody, why))?;
            let missing = "a renewal names its lease, as it was granted: in the header fencing-lease, or as `lease`";
            let lease = one_lease(headers::lease(&head.headers)?, lease)?;
            let lease = lease.ok_or_else(|| Problem::new(ProblemKind::MalformedBody, missing))?;
            Call::Renew(Resource::from_raw_path(name)?, lease, ttl(ttl_ms)?)
        }
        Endpoint::GetLock => Call::Lock(Resource::from_raw_path(name)?),
        Endpoint::GetOutcome => Call::Outcome(request.identity.caller(), outcome_key(name)?),
        Endpoint::AbandonOutcome => {
            empty(body)?;
            Call::Abandon(request.identity.caller(), outcome_key(name)?)
        }
        Endpoint::Rotate => {
            let rotate: RotateRequest = json(body, r#"{"from": 0, "reason": "…"}"#)?;
            reason(&rotate.reason)?;
            Call::Admin(AdminCall::Rotate(Resource::from_raw_path(name)?, rotate))
        }
        Endpoint::RotatePrefix => {
            let rotate: RotatePrefixRequest = json(body, r#"{"prefix": "orders/", "from": 0, "reason": "…"}"#)?;
            reason(&rotate.reason)?;
            Call::Admin(AdminCall::RotatePrefix(rotate))
        }
        Endpoint::RotateAll => {
            let rotate: RotateAllRequest = json(body, r#"{"from": 0, "reason": "…"}"#)?;
            reason(&rotate.reason)?;
            Call::Admin(AdminCall::RotateAll(rotate))
        }
        Endpoint::ForceRelease => {
            empty(body)?;
            Call::Admin(AdminCall::ForceRelease(Resource::from_raw_path(name)?))
        }
        Endpoint::Reload => {
            empty(body)?;
            Call::Admin(AdminCall::Reload)
        }
        Endpoint::CheckObjects => Call::Admin(AdminCall::CheckObjects(json(body, r#"{"bucket": "reports"}"#)?)),
        Endpoint::CollectObjects => Call::Admin(AdminCall::CollectObjects(json(body, r#"{"older_than_s": 86400}"#)?)),
        Endpoint::Healthz => Call::Healthz,
        Endpoint::Readyz => Call::Readyz,
        Endpoint::Metrics => Call::Metrics,
        Endpoint::OpenApi => Call::OpenApi,
        Endpoint::ListKeys | Endpoint::ListFences | Endpoint::ListLocks | Endpoint::ReleaseLock => {
            unreachable!("returned above")
        }
    })
}

fn put(request: &Request<'_>) -> Result<Put, Problem> {
    let headers = &request.head.headers;
    headers::none_unsupported(headers)?;
    let (key, content_type) = (Key::from_raw_path(request.name)?, headers::content_type(headers)?);
    let condition = headers::write_condition(headers)?;
    let once = once(request, || {
        let [if_match, if_none_match] = headers::raw_conditions(headers);
        let content_type = content_type.as_deref().unwrap_or_default().as_bytes();
        fingerprint(&[b"PUT", key.as_str().as_bytes(), if_match, if_none_match, content_type, request.body])
    })?;
    Ok(Put { presented: headers::presented(headers)?, key, condition, content_type, body: request.body.clone(), once })
}

fn delete(request: &Request<'_>) -> Result<Delete, Problem> {
    let headers = &request.head.headers;
    headers::none_unsupported(headers)?;
    let key = Key::from_raw_path(request.name)?;
    let once = once(request, || {
        let [if_match, if_none_match] = headers::raw_conditions(headers);
        fingerprint(&[b"DELETE", key.as_str().as_bytes(), if_match, if_none_match])
    })?;
    let condition = headers::write_condition(headers)?;
    Ok(Delete { presented: headers::presented(headers)?, key, condition, once })
}

fn claim(request: &Request<'_>) -> Result<ClaimKeys, Problem> {
    let headers = &request.head.headers;
    headers::none_unsupported(headers)?;
    headers::no_idempotency_key(headers)?;
    headers::no_conditions(headers, "a claim has no conditions; it raises and reads")?;
    let resource = Resource::from_raw_path(request.name)?;
    let presented = headers::presented(headers)?;
    let asked = match request.body.as_ref() {
        [] => ClaimRequest::default(),
        _ => json(request.body, r#"{"keys": ["…"]} or no body"#)?,
    };
    let keys = asked.keys.unwrap_or_else(|| vec![resource.as_key()]);
    if keys.len() > MAX_CLAIM_KEYS {
        let detail = format!("a claim reads at most {MAX_CLAIM_KEYS} keys, and {} were asked for", keys.len());
        return Err(Problem::new(ProblemKind::TooLarge, detail));
    }
    Ok(ClaimKeys { resource, presented, keys, max_bytes: request.limits.body })
}

/// Refuses what the lock service would ignore.
fn of_a_lock(headers: &HeaderMap) -> Result<(), Problem> {
    headers::no_token(headers, "the lock service numbers its tokens itself, and knows a holder by its lease")?;
    headers::no_conditions(headers, "a lock has no conditions but who holds it")
}

/// The lease that a header names, or another part of the request. Two different ones are no request.
fn one_lease(header: Option<LeaseId>, elsewhere: Option<LeaseId>) -> Result<Option<LeaseId>, Problem> {
    match (header, elsewhere) {
        (Some(header), Some(elsewhere)) if header != elsewhere => {
            Err(Problem::header(header::FENCING_LEASE, "it names another lease than the rest of the request"))
        }
        (header, elsewhere) => Ok(header.or(elsewhere)),
    }
}

fn acquire(request: &Request<'_>) -> Result<AcquireLock, Problem> {
    of_a_lock(&request.head.headers)?;
    let AcquireRequest { holder, ttl_ms, wait_ms } =
        json(request.body, r#"{"holder": "worker-a#9f2c", "ttl_ms": 30000, "wait_ms": 5000}"#)?;
    let resource = Resource::from_raw_path(request.name)?;
    if wait_ms > MAX_WAIT_MS {
        let detail = format!("wait_ms is {wait_ms}, the limit is {MAX_WAIT_MS}; ask again when it is over");
        return Err(Problem::new(ProblemKind::MalformedBody, detail));
    }
    // How long to wait is no part of what is asked for: a retry has less time left.
    let once = once(request, || {
        fingerprint(&[b"ACQUIRE", resource.as_str().as_bytes(), holder.as_str().as_bytes(), &ttl_ms.to_le_bytes()])
    })?;
    let (wait, caller) = (Duration::from_millis(wait_ms), CallerId::new(request.peer));
    Ok(AcquireLock { resource, holder, ttl: ttl(ttl_ms)?, wait, once, caller })
}

fn ttl(ttl_ms: u64) -> Result<Duration, Problem> {
    match ttl_ms {
        MIN_TTL_MS..=MAX_TTL_MS => Ok(Duration::from_millis(ttl_ms)),
        _ => {
            let detail = format!("ttl_ms is {ttl_ms}; a lease lasts from {MIN_TTL_MS} to {MAX_TTL_MS} ms");
            Err(Problem::new(ProblemKind::MalformedBody, detail))
        }
    }
}

/// The request's idempotency key with its fingerprint, if it has one.
pub(super) fn once(request: &Request<'_>, fingerprint: impl FnOnce() -> [u8; 32]) -> Result<Option<Once>, Problem> {
    let key = headers::idempotency_key(&request.head.headers)?;
    Ok(key.map(|key| Once { caller: request.identity.caller().to_owned(), key, fingerprint: fingerprint() }))
}

fn outcome_key(raw: &str) -> Result<IdempotencyKey, Problem> {
    let key = IdempotencyKey::new(&percent_decode_name(raw)?);
    key.map_err(|error| Problem::new(ProblemKind::MalformedName, format!("the idempotency key: {error}")))
}

/// A reason is for the reader of the audit log, who must see all of it.
fn reason(text: &str) -> Result<(), Problem> {
    match text.trim().len() {
        1..=1024 => match text.chars().find(|character| is_hidden(*character)) {
            None => Ok(()),
            Some(hidden) => {
                let detail = format!("`reason` contains {hidden:?}, which readers of the audit log would not see");
                Err(Problem::new(ProblemKind::MalformedBody, detail))
            }
        },
        _ => Err(Problem::new(ProblemKind::MalformedBody, "`reason` says why, in 1 to 1024 bytes; it is audited")),
    }
}

/// Reads a body, or says what it should be.
pub(super) fn json<T: DeserializeOwned>(body: &Bytes, example: &str) -> Result<T, Problem> {
    let mut input = serde_json::Deserializer::from_slice(body);
    object(&mut input)
        .and_then(|read| input.end().map(|()| read))
        .map_err(|error| Problem::new(ProblemKind::MalformedBody, format!("{error}; this call takes {example}")))
}

fn empty(body: &Bytes) -> Result<(), Problem> {
    match body.trim_ascii() {
        b"" | b"{}" => Ok(()),
        _ => Err(Problem::new(ProblemKind::MalformedBody, "this call takes no body, or {}")),
    }
}
