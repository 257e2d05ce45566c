//! Clients that disconnect in the middle: their requests still end cleanly for all others.
use std::time::Duration;

use fencepost_conformance::wait;
use fencepost_harness::fresh::Fresh;
use fencepost_harness::http::Client;
use serde_json::{Value, json};

/// Longer than any step here may take.
const PATIENCE: Duration = Duration::from_secs(20);

fn post(path: &str, body: &Value) -> Vec<u8> {
    let body = body.to_string();
    format!("POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

fn waiting(client: &mut Client, name: &str) -> u64 {
    client.request("GET", &format!("/v1/locks/{name}"), &[], b"").json()["waiting"].as_u64().unwrap_or(0)
}

fn waiter(gateway: &Fresh, name: &str, holder: &str) -> Client {
    let mut client = gateway.client();
    client.set_timeout(PATIENCE);
    let wanted = json!({"holder": holder, "ttl_ms": 3_600_000, "wait_ms": 600_000});
    client.send(&post(&format!("/v1/locks/{name}"), &wanted)).unwrap();
    client
}

#[test]
fn a_release_whose_client_left_still_wakes_the_next() {
    let gateway = Fresh::memory(&[]);
    let mut client = gateway.client();
    for round in 0..30 {
        let name = format!("left/{round}");
        let wanted = json!({"holder": "first#1", "ttl_ms": 3_600_000}).to_string();
        let lease = client.request("POST", &format!("/v1/locks/{name}"), &[], wanted.as_bytes()).json();
        let lease = lease["lease"].as_str().unwrap().to_owned();
        let mut second = waiter(&gateway, &name, "second#1");
        wait::until("the second to wait", PATIENCE, || (waiting(&mut client, &name) == 1).then_some(()));
        let mut leaving = gateway.client();
        let path = format!("/v1/locks/{name}?lease={lease}");
        leaving.send(format!("DELETE {path} HTTP/1.1\r\nhost: localhost\r\n\r\n").as_bytes()).unwrap();
        drop(leaving);
        // The client may have left before the gateway read its request; then this one releases.
        let again = client.request("DELETE", &path, &[], b"").status;
        assert!(matches!(again, 204 | 410), "{again}");
        let answer = second.receive().expect("the lock is free, so whoever waits gets it");
        assert_eq!(answer.status, 201, "{answer:?}");
    }
}

#[test]
fn a_waiter_that_leaves_at_its_grant_does_not_keep_the_lock() {
    let gateway = Fresh::memory(&[]);
    let mut client = gateway.client();
    for round in 0..30 {
        let name = format!("granted/{round}");
        let wanted = json!({"holder": "first#1", "ttl_ms": 3_600_000}).to_string();
        let lease = client.request("POST", &format!("/v1/locks/{name}"), &[], wanted.as_bytes()).json();
        let lease = lease["lease"].as_str().unwrap().to_owned();
        let leaving = waiter(&gateway, &name, "leaving#1");
        wait::until("it to wait", PATIENCE, || (waiting(&mut client, &name) == 1).then_some(()));
        let released = client
            .send(format!("DELETE /v1/locks/{name}?lease={lease} HTTP/1.1\r\nhost: localhost\r\n\r\n").as_bytes());
        drop(leaving);
        released.unwrap();
        assert_eq!(client.receive().unwrap().status, 204);
        // The waiter left in time, or its grant was revoked, or it was granted while its answer was on the way. Only in
        // the last case the lease remains, and an administrator can release it.
        let next = json!({"holder": "next#1", "ttl_ms": 1_000}).to_string();
        let mut admin = Client::connect_unix(&gateway.data().join("admin.sock"));
        wait::until("the lock to be free", PATIENCE, || {
            let answer = client.request("POST", &format!("/v1/locks/{name}"), &[], next.as_bytes());
            if answer.status == 423 && answer.json()["holder"] == "leaving#1" {
                admin.request("POST", &format!("/v1/admin/locks/{name}/force-release"), &[], b"");
            }
            (answer.status == 201).then_some(())
        });
    }
}

#[test]
fn an_administrators_act_is_audited_to_its_end_also_if_nobody_waits_for_it() {
    let gateway = Fresh::memory(&[]);
    let socket = gateway.data().join("admin.sock");
    for from in 0..30 {
        let mut leaving = Client::connect_unix(&socket);
        let body = json!({"from": from, "reason": "a client that leaves"});
        leaving.send(&post("/v1/admin/fences/r/rotate", &body)).unwrap();
    }
    let audit = gateway.data().join("audit.jsonl");
    let count = |outcomes: &[&str]| {
        let lines = std::fs::read_to_string(&audit).unwrap_or_default();
        let outcome = |line: &str| serde_json::from_str::<Value>(line).unwrap()["outcome"].as_str().unwrap().to_owned();
        lines.lines().filter(|line| outcomes.contains(&outcome(line).as_str())).count()
    };
    // The number of requests that were read depends on timing, but each of them has its end in the log.
    let mut client = Client::connect_unix(&socket);
    let last = client.request("POST", "/v1/admin/fences/s/rotate", &[], br#"{"from": 0, "reason": "the last"}"#);
    assert_eq!(last.status, 200, "{last:?}");
    wait::until("every act to have its end", PATIENCE, || {
        (count(&["requested"]) == count(&["done", "not-done"])).then_some(())
    });
}
