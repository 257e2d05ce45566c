//! A request whose body has arrived, and what most calls read from it.

use bytes::Bytes;
use fencepost_core::wire::object;
use fencepost_core::{IdempotencyKey, ProblemKind, percent_decode_name};
use fencepost_store::Once;
use hyper::HeaderMap;
use hyper::http::request::Parts;
use serde::de::DeserializeOwned;

use crate::config::Limits;
use crate::http::headers;
use crate::http::permit::Identity;
use crate::http::problem::Problem;
use crate::peer::PeerAddress;

/// A request whose body has arrived.
pub(in crate::http) struct Request<'r> {
    /// The raw name in its path.
    pub(in crate::http) name: &'r str,
    pub(in crate::http) head: &'r Parts,
    pub(in crate::http) body: Bytes,
    pub(in crate::http) identity: &'r Identity,
    pub(in crate::http) peer: PeerAddress,
    pub(in crate::http) limits: &'r Limits,
}

impl<'r> Request<'r> {
    pub(super) fn headers(&self) -> &'r HeaderMap {
        &self.head.headers
    }

    pub(super) fn query(&self) -> Option<&'r str> {
        self.head.uri.query()
    }

    /// Reads the body as JSON. The problem of an unreadable body shows the example.
    pub(super) fn json<T: DeserializeOwned>(&self, example: &str) -> Result<T, Problem> {
        let mut input = serde_json::Deserializer::from_slice(&self.body);
        object(&mut input)
            .and_then(|read| input.end().map(|()| read))
            .map_err(|error| Problem::new(ProblemKind::MalformedBody, format!("{error}; this call takes {example}")))
    }

    /// Refuses a body that is neither empty nor `{}`.
    pub(super) fn empty(&self) -> Result<(), Problem> {
        match self.body.trim_ascii() {
            b"" | b"{}" => Ok(()),
            _ => Err(Problem::new(ProblemKind::MalformedBody, "this call takes no body, or {}")),
        }
    }

    /// The idempotency key with the request's fingerprint, if there is one.
    pub(super) fn once(&self, fingerprint: impl FnOnce() -> [u8; 32]) -> Result<Option<Once>, Problem> {
        let key = headers::idempotency_key(self.headers())?;
        Ok(key.map(|key| Once { caller: self.identity.caller().to_owned(), key, fingerprint: fingerprint() }))
    }

    /// The idempotency key that its path names.
    pub(super) fn outcome_key(&self) -> Result<IdempotencyKey, Problem> {
        let key = IdempotencyKey::new(&percent_decode_name(self.name)?);
        key.map_err(|error| Problem::new(ProblemKind::MalformedName, format!("the idempotency key: {error}")))
    }
}
