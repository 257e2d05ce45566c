//! What calls carry and bring back.

use bytes::Bytes;
use fencepost_core::{Holder, IdempotencyKey, Issuer, Presented, Token};

/// The token, and who presents it.
pub type Credentials = Presented;

/// A condition on the current version of a key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Precondition {
    /// None.
    #[default]
    Always,
    /// The key has no value.
    Absent,
    /// The key has this version, as it came in an ETag.
    Version(String),
}

/// What goes with a write.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WriteOptions {
    /// The token, and who presents it.
    pub credentials: Option<Credentials>,
    /// Only if this holds.
    pub precondition: Precondition,
    /// Makes a retry safe.
    pub once: Option<IdempotencyKey>,
}

/// A write that is durable.
#[derive(Clone, Debug, PartialEq, Eq)]
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
pub struct ReadValue {
    /// The bytes.
    pub body: Bytes,
    /// Their version.
    pub etag: String,
    /// Their media type.
    pub content_type: String,
    /// The token of the write that made them.
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
