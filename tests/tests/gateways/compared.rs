//! Everything that a command was judged on is compared when it commits, written or not (E2, trap 33).

use fencepost_conformance::proxy::Direction;
use fencepost_harness::http::Client;
use serde_json::{Value, json};

use crate::held::{Held, told};
use crate::team::{On, on_each, put_request, txn_request};

on_each! {
    t33_a_fence_that_is_not_rewritten_is_compared,
    t33_a_fence_that_is_absent_is_compared,
    t33_a_value_that_a_claim_reads_is_compared,
    t33_a_value_that_a_condition_reads_is_compared,
    t33_what_a_transaction_reads_is_compared,
}

/// How often each of these is tried, with a resource of its own.
const ROUNDS: u64 = 5;

fn stale() -> (u16, String) {
    (409, "stale".to_owned())
}

/// Puts under 33, which succeeds: the command that is held has not committed.
fn put(client: &mut Client, key: &str, body: &str) {
    let answer = client.put(key, "33", body);
    assert_eq!(answer.status, 204, "{}", answer.text());
}

/// The late put neither rewrites the fence, nor is the value changed meanwhile.
fn t33_a_fence_that_is_not_rewritten_is_compared(on: On) {
    let held = Held::start(on, "equal_fences");
    for round in 0..ROUNDS {
        let key = format!("k{round}");
        put(&mut held.through.client(), &key, "first");
        let late = held.while_held(&put_request(&key, "33", "late"), |direct| {
            assert_eq!(direct.claim(&key, "34").status, 200);
        });
        assert_eq!(told(&late), stale(), "round {round}");
        assert_eq!(held.direct.client().get(&key).text(), "first");
    }
}

fn t33_a_fence_that_is_absent_is_compared(on: On) {
    let held = Held::start(on, "absent_fences");
    for direction in [Direction::Up, Direction::Down] {
        for round in 0..ROUNDS {
            let key = format!("{direction:?}{round}");
            let late = held.while_on_its_way(direction, &put_request(&key, "33", "late"), |direct| {
                assert_eq!(direct.claim(&key, "34").status, 200);
            });
            assert_eq!(told(&late), stale(), "round {round}");
            assert_eq!(held.direct.client().get(&key).status, 404);
        }
    }
}

/// A claim returns the value at the instant of its raise, not from before it.
fn t33_a_value_that_a_claim_reads_is_compared(on: On) {
    let held = Held::start(on, "claimed_values");
    for round in 0..ROUNDS {
        let key = format!("k{round}");
        put(&mut held.through.client(), &key, "first");
        let claim = format!(
            "POST /v1/claim/{key} HTTP/1.1\r\nhost: localhost\r\nfencing-token: 34\r\ncontent-length: 0\r\n\r\n"
        );
        let claimed = held.while_on_its_way(Direction::Down, claim.as_bytes(), |direct| put(direct, &key, "second"));
        assert_eq!(claimed.status, 200, "{}", claimed.text());
        assert_eq!(claimed.json()["values"][0]["text"], "second", "round {round}: {}", claimed.text());
    }
}

fn t33_a_value_that_a_condition_reads_is_compared(on: On) {
    let held = Held::start(on, "conditions");
    for round in 0..ROUNDS {
        let (key, other) = (format!("k{round}"), format!("other{round}"));
        put(&mut held.through.client(), &key, "first");
        // The value that it depends on is not one that it writes.
        let body = json!({
            "tokens": {&other: "33"},
            "if": [{"key": &key, "equals": "first"}],
            "then": [{"put": &other, "text": "late"}],
        });
        let late = held.while_on_its_way(Direction::Down, &txn_request(&body), |direct| put(direct, &key, "second"));
        assert_eq!(told(&late), (412, "condition-failed".to_owned()), "round {round}");
        assert_eq!(held.direct.client().get(&other).status, 404);
    }
}

/// What it returns and what it writes belong to one instant.
fn t33_what_a_transaction_reads_is_compared(on: On) {
    let held = Held::start(on, "transaction_reads");
    for round in 0..ROUNDS {
        let (key, other) = (format!("k{round}"), format!("other{round}"));
        put(&mut held.through.client(), &key, "first");
        let body = json!({"tokens": {&other: "33"}, "then": [{"put": &other, "text": "late"}, {"get": &key}]});
        let late = held.while_on_its_way(Direction::Down, &txn_request(&body), |direct| {
            put(direct, &key, "second");
            assert_eq!(direct.get(&other).status, 404, "it was read before, and is written after");
        });
        assert_eq!(late.status, 200, "{}", late.text());
        let results: Value = late.json()["results"].clone();
        assert_eq!(results[1]["text"], "second", "round {round}: {results}");
    }
}
