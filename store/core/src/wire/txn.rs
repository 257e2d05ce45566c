//! `POST /v1/txn`: tokens, conditions and operations, all or nothing.

use std::fmt;

use serde::de::{self, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{Integer, TextOrBase64, object};
use crate::{Holder, Issuer, Key, Presented, Resource, Token};

/// The most tokens, the most conditions and the most operations of one transaction.
pub const MAX_TXN_PARTS: usize = 128;

/// Body of `POST /v1/txn`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TxnRequest {
    /// By resource.
    #[serde(default, deserialize_with = "each_once", serialize_with = "as_map")]
    pub tokens: Vec<(Resource, TokenSpec)>,
    /// All must hold before anything is done.
    #[serde(default, rename = "if")]
    pub conditions: Vec<ConditionSpec>,
    /// Done in one commit, or not at all.
    #[serde(default, rename = "then")]
    pub operations: Vec<OperationSpec>,
}

/// A token, alone or with who presents it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "TokenForm")]
pub struct TokenSpec {
    /// The token.
    pub token: Token,
    /// Who presents it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holder: Option<Holder>,
    /// Which lock service numbered it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub issuer: Option<Issuer>,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "a token is text such as \"34\", or {\"token\": \"34\", \"holder\": …, \"issuer\": …}")]
enum TokenForm {
    Token(Token),
    #[serde(deserialize_with = "object")]
    Full(FullToken),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FullToken {
    token: Token,
    #[serde(default)]
    holder: Option<Holder>,
    #[serde(default)]
    issuer: Option<Issuer>,
}

impl From<TokenForm> for TokenSpec {
    fn from(form: TokenForm) -> TokenSpec {
        match form {
            TokenForm::Token(token) => TokenSpec { token, holder: None, issuer: None },
            TokenForm::Full(FullToken { token, holder, issuer }) => TokenSpec { token, holder, issuer },
        }
    }
}

impl From<TokenSpec> for Presented {
    fn from(spec: TokenSpec) -> Presented {
        let TokenSpec { token, holder, issuer } = spec;
        Presented { token, holder, issuer }
    }
}

impl From<Presented> for TokenSpec {
    fn from(presented: Presented) -> TokenSpec {
        let Presented { token, holder, issuer } = presented;
        TokenSpec { token, holder, issuer }
    }
}

/// A condition on one key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(into = "ConditionForm")]
pub struct ConditionSpec {
    /// Which key.
    pub key: Key,
    /// What it must be.
    pub expected: Expected,
}

/// What a condition asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expected {
    /// It has a value.
    Exists,
    /// It has none.
    Absent,
    /// Its version is this.
    Etag(String),
    /// Its value is exactly this.
    Equals(ValueSpec),
    /// Its value is a number, at least this one; no value counts as 0.
    AtLeast(Integer),
    /// Its value is a number, at most this one; no value counts as 0.
    AtMost(Integer),
}

/// A value to compare with: text, a number (its decimal text), or `{"base64": …}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "a value is text, a whole number, or {\"base64\": \"…\"}")]
pub enum ValueSpec {
    /// UTF-8.
    Text(String),
    /// Its decimal text.
    Integer(i64),
    /// `{"text": …}` or `{"base64": …}`.
    Tagged(TextOrBase64),
}

/// The members as they stand in the body; exactly one beside `key`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ConditionForm {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<Key>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    exists: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    absent: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    etag: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    equals: Option<ValueSpec>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    at_least: Option<Integer>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    at_most: Option<Integer>,
}

impl<'de> Deserialize<'de> for ConditionSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ConditionSpec, D::Error> {
        object::<ConditionForm, D>(deserializer)?.try_into().map_err(de::Error::custom)
    }
}

impl TryFrom<ConditionForm> for ConditionSpec {
    type Error = &'static str;

    fn try_from(form: ConditionForm) -> Result<ConditionSpec, &'static str> {
        let key = form.key.ok_or("a condition needs a `key`")?;
        if form.exists == Some(false) || form.absent == Some(false) {
            return Err("write `\"absent\": true` or `\"exists\": true`; `false` is not a condition");
        }
        let mut asked = [
            form.exists.map(|_| Expected::Exists),
            form.absent.map(|_| Expected::Absent),
            form.etag.map(Expected::Etag),
            form.equals.map(Expected::Equals),
            form.at_least.map(Expected::AtLeast),
            form.at_most.map(Expected::AtMost),
        ]
        .into_iter()
        .flatten();
        match (asked.next(), asked.next()) {
            (Some(expected), None) => Ok(ConditionSpec { key, expected }),
            _ => Err("a condition is a `key` and one of exists, absent, etag, equals, at_least, at_most"),
        }
    }
}

impl From<ConditionSpec> for ConditionForm {
    fn from(spec: ConditionSpec) -> ConditionForm {
        let mut form = ConditionForm { key: Some(spec.key), ..ConditionForm::default() };
        match spec.expected {
            Expected::Exists => form.exists = Some(true),
            Expected::Absent => form.absent = Some(true),
            Expected::Etag(etag) => form.etag = Some(etag),
            Expected::Equals(value) => form.equals = Some(value),
            Expected::AtLeast(number) => form.at_least = Some(number),
            Expected::AtMost(number) => form.at_most = Some(number),
        }
        form
    }
}

/// One operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(into = "OperationForm")]
pub enum OperationSpec {
    /// Write a value.
    Put {
        /// Which key.
        key: Key,
        /// The value.
        value: TextOrBase64,
        /// Its media type.
        content_type: Option<String>,
    },
    /// Remove a value; the fence stays.
    Delete {
        /// Which key.
        key: Key,
    },
    /// Add to a number; no value counts as 0.
    Add {
        /// Which key.
        key: Key,
        /// How much.
        by: Integer,
        /// The sum must not be below this.
        min: Option<Integer>,
        /// The sum must not be above this.
        max: Option<Integer>,
    },
    /// Read a value in the same instant.
    Get {
        /// Which key.
        key: Key,
    },
}

impl OperationSpec {
    /// Which key.
    pub fn key(&self) -> &Key {
        match self {
            OperationSpec::Put { key, .. }
            | OperationSpec::Delete { key }
            | OperationSpec::Add { key, .. }
            | OperationSpec::Get { key } => key,
        }
    }
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct OperationForm {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    put: Option<Key>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    delete: Option<Key>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    add: Option<Key>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    get: Option<Key>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    base64: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    content_type: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    by: Option<Integer>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    min: Option<Integer>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max: Option<Integer>,
}

impl<'de> Deserialize<'de> for OperationSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<OperationSpec, D::Error> {
        object::<OperationForm, D>(deserializer)?.try_into().map_err(de::Error::custom)
    }
}

impl TryFrom<OperationForm> for OperationSpec {
    type Error = &'static str;

    fn try_from(form: OperationForm) -> Result<OperationSpec, &'static str> {
        let OperationForm { put, delete, add, get, text, base64, content_type, by, min, max } = form;
        let value = match (text, base64) {
            (Some(text), None) => Some(TextOrBase64::Text(text)),
            (None, Some(base64)) => Some(TextOrBase64::Base64(base64)),
            (None, None) => None,
            (Some(_), Some(_)) => return Err("a value is `text` or `base64`, not both"),
        };
        let numbers = (by, min, max) != (None, None, None);
        match (put, delete, add, get) {
            (Some(_), None, None, None) if numbers => Err("`put` takes no `by`, `min` or `max`"),
            (Some(key), None, None, None) => {
                let value = value.ok_or("`put` needs a value: `text` or `base64`")?;
                Ok(OperationSpec::Put { key, value, content_type })
            }
            (None, None, Some(key), None) if value.is_none() && content_type.is_none() => {
                let by = by.ok_or("`add` needs `by`, the number to add")?;
                if min > max && max.is_some() {
                    return Err("`min` is above `max`, so no sum is possible");
                }
                Ok(OperationSpec::Add { key, by, min, max })
            }
            (None, None, Some(_), None) => Err("`add` takes `by`, `min` and `max`, no value"),
            (None, Some(key), None, None) if value.is_none() && content_type.is_none() && !numbers => {
                Ok(OperationSpec::Delete { key })
            }
            (None, None, None, Some(key)) if value.is_none() && content_type.is_none() && !numbers => {
                Ok(OperationSpec::Get { key })
            }
            (None, Some(_), None, None) | (None, None, None, Some(_)) => {
                Err("`delete` and `get` take nothing beside the key")
            }
            _ => Err("an operation is one of put, delete, add, get, with its key"),
        }
    }
}

impl From<OperationSpec> for OperationForm {
    fn from(spec: OperationSpec) -> OperationForm {
        let none = OperationForm::default();
        match spec {
            OperationSpec::Put { key, value, content_type } => {
                let (text, base64) = match value {
                    TextOrBase64::Text(text) => (Some(text), None),
                    TextOrBase64::Base64(base64) => (None, Some(base64)),
                };
                OperationForm { put: Some(key), text, base64, content_type, ..none }
            }
            OperationSpec::Delete { key } => OperationForm { delete: Some(key), ..none },
            OperationSpec::Add { key, by, min, max } => {
                OperationForm { add: Some(key), by: Some(by), min, max, ..none }
            }
            OperationSpec::Get { key } => OperationForm { get: Some(key), ..none },
        }
    }
}

/// Answer of `POST /v1/txn`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TxnAnswer {
    /// One entry per operation, in their order.
    pub results: Vec<TxnResult>,
    /// In a replayed answer about several resources: their fences now. What else it says is as of its time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fences_now: Vec<FenceNow>,
}

/// A resource's fence at the time of a replay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FenceNow {
    /// The resource.
    pub resource: Resource,
    /// Its fence, if it has one.
    #[cfg_attr(feature = "openapi", schema(required = true))]
    pub fence: Option<Token>,
}

/// What an operation left behind, or found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TxnResult {
    /// The key.
    pub key: Key,
    /// Its version now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etag: Option<String>,
    /// True if the key has no value now.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub absent: bool,
    /// Of `add`: the sum, as text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Integer>,
    /// Of `get`: what was read.
    #[serde(default, flatten, skip_serializing_if = "Option::is_none")]
    pub read: Option<TxnValue>,
}

/// A value that `get` read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TxnValue {
    /// The token of the write that made it.
    pub token: Option<Token>,
    /// Its media type.
    pub content_type: Option<String>,
    /// The value.
    #[serde(flatten)]
    pub value: TextOrBase64,
}

/// Two tokens for one resource are two answers to one question.
fn each_once<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<(Resource, TokenSpec)>, D::Error> {
    struct Tokens;

    impl<'de> Visitor<'de> for Tokens {
        type Value = Vec<(Resource, TokenSpec)>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object with a token for each resource")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut tokens: Vec<(Resource, TokenSpec)> = Vec::new();
            while let Some((resource, token)) = map.next_entry::<Resource, TokenSpec>()? {
                if tokens.iter().any(|(given, _)| *given == resource) {
                    return Err(de::Error::custom(format!("`{resource}` has more than one token")));
                }
                if tokens.len() == MAX_TXN_PARTS {
                    return Err(de::Error::custom(format!("a transaction takes at most {MAX_TXN_PARTS} tokens")));
                }
                tokens.push((resource, token));
            }
            Ok(tokens)
        }
    }

    deserializer.deserialize_map(Tokens)
}

fn as_map<S: Serializer>(tokens: &[(Resource, TokenSpec)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(tokens.iter().map(|(resource, token)| (resource, token)))
}

#[cfg(test)]
#[path = "txn_tests.rs"]
mod tests;
