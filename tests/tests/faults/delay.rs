//! A slow fdatasync: nothing is answered or visible before it has returned (G4, E5).
//!
//! strace holds the committer before its fdatasync, and first notes the call in its file.
use std::path::Path;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fencepost_conformance::wait::{self, PATIENCE};
use fencepost_harness::http::Answer;
use fencepost_harness::process::GatewayProcess;
use fencepost_harness::strace::{self, COMMITTER, Strace};

/// Long enough to send requests meanwhile, also on a machine that stalls now and then.
const DELAY: Duration = Duration::from_secs(3);

/// A write on a connection of its own, and the time of its answer.
type Sent = JoinHandle<std::io::Result<(Answer, Instant)>>;

fn put(gateway: &GatewayProcess, key: &str, token: &str, body: &str) -> Sent {
    let mut client = gateway.client();
    let (path, token, body) = (format!("/v1/kv/{key}"), token.to_owned(), body.to_owned());
    std::thread::spawn(move || {
        let answer = client.try_request("PUT", &path, &[("fencing-token", &token)], body.as_bytes())?;
        Ok((answer, Instant::now()))
    })
}

fn answered(sent: Sent) -> (Answer, Instant) {
    sent.join().unwrap().unwrap()
}

fn delayed_fdatasync(gateway: &GatewayProcess, data: &Path) -> Strace {
    let rule = format!("fdatasync:delay_enter={}", DELAY.as_micros());
    Strace::attach(strace::thread(gateway, COMMITTER), Some(&strace::current_journal(data)), &[&rule])
}

/// Waits until the committer has written its batch and begun its n-th fdatasync.
fn syncing(tracer: &Strace, n: usize) {
    wait::until("the committer's fdatasync", PATIENCE, || {
        (tracer.calls().matches("fdatasync(").count() >= n).then_some(())
    });
}

/// Waits until this many writes are in the queue behind the batch that is being committed.
fn queued(gateway: &GatewayProcess, writes: usize) {
    let mut client = gateway.client();
    let expected = format!("fencepost_queue_depth {writes}");
    wait::until("writes to be queued", PATIENCE, || {
        let metrics = client.request("GET", "/metrics", &[], b"").text();
        metrics.lines().any(|line| line == expected).then_some(())
    });
}

#[test]
fn t10_nothing_is_answered_or_seen_before_fdatasync_returned() {
    let data = tempfile::tempdir().unwrap();
    let gateway = strace::start_traceable(data.path(), &[]);
    let mut reader = gateway.client();
    assert_eq!(reader.put("orders/1", "32", "old").status, 204);
    let tracer = delayed_fdatasync(&gateway, data.path());

    let begun = Instant::now();
    let newer = put(&gateway, "orders/1", "34", "new");
    syncing(&tracer, 1);
    let stale = put(&gateway, "orders/1", "33", "too late");
    queued(&gateway, 1);
    let mut reads = 0;
    loop {
        let read = reader.get("orders/1");
        let fence = reader.request("GET", "/v1/fences/orders/1", &[], b"").json();
        let listed = reader.request("GET", "/v1/kv?prefix=orders/", &[], b"").json();
        if begun.elapsed() >= DELAY {
            break;
        }
        assert_eq!(
            (read.text().as_str(), read.header("fence")),
            ("old", Some("32")),
            "seen before it was durable (E5)"
        );
        assert_eq!(fence["fence"]["token"], "32", "seen before it was durable (E5)");
        assert_eq!(listed["keys"][0]["token"], "32", "seen before it was durable (E5)");
        assert!(!newer.is_finished() && !stale.is_finished(), "answered before it was durable (G4)");
        reads += 1;
    }
    assert!(reads > 0, "this machine is too slow for the test");

    let ((newer, newer_at), (stale, stale_at)) = (answered(newer), answered(stale));
    assert_eq!(newer.status, 204);
    assert_eq!((stale.status, stale.problem().as_str()), (409, "stale"));
    assert!(newer_at - begun >= DELAY, "a write was answered before it was durable (G4)");
    assert!(stale_at - begun >= DELAY, "a refusal was answered before its cause was durable (G4)");
    assert_eq!(reader.get("orders/1").text(), "new");
    println!(
        "{reads} rounds of reads while the fdatasync was held up; answers {:?} apart",
        stale_at.max(newer_at) - newer_at
    );
}

#[test]
fn t10_a_refusal_waits_for_the_commit_of_the_batch_that_justifies_it() {
    let data = tempfile::tempdir().unwrap();
    let gateway = strace::start_traceable(data.path(), &[]);
    assert_eq!(gateway.client().put("orders/1", "32", "old").status, 204);
    let tracer = delayed_fdatasync(&gateway, data.path());

    // While the first batch is held, the newer and the stale write are queued together for the second.
    let begun = Instant::now();
    let gate = put(&gateway, "gate", "1", "first batch");
    syncing(&tracer, 1);
    let newer = put(&gateway, "orders/1", "34", "new");
    queued(&gateway, 1);
    let stale = put(&gateway, "orders/1", "33", "too late");
    queued(&gateway, 2);
    syncing(&tracer, 2);
    let ((gate, gate_at), (newer, newer_at), (stale, stale_at)) = (answered(gate), answered(newer), answered(stale));
    assert_eq!((gate.status, newer.status, stale.status), (204, 204, 409));
    assert_eq!(stale.json()["fence"], "34");
    assert!(gate_at - begun >= DELAY, "answered before it was durable (G4)");
    assert!(newer_at - begun >= 2 * DELAY, "answered before it was durable (G4)");
    assert!(stale_at - begun >= 2 * DELAY, "refused because of a token that was not durable (G4)");
}

#[test]
fn t10_a_refusal_falls_with_the_batch_that_would_have_justified_it() {
    let data = tempfile::tempdir().unwrap();
    let gateway = strace::start_traceable(data.path(), &[]);
    assert_eq!(gateway.client().put("orders/1", "32", "old").status, 204);
    // The first batch is held before it writes; the second fails.
    let delay = format!("statfs:delay_enter={}:when=1", DELAY.as_micros());
    let rules = [delay.as_str(), "fdatasync:error=EIO:when=2"];
    let tracer = Strace::attach(strace::thread(&gateway, COMMITTER), None, &rules);

    let gate = put(&gateway, "gate", "1", "first batch");
    wait::until("the committer's statfs", PATIENCE, || tracer.calls().contains("statfs(").then_some(()));
    let newer = put(&gateway, "orders/1", "34", "new");
    queued(&gateway, 1);
    let stale = put(&gateway, "orders/1", "33", "too late");
    queued(&gateway, 2);
    assert_eq!(answered(gate).0.status, 204);
    for (name, sent) in [("newer", newer), ("stale", stale)] {
        let (answer, _) = answered(sent);
        assert_eq!((answer.status, answer.problem().as_str()), (500, "outcome-unknown"), "{name}: {answer:?}");
    }
    assert!(tracer.detach().contains("(INJECTED)"));
    // A poisoned store cannot even judge that 33 is stale, so it answers 503.
    assert_eq!(gateway.client().put("orders/1", "33", "too late").status, 503);
    gateway.kill();
    let gateway = GatewayProcess::start(data.path(), &[]);
    let read = gateway.client().get("orders/1");
    assert!(
        matches!((read.text().as_str(), read.header("fence")), ("old", Some("32")) | ("new", Some("34"))),
        "{read:?}"
    );
    assert_eq!(gateway.client().get("gate").text(), "first batch");
}

#[test]
fn t10_killed_before_fdatasync_returned_nothing_was_answered() {
    let data = tempfile::tempdir().unwrap();
    let gateway = strace::start_traceable(data.path(), &[]);
    assert_eq!(gateway.client().put("orders/1", "32", "old").status, 204);
    let tracer = delayed_fdatasync(&gateway, data.path());
    let newer = put(&gateway, "orders/1", "34", "new");
    syncing(&tracer, 1);
    let stale = put(&gateway, "orders/1", "33", "too late");
    queued(&gateway, 1);
    gateway.kill();
    assert!(newer.join().unwrap().is_err(), "a write was answered before it was durable (G4)");
    assert!(stale.join().unwrap().is_err(), "a refusal was answered before its cause was durable (G4)");
    tracer.wait();

    let gateway = GatewayProcess::start(data.path(), &[]);
    let read = gateway.client().get("orders/1");
    assert!(
        matches!((read.text().as_str(), read.header("fence")), ("old", Some("32")) | ("new", Some("34"))),
        "{read:?}"
    );
    assert_eq!(gateway.client().put("orders/1", "31", "too late").status, 409);
    assert_eq!(gateway.client().put("orders/1", "35", "newest").status, 204);
}
