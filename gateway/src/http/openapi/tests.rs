//! The API document agrees with the tables in the code.

use std::collections::BTreeSet;

use super::*;
use fencepost_core::wire::{MAX_CLAIM_KEYS, MAX_PAGE, MAX_TTL_MS, MAX_TXN_PARTS, MAX_WAIT_MS, MIN_TTL_MS};

fn operations(document: &Value) -> impl Iterator<Item = (String, &Value)> {
    document["paths"].as_object().unwrap().iter().flat_map(|(path, item)| {
        let methods = item.as_object().unwrap().iter();
        methods.map(move |(method, operation)| (format!("{} {path}", method.to_ascii_uppercase()), operation))
    })
}

/// Every value under this member name, at any depth.
fn members<'d>(value: &'d Value, name: &str, found: &mut Vec<&'d Value>) {
    match value {
        Value::Object(object) => {
            found.extend(object.get(name));
            object.values().for_each(|value| members(value, name, found));
        }
        Value::Array(values) => values.iter().for_each(|value| members(value, name, found)),
        _ => {}
    }
}

#[test]
fn every_route_is_documented_and_nothing_else() {
    let document = build();
    let found: BTreeSet<_> = operations(&document).map(|(operation, _)| operation).collect();
    let mut wanted = BTreeSet::new();
    for (_, route) in ROUTES {
        wanted.insert(format!("{} {}", route.method, route.template()));
        if route.method == Method::GET {
            wanted.insert(format!("HEAD {}", route.template()));
        }
    }
    assert_eq!(found, wanted);
}

#[test]
fn operations_have_ids_of_their_own_summaries_and_the_name_of_their_path() {
    let document = build();
    let mut ids = BTreeSet::new();
    for (operation, body) in operations(&document) {
        assert!(ids.insert(body["operationId"].as_str().unwrap()), "{operation}");
        assert!(body["summary"].as_str().is_some_and(|summary| !summary.is_empty()), "{operation}");
        let tag = body["tags"][0].as_str().unwrap();
        assert!(TAGS.iter().any(|(known, _)| *known == tag), "{operation}: {tag}");
        let parameters = body["parameters"].as_array().cloned().unwrap_or_default();
        let in_path: Vec<_> = parameters.iter().filter(|parameter| parameter["in"] == "path").collect();
        assert_eq!(in_path.len(), usize::from(operation.contains('{')), "{operation}");
        for parameter in in_path {
            assert!(operation.contains(&format!("{{{}}}", parameter["name"].as_str().unwrap())), "{operation}");
            assert!(parameter["schema"]["$ref"].is_string(), "{operation}");
        }
    }
}

#[test]
fn every_problem_is_documented_somewhere_under_its_status() {
    let document = build();
    let mut answers: Vec<(String, &Value)> = Vec::new();
    for (_, operation) in operations(&document) {
        answers.extend(operation["responses"].as_object().unwrap().iter().map(|(status, body)| (status.clone(), body)));
    }
    for (name, kind) in OUTSIDE {
        answers.push((kind.status().to_string(), &document["components"]["responses"][name]));
    }
    for kind in ProblemKind::ALL {
        let word = format!("`{}`", kind.slug());
        let described = answers.iter().any(|(status, body)| {
            *status == kind.status().to_string()
                && body["description"].as_str().is_some_and(|text| text.contains(&word))
        });
        assert!(described, "{kind:?}");
    }
}

#[test]
fn the_administrators_calls_say_that_they_are_refused_elsewhere() {
    let document = build();
    for (operation, body) in operations(&document) {
        let admin = operation.contains("/v1/admin/");
        assert_eq!(body["tags"][0] == "admin", admin, "{operation}");
        let refusals = body["responses"]["403"]["description"].as_str().unwrap();
        assert_eq!(refusals.contains("`admin-only`"), admin, "{operation}");
    }
}

#[test]
fn references_lead_somewhere_and_bodies_have_examples() {
    let document = build();
    let mut references = Vec::new();
    members(&document, "$ref", &mut references);
    assert!(references.len() > 100);
    for reference in references {
        let pointer = reference.as_str().and_then(|reference| reference.strip_prefix('#')).unwrap();
        assert!(document.pointer(pointer).is_some(), "{reference}");
    }
    for (operation, body) in operations(&document).filter(|(_, body)| body.get("requestBody").is_some()) {
        let contents = body["requestBody"]["content"].as_object().unwrap();
        assert!(contents.values().all(|content| content.get("example").is_some()), "{operation}");
    }
}

#[test]
fn limits_are_those_of_the_code() {
    let document = build();
    let schemas = &document["components"]["schemas"];
    let acquire = &schemas["AcquireRequest"]["properties"];
    assert_eq!(acquire["ttl_ms"]["minimum"], MIN_TTL_MS);
    assert_eq!(acquire["ttl_ms"]["maximum"], MAX_TTL_MS);
    assert_eq!(acquire["wait_ms"]["maximum"], MAX_WAIT_MS);
    assert_eq!(schemas["AcquireRequest"]["required"], json!(["holder", "ttl_ms"]));
    assert_eq!(schemas["AcquireRequest"]["additionalProperties"], false);
    assert_eq!(schemas["ClaimRequest"]["properties"]["keys"]["oneOf"][1]["maxItems"], MAX_CLAIM_KEYS);
    let transaction = &schemas["TxnRequest"]["properties"];
    assert_eq!(transaction["tokens"]["maxProperties"], MAX_TXN_PARTS);
    assert_eq!(transaction["if"]["maxItems"], MAX_TXN_PARTS);
    assert_eq!(transaction["then"]["maxItems"], MAX_TXN_PARTS);
    let list = document["paths"]["/v1/kv"]["get"]["parameters"].as_array().unwrap();
    assert!(list.iter().any(|parameter| parameter["schema"]["maximum"] == MAX_PAGE));
}

#[test]
fn the_limits_for_people_are_those_of_the_code() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/api.md");
    let people = std::fs::read_to_string(&path).unwrap().replace(',', "");
    for row in [
        format!("| operations of a transaction | {MAX_TXN_PARTS}"),
        format!("| conditions of a transaction | {MAX_TXN_PARTS} |"),
        format!("| tokens of a transaction | {MAX_TXN_PARTS}"),
        format!("| keys of a claim | {MAX_CLAIM_KEYS} |"),
        format!("| `ttl_ms` of a lease | {MIN_TTL_MS} to {MAX_TTL_MS} "),
        format!("| `wait_ms` for a lock | at most {MAX_WAIT_MS} "),
        format!("| entries of a page | `limit` 1 to {MAX_PAGE}"),
    ] {
        assert!(people.contains(&row), "docs/api.md lacks {row}");
    }
}
