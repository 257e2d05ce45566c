//! `/v1/locks`: the built-in lock service.

use serde::{Deserialize, Deserializer, Serialize};

use crate::{Holder, Issuer, Resource, Token};

/// The shortest lease.
pub const MIN_TTL_MS: u64 = 100;
/// The longest lease: a day.
pub const MAX_TTL_MS: u64 = 86_400_000;
/// The longest wait for a lock: ten minutes.
pub const MAX_WAIT_MS: u64 = 600_000;

/// Body of `POST /v1/locks/{name}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct AcquireRequest {
    /// Who wants it: `name#nonce`, unique per acquisition.
    pub holder: Holder,
    /// How long the lease lasts unless it is renewed.
    #[cfg_attr(feature = "openapi", schema(schema_with = super::schema::ttl_ms))]
    pub ttl_ms: u64,
    /// How long to wait for it; not at all if absent.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(schema_with = super::schema::wait_ms))]
    pub wait_ms: u64,
}

/// Body of `POST /v1/locks/{name}/renew`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct RenewRequest {
    /// The lease, as it was granted; absent if the header `Fencing-Lease` names it.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(required = false, schema_with = super::schema::lease))]
    pub lease: Option<String>,
    /// How long it lasts from now on.
    #[cfg_attr(feature = "openapi", schema(schema_with = super::schema::ttl_ms))]
    pub ttl_ms: u64,
}

/// What may be absent, but not `null`.
fn given<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    String::deserialize(deserializer).map(Some)
}

/// A lease that was granted or renewed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LeaseAnswer {
    /// The lock, which is also the resource.
    pub name: Resource,
    /// Needed to renew and release; known to the holder only.
    #[cfg_attr(feature = "openapi", schema(schema_with = super::schema::lease))]
    pub lease: String,
    /// The fencing token of this grant.
    pub token: Token,
    /// Who holds it.
    #[serde(deserialize_with = "crate::label::in_answer")]
    pub holder: Holder,
    /// To be sent with the token: the lock service that numbered it.
    #[serde(deserialize_with = "crate::label::in_answer")]
    pub issuer: Issuer,
    /// How long it lasts unless it is renewed.
    #[cfg_attr(feature = "openapi", schema(schema_with = super::schema::ttl_ms))]
    pub ttl_ms: u64,
}

/// A lock that is held, as everybody may see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LockView {
    /// The lock.
    pub name: Resource,
    /// The fencing token of the grant.
    pub token: Token,
    /// Who holds it.
    #[serde(deserialize_with = "crate::label::in_answer")]
    pub holder: Holder,
    /// How long it lasts unless it is renewed.
    #[cfg_attr(feature = "openapi", schema(schema_with = super::schema::ttl_ms))]
    pub ttl_ms: u64,
    /// How long it still lasts at the most, unless it is renewed; 0 if it may be taken over.
    pub remaining_ms: u64,
    /// How many wait for it at this gateway.
    pub waiting: usize,
}

/// Answer of `GET /v1/locks`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LockPage {
    /// In order of name.
    pub locks: Vec<LockView>,
    /// Pass as `after` for the next page; absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// Answer of `POST /v1/admin/locks/{name}/force-release`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ForceReleasedAnswer {
    /// The lock.
    pub name: Resource,
    /// Who held it.
    #[serde(deserialize_with = "crate::label::in_answer")]
    pub holder: Holder,
    /// The token that is refused from now on.
    pub token: Token,
    /// The fence now, above that token.
    #[cfg_attr(feature = "openapi", schema(required = true))]
    pub fence: Option<Token>,
}
