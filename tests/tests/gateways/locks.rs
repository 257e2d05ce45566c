//! The built-in lock service over several gateways.

use std::thread;
use std::time::{Duration, Instant};

use fencepost_conformance::wait::{self, PATIENCE};
use fencepost_harness::budget;
use fencepost_harness::http::{Answer, Client};
use fencepost_harness::record::number;
use parking_lot::Mutex;
use serde_json::json;

use crate::team::{Gateway, On, Pair, Place, on_each};

on_each! {
    a_release_at_one_gateway_wakes_a_waiter_at_the_other,
    the_lock_of_a_dead_holder_is_taken_over_after_one_ttl_also_at_another_gateway,
    a_lease_is_renewed_and_released_through_any_gateway,
    g2_a_fence_raised_at_one_gateway_ends_a_lease_that_is_waited_for_at_the_other,
    t12_tokens_rise_with_every_handover_and_every_waiter_has_its_turn,
}

const LONG: u64 = 60_000;

/// How much later than planned something may happen on a busy machine.
const SLACK: Duration = Duration::from_secs(3);

fn lease(answer: &Answer) -> String {
    assert!(matches!(answer.status, 200 | 201), "{}", answer.text());
    answer.json()["lease"].as_str().unwrap().to_owned()
}

fn token(answer: &Answer) -> u64 {
    assert_eq!(answer.status, 201, "{}", answer.text());
    number(answer.json()["token"].as_str()).unwrap()
}

/// Requests a lock on a connection of its own, and does not read the answer yet.
fn ask(gateway: &Gateway, lock: &str, holder: &str, ttl_ms: u64) -> Client {
    let mut client = gateway.client();
    let body = json!({"holder": holder, "ttl_ms": ttl_ms, "wait_ms": LONG}).to_string();
    let length = body.len();
    let request =
        format!("POST /v1/locks/{lock} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {length}\r\n\r\n{body}");
    client.send(request.as_bytes()).unwrap();
    client
}

/// Waits until this gateway has a waiter for a lock.
fn wait_for_waiter(gateway: &Gateway, lock: &str) {
    let mut client = gateway.client();
    wait::until("the waiter to be in the queue", PATIENCE, || {
        let shown = client.request("GET", &format!("/v1/locks/{lock}"), &[], b"").json();
        (shown["waiting"] == 1).then_some(())
    });
}

fn a_release_at_one_gateway_wakes_a_waiter_at_the_other(on: On) {
    let pair = Pair::start(on, "releases");
    let (mut held, mut highest, mut times) = (pair.a.client().acquire("k", "first#0", LONG), 0, Vec::new());
    for round in 0..9 {
        let (from, to) = if round % 2 == 0 { (&pair.a, &pair.b) } else { (&pair.b, &pair.a) };
        assert!(token(&held) > highest, "tokens rise: {}", held.text());
        highest = token(&held);
        let mut waiter = ask(to, "k", &format!("w#{round}"), LONG);
        wait_for_waiter(to, "k");
        let released = Instant::now();
        assert_eq!(from.client().release("k", &lease(&held)).status, 204);
        held = waiter.receive().unwrap();
        times.push(released.elapsed());
    }
    times.sort();
    println!("handovers took {times:?}");
    assert!(times[4] < Duration::from_secs(1), "most handovers take longer than a second: {times:?}");
    assert!(times[8] < Duration::from_millis(LONG / 4), "long before the lease would have run out: {times:?}");
}

fn the_lock_of_a_dead_holder_is_taken_over_after_one_ttl_also_at_another_gateway(on: On) {
    let ttl = Duration::from_secs(2);
    let mut pair = Pair::start(on, "dead_holder");
    let held = pair.a.client().acquire("k", "a#1", 2_000);
    let mut waiter = ask(&pair.b, "k", "b#2", LONG);
    wait_for_waiter(&pair.b, "k");
    // Seen late, the renewal would cost the waiter a second ttl.
    wait::until("half of the ttl", PATIENCE, || {
        let remaining = pair.b.client().request("GET", "/v1/locks/k", &[], b"").json()["remaining_ms"].as_u64();
        remaining.is_none_or(|remaining| remaining < 1_000).then_some(())
    });
    let renewing = Instant::now();
    let renewed = pair.a.client().renew("k", &lease(&held), 2_000);
    assert_eq!(renewed.status, 200, "the machine stood still: {}", renewed.text());
    let renewed = Instant::now();
    pair.a.kill();
    let granted = waiter.receive().unwrap();
    let (since_asked, since_renewed) = (renewing.elapsed(), renewed.elapsed());
    assert!(token(&granted) > token(&held));
    assert!(since_asked >= ttl, "taken over before the renewed lease ran out: {since_asked:?}");
    assert!(since_renewed < ttl + SLACK, "{since_renewed:?} after the last renewal");
    let mut b = pair.b.client();
    let late = b.put("k", &token(&held).to_string(), "late");
    assert_eq!((late.status, late.problem().as_str()), (409, "stale"));
}

fn a_lease_is_renewed_and_released_through_any_gateway(on: On) {
    let pair = Pair::start(on, "leases");
    let (mut a, mut b) = (pair.a.client(), pair.b.client());
    let held = a.acquire("k", "a#1", LONG);
    let id = lease(&held);
    let renewed = b.renew("k", &id, LONG);
    assert_eq!((renewed.status, &renewed.json()["token"]), (200, &held.json()["token"]), "{}", renewed.text());
    let busy = b.acquire("k", "b#2", LONG);
    assert_eq!((busy.status, &busy.json()["holder"]), (423, &"a#1".into()), "{}", busy.text());
    assert_eq!(b.put("k", &token(&held).to_string(), "under the lock").status, 204);
    assert_eq!(b.release("k", "0123456789abcdef0123456789abcdef").status, 410, "not its lease");
    assert_eq!(b.release("k", &id).status, 204);
    assert_eq!(a.renew("k", &id, LONG).problem(), "lease-lost");
    assert_eq!(a.release("k", &id).status, 410);
    assert!(token(&a.acquire("k", "c#3", LONG)) > token(&held));
}

fn g2_a_fence_raised_at_one_gateway_ends_a_lease_that_is_waited_for_at_the_other(on: On) {
    let pair = Pair::start(on, "overtaken");
    let held = pair.a.client().acquire("k", "a#1", LONG);
    let mut waiter = ask(&pair.b, "k", "b#2", LONG);
    wait_for_waiter(&pair.b, "k");
    let raised = Instant::now();
    assert_eq!(pair.a.client().claim("k", "1000").status, 200);
    let granted = waiter.receive().unwrap();
    assert!(raised.elapsed() < Duration::from_millis(LONG / 4), "{:?}", raised.elapsed());
    assert_eq!((token(&held), token(&granted)), (1, 1001));
}

fn t12_tokens_rise_with_every_handover_and_every_waiter_has_its_turn(on: On) {
    let place = Place::new(on, "handovers");
    let gateways: Vec<Gateway> = (0..3).map(|_| Gateway::start(&place.engine())).collect();
    let turns = budget::pick(8, 80);
    // In the order of the grants, because only the holder writes here.
    let granted: Mutex<Vec<u64>> = Mutex::default();
    thread::scope(|scope| {
        for worker in 0..6 {
            let (own, other) = (&gateways[worker % 3], &gateways[(worker + 1) % 3]);
            let granted = &granted;
            scope.spawn(move || {
                let (mut own, mut other) = (own.client(), other.client());
                for turn in 0..turns {
                    let wanted = json!({"holder": format!("w{worker}#{turn}"), "ttl_ms": LONG, "wait_ms": LONG});
                    let held = own.post("/v1/locks/k", &wanted);
                    let number = token(&held);
                    granted.lock().push(number);
                    let written = other.put("k", &number.to_string(), "under the lock");
                    assert_eq!(written.status, 204, "the holder's own write is refused: {}", written.text());
                    let released = other.release("k", &lease(&held));
                    assert_eq!(released.status, 204, "{}", released.text());
                }
            });
        }
    });
    let granted = granted.into_inner();
    assert_eq!(granted.len(), 6 * turns);
    assert!(granted.windows(2).all(|pair| pair[0] < pair[1]), "a token is not above the one before: {granted:?}");
}
