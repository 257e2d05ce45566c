//! `/v1/admin/objects`: does the index agree with the storage, and what is left over?

use serde::{Deserialize, Serialize};

/// Body of `POST /v1/admin/objects/check`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ObjectsCheckRequest {
    /// Only this bucket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bucket: Option<String>,
    /// Go on after this name: `next` of the page before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// Believe the storage: take unknown and changed files into the index, and what is missing out of it. Fences stay.
    #[serde(default)]
    pub adopt: bool,
}

/// Answer of a check: one page of names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ObjectsCheckAnswer {
    /// How many names were looked at.
    pub looked_at: usize,
    /// Where index and storage differ.
    pub differences: Vec<ObjectDifference>,
    /// How many of them were repaired.
    pub mended: usize,
    /// Pass as `after` to go on; absent when all are done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// One difference.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ObjectDifference {
    /// `bucket/key`, or a path for what cannot be an object.
    pub name: String,
    /// `missing`, `unknown`, `changed`, `unshown` or `foreign`.
    pub what: String,
    /// In words.
    pub detail: String,
}

/// Body of `POST /v1/admin/objects/collect`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ObjectsCollectRequest {
    /// Only what belongs to nothing for so many seconds: uploads under way are younger.
    pub older_than_s: u64,
    /// Only count.
    #[serde(default)]
    pub dry_run: bool,
}

/// Answer of a collection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ObjectsCollectAnswer {
    /// How many were found.
    pub found: usize,
    /// How many were removed; none in a dry run.
    pub removed: usize,
    /// Unfinished uploads of holders that were fenced off, ended unless it was a dry run.
    #[serde(default)]
    pub uploads: usize,
}
