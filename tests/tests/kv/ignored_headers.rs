//! Nothing that looks like protection is ignored: a call that does not support a header refuses it, and nothing is
//! done.
use fencepost_harness::fresh::Fresh;
use fencepost_harness::http::Client;

const TXN: &[u8] = br#"{"tokens": {"a": "1"}, "then": [{"put": "a", "text": "x"}]}"#;

fn refused(client: &mut Client, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) {
    let answer = client.request(method, path, headers, body);
    assert_eq!((answer.status, answer.problem().as_str()), (400, "unsupported-header"), "{headers:?}: {answer:?}");
    assert!(answer.json()["detail"].as_str().unwrap().contains(headers[headers.len() - 1].0), "it names the header");
}

#[test]
fn a_transaction_takes_tokens_and_conditions_in_its_body_only() {
    let gateway = Fresh::memory(&[]);
    let mut client = gateway.client();
    for header in [
        ("fencing-token", "7"),
        ("fencing-holder", "w#1"),
        ("fencing-issuer", "etcd:1"),
        ("if-match", "\"7\""),
        ("if-none-match", "*"),
    ] {
        refused(&mut client, "POST", "/v1/txn", &[header], TXN);
    }
    assert_eq!(client.fence("a"), None, "nothing was done");
    assert_eq!(client.request("POST", "/v1/txn", &[], TXN).status, 200);
}

#[test]
fn a_claim_has_no_conditions_and_calls_without_outcomes_take_no_key() {
    let gateway = Fresh::memory(&[]);
    let mut client = gateway.client();
    let token = ("fencing-token", "7");
    for header in [("if-match", "*"), ("if-none-match", "*"), ("idempotency-key", "k")] {
        refused(&mut client, "POST", "/v1/claim/a", &[token, header], b"");
    }
    assert_eq!(client.fence("a"), None, "nothing was raised");
    let lease = "0".repeat(32);
    let renew = format!(r#"{{"lease": "{lease}", "ttl_ms": 1000}}"#);
    refused(&mut client, "POST", "/v1/locks/a/renew", &[("idempotency-key", "k")], renew.as_bytes());
    refused(&mut client, "DELETE", &format!("/v1/locks/a?lease={lease}"), &[("idempotency-key", "k")], b"");
}

#[test]
fn the_lock_service_takes_no_tokens_and_no_conditions() {
    let gateway = Fresh::memory(&[]);
    let mut client = gateway.client();
    let lease = "0".repeat(32);
    let (acquire, renew) =
        (br#"{"holder": "w#1", "ttl_ms": 1000}"#.as_slice(), format!(r#"{{"lease": "{lease}", "ttl_ms": 1000}}"#));
    for header in [("fencing-token", "7"), ("fencing-holder", "w#1"), ("if-none-match", "*")] {
        refused(&mut client, "POST", "/v1/locks/a", &[header], acquire);
        refused(&mut client, "POST", "/v1/locks/a/renew", &[header], renew.as_bytes());
        refused(&mut client, "DELETE", &format!("/v1/locks/a?lease={lease}"), &[header], b"");
    }
    assert_eq!(client.request("POST", "/v1/locks/a", &[], acquire).status, 201);
}

#[test]
fn conditions_tell_requests_apart_also_if_they_are_not_ascii() {
    let gateway = Fresh::memory(&[]);
    let mut client = gateway.client();
    let (token, key) = (("fencing-token", "7"), ("idempotency-key", "k"));
    assert_eq!(client.request("PUT", "/v1/kv/a", &[token, key], b"x").status, 204);
    let other = client.request("PUT", "/v1/kv/a", &[token, key, ("if-match", "\"é\"")], b"x");
    assert_eq!((other.status, other.problem().as_str()), (422, "key-reused"), "{other:?}");
    let same = client.request("PUT", "/v1/kv/a", &[token, key], b"x");
    assert_eq!((same.status, same.header("idempotent-replayed")), (204, Some("true")));
}
