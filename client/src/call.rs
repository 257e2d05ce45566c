//! Arguments and results of calls.

use bytes::Bytes;
use fencepost_core::{Holder, IdempotencyKey, Issuer, Presented, Token};

/// The token, and who presents it.
pub type Credentials = Presented;

/// A condition on the current version of a key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Precondition {
    /// No condition.
    #[default]
    Always,
    /// The key has no value.
    Absent,
    /// The key has this version, as it came in an ETag.
    Version(String),
}

/// What goes with a write: token, condition, idempotency key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use = "options do nothing until they are given to a call"]
pub struct WriteOptions {
    pub(crate) credentials: Option<Credentials>,
    pub(crate) precondition: Precondition,
    pub(crate) idempotency_key: Option<IdempotencyKey>,
}

impl WriteOptions {
    /// Without a token, condition or idempotency key.
    pub fn new() -> WriteOptions {
        WriteOptions::default()
    }

    /// The token, and who presents it.
    pub fn credentials(self, credentials: impl Into<Option<Credentials>>) -> WriteOptions {
        WriteOptions { credentials: credentials.into(), ..self }
    }

    /// Writes only if this holds.
    pub fn precondition(self, precondition: Precondition) -> WriteOptions {
        WriteOptions { precondition, ..self }
    }

    /// Names the request over all its retries, so that it is applied at most once.
    pub fn idempotency_key(self, key: impl Into<Option<IdempotencyKey>>) -> WriteOptions {
        WriteOptions { idempotency_key: key.into(), ..self }
    }
}

/// A write that is durable.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Written {
    /// The new version; `None` for a delete.
    pub etag: Option<String>,
    /// The fence now.
    pub fence: Option<Token>,
    /// In observe mode: why it would have been refused.
    pub observed: Option<String>,
    /// An earlier request with the same idempotency key did it.
    pub replayed: bool,
}

/// A value that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReadValue {
    /// The value itself.
    pub body: Bytes,
    /// The version of the value.
    pub etag: String,
    /// The media type that it was written with.
    pub content_type: String,
    /// The token of the write that made it.
    pub token: Option<Token>,
    /// The fence now.
    pub fence: Option<Token>,
    /// The token given is above the fence: claim before you rely on what was read.
    pub unclaimed: bool,
}

/// Headers of a presented token.
pub(crate) fn credential_headers(credentials: &Credentials) -> Vec<(&'static str, String)> {
    use fencepost_core::wire::header;
    let label = |name, text: Option<&str>| text.map(|text| (name, text.to_owned()));
    [
        Some((header::FENCING_TOKEN, credentials.token.to_string())),
        label(header::FENCING_HOLDER, credentials.holder.as_ref().map(Holder::as_str)),
        label(header::FENCING_ISSUER, credentials.issuer.as_ref().map(Issuer::as_str)),
    ]
    .into_iter()
    .flatten()
    .collect()
}
