//! Waiting for locks by long poll: in order, without delay when the lock becomes free, and out of the queue when the
//! client is gone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use fencepost_conformance::wait::{self, PATIENCE};
use fencepost_harness::fresh::Fresh;
use fencepost_harness::http::{Answer, Client};
use fencepost_harness::process::GatewayProcess;
use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};
use serde_json::json;

const LONG: u64 = 60_000;

fn lease(answer: &Answer) -> String {
    assert!(matches!(answer.status, 200 | 201), "{}", answer.text());
    answer.json()["lease"].as_str().unwrap().to_owned()
}

/// Requests the lock `k` on a connection of its own, and does not read the answer yet.
fn ask(gateway: &GatewayProcess, holder: &str, ttl_ms: u64, wait_ms: u64, headers: &str) -> Client {
    let mut client = gateway.client();
    let body = json!({"holder": holder, "ttl_ms": ttl_ms, "wait_ms": wait_ms}).to_string();
    let length = body.len();
    let request =
        format!("POST /v1/locks/k HTTP/1.1\r\nhost: localhost\r\n{headers}content-length: {length}\r\n\r\n{body}");
    client.send(request.as_bytes()).unwrap();
    client
}

fn waiting(client: &mut Client) -> u64 {
    client.request("GET", "/v1/locks/k", &[], b"").json()["waiting"].as_u64().unwrap()
}

fn wait_for_waiting(client: &mut Client, count: u64) {
    wait::until("the queue's length", PATIENCE, || (waiting(client) == count).then_some(()));
}

/// Waiters queued in a known order.
fn queue(gateway: &GatewayProcess, client: &mut Client, holders: &[&str]) -> Vec<Client> {
    let before = waiting(client);
    let enter = |(at, holder): (u64, &&str)| {
        let waiter = ask(gateway, holder, LONG, LONG, "");
        wait_for_waiting(client, before + at + 1);
        waiter
    };
    (0..).zip(holders).map(enter).collect()
}

#[test]
fn waiters_are_served_in_turn_as_soon_as_the_lock_is_free() {
    let gateway = Fresh::rocksdb(&[]);
    let mut client = gateway.client();
    let mut held = lease(&client.acquire("k", "first#0", LONG));
    let mut waiters = queue(&gateway, &mut client, &["a#1", "b#2", "c#3", "d#4"]);
    let started = Instant::now();
    for (at, waiter) in waiters.iter_mut().enumerate() {
        assert_eq!(client.release("k", &held).status, 204);
        let granted = waiter.receive().unwrap();
        assert_eq!((granted.status, &granted.json()["token"]), (201, &(at + 2).to_string().into()));
        held = lease(&granted);
        assert_eq!(waiting(&mut client), 3 - at as u64);
    }
    assert!(started.elapsed() < Duration::from_millis(LONG / 2), "well before wait_ms: {:?}", started.elapsed());
    assert_eq!(client.request("GET", "/v1/locks/k", &[], b"").json()["holder"], "d#4");
}

#[test]
fn a_waiter_gets_the_lock_when_the_lease_runs_out() {
    let gateway = Fresh::memory(&[]);
    let mut client = gateway.client();
    let started = Instant::now();
    let old = lease(&client.acquire("k", "a#1", 400));
    let granted = ask(&gateway, "b#2", LONG, LONG, "").receive().unwrap();
    assert_eq!((granted.status, &granted.json()["token"]), (201, &"2".into()));
    let elapsed = started.elapsed();
    assert!(elapsed >= Duration::from_millis(400) && elapsed < Duration::from_millis(LONG / 2), "{elapsed:?}");
    assert_eq!(client.renew("k", &old, LONG).problem(), "lease-lost");
}

#[test]
fn a_renewal_is_seen_by_those_who_wait() {
    let ttl = Duration::from_secs(1);
    for _ in 0..5 {
        let gateway = Fresh::memory(&[]);
        let mut client = gateway.client();
        let asked = Instant::now();
        let id = lease(&client.acquire("k", "a#1", 1_000));
        let granted = Instant::now();
        let mut waiter = ask(&gateway, "b#2", LONG, LONG, "");
        wait::until("the waiter to be in the queue, or to be served", PATIENCE, || {
            let lock = client.request("GET", "/v1/locks/k", &[], b"").json();
            (lock["waiting"] == 1 || lock["holder"] == "b#2").then_some(())
        });
        let renewed = client.renew("k", &id, LONG);
        if renewed.status == 410 && asked.elapsed() >= ttl {
            // The machine stalled, and the lease ran out.
            continue;
        }
        assert_eq!(renewed.status, 200, "{}", renewed.text());
        wait::until("the first ttl to be long over", PATIENCE, || (granted.elapsed() >= ttl * 3 / 2).then_some(()));
        assert_eq!(waiting(&mut client), 1, "longer than its ttl, and nobody took it");
        assert_eq!(client.release("k", &id).status, 204);
        assert_eq!(waiter.receive().unwrap().status, 201);
        return;
    }
    panic!("each time this machine stood still until the lease was over");
}

#[test]
fn whoever_waited_long_enough_hears_who_has_it() {
    let gateway = Fresh::memory(&[]);
    let mut client = gateway.client();
    assert_eq!(client.acquire("k", "a#1", LONG).status, 201);
    let _head = queue(&gateway, &mut client, &["b#2"]);
    let started = Instant::now();
    let held = ask(&gateway, "c#3", LONG, 300, "").receive().unwrap();
    assert!(started.elapsed() >= Duration::from_millis(300), "{:?}", started.elapsed());
    assert_eq!((held.status, held.problem().as_str()), (423, "lock-held"));
    assert_eq!((&held.json()["holder"], &held.json()["waiting"]), (&"a#1".into(), &1.into()), "{}", held.text());
    assert_eq!(client.acquire("k", "d#4", LONG).json()["waiting"], 1);
    wait_for_waiting(&mut client, 1);
}

#[test]
fn who_does_not_wait_never_overtakes_those_who_do() {
    let gateway = Fresh::memory(&[]);
    let mut client = gateway.client();
    let mut held = lease(&client.acquire("k", "first#0", LONG));
    let holders: Vec<String> = (0..20).map(|at| format!("w#{at}")).collect();
    let mut waiters = queue(&gateway, &mut client, &holders.iter().map(String::as_str).collect::<Vec<_>>());
    let (barging, asked) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicUsize::new(0)));
    let barger = {
        let (mut client, barging, asked) = (gateway.client(), barging.clone(), asked.clone());
        std::thread::spawn(move || {
            while barging.load(Ordering::Relaxed) {
                let answer = client.acquire("k", "barger#1", LONG);
                assert_eq!(answer.status, 423, "{}", answer.text());
                asked.fetch_add(1, Ordering::Relaxed);
            }
        })
    };
    wait::until("somebody to barge in", PATIENCE, || (asked.load(Ordering::Relaxed) > 0).then_some(()));
    for (at, waiter) in waiters.iter_mut().enumerate() {
        assert_eq!(client.release("k", &held).status, 204);
        let granted = waiter.receive().unwrap();
        assert_eq!(granted.json()["holder"], holders[at].as_str(), "in turn");
        held = lease(&granted);
    }
    barging.store(false, Ordering::Relaxed);
    barger.join().unwrap();
}

#[test]
fn a_client_that_goes_away_leaves_the_queue() {
    let gateway = Fresh::memory(&[]);
    let mut client = gateway.client();
    let held = lease(&client.acquire("k", "a#1", LONG));
    let mut waiters = queue(&gateway, &mut client, &["b#2", "c#3", "d#4"]);
    drop(waiters.remove(1));
    wait_for_waiting(&mut client, 2);
    drop(waiters.remove(0));
    wait_for_waiting(&mut client, 1);
    assert_eq!(client.release("k", &held).status, 204);
    let granted = waiters[0].receive().unwrap();
    assert_eq!((&granted.json()["holder"], &granted.json()["token"]), (&"d#4".into(), &"2".into()));
}

#[test]
fn clients_that_go_away_at_the_worst_moment_do_not_keep_the_lock_beyond_a_ttl() {
    let gateway = Fresh::memory(&[]);
    let mut client = gateway.client();
    for round in 0..30 {
        let held = lease(&client.acquire("k", "a#1", LONG));
        let leaving = ask(&gateway, "b#2", 200, LONG, "");
        wait_for_waiting(&mut client, 1);
        let mut next = ask(&gateway, "c#3", LONG, LONG, "");
        wait_for_waiting(&mut client, 2);
        let releasing =
            client.send(format!("DELETE /v1/locks/k?lease={held} HTTP/1.1\r\nhost: localhost\r\n\r\n").as_bytes());
        drop(leaving);
        releasing.unwrap();
        assert_eq!(client.receive_after("DELETE").unwrap().status, 204, "round {round}");
        let granted = next.receive().unwrap();
        assert_eq!(client.release("k", &lease(&granted)).status, 204, "round {round}");
    }
}

#[test]
fn waiting_with_an_idempotency_key_survives_a_lost_connection() {
    let gateway = Fresh::rocksdb(&[]);
    let mut client = gateway.client();
    let held = lease(&client.acquire("k", "a#1", LONG));
    let key = "idempotency-key: wait-1\r\n";
    let lost = ask(&gateway, "b#2", LONG, LONG, key);
    wait_for_waiting(&mut client, 1);
    drop(lost);
    wait_for_waiting(&mut client, 0);
    let mut retry = ask(&gateway, "b#2", LONG, LONG, key);
    wait_for_waiting(&mut client, 1);
    assert_eq!(client.release("k", &held).status, 204);
    let granted = retry.receive().unwrap();
    assert_eq!((granted.status, granted.header("idempotent-replayed")), (201, None));
    // The answer is lost and others join the queue; the retry still finds its grant at once.
    let _others = queue(&gateway, &mut client, &["c#3", "d#4"]);
    for wait_ms in [0, LONG] {
        let again = ask(&gateway, "b#2", LONG, wait_ms, key).receive().unwrap();
        assert_eq!((again.status, again.header("idempotent-replayed")), (201, Some("true")));
        assert_eq!(again.json(), granted.json());
    }
    assert_eq!(client.fence("k").as_deref(), Some("2"));
}

#[test]
fn sigterm_answers_waiters_at_once_and_does_not_wait_for_them() {
    let (gateway, _dir) = Fresh::rocksdb(&["--drain-timeout", "10min"]).into_parts();
    let mut client = gateway.client();
    assert_eq!(client.acquire("k", "a#1", LONG).status, 201);
    let mut waiters = queue(&gateway, &mut client, &["b#2", "c#3", "d#4"]);
    gateway.signal(Signal::TERM);
    for waiter in &mut waiters {
        let answer = waiter.receive().unwrap();
        assert_eq!((answer.status, answer.problem().as_str()), (503, "draining"), "{}", answer.text());
        assert_eq!(answer.json()["outcome"], "not-applied");
        assert!(answer.header("retry-after").is_some());
    }
    assert_eq!(gateway.wait(PATIENCE).code(), Some(0));
}

/// CPU seconds that a process has used.
fn processor_time(pid: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    // The fields after the name, which may contain spaces: the state is the first field, user and system time the 12th
    // and 13th.
    let fields: Vec<_> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    // Linux reports a hundred ticks per second here, independent of its internal clock.
    ticks as f64 / 100.0
}

#[test]
fn a_thousand_waiters_are_served_in_order_and_cost_no_more_than_one() {
    let many = Rlimit { current: getrlimit(Resource::Nofile).maximum, ..getrlimit(Resource::Nofile) };
    setrlimit(Resource::Nofile, many).unwrap();
    let gateway = Fresh::memory(&[]);
    let mut client = gateway.client();
    // Long enough for all waiters to arrive.
    let mut held = lease(&client.acquire("k", "first#0", 3_600_000));
    let mut waiters: Vec<Client> = (0..1_000)
        .map(|at| {
            let waiter = ask(&gateway, &format!("w#{at}"), LONG, 600_000, "");
            wait_for_waiting(&mut client, at + 1);
            waiter
        })
        .collect();
    // While they wait nothing happens; renewals by the holder do not wake them either.
    let (before, started) = (processor_time(gateway.pid()), Instant::now());
    while started.elapsed() < Duration::from_secs(1) {
        assert_eq!(client.renew("k", &held, LONG).status, 200);
        wait::pause(Duration::from_millis(100));
    }
    let idle = processor_time(gateway.pid()) - before;
    assert!(idle < 0.2, "{idle} s of processor time in a second of waiting");
    let (before, started) = (processor_time(gateway.pid()), Instant::now());
    for (at, waiter) in waiters.iter_mut().enumerate() {
        assert_eq!(client.release("k", &held).status, 204);
        let granted = waiter.receive().unwrap();
        let json = granted.json();
        assert_eq!((&json["holder"], &json["token"]), (&format!("w#{at}").into(), &(at + 2).to_string().into()));
        held = lease(&granted);
    }
    let (used, elapsed) = (processor_time(gateway.pid()) - before, started.elapsed());
    println!("1,000 handovers: {elapsed:?}, {used:.2} s of processor time; {idle:.2} s while waiting");
    assert!(elapsed < Duration::from_secs(60), "{elapsed:?}");
    // Waking all waiters each time would be a thousand times a thousand attempts.
    assert!(used < 5.0, "{used} s of processor time for a thousand handovers");
    assert_eq!(waiting(&mut client), 0);
}
