//! The table of problems: slug, status, title. Every error answer is one of these.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::json::Object;
use crate::{Holder, Issuer, Key, Resource, Token};

/// Initial capacity that fits most problems as JSON.
const USUAL_BYTES: usize = 1024;

macro_rules! problems {
    ($($(#[$doc:meta])* $kind:ident $slug:literal $status:literal $title:literal,)*) => {
        /// A kind of problem, stable on the wire.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum ProblemKind {
            $($(#[$doc])* $kind,)*
        }

        impl ProblemKind {
            /// Every kind, in the order of the table.
            pub const ALL: &'static [ProblemKind] = &[$(ProblemKind::$kind,)*];

            /// The stable identifier of this kind.
            pub const fn slug(self) -> &'static str {
                match self { $(ProblemKind::$kind => $slug,)* }
            }

            /// The stable `type` of the problem document.
            pub const fn type_uri(self) -> &'static str {
                match self { $(ProblemKind::$kind => concat!("urn:fencepost:problem:", $slug),)* }
            }

            /// The HTTP status.
            pub const fn status(self) -> u16 {
                match self { $(ProblemKind::$kind => $status,)* }
            }

            /// A short, fixed title.
            pub const fn title(self) -> &'static str {
                match self { $(ProblemKind::$kind => $title,)* }
            }
        }
    };
}

problems! {
    /// The token cannot be read, or is 0.
    MalformedToken "malformed-token" 400 "The fencing token cannot be read",
    /// A key or resource name breaks the rules.
    MalformedName "malformed-name" 400 "The name cannot be used",
    /// A header is repeated, or its value cannot be read.
    MalformedHeader "malformed-header" 400 "A header cannot be read",
    /// A header that this version does not honour, and that is not safe to ignore.
    UnsupportedHeader "unsupported-header" 400 "A header is not supported",
    /// A query parameter is unknown, repeated or out of range.
    MalformedQuery "malformed-query" 400 "The query cannot be read",
    /// The body is not what the call takes.
    MalformedBody "malformed-body" 400 "The body cannot be read",
    /// The name is a key of another resource.
    NotAResource "not-a-resource" 400 "The name is not a resource",
    /// The keys of one request are kept on several engines.
    SeveralEngines "several-engines" 400 "The keys are kept on several engines",
    /// The call is allowed only on the administrator's listener.
    AdminOnly "admin-only" 403 "Only on the administrator's listener",
    /// A web page of another origin sent the request.
    CrossOrigin "cross-origin" 403 "Web pages of other origins may not use the gateway",
    /// No such route.
    NoSuchRoute "no-such-route" 404 "There is nothing at this path",
    /// The key has no value.
    Absent "absent" 404 "The key has no value",
    /// The lock is not held.
    NotHeld "not-held" 404 "The lock is not held",
    /// The gateway has no S3 front end.
    NoS3Face "no-s3-face" 404 "The gateway has no S3 front end",
    /// The route exists, but not for this method.
    MethodNotAllowed "method-not-allowed" 405 "The method is not allowed here",
    /// The request did not arrive in time.
    Timeout "timeout" 408 "The request did not arrive in time",
    /// A newer token has been seen.
    Stale "stale" 409 "Refused: a newer token has been seen",
    /// The guard allows one write per token, and it was applied.
    Spent "spent" 409 "Refused: the token has been used",
    /// The token belongs to another holder.
    Collision "collision" 409 "Refused: the token belongs to another holder",
    /// The token was numbered by another lock service.
    ForeignIssuer "foreign-issuer" 409 "Refused: the token comes from another lock service",
    /// The token's generation has been ended.
    RetiredGeneration "retired-generation" 409 "Refused: the token's generation has ended",
    /// The token's generation has not begun.
    UnknownGeneration "unknown-generation" 409 "Refused: the token's generation has not begun",
    /// The token is too far above the fence.
    Implausible "implausible" 409 "Refused: the token is implausibly high",
    /// There is no number above the fence.
    Exhausted "exhausted" 409 "Refused: there is no number left",
    /// The lease is no longer current.
    LeaseLost "lease-lost" 410 "The lease is lost",
    /// A condition of the request did not hold.
    ConditionFailed "condition-failed" 412 "A condition did not hold",
    /// The body is over the limit.
    TooLarge "too-large" 413 "The body is too large",
    /// The gateway does not answer for this host.
    WrongHost "wrong-host" 421 "The gateway does not answer for this host",
    /// The idempotency key belongs to another request.
    KeyReused "key-reused" 422 "The idempotency key was used for another request",
    /// The idempotency key was abandoned.
    Abandoned "abandoned" 422 "The idempotency key was abandoned",
    /// An addition is impossible.
    AddImpossible "add-impossible" 422 "The addition is impossible",
    /// The new configuration cannot be used; the old rules stay in force.
    ReloadRefused "reload-refused" 422 "The configuration cannot be used",
    /// Another holder has the lock, or others wait for it.
    LockHeld "lock-held" 423 "The lock is held, or promised to a waiter",
    /// No token was sent.
    MissingToken "missing-token" 428 "A fencing token is required",
    /// No issuer was sent.
    MissingIssuer "missing-issuer" 428 "An issuer is required",
    /// The resource has not been claimed under this token.
    Unclaimed "unclaimed" 428 "A claim is required first",
    /// The headers are over the limit.
    HeadersTooLarge "headers-too-large" 431 "The headers are too large",
    /// The commit's outcome is not known.
    OutcomeUnknown "outcome-unknown" 500 "The outcome of the write is unknown",
    /// Reading failed; nothing was changed.
    ReadFailed "read-failed" 500 "The data could not be read",
    /// The queue or a budget is full; certainly not applied.
    Overloaded "overloaded" 503 "The gateway is overloaded",
    /// The store cannot be read or written at the moment; certainly not applied.
    Unavailable "unavailable" 503 "The store cannot be used at the moment",
    /// Writes have stopped after a failed commit; certainly not applied.
    Poisoned "poisoned" 503 "Writes have stopped after a failed commit",
    /// The gateway is shutting down; certainly not applied.
    Draining "draining" 503 "The gateway is shutting down",
    /// Another process changed the stored guard mapping; certainly not applied.
    MappingChanged "mapping-changed" 503 "The guard mapping was changed",
    /// Free space is below the floor; refused before writing.
    NoSpace "no-space" 507 "Free space is below the floor",
}

/// An `application/problem+json` document (RFC 9457).
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ProblemDocument {
    /// The stable type.
    #[serde(rename = "type")]
    pub type_uri: Cow<'static, str>,
    /// The kind's title.
    pub title: Cow<'static, str>,
    /// The HTTP status.
    pub status: u16,
    /// What happened, this time.
    pub detail: String,
    /// What to do next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advice: Option<Cow<'static, str>>,
    /// The resource that refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<Resource>,
    /// The token that was presented.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub presented: Option<Token>,
    /// The resource's fence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence: Option<Token>,
    /// In place of `fence`, where another gateway may have raised the fence since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence_at_least: Option<Token>,
    /// The resource's generation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<u32>,
    /// Who raised the fence.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "crate::label::maybe_in_answer")]
    pub holder: Option<Holder>,
    /// The lock service the resource is bound to.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "crate::label::maybe_in_answer")]
    pub issuer: Option<Issuer>,
    /// When the fence was raised, RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raised_at: Option<String>,
    /// The current version, when a condition failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etag: Option<String>,
    /// Which condition failed, counted from 0: its place in `if`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub condition: Option<usize>,
    /// Which operation failed, counted from 0: its place in `then`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<usize>,
    /// The key that the failed condition or operation is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<Key>,
    /// Every resource that refused a transaction.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refusals: Vec<RefusedResource>,
    /// How long the lock's lease still lasts at the most, unless it is renewed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remaining_ms: Option<u64>,
    /// How many wait for the lock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<usize>,
    /// `unknown` when the write may or may not have been applied; `not-applied-by-this-request` when this request was
    /// rejected before the outcome of earlier ones with the same idempotency key was looked for; else `not-applied`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Cow<'static, str>>,
    /// The request's id, as in the `Request-Id` header.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
}

/// One resource's refusal of a transaction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RefusedResource {
    /// The resource.
    pub resource: Resource,
    /// The word of the refusal: `stale`, `missing-token`, …
    pub reason: String,
    /// What happened, this time.
    pub detail: String,
    /// The token that was presented.
    #[cfg_attr(feature = "openapi", schema(required = true))]
    pub presented: Option<Token>,
    /// The resource's fence.
    #[cfg_attr(feature = "openapi", schema(required = true))]
    pub fence: Option<Token>,
    /// The resource's generation.
    pub generation: u32,
    /// Who raised the fence.
    #[serde(default, deserialize_with = "crate::label::maybe_in_answer")]
    #[cfg_attr(feature = "openapi", schema(required = true))]
    pub holder: Option<Holder>,
}

impl ProblemDocument {
    /// A document with only its kind and detail.
    pub fn new(kind: ProblemKind, detail: impl Into<String>) -> ProblemDocument {
        ProblemDocument {
            type_uri: kind.type_uri().into(),
            title: kind.title().into(),
            status: kind.status(),
            detail: detail.into(),
            advice: None,
            resource: None,
            presented: None,
            fence: None,
            fence_at_least: None,
            generation: None,
            holder: None,
            issuer: None,
            raised_at: None,
            etag: None,
            condition: None,
            operation: None,
            key: None,
            refusals: Vec::new(),
            remaining_ms: None,
            waiting: None,
            outcome: None,
            request_id: None,
        }
    }

    /// The same JSON that `serde_json` writes, but faster.
    pub fn to_json(&self) -> Vec<u8> {
        // Destructured by name, so that a new field cannot be forgotten.
        let ProblemDocument {
            type_uri,
            title,
            status,
            detail,
            advice,
            resource,
            presented,
            fence,
            fence_at_least,
            generation,
            holder,
            issuer,
            raised_at,
            etag,
            condition,
            operation,
            key,
            refusals,
            remaining_ms,
            waiting,
            outcome,
            request_id,
        } = self;
        let count = |number: &Option<usize>| number.map(|number| number as u64);
        let mut json = Object::with_capacity(USUAL_BYTES);
        json.text("type", Some(type_uri));
        json.text("title", Some(title));
        json.number("status", Some((*status).into()));
        json.text("detail", Some(detail));
        json.text("advice", advice.as_deref());
        json.text("resource", resource.as_ref().map(Resource::as_str));
        json.text("presented", presented.map(Token::text).as_deref());
        json.text("fence", fence.map(Token::text).as_deref());
        json.text("fence_at_least", fence_at_least.map(Token::text).as_deref());
        json.number("generation", generation.map(u64::from));
        json.text("holder", holder.as_ref().map(Holder::as_str));
        json.text("issuer", issuer.as_ref().map(Issuer::as_str));
        json.text("raised_at", raised_at.as_deref());
        json.text("etag", etag.as_deref());
        json.number("condition", count(condition));
        json.number("operation", count(operation));
        json.text("key", key.as_ref().map(Key::as_str));
        if !refusals.is_empty() {
            json.value("refusals", refusals);
        }
        json.number("remaining_ms", *remaining_ms);
        json.number("waiting", count(waiting));
        json.text("outcome", outcome.as_deref());
        json.text("request_id", request_id.as_deref());
        json.end()
    }

    /// The kind, if this version knows it.
    pub fn kind(&self) -> Option<ProblemKind> {
        ProblemKind::ALL.iter().copied().find(|kind| kind.type_uri() == self.type_uri)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn words_are_unique_and_found_again() {
        let words: HashSet<_> = ProblemKind::ALL.iter().map(|kind| kind.slug()).collect();
        assert_eq!(words.len(), ProblemKind::ALL.len());
        for kind in ProblemKind::ALL {
            assert_eq!(ProblemDocument::new(*kind, "x").kind(), Some(*kind));
        }
    }

    #[test]
    fn quick_json_is_the_same_json() {
        let key = Key::new("a \"quoted\" \\ kéy").unwrap();
        let resource = Resource::new("orders/1").unwrap();
        let refused = RefusedResource {
            resource: resource.clone(),
            reason: "stale".into(),
            detail: "d".into(),
            presented: Token::new(0, 3),
            fence: None,
            generation: 0,
            holder: None,
        };
        let full = ProblemDocument {
            advice: Some("line\none".into()),
            resource: Some(resource),
            presented: Token::new(2, 7),
            fence: Token::new(0, u64::MAX),
            fence_at_least: Token::new(0, 9),
            generation: Some(2),
            holder: Some(Holder::new("wörker\\a#1").unwrap()),
            issuer: Some(Issuer::new("etcd:1").unwrap()),
            raised_at: Some("2024-02-29T23:59:59.999Z".into()),
            etag: Some("\"5\"".into()),
            condition: Some(0),
            operation: Some(12),
            key: Some(key),
            refusals: vec![refused.clone(), refused],
            remaining_ms: Some(u64::MAX),
            waiting: Some(3),
            outcome: Some("not-applied".into()),
            request_id: Some("ab-1".into()),
            ..ProblemDocument::new(ProblemKind::Stale, "tab\t and \u{1} and \u{1f600}")
        };
        let bare = ProblemDocument::new(ProblemKind::Absent, "");
        for document in [full, bare] {
            let expected = serde_json::to_string(&document).unwrap();
            assert_eq!(String::from_utf8(document.to_json()).unwrap(), expected);
        }
    }

    #[test]
    fn t14_a_refusal_and_a_failed_condition_have_different_codes() {
        assert_eq!(ProblemKind::Stale.status(), 409);
        assert_eq!(ProblemKind::ConditionFailed.status(), 412);
    }
}
