//! `/v1/admin`: the administrator's listener.

use serde::{Deserialize, Serialize};

use crate::{Issuer, Resource};

/// Body of `POST /v1/admin/fences/{resource}/rotate`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct RotateRequest {
    /// The generation that ends. If it is not the current one nothing happens, so a retry does not rotate twice.
    #[cfg_attr(feature = "openapi", schema(schema_with = super::schema::generation))]
    pub from: u32,
    /// Why; for the audit log.
    #[cfg_attr(feature = "openapi", schema(schema_with = super::schema::reason))]
    pub reason: String,
    /// The lock service that numbers the resource from now on; whichever comes first if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issuer: Option<Issuer>,
}

/// Body of `POST /v1/admin/rotate-prefix`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct RotatePrefixRequest {
    /// Resources whose names start with this, and that have a fence.
    pub prefix: String,
    /// Only those in this generation.
    #[cfg_attr(feature = "openapi", schema(schema_with = super::schema::generation))]
    pub from: u32,
    /// Why; for the audit log.
    #[cfg_attr(feature = "openapi", schema(schema_with = super::schema::reason))]
    pub reason: String,
    /// The lock service that numbers them from now on; whichever comes first if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issuer: Option<Issuer>,
    /// Go on after this name: `next` of the page before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

/// Body of `POST /v1/admin/rotate-all`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct RotateAllRequest {
    /// The base generation that ends. Where guards name engines, those whose base generation is lower are rotated, too.
    #[cfg_attr(feature = "openapi", schema(schema_with = super::schema::generation))]
    pub from: u32,
    /// Why; for the audit log.
    #[cfg_attr(feature = "openapi", schema(schema_with = super::schema::reason))]
    pub reason: String,
}

/// Answer of rotate and rotate-all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RotatedAnswer {
    /// The resource; absent for rotate-all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<Resource>,
    /// The generation to present from now on. Of rotate-all over several engines, the highest of them.
    #[cfg_attr(feature = "openapi", schema(schema_with = super::schema::generation))]
    pub generation: u32,
    /// Of rotate-all, if guards name engines: what was done on each engine.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub engines: Vec<RotatedEngine>,
}

/// What rotate-all did on one engine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RotatedEngine {
    /// The name of the engine; `default` is the one without a name.
    pub engine: String,
    /// The generation of its resources from now on, unless one has a higher one of its own.
    #[cfg_attr(feature = "openapi", schema(schema_with = super::schema::generation))]
    pub generation: u32,
    /// Whether it was rotated. Otherwise it was above `from` already.
    pub rotated: bool,
}

/// Answer of rotate-prefix: one page of fences.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RotatePrefixAnswer {
    /// How many fences were rotated.
    pub rotated: usize,
    /// How many were left, because they are in another generation.
    pub left: usize,
    /// Pass as `after` to go on; absent when all are done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// Answer of reload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ReloadAnswer {
    /// What changed, a line per guard.
    pub changed: Vec<String>,
    /// Settings in the file that differ from those in use, and take effect at the next start only.
    pub needs_restart: Vec<String>,
}
