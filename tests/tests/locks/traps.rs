//! Traps that the built-in lock service must avoid; each test carries the number of its trap.

use std::time::Duration;

use fencepost_conformance::wait::{self, PATIENCE};
use fencepost_harness::fresh::Fresh;
use fencepost_harness::http::{Answer, Client};
use fencepost_harness::process::GatewayProcess;
use rustix::process::Signal;
use serde_json::json;

const LONG: u64 = 60_000;
const HIGHEST: &str = "18446744073709551615";

fn lease(answer: &Answer) -> String {
    assert!(matches!(answer.status, 200 | 201), "{}", answer.text());
    answer.json()["lease"].as_str().unwrap().to_owned()
}

fn rotate(gateway: &Fresh, resource: &str, from: u32) {
    let mut admin = Client::connect_unix(&gateway.data().join("admin.sock"));
    let body = json!({"from": from, "reason": "a test"});
    let answer = admin.post(&format!("/v1/admin/fences/{resource}/rotate"), &body);
    assert_eq!((answer.status, &answer.json()["generation"]), (200, &(from + 1).into()), "{}", answer.text());
}

fn remaining(client: &mut Client) -> u64 {
    client.request("GET", "/v1/locks/k", &[], b"").json()["remaining_ms"].as_u64().unwrap()
}

#[test]
fn t05_no_number_is_at_or_below_the_fence_whoever_raised_it() {
    let gateway = Fresh::rocksdb(&[]);
    let mut client = gateway.client();
    assert_eq!(client.put("k", "1000", "numbered elsewhere").status, 204);
    let granted = client.acquire("k", "a#1", LONG);
    assert_eq!(granted.json()["token"], "1001");
    assert_eq!(client.release("k", &lease(&granted)).status, 204);
    assert_eq!(client.claim("k", "5000").status, 200);
    let (process, dir) = gateway.into_parts();
    process.kill();
    let gateway = GatewayProcess::start(&dir.path().join("data"), &[]);
    let mut client = gateway.client();
    assert_eq!(client.acquire("k", "b#2", LONG).json()["token"], "5001", "a restart forgets no number");
    assert_eq!(client.put("k", "5000", "zombie").problem(), "stale");
}

#[test]
fn t06_a_resource_of_another_lock_service_is_not_granted_until_it_is_rotated() {
    let gateway = Fresh::memory(&[]);
    let mut client = gateway.client();
    let etcd = [("fencing-token", "34"), ("fencing-issuer", "etcd:1")];
    assert_eq!(client.request("PUT", "/v1/kv/k", &etcd, b"v").status, 204);
    let refused = client.acquire("k", "a#1", LONG);
    assert_eq!((refused.status, refused.problem().as_str()), (409, "foreign-issuer"), "{}", refused.text());
    assert_eq!(refused.json()["issuer"], "etcd:1");
    rotate(&gateway, "k", 0);
    let granted = client.acquire("k", "a#1", LONG);
    assert_eq!((granted.status, &granted.json()["token"]), (201, &"1:1".into()));
    let late = client.request("PUT", "/v1/kv/k", &etcd, b"late");
    assert_eq!((late.status, late.problem().as_str()), (409, "retired-generation"));
    let back = [("fencing-token", "1:35"), ("fencing-issuer", "etcd:1")];
    assert_eq!(client.request("PUT", "/v1/kv/k", &back, b"w").problem(), "foreign-issuer", "now it is bound to us");
}

#[test]
fn t07_a_poisoned_token_exhausts_the_lock_and_rotating_recovers_it() {
    let gateway = Fresh::memory(&[]);
    let mut client = gateway.client();
    let id = lease(&client.acquire("k", "a#1", LONG));
    assert_eq!(client.put("k", HIGHEST, "poison").status, 204);
    assert_eq!(client.renew("k", &id, LONG).problem(), "lease-lost");
    assert_eq!(client.release("k", &id).status, 204);
    let exhausted = client.acquire("k", "b#2", LONG);
    assert_eq!((exhausted.status, exhausted.problem().as_str()), (409, "exhausted"));
    let json = exhausted.json();
    assert_eq!((&json["fence"], &json["generation"]), (&HIGHEST.into(), &0.into()), "{json}");
    assert!(json["advice"].as_str().unwrap().contains("fencepost fence rotate"), "{json}");
    rotate(&gateway, "k", 0);
    let granted = client.acquire("k", "b#2", LONG);
    assert_eq!((granted.status, &granted.json()["token"]), (201, &"1:1".into()));
    assert_eq!(client.put("k", "1:1", "recovered").status, 204);
    assert_eq!(client.put("k", HIGHEST, "poison").problem(), "retired-generation");
    let audit = std::fs::read_to_string(gateway.data().join("audit.jsonl")).unwrap();
    assert!(audit.contains("\"action\":\"rotate\"") && audit.contains("\"reason\":\"a test\""), "{audit}");
}

#[test]
fn t07_a_lease_of_an_ended_generation_is_lost_and_the_next_one_begins_anew() {
    let gateway = Fresh::memory(&[]);
    let mut client = gateway.client();
    let id = lease(&client.acquire("k", "a#1", LONG));
    rotate(&gateway, "k", 0);
    assert_eq!(client.put("k", "1", "its token is retired").problem(), "retired-generation");
    assert_eq!(client.renew("k", &id, LONG).problem(), "lease-lost", "so its holder had better know");
    assert_eq!(client.release("k", &id).status, 204);
    assert_eq!(client.acquire("k", "b#2", LONG).json()["token"], "1:1");
}

#[test]
fn t19_an_expired_holder_writes_until_its_successor_shows_itself() {
    let gateway = Fresh::memory(&[]);
    let mut client = gateway.client();
    let a = client.acquire("k", "a#1", 100).json();
    wait::until("the lease to run out", PATIENCE, || (remaining(&mut client) == 0).then_some(()));
    let token = a["token"].as_str().unwrap();
    assert_eq!(client.put("k", token, "late, and safe: nobody else is there").status, 204);
    let b = wait::until("the takeover", PATIENCE, || {
        let answer = client.acquire("k", "b#2", LONG);
        (answer.status == 201).then(|| answer.json())
    });
    assert_eq!(client.put("k", token, "too late").problem(), "stale", "the grant ends it, before B writes anything");
    assert_eq!(client.put("k", b["token"].as_str().unwrap(), "b").status, 204);
}

#[test]
fn t24_a_gateway_that_was_stopped_beyond_the_ttl_still_renews_what_nobody_took() {
    let gateway = Fresh::memory(&[]);
    let mut client = gateway.client();
    let id = lease(&client.acquire("k", "a#1", 300));
    gateway.signal(Signal::STOP);
    let body = json!({"lease": id, "ttl_ms": LONG}).to_string();
    let length = body.len();
    let renewal =
        format!("POST /v1/locks/k/renew HTTP/1.1\r\nhost: localhost\r\ncontent-length: {length}\r\n\r\n{body}");
    client.send(renewal.as_bytes()).unwrap();
    wait::pause(Duration::from_millis(900));
    gateway.signal(Signal::CONT);
    let renewed = client.receive().unwrap();
    assert_eq!((renewed.status, &renewed.json()["token"]), (200, &"1".into()), "{}", renewed.text());
    assert!(remaining(&mut client) > LONG / 2, "the new ttl counts from the renewal");
    assert_eq!(client.acquire("k", "b#2", LONG).status, 423);
}

#[test]
fn t24_after_a_stop_the_holder_or_the_waiter_has_the_lock_never_both() {
    let gateway = Fresh::memory(&[]);
    for round in 0..5 {
        let (mut client, mut waiter) = (gateway.client(), gateway.client());
        let first = client.acquire("k", "a#1", 150);
        let (id, token) = (lease(&first), first.json()["token"].clone());
        let send = |client: &mut Client, path: &str, body: serde_json::Value| {
            let (body, length) = (body.to_string(), body.to_string().len());
            let request = format!("POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {length}\r\n\r\n{body}");
            client.send(request.as_bytes()).unwrap();
        };
        send(&mut waiter, "/v1/locks/k", json!({"holder": "b#2", "ttl_ms": LONG, "wait_ms": 1_000}));
        gateway.signal(Signal::STOP);
        send(&mut client, "/v1/locks/k/renew", json!({"lease": id, "ttl_ms": LONG}));
        wait::pause(Duration::from_millis(300));
        gateway.signal(Signal::CONT);
        let (renewed, waited) = (client.receive().unwrap(), waiter.receive().unwrap());
        let shown = client.request("GET", "/v1/locks/k", &[], b"").json();
        let now = match (renewed.status, waited.status) {
            (200, 423) => {
                assert_eq!((&shown["holder"], &shown["token"]), (&"a#1".into(), &token), "round {round}");
                id
            }
            (410, 201) => {
                assert_eq!((&shown["holder"], &shown["token"]), (&"b#2".into(), &waited.json()["token"]));
                let stale = client.put("k", token.as_str().unwrap(), "zombie");
                assert_eq!(stale.problem(), "stale", "round {round}");
                lease(&waited)
            }
            both => panic!("round {round}: {both:?}"),
        };
        assert_eq!(client.release("k", &now).status, 204);
    }
}
