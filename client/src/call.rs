//! Arguments and results of calls.

use bytes::Bytes;
use fencepost_core::{Holder, IdempotencyKey, Issuer, Presented, Token};

/// A token, its holder and its issuer.
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
    /// The key has this version, as returned in an ETag.
    Version(String),
}

/// Options of a write: token, condition, idempotency key.
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

    /// The token to present, with its holder and issuer.
    pub fn credentials(self, credentials: impl Into<Option<Credentials>>) -> WriteOptions {
        WriteOptions { credentials: credentials.into(), ..self }
    }

    /// Writes only if this condition holds.
    pub fn precondition(self, precondition: Precondition) -> WriteOptions {
        WriteOptions { precondition, ..self }
    }

    /// Identifies the request across retries, so that it is applied at most once.
    pub fn idempotency_key(self, key: impl Into<Option<IdempotencyKey>>) -> WriteOptions {
        WriteOptions { idempotency_key: key.into(), ..self }
    }
}

/// The result of a write that is durable.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Written {
    /// The new version; `None` for a delete.
    pub etag: Option<String>,
    /// The fence after the write.
    pub fence: Option<Token>,
    /// In observe mode: why the write would have been refused.
    pub observed: Option<String>,
    /// An earlier request with the same idempotency key made this write.
    pub replayed: bool,
}

/// A value that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReadValue {
    /// The bytes of the value.
    pub body: Bytes,
    /// The version of the value.
    pub etag: String,
    /// The media type that the value was written with.
    pub content_type: String,
    /// The token of the write that stored it.
    pub token: Option<Token>,
    /// The current fence.
    pub fence: Option<Token>,
    /// The presented token is above the fence: claim it before relying on this value.
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
