//! One operation of the document: a row of the table with its details.

use std::collections::BTreeMap;

use fencepost_core::wire::{PROBLEM_JSON, header};
use fencepost_core::{ProblemDocument, ProblemKind, Token};
use serde_json::{Map, Value, json};

use super::super::calls::Endpoint;
use super::super::routes::{Route, Takes};
use super::details::Details;
use super::parts::{self, Headers};

/// Problems that any request can have.
const ANYWHERE: [ProblemKind; 8] = [
    ProblemKind::MalformedHeader,
    ProblemKind::MalformedQuery,
    ProblemKind::MalformedBody,
    ProblemKind::CrossOrigin,
    ProblemKind::WrongHost,
    ProblemKind::Timeout,
    ProblemKind::HeadersTooLarge,
    ProblemKind::Overloaded,
];

pub(super) fn of(endpoint: Endpoint, route: &Route) -> Value {
    let Details { tag, name, parameters, body, answers, problems, schemas: _ } = endpoint.describe();
    let id = format!("{endpoint:?}");
    let mut operation = json!({
        "operationId": id[..1].to_ascii_lowercase() + &id[1..],
        "tags": [tag],
        "summary": route.summary,
        "responses": responses(answers, &problems, route.takes),
    });
    let parameters: Vec<Value> = in_path(route, name).into_iter().chain(parameters).collect();
    if !parameters.is_empty() {
        operation["parameters"] = parameters.into();
    }
    if let Some(body) = body {
        operation["requestBody"] = body;
    }
    operation
}

/// The operation for HEAD: that of GET without the bodies of its answers.
pub(super) fn head(endpoint: Endpoint, route: &Route) -> Value {
    let mut operation = of(endpoint, route);
    operation["operationId"] = format!("head{endpoint:?}").into();
    operation["summary"] = format!("{} (the headers only)", route.summary).into();
    for answer in operation["responses"].as_object_mut().into_iter().flat_map(Map::values_mut) {
        answer.as_object_mut().and_then(|answer| answer.remove("content"));
    }
    operation
}

fn in_path(route: &Route, schema: Option<Value>) -> Option<Value> {
    let description = "Percent-decoded exactly once; `/` may be written as it is, or as `%2F`.";
    route
        .name
        .map(|name| json!({"in": "path", "name": name, "description": description, "required": true, "schema": schema}))
}

fn responses(answers: Vec<(u16, Value)>, problems: &[ProblemKind], takes: Takes) -> Map<String, Value> {
    let too_large = match takes {
        Takes::Body => Some(ProblemKind::TooLarge),
        Takes::Nothing => None,
    };
    let mut by_status = BTreeMap::<u16, Vec<ProblemKind>>::new();
    // In the order of the table of problems, each once.
    for kind in ProblemKind::ALL {
        if problems.contains(kind) || ANYWHERE.contains(kind) || too_large == Some(*kind) {
            by_status.entry(kind.status()).or_default().push(*kind);
        }
    }
    let problems = by_status.into_iter().map(|(status, kinds)| (status, problem(status, &kinds)));
    answers.into_iter().chain(problems).map(|(status, answer)| (status.to_string(), answer)).collect()
}

/// An error answer that is one of these kinds.
pub(super) fn problem(status: u16, kinds: &[ProblemKind]) -> Value {
    let words: Vec<String> = kinds.iter().map(|kind| format!("`{}`: {}", kind.slug(), kind.title())).collect();
    let types: Vec<&str> = kinds.iter().map(|kind| kind.type_uri()).collect();
    let document = json!({"allOf": [
        parts::schema::<ProblemDocument>(),
        {"type": "object", "properties": {"type": {"enum": types}, "status": {"const": status}}},
    ]});
    parts::answer(&words.join(". \n"), headers(status), parts::content(PROBLEM_JSON, document))
}

fn headers(status: u16) -> Headers {
    let headers = Headers::new();
    let seconds = json!({"type": "integer", "minimum": 1});
    let retry = "Seconds after which to try again.";
    match status {
        404 | 409 | 410 | 428 => headers.optional(header::FENCE, "The resource's fence now.", parts::schema::<Token>()),
        405 => headers.required("Allow", "The methods that are allowed.", json!({"type": "string"})),
        412 => {
            headers.optional(header::FENCE, "The resource's fence now.", parts::schema::<Token>()).optional_replayed()
        }
        422 => headers.optional_replayed(),
        423 | 503 | 507 => headers.required("Retry-After", retry, seconds),
        _ => headers,
    }
}
