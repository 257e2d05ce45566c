//! The disk fails under RocksDB's own threads, or under the committer while it makes a file of the journal. Whichever thread notices
//! it, writes stop for good, and a restart restores what was answered (G8).
use std::time::Duration;

use fencepost_conformance::random::Random;
use fencepost_conformance::wait;
use fencepost_harness::budget;
use fencepost_harness::load::{self, Until};
use fencepost_harness::process::GatewayProcess;
use fencepost_harness::record::Record;
use fencepost_harness::strace::{self, COMMITTER, COMPACTOR, FLUSHER, Strace};
use rustix::process::Signal;

const CLIENTS: usize = 4;

/// The buffer is full after eight values.
const SETTINGS: &[&str] = &["--write-buffer", "1MiB"];

/// How the process ends after the fault.
#[derive(Clone, Copy, Debug)]
enum End {
    Killed,
    Stopped,
}

/// Makes one call of a thread fail under load, and follows the store to its end and through the restart.
fn poisons(thread: &str, rule: &str, end: End) {
    poisons_after(10, thread, rule, end);
}

/// The same, when a new store has had this many requests.
fn poisons_after(requests: u64, thread: &str, rule: &str, end: End) {
    let random = Random::from_environment();
    let data = tempfile::tempdir().unwrap();
    let record = Record::bulky(12);
    let gateway = strace::start_traceable(data.path(), SETTINGS);
    load::run(gateway.address(), &record, CLIENTS, &random, Until::Requests(requests), || {});

    let tracer = Strace::attach(strace::thread(&gateway, thread), None, &[rule]);
    load::run(gateway.address(), &record, CLIENTS, &random.fork(1), Until::Poisoned, || {});
    let calls = tracer.detach();
    assert!(calls.contains("(INJECTED)"), "{thread} {rule}:\n{calls}");

    // Only a restart ends the poisoned state.
    for _ in 0..budget::pick(4, 100) {
        load::run(gateway.address(), &record, CLIENTS, &random.fork(2), Until::Poisoned, || {});
        wait::pause(Duration::from_millis(100));
    }
    let mut client = gateway.client();
    let ready = client.request("GET", "/readyz", &[], b"");
    assert_eq!((ready.status, ready.problem().as_str()), (503, "poisoned"), "{thread} {rule}");
    assert_eq!(client.request("GET", "/healthz", &[], b"").status, 200);
    assert_eq!(client.request("GET", "/v1/kv?prefix=bulky/", &[], b"").status, 200, "reads go on");
    let reason = ready.json()["detail"].as_str().unwrap_or_default().to_owned();
    drop(client);
    match end {
        End::Killed => gateway.kill(),
        End::Stopped => {
            gateway.signal(Signal::TERM);
            assert!(gateway.wait(Duration::from_secs(20)).success(), "a poisoned gateway stops cleanly");
        }
    }

    let gateway = GatewayProcess::start(data.path(), SETTINGS);
    record.check(&mut gateway.client());
    load::run(gateway.address(), &record, CLIENTS, &random.fork(3), Until::Requests(50), || {});
    record.check(&mut gateway.client());
    println!("{thread} {rule}: {reason}\n  {}", record.summary());
}

#[test]
fn t28_a_table_that_cannot_be_written_stops_writes() {
    for call in ["openat", "write", "fdatasync", "fsync"] {
        poisons(FLUSHER, &format!("{call}:error=EIO:when=1"), End::Killed);
        poisons(FLUSHER, &format!("{call}:error=ENOSPC:when=1"), End::Stopped);
    }
}

/// The flush writes the table first, then the manifest.
#[test]
fn t28_a_manifest_that_cannot_be_written_stops_writes() {
    poisons(FLUSHER, "write:error=EIO:when=2", End::Killed);
    poisons(FLUSHER, "write:error=ENOSPC:when=2", End::Killed);
    poisons(FLUSHER, "fdatasync:error=EIO:when=2", End::Stopped);
}

#[test]
fn t28_tables_that_cannot_be_merged_stop_writes() {
    poisons(COMPACTOR, "write:error=EIO:when=1", End::Killed);
    poisons(COMPACTOR, "write:error=ENOSPC:when=1", End::Killed);
    poisons(COMPACTOR, "fdatasync:error=EIO:when=1", End::Stopped);
}

#[test]
fn t28_a_new_file_of_the_journal_that_cannot_be_made_durable_stops_writes() {
    // Later, files are written over and no new ones are made.
    poisons_after(0, COMMITTER, "openat:error=ENOSPC:when=1", End::Killed);
    poisons_after(0, COMMITTER, "openat:error=EMFILE:when=1", End::Stopped);
    poisons_after(0, COMMITTER, "fsync:error=EIO:when=1", End::Killed);
}

/// The flush is delayed until the memory for writes is full, so that a commit waits for it when it fails.
#[test]
fn t28_a_commit_that_waits_for_a_flush_is_answered_when_the_flush_fails() {
    for (call, n) in [("write", 1), ("fdatasync", 1), ("fsync", 1), ("write", 2), ("fdatasync", 2)] {
        poisons(FLUSHER, &format!("{call}:error=EIO:delay_enter=500000:when={n}"), End::Stopped);
    }
}

/// The same on a full disk, where RocksDB tries to recover by itself.
#[test]
fn t28_a_commit_that_waits_for_a_flush_is_answered_when_the_disk_is_full() {
    for (call, n) in [("write", 1), ("fdatasync", 1), ("write", 2)] {
        poisons(FLUSHER, &format!("{call}:error=ENOSPC:delay_enter=500000:when={n}"), End::Stopped);
    }
}
