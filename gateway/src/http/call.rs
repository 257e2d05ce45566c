//! Decoding: from a request to a call, or to the reason why it is none.

use fencepost_core::wire::{ClaimRequest, MAX_CLAIM_KEYS};
use fencepost_core::{Key, Presented, ProblemKind, Resource};
use fencepost_store::{ClaimKeys, Delete, Put};
use hyper::http::request::Parts;

use bytes::Bytes;

use super::headers::{self, Tags};
use super::problem::Problem;
use super::query::ListQuery;
use super::routes::{Endpoint, Route};
use crate::config::Limits;

/// What is asked for.
pub(super) enum Call {
    Put(Put),
    Get(Get),
    Delete(Delete),
    ListKeys(ListQuery),
    Claim(ClaimKeys),
    Fence(Resource),
    ListFences(ListQuery),
    Healthz,
    Readyz,
    Metrics,
}

/// A read of a value.
pub(super) struct Get {
    pub(super) key: Key,
    pub(super) presented: Option<Presented>,
    pub(super) if_match: Option<Tags>,
    pub(super) if_none_match: Option<Tags>,
}

/// Decodes a request whose body has arrived.
pub(super) fn decode(route: &Route, name: &str, head: &Parts, body: &Bytes, limits: &Limits) -> Result<Call, Problem> {
    let query = head.uri.query();
    match route.endpoint {
        Endpoint::ListKeys => return ListQuery::parse(query).map(Call::ListKeys),
        Endpoint::ListFences => return ListQuery::parse(query).map(Call::ListFences),
        _ => ListQuery::none(query)?,
    }
    Ok(match route.endpoint {
        Endpoint::PutValue => {
            headers::none_unsupported(&head.headers)?;
            Call::Put(Put {
                key: Key::from_raw_path(name)?,
                presented: headers::presented(&head.headers)?,
                condition: headers::write_condition(&head.headers)?,
                content_type: headers::content_type(&head.headers)?,
                body: body.clone(),
            })
        }
        Endpoint::DeleteValue => {
            headers::none_unsupported(&head.headers)?;
            Call::Delete(Delete {
                key: Key::from_raw_path(name)?,
                presented: headers::presented(&head.headers)?,
                condition: headers::write_condition(&head.headers)?,
            })
        }
        Endpoint::GetValue => {
            let (if_match, if_none_match) = headers::read_conditions(&head.headers)?;
            let presented = headers::presented_for_read(&head.headers)?;
            Call::Get(Get { key: Key::from_raw_path(name)?, presented, if_match, if_none_match })
        }
        Endpoint::Claim => Call::Claim(claim(name, head, body, limits)?),
        Endpoint::GetFence => Call::Fence(Resource::from_raw_path(name)?),
        Endpoint::Healthz => Call::Healthz,
        Endpoint::Readyz => Call::Readyz,
        Endpoint::Metrics => Call::Metrics,
        Endpoint::ListKeys | Endpoint::ListFences => unreachable!("returned above"),
    })
}

fn claim(name: &str, head: &Parts, body: &Bytes, limits: &Limits) -> Result<ClaimKeys, Problem> {
    headers::none_unsupported(&head.headers)?;
    let resource = Resource::from_raw_path(name)?;
    let presented = headers::presented(&head.headers)?;
    let request = match body.as_ref() {
        [] => ClaimRequest::default(),
        json => serde_json::from_slice(json).map_err(|error| {
            Problem::new(ProblemKind::MalformedBody, format!("{error}; a claim takes {{\"keys\": [\"…\"]}} or no body"))
        })?,
    };
    let keys = request.keys.unwrap_or_else(|| vec![resource.as_key()]);
    if keys.len() > MAX_CLAIM_KEYS {
        let detail = format!("a claim reads at most {MAX_CLAIM_KEYS} keys, and {} were asked for", keys.len());
        return Err(Problem::new(ProblemKind::TooLarge, detail));
    }
    Ok(ClaimKeys { resource, presented, keys, max_bytes: limits.body })
}
