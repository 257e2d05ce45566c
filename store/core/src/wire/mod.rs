//! What travels: header names and JSON bodies of `/v1`.

mod admin;
mod integer;
mod lock;
mod object;
mod objects;
mod outcome;
mod s3;
#[cfg(feature = "openapi")]
mod schema;
mod txn;

pub use admin::{
    ReloadAnswer, RotateAllRequest, RotatePrefixAnswer, RotatePrefixRequest, RotateRequest, RotatedAnswer,
    RotatedEngine,
};
pub use integer::Integer;
pub use lock::{
    AcquireRequest, ForceReleasedAnswer, LeaseAnswer, LockPage, LockView, MAX_TTL_MS, MAX_WAIT_MS, MIN_TTL_MS,
    RenewRequest,
};
pub use object::object;
pub use objects::{
    ObjectDifference, ObjectsCheckAnswer, ObjectsCheckRequest, ObjectsCollectAnswer, ObjectsCollectRequest,
};
pub use outcome::{OutcomeAnswer, OutcomeState};
pub use s3::{S3CredentialsAnswer, S3CredentialsRequest};
pub use txn::{
    ConditionSpec, Expected, FenceNow, MAX_TXN_PARTS, OperationSpec, TokenSpec, TxnAnswer, TxnRequest, TxnResult,
    TxnValue, ValueSpec,
};

use serde::{Deserialize, Serialize};

use crate::json::Object;
use crate::{FenceState, Holder, Issuer, Key, Resource, Token};

/// Header names, in lower case as they are compared.
pub mod header {
    /// Request: the token presented. Answer: the token of the write that made this value.
    pub const FENCING_TOKEN: &str = "fencing-token";
    /// Request: who presents the token.
    pub const FENCING_HOLDER: &str = "fencing-holder";
    /// Request: which lock service numbered the token.
    pub const FENCING_ISSUER: &str = "fencing-issuer";
    /// Request: the lease to renew or release. A secret: URLs end up in logs, headers seldom do.
    pub const FENCING_LEASE: &str = "fencing-lease";
    /// Answer: the resource's fence now.
    pub const FENCE: &str = "fence";
    /// Replayed answer: the resource's fence now. `fence` is that of the first answer.
    pub const FENCE_NOW: &str = "fence-now";
    /// Answer to a checked read: the token is above the fence, so nothing protects what was read.
    pub const FENCING_UNCLAIMED: &str = "fencing-unclaimed";
    /// Answer in observe mode: the reason for which this would have been refused.
    pub const FENCING_OBSERVED: &str = "fencing-observed";
    /// Request: makes a retry safe.
    pub const IDEMPOTENCY_KEY: &str = "idempotency-key";
    /// Answer: this is the recorded answer of an earlier request with the same key.
    pub const IDEMPOTENT_REPLAYED: &str = "idempotent-replayed";
    /// Answer: the request's id, also in the log.
    pub const REQUEST_ID: &str = "request-id";
}

/// The media type of error answers.
pub const PROBLEM_JSON: &str = "application/problem+json";

/// The most keys one claim may ask for.
pub const MAX_CLAIM_KEYS: usize = 64;

/// The most entries one page of a list holds.
pub const MAX_PAGE: usize = 1000;

/// Body of `POST /v1/claim/{resource}`; may be left out.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ClaimRequest {
    /// The keys to read in the same instant; the key named like the resource if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(schema_with = schema::claim_keys))]
    pub keys: Option<Vec<Key>>,
}

/// A fence as it is shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FenceView {
    /// The highest token seen.
    pub token: Token,
    /// Who presented it.
    #[serde(default, deserialize_with = "crate::label::maybe_in_answer")]
    #[cfg_attr(feature = "openapi", schema(required = true))]
    pub holder: Option<Holder>,
    /// Which lock service numbers this resource.
    #[serde(default, deserialize_with = "crate::label::maybe_in_answer")]
    #[cfg_attr(feature = "openapi", schema(required = true))]
    pub issuer: Option<Issuer>,
    /// When it was first seen, RFC 3339.
    #[cfg_attr(feature = "openapi", schema(required = true))]
    pub raised_at: Option<String>,
}

impl FenceView {
    /// The fence of a state, if it has one.
    pub fn of(state: &FenceState) -> Option<FenceView> {
        state.token().map(|token| FenceView {
            token,
            holder: state.holder.clone(),
            issuer: state.issuer.clone(),
            raised_at: state.raised_at.map(|at| at.to_string()),
        })
    }
}

/// Answer of `POST /v1/claim/{resource}`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ClaimAnswer {
    /// The resource claimed.
    pub resource: Resource,
    /// Its fence. Absent only in observe mode.
    #[cfg_attr(feature = "openapi", schema(required = true))]
    pub fence: Option<FenceView>,
    /// The values asked for, in that order.
    pub values: Vec<ClaimedValue>,
}

impl ClaimAnswer {
    /// The answer in JSON, as `serde_json` writes it, in a fraction of the time for a large text.
    pub fn to_json(&self) -> Vec<u8> {
        let mut answer = Object::with_capacity(512);
        answer.text("resource", Some(self.resource.as_str()));
        answer.value("fence", &self.fence);
        answer.list("values", self.values.iter().map(ClaimedValue::to_object));
        answer.end()
    }
}

/// A value in a claim's answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ClaimedValue {
    /// The key has a value.
    Present {
        /// The key.
        key: Key,
        /// Its version.
        etag: String,
        /// The token of the write that made it.
        token: Option<Token>,
        /// Its media type.
        content_type: Option<String>,
        /// The value.
        #[serde(flatten)]
        value: TextOrBase64,
    },
    /// The key has none.
    Absent {
        /// The key.
        key: Key,
        /// Always true.
        absent: bool,
    },
}

impl ClaimedValue {
    fn to_object(&self) -> Object {
        match self {
            ClaimedValue::Present { key, etag, token, content_type, value } => {
                let (name, text) = match value {
                    TextOrBase64::Text(text) => ("text", text),
                    TextOrBase64::Base64(text) => ("base64", text),
                };
                let mut present = Object::with_capacity(128 + text.len());
                present.text("key", Some(key.as_str()));
                present.text("etag", Some(etag));
                present.value("token", token);
                present.value("content_type", content_type);
                present.text(name, Some(text));
                present
            }
            ClaimedValue::Absent { key, absent: is_absent } => {
                let mut absent = Object::with_capacity(128);
                absent.text("key", Some(key.as_str()));
                absent.value("absent", is_absent);
                absent
            }
        }
    }
}

/// Bytes in JSON: as text when they are UTF-8, else in base64.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TextOrBase64 {
    /// UTF-8.
    Text(String),
    /// Standard alphabet, padded.
    Base64(String),
}

/// Answer of `GET /v1/fences/{resource}`, and an entry of the list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FenceAnswer {
    /// The resource.
    pub resource: Resource,
    /// The generation to present.
    #[cfg_attr(feature = "openapi", schema(schema_with = schema::generation))]
    pub generation: u32,
    /// Its fence; `null` if no token has been seen in this generation.
    #[cfg_attr(feature = "openapi", schema(required = true))]
    pub fence: Option<FenceView>,
}

/// Answer of `GET /v1/fences`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FencePage {
    /// In order of name.
    pub fences: Vec<FenceAnswer>,
    /// Pass as `after` for the next page; absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// An entry of `GET /v1/kv`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct KeyEntry {
    /// The key.
    pub key: Key,
    /// Its version.
    pub etag: String,
    /// The token of the write that made it.
    #[cfg_attr(feature = "openapi", schema(required = true))]
    pub token: Option<Token>,
    /// Its media type.
    #[cfg_attr(feature = "openapi", schema(required = true))]
    pub content_type: Option<String>,
    /// Bytes.
    pub size: u64,
}

/// Answer of `GET /v1/kv`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct KeyPage {
    /// In order of name.
    pub keys: Vec<KeyEntry>,
    /// Pass as `after` for the next page; absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claim_bodies() {
        let claim: ClaimRequest = serde_json::from_str(r#"{"keys": ["orders/123/lines"]}"#).unwrap();
        assert_eq!(claim.keys.unwrap()[0].as_str(), "orders/123/lines");
        assert!(serde_json::from_str::<ClaimRequest>("{}").unwrap().keys.is_none());
        assert!(serde_json::from_str::<ClaimRequest>(r#"{"key": "x"}"#).is_err());
        assert!(serde_json::from_str::<ClaimRequest>(r#"{"keys": ["a//b"]}"#).is_err());
    }

    #[test]
    fn a_claim_is_answered_as_serde_would() {
        let fence = FenceView {
            token: "1:34".parse().unwrap(),
            holder: Some(Holder::new("ä \"b\"#1").unwrap()),
            issuer: None,
            raised_at: Some("2026-11-18T21:00:00Z".into()),
        };
        let present = |token: Option<&str>, content_type: Option<&str>, value| ClaimedValue::Present {
            key: Key::new("k/\u{2028}").unwrap(),
            etag: "\"7\"".into(),
            token: token.map(|token| token.parse().unwrap()),
            content_type: content_type.map(str::to_owned),
            value,
        };
        let values = vec![
            present(Some("34"), Some("text/plain; q=\"\\\""), TextOrBase64::Text("plain".into())),
            ClaimedValue::Absent { key: Key::new("b").unwrap(), absent: true },
            present(None, None, TextOrBase64::Text("\t\"\u{7f}\\\u{1f980}".repeat(20))),
            present(None, None, TextOrBase64::Base64("AAEC".into())),
        ];
        for (fence, values) in [(Some(fence), values), (None, Vec::new())] {
            let answer = ClaimAnswer { resource: Resource::new("r\"1").unwrap(), fence, values };
            let expected = serde_json::to_string(&answer).unwrap();
            assert_eq!(String::from_utf8(answer.to_json()).unwrap(), expected);
        }
    }

    #[test]
    fn claimed_values() {
        let present = ClaimedValue::Present {
            key: Key::new("k").unwrap(),
            etag: "7".into(),
            token: Some("34".parse().unwrap()),
            content_type: None,
            value: TextOrBase64::Text("v".into()),
        };
        let json = serde_json::to_string(&present).unwrap();
        assert_eq!(json, r#"{"key":"k","etag":"7","token":"34","content_type":null,"text":"v"}"#);
        assert!(matches!(serde_json::from_str(&json).unwrap(), ClaimedValue::Present { .. }));
        let absent = r#"{"key":"k","absent":true}"#;
        assert!(matches!(serde_json::from_str(absent).unwrap(), ClaimedValue::Absent { .. }));
    }
}
