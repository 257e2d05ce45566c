//! `Idempotency-Key` and `/v1/outcomes`: a lost answer does not lose the outcome (G7).

use std::thread;
use std::time::Duration;

use fencepost_conformance::wait;
use fencepost_harness::fresh::Fresh;
use fencepost_harness::http::{Answer, Client};
use fencepost_harness::process::GatewayProcess;
use serde_json::{Value, json};

const SOON: Duration = Duration::from_secs(10);

/// PUT `k` with a token and an idempotency key.
fn put(client: &mut Client, token: &str, key: &str, body: &str) -> Answer {
    let headers = [("fencing-token", token), ("idempotency-key", key)];
    client.request("PUT", "/v1/kv/k", &headers, body.as_bytes())
}

fn txn(client: &mut Client, key: &str, body: &Value) -> Answer {
    client.request("POST", "/v1/txn", &[("idempotency-key", key)], body.to_string().as_bytes())
}

fn outcome(client: &mut Client, key: &str) -> Value {
    let answer = client.request("GET", &format!("/v1/outcomes/{key}"), &[], b"");
    assert_eq!((answer.status, answer.header("cache-control")), (200, Some("no-store")), "{}", answer.text());
    assert_eq!(answer.json()["key"], key);
    answer.json()
}

fn abandon(client: &mut Client, key: &str) -> Value {
    let answer = client.request("POST", &format!("/v1/outcomes/{key}/abandon"), &[], b"");
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

fn replayed(answer: &Answer) -> bool {
    answer.header("idempotent-replayed") == Some("true")
}

/// Asserts that the second answer repeats the first and is marked as a replay.
fn assert_replay(first: &Answer, second: &Answer) {
    assert!(!replayed(first), "{first:?}");
    assert!(replayed(second), "{second:?}");
    assert_eq!(facts(first), facts(second));
}

/// The content of an answer, without what is specific to one exchange.
fn facts(answer: &Answer) -> (u16, Vec<(String, String)>, Value) {
    let own =
        |name: &str| matches!(name, "request-id" | "date" | "idempotent-replayed" | "fence-now" | "content-length");
    let mut headers: Vec<_> = answer.headers.iter().filter(|(name, _)| !own(name)).cloned().collect();
    headers.sort();
    let mut body = serde_json::from_slice(&answer.body).unwrap_or(Value::Null);
    body.as_object_mut().map(|members| (members.remove("request_id"), members.remove("fences_now")));
    (answer.status, headers, body)
}

#[test]
fn t04_an_applied_write_whose_answer_was_lost_is_never_reported_as_fenced() {
    let gateway = Fresh::rocksdb(&[]);
    let mut lost = gateway.client();
    lost.send(
        b"PUT /v1/kv/k HTTP/1.1\r\nhost: localhost\r\nfencing-token: 33\r\nidempotency-key: w-1\r\ncontent-length: 4\r\n\r\npaid",
    )
    .unwrap();
    let mut client = gateway.client();
    wait::until("the write to be applied", SOON, || (client.get("k").status == 200).then_some(()));
    drop(lost);
    // Another holder takes over the lock.
    assert_eq!(client.claim("k", "34").status, 200);
    assert_eq!(client.put("k", "34", "shipped").status, 204);
    let retry = put(&mut client, "33", "w-1", "paid");
    assert_eq!((retry.status, replayed(&retry)), (204, true), "{}", retry.text());
    assert_eq!(retry.header("fence"), Some("33"), "the answer of then");
    assert_eq!(client.get("k").text(), "shipped", "and it is not applied again");
    assert_eq!(outcome(&mut client, "w-1")["outcome"], "applied");
    let new = put(&mut client, "33", "w-2", "paid");
    assert_eq!((new.status, new.problem().as_str()), (409, "stale"), "another request of the same zombie");
}

#[test]
fn a_replay_is_identical_also_after_a_restart() {
    let gateway = Fresh::rocksdb(&[]);
    let mut client = gateway.client();
    let sum = json!({"tokens": {"n": "7", "t": "8", "never": "1"},
                     "then": [{"add": "n", "by": 5}, {"put": "t", "text": "x"}, {"get": "k"}, {"delete": "never"}]});
    let failed = json!({"tokens": {"n": "9"}, "if": [{"key": "k", "absent": true}], "then": [{"add": "n", "by": 1}]});
    let impossible = json!({"tokens": {"n": "10"}, "then": [{"add": "n", "by": -9, "min": 0}]});
    let delete = [("fencing-token", "35"), ("idempotency-key", "delete")];
    let if_match = [("fencing-token", "36"), ("idempotency-key", "if-match"), ("if-match", "\"1\"")];
    let acquire = json!({"holder": "a#1", "ttl_ms": 30_000}).to_string();
    let all = |client: &mut Client| -> Vec<Answer> {
        vec![
            put(client, "34", "put", "v"),
            txn(client, "sum", &sum),
            txn(client, "failed", &failed),
            txn(client, "impossible", &impossible),
            client.request("DELETE", "/v1/kv/k", &delete, b""),
            client.request("PUT", "/v1/kv/k", &if_match, b"w"),
            client.request("POST", "/v1/locks/lock", &[("idempotency-key", "acquire")], acquire.as_bytes()),
        ]
    };
    let first = all(&mut client);
    let statuses: Vec<_> = first.iter().map(|answer| answer.status).collect();
    assert_eq!(statuses, [204, 200, 412, 422, 204, 412, 201]);
    let second = all(&mut client);
    first.iter().zip(&second).for_each(|(first, second)| assert_replay(first, second));
    let (process, dir) = gateway.into_parts();
    process.kill();
    let gateway = GatewayProcess::start(&dir.path().join("data"), &[]);
    let mut client = gateway.client();
    let third = all(&mut client);
    first.iter().zip(&third).for_each(|(first, third)| assert_replay(first, third));
    assert_eq!((client.get("n").text().as_str(), client.get("k").status), ("5", 404), "nothing was done twice");
    assert_eq!(client.fence("n").as_deref(), Some("10"));
}

#[test]
fn a_key_belongs_to_one_request_whatever_its_token() {
    let gateway = Fresh::memory(&[]);
    let mut client = gateway.client();
    let typed = |client: &mut Client, method: &str, path: &str, more: &[(&str, &str)], body: &[u8]| {
        let token = [("fencing-token", "34")];
        let token = if method == "POST" { &[] } else { &token[..] };
        let headers = [token, &[("idempotency-key", "7")], more].concat();
        client.request(method, path, &headers, body)
    };
    let text = [("content-type", "text/plain")];
    assert_eq!(typed(&mut client, "PUT", "/v1/kv/k", &text, b"v").status, 204);
    let match_any = [text[0], ("if-match", "*")];
    for (method, path, more, body) in [
        ("PUT", "/v1/kv/other", &text[..], &b"v"[..]),
        ("PUT", "/v1/kv/k", &text, b"w"),
        ("PUT", "/v1/kv/k", &text, b""),
        ("PUT", "/v1/kv/k", &[("content-type", "text/html")], b"v"),
        ("PUT", "/v1/kv/k", &[], b"v"),
        ("PUT", "/v1/kv/k", &match_any, b"v"),
        ("PUT", "/v1/kv/k", &[text[0], ("if-none-match", "*")], b"v"),
        ("DELETE", "/v1/kv/k", &[], b""),
        ("POST", "/v1/txn", &[], br#"{"tokens": {"k": "34"}, "then": [{"put": "k", "text": "v"}]}"#),
        ("POST", "/v1/locks/k", &[], br#"{"holder": "a#1", "ttl_ms": 1000}"#),
    ] {
        let reused = typed(&mut client, method, path, more, body);
        assert_eq!(
            (reused.status, reused.problem().as_str()),
            (422, "key-reused"),
            "{method} {path} {more:?} {body:?}"
        );
        assert_eq!((&reused.json()["outcome"], replayed(&reused)), (&"not-applied".into(), false));
    }
    assert_eq!((client.get("k").text().as_str(), client.get("other").status), ("v", 404));
    assert_eq!(client.fence("other"), None, "a reused key raises nothing");
    // A retry may carry the token of a later acquisition, or another spelling of the path.
    for (path, headers) in [
        ("/v1/kv/k", &[("fencing-token", "1")][..]),
        ("/v1/kv/k", &[("fencing-token", "99"), ("fencing-holder", "b#2"), ("fencing-issuer", "etcd:1")]),
        ("/v1/kv/%6B", &[("fencing-token", "34")]),
        ("/v1/kv/k", &[]),
    ] {
        let headers = [&[("idempotency-key", "7"), text[0]], headers].concat();
        let retry = client.request("PUT", path, &headers, b"v");
        assert_eq!((retry.status, replayed(&retry)), (204, true), "{headers:?}: {}", retry.text());
    }
    assert_eq!(client.fence("k").as_deref(), Some("34"), "a replay raises nothing");
    let txns = ["33", "35"].map(|token| json!({"tokens": {"t": token}, "then": [{"add": "t", "by": 1}]}));
    assert_replay(&txn(&mut client, "t", &txns[0]), &txn(&mut client, "t", &txns[1]));
    assert_eq!(client.get("t").text(), "1");
}

#[test]
fn a_quoted_key_is_the_unquoted_one() {
    let gateway = Fresh::memory(&[]);
    let mut client = gateway.client();
    assert_eq!(put(&mut client, "1", "\"order-7\"", "v").status, 204);
    assert!(replayed(&put(&mut client, "1", "order-7", "v")));
    assert_eq!(outcome(&mut client, "order-7")["outcome"], "applied");
}

#[test]
fn malformed_keys_are_refused_and_long_ones_taken() {
    let gateway = Fresh::memory(&[]);
    let mut client = gateway.client();
    let long = "x".repeat(257);
    for key in ["", "\"\"", long.as_str(), "a\tb"] {
        let bad = put(&mut client, "1", key, "v");
        assert_eq!((bad.status, bad.problem().as_str()), (400, "malformed-header"), "{key:?}");
    }
    let twice = [("fencing-token", "1"), ("idempotency-key", "a"), ("idempotency-key", "a")];
    assert_eq!(client.request("PUT", "/v1/kv/k", &twice, b"v").problem(), "malformed-header");
    for path in ["/v1/outcomes/", &format!("/v1/outcomes/{long}"), "/v1/outcomes/%FF", "/v1/outcomes/%00"] {
        let bad = client.request("GET", path, &[], b"");
        assert_eq!((bad.status, bad.problem().as_str()), (400, "malformed-name"), "{path}");
    }
    assert_eq!((client.get("k").status, client.fence("k")), (404, None));
    let longest = "y".repeat(256);
    assert_eq!(put(&mut client, "1", &longest, "v").status, 204);
    assert_eq!(outcome(&mut client, &longest)["outcome"], "applied");
    // Keys are opaque: a slash, a space and the name of an action are ordinary characters.
    assert_eq!(put(&mut client, "1", "a/b c/abandon", "v").status, 204);
    let found = client.request("GET", "/v1/outcomes/a%2Fb%20c%2Fabandon", &[], b"");
    assert_eq!((found.status, &found.json()["outcome"]), (200, &"applied".into()));
}

#[test]
fn sixteen_duplicates_at_once_are_applied_once() {
    let gateway = Fresh::rocksdb(&[]);
    let body = json!({"tokens": {"n": "1"}, "then": [{"add": "n", "by": 1}]});
    for round in 1..=5 {
        let senders: Vec<_> = (0..16)
            .map(|_| {
                let (mut client, body) = (gateway.client(), body.clone());
                thread::spawn(move || txn(&mut client, &format!("round-{round}"), &body))
            })
            .collect();
        let answers: Vec<Answer> = senders.into_iter().map(|sender| sender.join().unwrap()).collect();
        assert!(answers.iter().all(|answer| answer.status == 200), "{answers:?}");
        assert_eq!(answers.iter().filter(|answer| !replayed(answer)).count(), 1, "one of them did it");
        assert!(answers.iter().all(|answer| answer.json() == answers[0].json()), "all hear of the same");
        assert_eq!(gateway.client().get("n").text(), round.to_string());
    }
}

#[test]
fn a_failure_is_recorded_only_if_it_raised_a_fence() {
    let gateway = Fresh::memory(&[]);
    let mut client = gateway.client();
    let conditional = |client: &mut Client, token: &str, key: &str| {
        let headers = [("fencing-token", token), ("idempotency-key", key), ("if-match", "*")];
        client.request("PUT", "/v1/kv/k", &headers, b"v")
    };
    let raised = conditional(&mut client, "34", "raised");
    assert_eq!(raised.status, 412);
    let unraised = conditional(&mut client, "34", "unraised");
    assert_eq!((unraised.status, replayed(&unraised)), (412, false));
    let found = outcome(&mut client, "raised");
    assert_eq!((&found["outcome"], &found["problem"]), (&"failed".into(), &"condition-failed".into()));
    assert_eq!(outcome(&mut client, "unraised")["outcome"], "not-recorded");
    assert_eq!(client.put("k", "34", "there").status, 204);
    assert_replay(&raised, &conditional(&mut client, "34", "raised"));
    assert_eq!(client.get("k").text(), "there");
    assert_eq!(conditional(&mut client, "34", "unraised").status, 204, "judged again, and now it holds");

    let take = |token: &str| json!({"tokens": {"n": token}, "then": [{"add": "n", "by": -1, "min": 0}]});
    let empty = txn(&mut client, "empty", &take("1"));
    assert_eq!(empty.status, 422);
    let again = txn(&mut client, "again", &take("1"));
    assert_eq!((again.status, replayed(&again)), (422, false));
    assert_eq!(client.put("n", "1", "5").status, 204);
    assert_replay(&empty, &txn(&mut client, "empty", &take("1")));
    assert_eq!(outcome(&mut client, "empty")["problem"], "add-impossible");
    assert_eq!(txn(&mut client, "again", &take("1")).json()["results"][0]["value"], "4");
}

#[test]
fn refusals_are_not_recorded_but_judged_again() {
    let gateway = Fresh::memory(&[]);
    let mut client = gateway.client();
    assert_eq!(client.put("k", "34", "v").status, 204);
    for _ in 0..2 {
        let stale = put(&mut client, "33", "7", "w");
        assert_eq!((stale.status, replayed(&stale)), (409, false));
    }
    let without = client.request("PUT", "/v1/kv/k", &[("idempotency-key", "7")], b"w");
    assert_eq!((without.status, without.problem().as_str()), (428, "missing-token"));
    assert_eq!(outcome(&mut client, "7")["outcome"], "not-recorded");
    assert_eq!(put(&mut client, "35", "7", "w").status, 204, "the same request, with a better token");
    assert!(replayed(&put(&mut client, "33", "7", "w")), "and now even the old token hears of it");
}

#[test]
fn outcomes_tell_what_was_done() {
    let gateway = Fresh::memory(&[]);
    let mut client = gateway.client();
    assert_eq!(outcome(&mut client, "never"), json!({"key": "never", "outcome": "not-recorded"}));
    let etag = put(&mut client, "1", "put", "v").header("etag").unwrap().to_owned();
    let found = outcome(&mut client, "put");
    assert_eq!(found["results"], json!([{"key": "k", "etag": etag}]));
    assert!(found["recorded_at"].as_str().unwrap().starts_with("20"), "{found}");
    let body = json!({"tokens": {"n": "1"}, "then": [{"add": "n", "by": 2}, {"get": "k"}]});
    let done = txn(&mut client, "txn", &body).json();
    assert_eq!(outcome(&mut client, "txn")["results"], done["results"]);
    let delete = [("fencing-token", "1"), ("idempotency-key", "delete")];
    assert_eq!(client.request("DELETE", "/v1/kv/k", &delete, b"").status, 204);
    assert_eq!(outcome(&mut client, "delete")["results"], json!([{"key": "k", "absent": true}]));
    let lease = json!({"holder": "a#1", "ttl_ms": 30_000}).to_string();
    let granted = client.request("POST", "/v1/locks/l", &[("idempotency-key", "lock")], lease.as_bytes());
    let found = outcome(&mut client, "lock");
    assert_eq!((&found["outcome"], &found["token"]), (&"applied".into(), &granted.json()["token"]));
    assert!(
        !found.to_string().contains(granted.json()["lease"].as_str().unwrap()),
        "the lease is its holder's: {found}"
    );
}

#[test]
fn t35_never_seen_is_not_final_until_it_is_abandoned() {
    let gateway = Fresh::rocksdb(&[]);
    let mut client = gateway.client();
    assert_eq!(outcome(&mut client, "late-1")["outcome"], "not-recorded");
    assert_eq!(put(&mut client, "1", "late-1", "the delayed write arrives").status, 204);
    assert_eq!(outcome(&mut client, "late-1")["outcome"], "applied", "so it was not final");

    let abandoned = abandon(&mut client, "late-2");
    assert_eq!((&abandoned["outcome"], &abandoned["problem"]), (&"failed".into(), &"abandoned".into()));
    for _ in 0..2 {
        let late = put(&mut client, "2", "late-2", "too late");
        assert_eq!((late.status, late.problem().as_str()), (422, "abandoned"), "now it cannot apply");
        assert_eq!(late.json()["outcome"], "not-applied");
    }
    assert_eq!(client.fence("k").as_deref(), Some("1"), "an abandoned request raises nothing");
    let (process, dir) = gateway.into_parts();
    process.kill();
    let gateway = GatewayProcess::start(&dir.path().join("data"), &[]);
    let mut client = gateway.client();
    assert_eq!(put(&mut client, "2", "late-2", "after a restart").status, 422);
    let acquire = json!({"holder": "a#1", "ttl_ms": 30_000}).to_string();
    let lock = client.request("POST", "/v1/locks/l", &[("idempotency-key", "late-2")], acquire.as_bytes());
    assert_eq!((lock.status, lock.problem().as_str()), (422, "abandoned"));
    assert_eq!(outcome(&mut client, "late-2")["problem"], "abandoned");
    assert_eq!(client.get("k").text(), "the delayed write arrives");
}

#[test]
fn abandoning_what_was_done_says_so_and_changes_nothing() {
    let gateway = Fresh::memory(&[]);
    let mut client = gateway.client();
    let first = put(&mut client, "1", "7", "v");
    let found = abandon(&mut client, "7");
    assert_eq!((&found["outcome"], found.get("problem")), (&"applied".into(), None));
    assert_replay(&first, &put(&mut client, "1", "7", "v"));
    assert_eq!(abandon(&mut client, "8")["problem"], "abandoned");
    assert_eq!(abandon(&mut client, "8")["problem"], "abandoned", "twice is once");
    let bad = client.request("POST", "/v1/outcomes/9/abandon", &[], b"{\"why\": 1}");
    assert_eq!((bad.status, bad.problem().as_str()), (400, "malformed-body"));
    assert_eq!(outcome(&mut client, "9")["outcome"], "not-recorded");
}

#[test]
fn an_outcome_is_kept_for_the_retention_and_its_key_is_free_afterwards() {
    let gateway = Fresh::rocksdb(&["--outcome-retention", "1s"]);
    let mut client = gateway.client();
    assert_eq!(put(&mut client, "34", "7", "v").status, 204);
    assert_eq!(abandon(&mut client, "8")["problem"], "abandoned");
    for key in ["7", "8"] {
        wait::until("the outcome to be forgotten", Duration::from_secs(20), || {
            (outcome(&mut client, key)["outcome"] == "not-recorded").then_some(())
        });
    }
    assert_eq!((client.get("k").text().as_str(), client.fence("k").as_deref()), ("v", Some("34")), "the rest stays");
    assert_eq!(put(&mut client, "33", "7", "w").problem(), "stale", "the fence is asked again");
    let new = put(&mut client, "34", "7", "another request");
    assert_eq!((new.status, replayed(&new)), (204, false));
    assert_eq!(put(&mut client, "34", "8", "another request").status, 204);
}

#[test]
fn t03_a_delayed_earlier_write_of_the_same_holder_is_stopped_by_a_condition_or_a_key() {
    let gateway = Fresh::memory(&[]);
    let mut client = gateway.client();
    // Fencing cannot detect this: both writes carry the same valid token.
    assert_eq!(client.put("k", "34", "second").status, 204);
    assert_eq!(client.put("k", "34", "first, delayed").status, 204);
    assert_eq!(
        client.get("k").text(),
        "first, delayed",
        "documented: the token alone does not order one holder's writes"
    );
    // A condition detects it.
    let read = client.get("k").header("etag").unwrap().to_owned();
    let conditional = [("fencing-token", "34"), ("if-match", read.as_str())];
    assert_eq!(client.request("PUT", "/v1/kv/k", &conditional, b"second").status, 204);
    assert_eq!(client.request("PUT", "/v1/kv/k", &conditional, b"first, delayed").status, 412);
    // So does an idempotency key, if the delayed write is a duplicate of one that was retried meanwhile.
    assert_eq!(put(&mut client, "34", "w-1", "first").status, 204);
    assert_eq!(put(&mut client, "34", "w-2", "second").status, 204);
    assert!(replayed(&put(&mut client, "34", "w-1", "first")), "the duplicate is not applied again");
    assert_eq!(client.get("k").text(), "second");
    // An abandoned write can be prevented from arriving at all.
    abandon(&mut client, "w-3");
    assert_eq!(put(&mut client, "34", "w-3", "given up").status, 422);
    assert_eq!(client.get("k").text(), "second");
}
