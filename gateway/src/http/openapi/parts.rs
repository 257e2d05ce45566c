//! The pieces that operations are made of: parameters, headers, bodies.
//!
//! They are plain JSON: utoipa's own types for them cannot express that an answer always has a header.

use fencepost_core::wire::{MAX_PAGE, header};
use fencepost_core::{Holder, IdempotencyKey, Issuer, Token};
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use super::super::query::DEFAULT_LIMIT;

/// Entity tags in quotes, or `*`.
const TAGS: &str = r#"^(\*|(W/)?"[^",]*"( *, *(W/)?"[^",]*")*)$"#;

/// A reference to a type's schema.
pub(in crate::http) fn schema<T: ToSchema>() -> Value {
    json!({"$ref": format!("#/components/schemas/{}", T::name())})
}

pub(in crate::http) fn content(media_type: &str, schema: Value) -> Value {
    json!({media_type: {"schema": schema}})
}

pub(in crate::http) fn etag() -> Value {
    json!({"type": "string", "pattern": "^\"[0-9]+\"$"})
}

/// The headers of an answer.
pub(in crate::http) struct Headers(Map<String, Value>);

impl Headers {
    /// The header that every answer has.
    pub(in crate::http) fn new() -> Headers {
        let id = json!({"type": "string", "minLength": 1});
        Headers(Map::new()).required(header::REQUEST_ID, "The request's id, also in the log.", id)
    }

    pub(in crate::http) fn required(mut self, name: &str, description: &str, schema: Value) -> Headers {
        let header = json!({"description": description, "required": true, "schema": schema});
        self.0.insert(name.to_owned(), header);
        self
    }

    pub(in crate::http) fn optional(mut self, name: &str, description: &str, schema: Value) -> Headers {
        self.0.insert(name.to_owned(), json!({"description": description, "schema": schema}));
        self
    }

    pub(in crate::http) fn optional_replayed(self) -> Headers {
        let description = "This is the recorded answer of an earlier request with the same key.";
        let now = "Of a replayed answer about one resource: its fence now. `Fence` is that of the first answer.";
        self.optional(header::IDEMPOTENT_REPLAYED, description, json!({"type": "string", "enum": ["true"]})).optional(
            header::FENCE_NOW,
            now,
            schema::<Token>(),
        )
    }
}

/// Headers of an answer that an observing guard may have let pass.
pub(in crate::http) fn observed() -> Headers {
    let why = "The guard only observes: why this would have been refused, a word per resource.";
    Headers::new().optional(header::FENCING_OBSERVED, why, json!({"type": "string"}))
}

/// Headers of such an answer about one resource: also its fence.
pub(in crate::http) fn fenced() -> Headers {
    observed().optional(header::FENCE, "The resource's fence now.", schema::<Token>())
}

/// Headers of an answer to a write, which may be a replay.
pub(in crate::http) fn written() -> Headers {
    fenced().optional_replayed()
}

pub(in crate::http) fn answer(description: &str, headers: Headers, content: Value) -> Value {
    match &content {
        Value::Object(types) if types.is_empty() => json!({"description": description, "headers": headers.0}),
        _ => json!({"description": description, "headers": headers.0, "content": content}),
    }
}

/// A body that must be sent.
pub(super) fn body<T: ToSchema>(example: Value) -> Value {
    json!({"required": true, "content": {"application/json": {"schema": schema::<T>(), "example": example}}})
}

/// A body that may be left out.
pub(super) fn optional_body<T: ToSchema>(example: Value) -> Value {
    json!({"required": false, "content": {"application/json": {"schema": schema::<T>(), "example": example}}})
}

/// No body, or an empty object from clients that cannot leave it out.
pub(super) fn empty_body() -> Value {
    let nothing = json!({"type": "object", "additionalProperties": false});
    json!({"required": false, "content": {"application/json": {"schema": nothing, "example": {}}}})
}

/// The bytes of a value.
pub(super) fn value_body() -> Value {
    let bytes = json!({"type": "string", "format": "binary"});
    json!({
        "description": "The value. Any `Content-Type` is kept and given back, except `application/x-www-form-urlencoded` (curl's own choice for `-d`), which counts as none; one value is at most `--max-body` bytes.",
        "required": true,
        "content": {"application/octet-stream": {"schema": bytes, "example": "paid"}},
    })
}

fn header(name: &str, description: &str, schema: Value) -> Value {
    json!({"in": "header", "name": name, "description": description, "required": false, "schema": schema})
}

fn query(name: &str, description: &str, schema: Value) -> Value {
    json!({"in": "query", "name": name, "description": description, "required": false, "schema": schema})
}

/// Parameters for the token, its holder and its issuer.
pub(in crate::http) fn presented() -> [Value; 3] {
    [
        header(header::FENCING_TOKEN, "The token your lock service handed out.", schema::<Token>()),
        header(header::FENCING_HOLDER, "Who presents it.", schema::<Holder>()),
        header(header::FENCING_ISSUER, "Which lock service numbered it.", schema::<Issuer>()),
    ]
}

pub(in crate::http) fn idempotency_key() -> Value {
    let description = "Makes a retry safe: the outcome is recorded with the write, and answered again.";
    header(header::IDEMPOTENCY_KEY, description, schema::<IdempotencyKey>())
}

pub(in crate::http) fn write_conditions() -> [Value; 2] {
    [
        header("If-Match", "One of these versions, or `*`: any. Not together with If-None-Match.", tags()),
        header("If-None-Match", "`*`: the key has no value.", json!({"type": "string", "enum": ["*"]})),
    ]
}

pub(in crate::http) fn read_conditions() -> [Value; 2] {
    [
        header("If-Match", "One of these versions, or `*`: any; else 412.", tags()),
        header("If-None-Match", "None of these versions, or `*`: any; else 304.", tags()),
    ]
}

fn tags() -> Value {
    json!({"type": "string", "pattern": TAGS})
}

/// Parameters for a page of a list.
pub(in crate::http) fn page() -> [Value; 3] {
    let limit = json!({"type": "integer", "minimum": 1, "maximum": MAX_PAGE, "default": DEFAULT_LIMIT});
    [
        query("prefix", "Only names that start with this.", json!({"type": "string"})),
        query("after", "Only names after this one: `next` of the page before.", json!({"type": "string"})),
        query("limit", "The most entries of the page.", limit),
    ]
}

/// A lease in a header, which proxies seldom log.
pub(in crate::http) fn lease_header() -> Value {
    let description = "The lease, as it was granted. It may be given elsewhere instead, but not another one.";
    header(header::FENCING_LEASE, description, json!({"type": "string", "pattern": LEASE}))
}

/// A lease in the query.
pub(in crate::http) fn lease_query() -> Value {
    let description = "The lease, unless the header names it. Proxies and logs keep URLs: prefer the header.";
    query("lease", description, json!({"type": "string", "pattern": LEASE}))
}

pub(in crate::http) fn engine_query() -> Value {
    let description = "Ask about one engine: its name in the configuration, or `default` for the one without a name.";
    query("engine", description, json!({"type": "string", "pattern": "^[a-z][a-z0-9_-]{0,31}$"}))
}

const LEASE: &str = "^[0-9a-f]{32}$";
