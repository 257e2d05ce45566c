//! The API document (OpenAPI 3.1): paths from the list of calls, schemas from the types on the wire that they name.

mod details;
mod operation;
pub(super) mod parts;

use std::sync::LazyLock;

use bytes::Bytes;
use fencepost_core::{
    Holder, IdempotencyKey, Issuer, Key, ProblemDocument, ProblemKind, RefusedResource, Resource, Token,
};
use hyper::Method;
use serde_json::{Map, Value, json};
use utoipa::openapi::schema::{Components, ComponentsBuilder};

use super::answer;
use super::calls::ROUTES;

pub(super) use details::{Details, ONCE, READING, WRITING};
pub(super) use parts::Headers;

/// The document, as it is served.
pub(super) fn document() -> Bytes {
    static DOCUMENT: LazyLock<Bytes> = LazyLock::new(|| answer::json(&build()));
    DOCUMENT.clone()
}

const ABOUT: &str = "A fencing-aware storage gateway: a write passes only with a token that is not older than the \
    newest one seen for its resource. Errors are `application/problem+json` (RFC 9457); test their `type`.\n\n\
    Names may contain `/`, raw or as `%2F`: they are percent-decoded exactly once. A name whose last segment is an \
    action of the path (`renew`, `abandon`, `rotate`, `force-release`) writes that `/` as `%2F`. A path that is none of \
    these is answered 404 `no-such-route`, another method 405 with `Allow`.";

const TAGS: [(&str, &str); 8] = [
    ("values", "Values and their versions, written under a fencing token."),
    ("transactions", "Several keys in one commit."),
    ("fences", "The highest token seen for a resource."),
    ("locks", "The built-in lock service."),
    ("s3", "Credentials for the S3 front end, which has a port of its own."),
    ("outcomes", "What became of a request with an idempotency key."),
    ("admin", "On the administrator's Unix socket only; 403 elsewhere."),
    ("operations", "For those who run the gateway."),
];

/// Problems of requests that match no operation.
const OUTSIDE: [(&str, ProblemKind); 2] =
    [("NoSuchRoute", ProblemKind::NoSuchRoute), ("MethodNotAllowed", ProblemKind::MethodNotAllowed)];

fn build() -> Value {
    let tags = TAGS.map(|(name, description)| json!({"name": name, "description": description}));
    let outside = OUTSIDE.map(|(name, kind)| (name.to_owned(), operation::problem(kind.status(), &[kind])));
    let mut components = json!(schemas());
    components["responses"] = Value::Object(Map::from_iter(outside));
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Fencepost",
            "version": env!("CARGO_PKG_VERSION"),
            "description": ABOUT,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "tags": tags,
        "paths": paths(),
        "components": components,
    })
}

/// Every route, and HEAD wherever GET is.
fn paths() -> Map<String, Value> {
    let mut paths = Map::new();
    for (endpoint, route) in ROUTES {
        let item = paths.entry(route.template()).or_insert_with(|| json!({}));
        item[route.method.as_str().to_ascii_lowercase()] = operation::of(*endpoint, route);
        if route.method == Method::GET {
            item["head"] = operation::head(*endpoint, route);
        }
    }
    paths
}

/// Every schema that a path or another schema refers to by name: those of problems and parameters, and those that each
/// call adds.
fn schemas() -> Components {
    let shared = ComponentsBuilder::new()
        .schema_from::<Holder>()
        .schema_from::<IdempotencyKey>()
        .schema_from::<Issuer>()
        .schema_from::<Key>()
        .schema_from::<ProblemDocument>()
        .schema_from::<RefusedResource>()
        .schema_from::<Resource>()
        .schema_from::<Token>();
    let added = ROUTES.iter().flat_map(|(endpoint, _)| endpoint.describe().schemas);
    added.fold(shared, |components, add| add(components)).build()
}

#[cfg(test)]
mod tests;
