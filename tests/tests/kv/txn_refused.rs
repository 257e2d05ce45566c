//! Refusals of `POST /v1/txn`: by fences, by limits, or because the request is inconsistent. Nothing is done.

use fencepost_harness::fresh::Fresh;
use fencepost_harness::http::{Answer, Client};
use serde_json::{Value, json};

fn txn(client: &mut Client, body: Value) -> Answer {
    client.post("/v1/txn", &body)
}

#[test]
fn a_refusal_names_every_resource_that_refused() {
    let gateway = Fresh::memory(&[]);
    let mut client = gateway.client();
    let holder = [("fencing-token", "34"), ("fencing-holder", "b#2")];
    assert_eq!(client.request("PUT", "/v1/kv/a", &holder, b"v").status, 204);
    assert_eq!(client.put("c", "5", "v").status, 204);
    let put = |key: &str| json!({"put": key, "text": "w"});
    let body = json!({"tokens": {"a": "33", "c": "5", "d": "1:1", "e": "1"},
                      "then": [put("missing"), put("a"), put("c"), put("d"), put("e")]});
    let refused = txn(&mut client, body);
    assert_eq!((refused.status, refused.problem().as_str()), (409, "stale"), "409 wins over 428: {}", refused.text());
    let json = refused.json();
    assert_eq!((&json["resource"], &json["presented"], &json["fence"]), (&"a".into(), &"33".into(), &"34".into()));
    assert_eq!((&json["holder"], &json["outcome"]), (&"b#2".into(), &"not-applied".into()));
    assert!(json["detail"].as_str().unwrap().contains("3 resources refused"), "{json}");
    let mut reasons: Vec<_> = json["refusals"]
        .as_array()
        .unwrap()
        .iter()
        .map(|refusal| (refusal["resource"].as_str().unwrap(), refusal["reason"].as_str().unwrap()))
        .collect();
    reasons.sort_unstable();
    assert_eq!(reasons, [("a", "stale"), ("d", "unknown-generation"), ("missing", "missing-token")]);
    for refusal in json["refusals"].as_array().unwrap() {
        assert!(refusal["detail"].as_str().is_some_and(|detail| detail.len() > 20), "{refusal}");
        assert_eq!(refusal["generation"], 0);
    }
    assert_eq!(refused.header("fence"), Some("34"));
    for key in ["a", "c"] {
        assert_eq!(client.get(key).text(), "v");
    }
    for key in ["missing", "d", "e"] {
        assert_eq!((client.get(key).status, client.fence(key)), (404, None), "{key}");
    }
}

#[test]
fn a_touched_resource_without_a_token_is_428() {
    let gateway = Fresh::memory(&[]);
    let mut client = gateway.client();
    for operation in [json!({"put": "k", "text": "v"}), json!({"delete": "k"}), json!({"add": "k", "by": 1})] {
        let refused = txn(&mut client, json!({"then": [operation]}));
        assert_eq!((refused.status, refused.problem().as_str()), (428, "missing-token"), "{operation}");
        assert_eq!(refused.json()["resource"], "k");
    }
    assert_eq!((client.get("k").status, client.fence("k")), (404, None));
}

#[test]
fn what_is_not_safe_to_ignore_is_refused() {
    let gateway = Fresh::memory(&[]);
    let mut client = gateway.client();
    let body = json!({"tokens": {"k": "1"}, "then": [{"put": "k", "text": "v"}]}).to_string();
    for header in [("if-unmodified-since", "Mon, 16 Nov 2026 00:00:00 GMT"), ("content-encoding", "gzip")] {
        let answer = client.request("POST", "/v1/txn", &[header], body.as_bytes());
        assert_eq!((answer.status, answer.problem().as_str()), (400, "unsupported-header"), "{header:?}");
        assert!(answer.json()["detail"].as_str().unwrap().contains(header.0), "{}", answer.text());
    }
    assert_eq!((client.get("k").status, client.fence("k")), (404, None));
}

#[test]
fn bad_bodies_say_what_is_wrong_and_raise_nothing() {
    let guards = "[[guard]]\nkeys = 'orders/*/**'\nresource = 'orders/*'\n";
    let gateway = Fresh::configured(guards, &[]);
    let mut client = gateway.client();
    let put = json!({"put": "a", "text": "x"});
    let with = |operation: Value| json!({"tokens": {"a": "1"}, "then": [operation]});
    for (body, words) in [
        (json!({}), "there is nothing to do"),
        (json!({"tokens": {}, "if": [], "then": []}), "there is nothing to do"),
        (json!({"token": {"a": "1"}, "then": [put]}), "unknown field `token`"),
        (json!({"tokens": {"a": "1"}, "then": [put, {"get": "a"}]}), "`a` occurs twice"),
        (json!({"tokens": {"a": "1", "b": "2"}, "then": [put]}), "no key of the transaction belongs to it"),
        (json!({"tokens": {"a": "0"}, "then": [put]}), "a token is text"),
        (json!({"tokens": {"a": "01"}, "then": [put]}), "a token is text"),
        (json!({"tokens": {"a": {"token": "1", "hodler": "x"}}, "then": [put]}), "a token is text"),
        (json!({"tokens": ["1"], "then": [put]}), "an object with a token for each resource"),
        (json!({"tokens": {"a//b": "1"}, "then": [put]}), "empty segment"),
        (with(json!({"put": "a//b", "text": "x"})), "empty segment"),
        (with(json!({"put": "a"})), "needs a value"),
        (with(json!({"put": "a", "text": "x", "base64": "eA=="})), "not both"),
        (with(json!({"put": "a", "base64": "%%%"})), "not base64"),
        (with(json!({"put": "a", "base64": "eA"})), "not base64"),
        (with(json!({"put": "a", "text": "x", "content_type": "a\nb"})), "content type"),
        (with(json!({"put": "a", "text": "x", "content_type": "x".repeat(5000)})), "content type"),
        (with(json!({"add": "a"})), "needs `by`"),
        (with(json!({"add": "a", "by": 1.5})), "a whole number"),
        (with(json!({"add": "a", "by": "1.5"})), "a whole number"),
        (with(json!({"add": "a", "by": 9_223_372_036_854_775_808_u64})), "a whole number"),
        (with(json!({"add": "a", "by": 1, "min": 2, "max": 1})), "`min` is above `max`"),
        (with(json!({"append": "a", "text": "x"})), "unknown field `append`"),
        (with(json!({"put": "a", "delete": "a", "text": "x"})), "one of put, delete, add, get"),
        (with(json!("put")), "invalid type"),
        (json!({"if": [{"key": "a", "exists": false}]}), "is not a condition"),
        (json!({"if": [{"key": "a"}]}), "one of exists, absent"),
        (json!({"if": [{"key": "a", "absent": true, "etag": "7"}]}), "one of exists, absent"),
        (json!({"if": [{"key": "a", "at_least": 1.5}]}), "a whole number"),
        (json!({"if": [{"key": "a", "equals": {"base64": "%"}}]}), "not base64"),
    ] {
        let answer = txn(&mut client, body.clone());
        assert_eq!(answer.status, 400, "{body}: {}", answer.text());
        assert_eq!(answer.problem(), "malformed-body", "{body}");
        assert!(answer.json()["detail"].as_str().unwrap().contains(words), "{words} in {}", answer.text());
    }
    for (body, words) in [
        (&b""[..], "this call takes"),
        (b"{", "this call takes"),
        (b"[]", "expected an object"),
        (br#"[{"a": "1"}, [], [{"put": "a", "text": "x"}]]"#, "expected an object"),
        (br#"{"tokens": {"a": "1"}, "then": [["a", null, null, null, "x"]]}"#, "expected an object"),
        (br#"{"if": [["a", true]]}"#, "expected an object"),
        (b"\xff", "this call takes"),
        (br#"{"tokens": {"a": "1", "a": "2"}, "then": [{"get": "a"}]}"#, "more than one token"),
        (br#"{"then": [{"get": "a"}], "then": [{"get": "b"}]}"#, "duplicate field"),
        (br#"{"then": [{"get": "a"}]} {}"#, "trailing characters"),
    ] {
        let answer = client.request("POST", "/v1/txn", &[], body);
        assert_eq!((answer.status, answer.problem().as_str()), (400, "malformed-body"), "{body:?}");
        assert!(answer.json()["detail"].as_str().unwrap().contains(words), "{words} in {}", answer.text());
    }
    let other = json!({"tokens": {"orders/1/lines": "1"}, "then": [{"put": "orders/1/lines", "text": "x"}]});
    let answer = txn(&mut client, other);
    assert_eq!((answer.status, answer.problem().as_str()), (400, "not-a-resource"));
    assert_eq!(answer.json()["resource"], "orders/1", "the right one is named");
    let query = client.request("POST", "/v1/txn?dry=1", &[], json!({"then": [{"get": "a"}]}).to_string().as_bytes());
    assert_eq!((query.status, query.problem().as_str()), (400, "malformed-query"));
    assert_eq!((client.get("a").status, client.fence("a"), client.fence("orders/1")), (404, None, None));
}

#[test]
fn limits_are_413_and_nothing_is_changed() {
    let gateway = Fresh::memory(&["--max-body", "16KiB"]);
    let mut client = gateway.client();
    let many = |parts: usize| -> Value { (0..parts).map(|n| json!({"put": format!("k/{n}"), "text": "v"})).collect() };
    let tokens = |parts: usize| -> Value {
        (0..parts).map(|n| (format!("k/{n}"), json!("1"))).collect::<serde_json::Map<_, _>>().into()
    };
    let over = txn(&mut client, json!({"tokens": tokens(128), "then": many(129)}));
    assert_eq!((over.status, over.problem().as_str()), (413, "too-large"), "{}", over.text());
    assert!(over.json()["detail"].as_str().unwrap().contains("at most 128 operations, and has 129"), "{}", over.text());
    let conditions: Value = (0..129).map(|n| json!({"key": format!("k/{n}"), "absent": true})).collect();
    let over = txn(&mut client, json!({"if": conditions}));
    assert_eq!((over.status, over.problem().as_str()), (413, "too-large"));
    assert_eq!((client.get("k/0").status, client.fence("k/0")), (404, None));
    let most = txn(&mut client, json!({"tokens": tokens(128), "then": many(128)}));
    assert_eq!(most.status, 200, "{}", most.text());
    assert_eq!(client.get("k/127").text(), "v");

    let large = json!({"tokens": {"l": "1"}, "then": [{"put": "l", "text": "x".repeat(16 << 10)}]});
    let over = gateway.client().post("/v1/txn", &large);
    assert_eq!((over.status, over.problem().as_str()), (413, "too-large"));
    assert_eq!(client.fence("l"), None);

    for key in ["g/1", "g/2"] {
        assert_eq!(client.put(key, "1", &"x".repeat(10 << 10)).status, 204);
    }
    let body = json!({"tokens": {"w": "1"}, "then": [{"put": "w", "text": "v"}, {"get": "g/1"}, {"get": "g/2"}]});
    let over = txn(&mut client, body);
    assert_eq!((over.status, over.problem().as_str()), (413, "too-large"));
    assert!(over.json()["detail"].as_str().unwrap().contains("ask for fewer keys"), "{}", over.text());
    assert_eq!((client.get("w").status, client.fence("w")), (404, None), "nothing was changed or raised");
    let fits = txn(&mut client, json!({"tokens": {"w": "1"}, "then": [{"put": "w", "text": "v"}, {"get": "g/1"}]}));
    assert_eq!(fits.status, 200);
}

#[test]
fn observe_mode_lets_a_transaction_pass_reports_it_and_leaves_the_fence() {
    let guards = "[[guard]]\nkeys = 'o/**'\nmode = 'observe'\n";
    let gateway = Fresh::configured(guards, &[]);
    let mut client = gateway.client();
    assert_eq!(client.put("o/1", "34", "v").status, 204);
    let stale = txn(&mut client, json!({"tokens": {"o/1": "33"}, "then": [{"put": "o/1", "text": "w"}]}));
    assert_eq!((stale.status, stale.header("fencing-observed")), (200, Some("stale")), "{}", stale.text());
    let both = json!({"tokens": {"o/1": "33"}, "then": [{"delete": "o/1"}, {"put": "o/2", "text": "w"}]});
    let both = txn(&mut client, both);
    assert_eq!((both.status, both.header("fencing-observed")), (200, Some("stale, missing-token")));
    assert_eq!((client.get("o/1").status, client.get("o/2").text().as_str()), (404, "w"));
    let good = txn(&mut client, json!({"tokens": {"o/2": "1"}, "then": [{"put": "o/2", "text": "x"}]}));
    assert_eq!((good.status, good.header("fencing-observed")), (200, None));
    assert_eq!((client.fence("o/1").as_deref(), client.fence("o/2").as_deref()), (Some("34"), Some("1")));
    // One enforcing guard is enough to refuse the whole transaction.
    assert_eq!(client.put("e", "9", "v").status, 204);
    let mixed =
        json!({"tokens": {"o/1": "33", "e": "8"}, "then": [{"put": "o/1", "text": "z"}, {"put": "e", "text": "z"}]});
    let mixed = txn(&mut client, mixed);
    assert_eq!((mixed.status, &mixed.json()["resource"]), (409, &"e".into()));
    assert_eq!((client.get("o/1").status, client.get("e").text().as_str()), (404, "v"));
}
