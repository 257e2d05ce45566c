//! What makes two requests the same, and what a replay contains: transactions, observed writes, large answers, two
//! listeners.

use fencepost_harness::fresh::Fresh;
use fencepost_harness::http::{Answer, Client};
use serde_json::json;

fn txn(client: &mut Client, key: &str, body: &str) -> Answer {
    client.request("POST", "/v1/txn", &[("idempotency-key", key)], body.as_bytes())
}

fn replayed(answer: &Answer) -> bool {
    answer.header("idempotent-replayed") == Some("true")
}

#[test]
fn a_transaction_is_told_apart_by_its_meaning_not_by_its_spaces_and_tokens() {
    let gateway = Fresh::memory(&[]);
    let mut client = gateway.client();
    let first = txn(
        &mut client,
        "7",
        r#"{"tokens": {"n": "1"}, "if": [{"key": "a", "absent": true}], "then": [{"add": "n", "by": 1, "min": 0}]}"#,
    );
    assert_eq!((first.status, replayed(&first)), (200, false), "{}", first.text());
    for same in [
        r#"{"then":[{"min":"0","by":"1","add":"n"}],"if":[{"absent":true,"key":"a"}],"tokens":{"n":"1"}}"#,
        r#"{"tokens": {"n": {"token": "9", "holder": "b#2"}}, "if": [{"key": "a", "absent": true}],
            "then": [{"add": "n", "by": 1, "min": 0}]}"#,
    ] {
        let again = txn(&mut client, "7", same);
        assert_eq!((again.status, replayed(&again), again.json()), (200, true, first.json()), "{same}");
    }
    for other in [
        r#"{"tokens": {"n": "1"}, "if": [{"key": "a", "absent": true}], "then": [{"add": "n", "by": 2, "min": 0}]}"#,
        r#"{"tokens": {"n": "1"}, "if": [{"key": "a", "absent": true}], "then": [{"add": "n", "by": 1}]}"#,
        r#"{"tokens": {"n": "1"}, "if": [{"key": "b", "absent": true}], "then": [{"add": "n", "by": 1, "min": 0}]}"#,
        r#"{"tokens": {"n": "1"}, "then": [{"add": "n", "by": 1, "min": 0}]}"#,
        r#"{"tokens": {"n": "1"}, "if": [{"key": "a", "absent": true}], "then": [{"put": "n", "text": "1"}]}"#,
        r#"{"if": [{"key": "a", "absent": true}]}"#,
    ] {
        let reused = txn(&mut client, "7", other);
        assert_eq!((reused.status, reused.problem().as_str()), (422, "key-reused"), "{other}");
    }
    assert_eq!((client.get("n").text().as_str(), client.fence("n").as_deref()), ("1", Some("1")));
}

#[test]
fn a_malformed_request_does_not_use_up_its_key() {
    let gateway = Fresh::memory(&[]);
    let mut client = gateway.client();
    assert_eq!(txn(&mut client, "7", "{").status, 400);
    assert_eq!(txn(&mut client, "7", r#"{"then": [{"put": "k", "text": "v"}]}"#).status, 428);
    let put = [("fencing-token", "x"), ("idempotency-key", "7")];
    assert_eq!(client.request("PUT", "/v1/kv/k", &put, b"v").status, 400);
    let put = [("fencing-token", "1"), ("idempotency-key", "7")];
    let answer = client.request("PUT", "/v1/kv/k", &put, b"v");
    assert_eq!((answer.status, replayed(&answer)), (204, false));
}

#[test]
fn a_replay_of_an_observed_write_says_again_what_was_observed() {
    let gateway = Fresh::configured("[[guard]]\nkeys = 'o'\nmode = 'observe'\n", &[]);
    let mut client = gateway.client();
    assert_eq!(client.put("o", "34", "v").status, 204);
    let stale = [("fencing-token", "33"), ("idempotency-key", "7")];
    for again in [false, true] {
        let answer = client.request("PUT", "/v1/kv/o", &stale, b"w");
        assert_eq!((answer.status, replayed(&answer)), (204, again));
        assert_eq!((answer.header("fencing-observed"), answer.header("fence")), (Some("stale"), Some("34")));
    }
    let body = r#"{"then": [{"put": "o", "text": "x"}]}"#;
    for again in [false, true] {
        let answer = txn(&mut client, "8", body);
        assert_eq!((answer.status, replayed(&answer)), (200, again));
        assert_eq!(answer.header("fencing-observed"), Some("missing-token"));
    }
}

#[test]
fn an_answer_that_is_kept_may_read_less_than_one_that_is_not() {
    let gateway = Fresh::memory(&[]);
    let mut client = gateway.client();
    assert_eq!(client.put("large", "1", &"x".repeat(64 << 10)).status, 204);
    assert_eq!(client.put("larger", "1", &"x".repeat((64 << 10) + 1)).status, 204);
    let read = |key: &str| json!({"tokens": {"w": "1"}, "then": [{"get": key}, {"put": "w", "text": "v"}]}).to_string();
    let over = txn(&mut client, "7", &read("larger"));
    assert_eq!((over.status, over.problem().as_str()), (413, "too-large"), "{}", over.text());
    assert_eq!((client.get("w").status, client.fence("w")), (404, None));
    assert_eq!(client.request("POST", "/v1/txn", &[], read("larger").as_bytes()).status, 200);
    let first = txn(&mut client, "7", &read("large"));
    let again = txn(&mut client, "7", &read("large"));
    assert_eq!((first.status, again.status, replayed(&again)), (200, 200, true));
    assert_eq!(first.json(), again.json(), "whole, also when it is kept");
}

#[test]
fn a_replayed_read_tells_what_was_there_then() {
    let gateway = Fresh::memory(&[]);
    let mut client = gateway.client();
    assert_eq!(client.put("k", "1", "then").status, 204);
    let body = r#"{"tokens": {"n": "1"}, "then": [{"get": "k"}, {"add": "n", "by": 1}]}"#;
    let first = txn(&mut client, "7", body);
    assert_eq!(client.put("k", "1", "now").status, 204);
    let again = txn(&mut client, "7", body);
    assert_eq!((again.json(), &again.json()["results"][0]["text"]), (first.json(), &"then".into()));
}

#[test]
fn both_listeners_share_one_space_of_keys() {
    let gateway = Fresh::memory(&[]);
    let mut admin = Client::connect_unix(&gateway.data().join("admin.sock"));
    let put = [("fencing-token", "1"), ("idempotency-key", "7")];
    assert_eq!(admin.request("PUT", "/v1/kv/k", &put, b"v").status, 204);
    assert!(replayed(&gateway.client().request("PUT", "/v1/kv/k", &put, b"v")));
    let outcome = gateway.client().request("GET", "/v1/outcomes/7", &[], b"").json();
    assert_eq!(outcome["outcome"], "applied");
}

#[test]
fn duplicates_sent_ahead_on_one_connection_are_one_request() {
    let gateway = Fresh::rocksdb(&[]);
    let mut client = gateway.client();
    let body = r#"{"tokens": {"n": "1"}, "then": [{"add": "n", "by": 1}]}"#;
    let request = format!(
        "POST /v1/txn HTTP/1.1\r\nhost: localhost\r\nidempotency-key: 7\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    client.send(request.repeat(10).as_bytes()).unwrap();
    let answers: Vec<Answer> = (0..10).map(|_| client.receive().unwrap()).collect();
    let done: Vec<bool> = answers.iter().map(replayed).collect();
    assert_eq!((done[0], done[1..].iter().all(|again| *again)), (false, true), "{done:?}");
    assert!(answers.iter().all(|answer| answer.json() == answers[0].json()));
    assert_eq!(client.get("n").text(), "1");
}
