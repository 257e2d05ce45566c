//! What one gateway does, another one knows: values, fences, outcomes and generations.

use std::thread;
use std::time::Duration;

use fencepost_conformance::wait;
use fencepost_harness::budget;
use fencepost_harness::http::{Answer, Client};
use serde_json::{Value, json};

use crate::team::{Gateway, On, Pair, Place, add, is_replayed, on_each, txn};

on_each! {
    what_is_written_at_one_gateway_is_read_at_the_other,
    g2_a_fence_raised_at_one_gateway_refuses_the_old_token_at_the_other,
    g2_every_raise_is_respected_at_once_at_every_gateway,
    versions_are_the_same_at_every_gateway,
    t01_a_claim_at_one_gateway_reads_what_was_written_at_the_other,
    t04_a_retry_at_another_gateway_is_applied_once,
    g7_an_outcome_is_known_at_every_gateway,
    g1_a_rotation_at_one_gateway_retires_tokens_at_the_other,
    t45_transfers_at_both_gateways_keep_the_sum_under_contention,
}

/// PUT with an idempotency key.
fn put_once(client: &mut Client, key: &str, token: &str, once: &str, body: &str) -> Answer {
    let headers = [("fencing-token", token), ("idempotency-key", once)];
    client.request("PUT", &format!("/v1/kv/{key}"), &headers, body.as_bytes())
}

fn outcome(client: &mut Client, once: &str) -> Value {
    let answer = client.request("GET", &format!("/v1/outcomes/{once}"), &[], b"");
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

fn generation(client: &mut Client, resource: &str) -> u64 {
    client.request("GET", &format!("/v1/fences/{resource}"), &[], b"").json()["generation"].as_u64().unwrap()
}

fn what_is_written_at_one_gateway_is_read_at_the_other(on: On) {
    let pair = Pair::start(on, "reads");
    let (mut a, mut b) = (pair.a.client(), pair.b.client());
    let written = a.put("orders/1", "34", "paid");
    assert_eq!(written.status, 204, "{}", written.text());
    let read = b.get("orders/1");
    assert_eq!((read.status, read.text().as_str()), (200, "paid"));
    assert_eq!((read.header("fencing-token"), read.header("fence")), (Some("34"), Some("34")));
    assert_eq!(read.header("etag"), written.header("etag"));
    let listed = b.request("GET", "/v1/kv?prefix=orders/", &[], b"").json();
    assert_eq!(listed["keys"][0]["key"], "orders/1", "{listed}");
    assert_eq!(b.delete("orders/1", "34").status, 204);
    assert_eq!((a.get("orders/1").status, a.fence("orders/1").as_deref()), (404, Some("34")), "the fence stays");
}

fn g2_a_fence_raised_at_one_gateway_refuses_the_old_token_at_the_other(on: On) {
    let pair = Pair::start(on, "fences");
    let (mut a, mut b) = (pair.a.client(), pair.b.client());
    // Both know the old fence, and could judge by it without asking the database.
    for client in [&mut a, &mut b] {
        assert_eq!(client.put("orders/1", "33", "old").status, 204);
    }
    let claim = [("fencing-token", "34"), ("fencing-holder", "worker-b#2")];
    assert_eq!(a.request("POST", "/v1/claim/orders/1", &claim, b"").status, 200);
    for _ in 0..2 {
        let refused = b.put("orders/1", "33", "too late");
        assert_eq!((refused.status, refused.problem().as_str()), (409, "stale"), "{}", refused.text());
        let facts = refused.json();
        assert_eq!(
            (facts["presented"].as_str(), refused.fence_shown().as_deref()),
            (Some("33"), Some("34")),
            "{facts}"
        );
        assert_eq!((&facts["holder"], &facts["resource"]), (&"worker-b#2".into(), &"orders/1".into()), "{facts}");
    }
    assert_eq!(b.delete("orders/1", "33").problem(), "stale");
    assert_eq!(b.claim("orders/1", "33").problem(), "stale");
    let both = json!({"tokens": {"orders/1": "33", "other": "1"}, "then": [{"put": "orders/1", "text": "x"}, {"put": "other", "text": "x"}]});
    assert_eq!(txn(&mut b, &both).status, 409);
    assert_eq!((b.get("orders/1").text().as_str(), b.get("other").status), ("old", 404));
}

fn g2_every_raise_is_respected_at_once_at_every_gateway(on: On) {
    let place = Place::new(on, "raises");
    let gateways: Vec<Gateway> = (0..3).map(|_| Gateway::start(&place.engine())).collect();
    let mut clients: Vec<Client> = gateways.iter().map(|gateway| gateway.client()).collect();
    for token in 2..=budget::pick(20_usize, 200) {
        let (at, token, before) = (token % 3, token.to_string(), (token - 1).to_string());
        assert_eq!(clients[at].put("k", &token, &token).status, 204);
        for (other, client) in clients.iter_mut().enumerate() {
            let stale = client.put("k", &before, "too late");
            assert_eq!((stale.status, stale.problem().as_str()), (409, "stale"), "gateway {other}: {}", stale.text());
            assert_eq!(client.get("k").text(), token);
        }
    }
}

fn versions_are_the_same_at_every_gateway(on: On) {
    let pair = Pair::start(on, "versions");
    let (mut a, mut b) = (pair.a.client(), pair.b.client());
    let first = a.put("k", "1", "first").header("etag").unwrap().to_owned();
    let matching = |etag: &str| [("fencing-token", "1".to_owned()), ("if-match", etag.to_owned())];
    let put = |client: &mut Client, etag: &str, body: &str| {
        let headers = matching(etag);
        let headers = headers.each_ref().map(|(name, value)| (*name, value.as_str()));
        client.request("PUT", "/v1/kv/k", &headers, body.as_bytes())
    };
    let second = put(&mut b, &first, "second");
    assert_eq!(second.status, 204, "{}", second.text());
    let lost = put(&mut a, &first, "lost update");
    assert_eq!((lost.status, lost.problem().as_str()), (412, "condition-failed"));
    assert_eq!(lost.json()["etag"].as_str(), second.header("etag"));
    assert_eq!(put(&mut a, second.header("etag").unwrap(), "third").status, 204);
    let absent = [("fencing-token", "1"), ("if-none-match", "*")];
    assert_eq!(b.request("PUT", "/v1/kv/k", &absent, b"again").status, 412);
    assert_eq!(b.get("k").text(), "third");
}

fn t01_a_claim_at_one_gateway_reads_what_was_written_at_the_other(on: On) {
    let pair = Pair::start(on, "claims");
    let (mut a, mut b) = (pair.a.client(), pair.b.client());
    for round in 0..10 {
        let (old, new) = ((round * 2 + 1).to_string(), (round * 2 + 2).to_string());
        let body = format!("by {old}");
        assert_eq!(a.put("k", &old, &body).status, 204);
        let claimed = b.claim("k", &new);
        assert_eq!(claimed.status, 200, "{}", claimed.text());
        assert_eq!(claimed.json()["values"][0]["text"], body, "{}", claimed.text());
        assert_eq!(a.put("k", &old, "after the claim").problem(), "stale");
        assert_eq!(b.put("k", &new, "newer").status, 204);
    }
}

fn t04_a_retry_at_another_gateway_is_applied_once(on: On) {
    let pair = Pair::start(on, "replays");
    let (mut a, mut b) = (pair.a.client(), pair.b.client());
    let first = put_once(&mut a, "k", "33", "w-1", "paid");
    assert_eq!((first.status, is_replayed(&first)), (204, false), "{}", first.text());
    // Another holder takes over meanwhile.
    assert_eq!(a.claim("k", "34").status, 200);
    assert_eq!(a.put("k", "34", "shipped").status, 204);
    let again = put_once(&mut b, "k", "33", "w-1", "paid");
    assert_eq!((again.status, is_replayed(&again)), (204, true), "{}", again.text());
    assert_eq!(again.header("etag"), first.header("etag"), "the answer of then");
    assert_eq!(b.get("k").text(), "shipped", "and it is not applied again");
    let reused = put_once(&mut b, "k", "34", "w-1", "something else");
    assert_eq!((reused.status, reused.problem().as_str()), (422, "key-reused"));

    let body = add("n", 1).to_string();
    for round in 0..10 {
        let once = format!("add-{round}");
        // At both at once.
        let answers: Vec<Answer> = thread::scope(|scope| {
            let send = |gateway: &Gateway| {
                let (mut client, once, body) = (gateway.client(), once.clone(), body.clone());
                scope.spawn(move || {
                    client.request("POST", "/v1/txn", &[("idempotency-key", once.as_str())], body.as_bytes())
                })
            };
            let sent = [&pair.a, &pair.b, &pair.a, &pair.b].map(send);
            sent.into_iter().map(|sent| sent.join().unwrap()).collect()
        });
        assert!(answers.iter().all(|answer| answer.status == 200), "{answers:?}");
        assert_eq!(answers.iter().filter(|answer| !is_replayed(answer)).count(), 1, "one of them did it: {answers:?}");
    }
    assert_eq!((a.get("n").text(), b.get("n").text()), ("10".to_owned(), "10".to_owned()));
}

fn g7_an_outcome_is_known_at_every_gateway(on: On) {
    let pair = Pair::start(on, "outcomes");
    let (mut a, mut b) = (pair.a.client(), pair.b.client());
    assert_eq!(outcome(&mut b, "w-1")["outcome"], "not-recorded");
    assert_eq!(put_once(&mut a, "k", "1", "w-1", "v").status, 204);
    assert_eq!(outcome(&mut b, "w-1")["outcome"], "applied");
    let abandoned = a.request("POST", "/v1/outcomes/w-2/abandon", &[], b"");
    assert_eq!((abandoned.status, &abandoned.json()["outcome"]), (200, &"failed".into()), "{}", abandoned.text());
    let late = put_once(&mut b, "k", "2", "w-2", "too late");
    assert_eq!((late.status, late.problem().as_str()), (422, "abandoned"));
    assert_eq!((b.get("k").text().as_str(), b.fence("k").as_deref()), ("v", Some("1")));
    let done = b.request("POST", "/v1/outcomes/w-1/abandon", &[], b"");
    assert_eq!(done.json()["outcome"], "applied", "what was done stays done");
}

fn g1_a_rotation_at_one_gateway_retires_tokens_at_the_other(on: On) {
    let pair = Pair::start(on, "rotations");
    let (mut a, mut b) = (pair.a.client(), pair.b.client());
    for key in ["orders/1", "orders/2"] {
        assert_eq!(b.put(key, "34", "v").status, 204);
    }
    let rotated = pair.a.admin("fence rotate orders/1 --from 0 --reason test");
    assert!(rotated.status.success(), "{rotated:?}");
    for token in ["34", "35", "18446744073709551615"] {
        let refused = b.put("orders/1", token, "zombie");
        assert_eq!((refused.status, refused.problem().as_str()), (409, "retired-generation"), "{token}");
    }
    assert_eq!(b.put("orders/2", "34", "not rotated").status, 204);
    assert_eq!(b.put("orders/1", "1:1", "new").status, 204);
    let again = pair.b.admin("fence rotate orders/1 --from 0 --reason retry");
    assert_eq!(again.status.code(), Some(4), "a retry at the other gateway does not rotate twice: {again:?}");

    let rotated = pair.a.admin("fence rotate --all --from 0 --reason test");
    assert!(rotated.status.success(), "{rotated:?}");
    for (key, token) in [("orders/1", "1:2"), ("orders/2", "35"), ("never/seen", "1")] {
        let refused = b.put(key, token, "zombie");
        assert_eq!((refused.status, refused.problem().as_str()), (409, "retired-generation"), "{key}");
    }
    let base = generation(&mut b, "never/seen");
    assert_eq!(base, generation(&mut a, "never/seen"));
    assert_eq!(b.put("never/seen", &format!("{base}:1"), "new").status, 204);
}

fn t45_transfers_at_both_gateways_keep_the_sum_under_contention(on: On) {
    let pair = Pair::start(on, "transfers");
    let transfers = budget::pick(25, 250);
    let (mut a, mut b) = (pair.a.client(), pair.b.client());
    assert_eq!(a.put("from", "1", "0").status, 204);
    assert_eq!(a.put("to", "1", "0").status, 204);
    let transfer =
        json!({"tokens": {"from": "1", "to": "1"}, "then": [{"add": "from", "by": -1}, {"add": "to", "by": 1}]});
    let both = json!({"then": [{"get": "from"}, {"get": "to"}]});
    let number = |result: &Value| result["text"].as_str().unwrap().parse::<i64>().unwrap();
    let mut reads = 0;
    thread::scope(|scope| {
        let workers: Vec<_> = [&pair.a, &pair.b, &pair.a, &pair.b]
            .map(|gateway| {
                let (mut client, transfer) = (gateway.client(), &transfer);
                scope.spawn(move || {
                    for _ in 0..transfers {
                        cured(&mut client, transfer);
                    }
                })
            })
            .into();
        while workers.iter().any(|worker| !worker.is_finished()) {
            for client in [&mut a, &mut b] {
                let read = txn(client, &both);
                assert_eq!(read.status, 200, "{}", read.text());
                let results = read.json()["results"].clone();
                assert_eq!(number(&results[0]) + number(&results[1]), 0, "half of a transfer was seen: {results}");
                reads += 1;
            }
        }
    });
    assert!(reads > 0, "nothing was read meanwhile");
    let moved = (4 * transfers).to_string();
    assert_eq!((b.get("to").text(), a.get("from").text()), (moved.clone(), format!("-{moved}")));
}

/// Sends a transaction until it is not rejected, a few times at the most.
fn cured(client: &mut Client, body: &Value) {
    for _ in 0..20 {
        let answer = txn(client, body);
        if answer.status != 503 {
            assert_eq!(answer.status, 200, "{}", answer.text());
            return;
        }
        assert_eq!(answer.json()["outcome"], "not-applied", "{}", answer.text());
        wait::pause(Duration::from_millis(20));
    }
    panic!("rejected twenty times in a row");
}
