//! `/v1/outcomes`: what became of a request with an idempotency key.

use serde::{Deserialize, Serialize};

use super::TxnResult;
use crate::{IdempotencyKey, Token};

/// What is known. Only `applied` and `failed` are final.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum OutcomeState {
    /// It was applied.
    Applied,
    /// It was not, and never will be.
    Failed,
    /// Nothing is recorded: it may never have arrived, may have been refused, or may still be on its way.
    NotRecorded,
}

/// Answer of `GET /v1/outcomes/{key}` and `POST /v1/outcomes/{key}/abandon`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct OutcomeAnswer {
    /// The key.
    pub key: IdempotencyKey,
    /// What became of it.
    pub outcome: OutcomeState,
    /// Of `failed`: the word of the problem, such as `condition-failed` or `abandoned`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Of `applied`: what the operations left behind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub results: Option<Vec<TxnResult>>,
    /// Of an applied lock acquire: the token. (To get the lease, send the request again.)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<Token>,
    /// When it was recorded, RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recorded_at: Option<String>,
}
