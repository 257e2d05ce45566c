//! What the calls of the lock service share: leases in requests, and a lease as its holder sees it.

use std::time::Duration;

use fencepost_core::wire::{LeaseAnswer, MAX_TTL_MS, MIN_TTL_MS, header};
use fencepost_core::{ProblemKind, Resource};
use fencepost_store::Grant;
use fencepost_store::record::LeaseId;
use hyper::HeaderMap;

use crate::http::answer::{Answer, json};
use crate::http::headers;
use crate::http::problem::Problem;

/// Refuses headers that the lock service would ignore.
pub(super) fn no_token_nor_conditions(headers: &HeaderMap) -> Result<(), Problem> {
    headers::no_token(headers, "the lock service numbers its tokens itself, and knows a holder by its lease")?;
    headers::no_conditions(headers, "a lock has no conditions but who holds it")
}

/// The lease from the header or from another part of the request. Two different leases are refused.
pub(super) fn one_lease(header: Option<LeaseId>, elsewhere: Option<LeaseId>) -> Result<Option<LeaseId>, Problem> {
    match (header, elsewhere) {
        (Some(header), Some(elsewhere)) if header != elsewhere => {
            Err(Problem::header(header::FENCING_LEASE, "it names another lease than the rest of the request"))
        }
        (header, elsewhere) => Ok(header.or(elsewhere)),
    }
}

/// How long a lease lasts, within the limits.
pub(super) fn ttl(ttl_ms: u64) -> Result<Duration, Problem> {
    match ttl_ms {
        MIN_TTL_MS..=MAX_TTL_MS => Ok(Duration::from_millis(ttl_ms)),
        _ => {
            let detail = format!("ttl_ms is {ttl_ms}; a lease lasts from {MIN_TTL_MS} to {MAX_TTL_MS} ms");
            Err(Problem::new(ProblemKind::MalformedBody, detail))
        }
    }
}

/// A lease as its holder sees it: acquired (201) or renewed (200).
pub(super) fn leased(status: u16, resource: Resource, grant: Grant) -> Answer {
    let Grant { lease, token, holder, issuer, ttl_ms, observed, .. } = grant;
    let answer = LeaseAnswer { name: resource, lease: lease.to_string(), token, holder, issuer, ttl_ms };
    Answer::json_status(status, json(&answer)).observed(observed.as_slice())
}
