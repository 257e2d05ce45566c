//! The disk fails under the committer: no write succeeds any more, reads continue, and a restart restores what was
//! answered (G8). strace makes the call fail once; whether it would work the next time must not matter.
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fencepost_conformance::random::Random;
use fencepost_conformance::wait;
use fencepost_harness::budget;
use fencepost_harness::fresh::write_config;
use fencepost_harness::http::{Answer, Client};
use fencepost_harness::load::{self, Until};
use fencepost_harness::process::GatewayProcess;
use fencepost_harness::record::Record;
use fencepost_harness::strace::{self, COMMITTER, Strace};
use rustix::process::Signal;

/// How the process ends after the fault.
#[derive(Clone, Copy, Debug)]
enum End {
    Killed,
    Stopped,
}

fn attach(gateway: &GatewayProcess, path: &Path, rule: &str) -> Strace {
    Strace::attach(strace::thread(gateway, COMMITTER), Some(path), &[rule])
}

fn assert_unknown(answer: &Answer) {
    assert_eq!((answer.status, answer.problem().as_str()), (500, "outcome-unknown"), "{answer:?}");
    assert_eq!(answer.json()["outcome"], "unknown", "{answer:?}");
}

/// Every write, with any token, is rejected and certainly not applied.
fn assert_poisoned(client: &mut Client) {
    let rejected = [
        client.put("orders/1", "35", "again"),
        client.put("orders/1", "36", "newer"),
        client.put("orders/1", "34", "equal"),
        client.put("orders/1", "33", "stale"),
        client.put("orders/2", "1", "another key"),
        client.delete("orders/1", "36"),
        client.claim("orders/1", "36"),
    ];
    for answer in rejected {
        assert_eq!((answer.status, answer.problem().as_str()), (503, "poisoned"), "{answer:?}");
        assert_eq!(answer.json()["outcome"], "not-applied", "{answer:?}");
        assert!(answer.header("retry-after").is_some_and(|seconds| seconds.parse::<u32>().is_ok()), "{answer:?}");
    }
}

fn assert_reads_go_on(client: &mut Client, reason: &str) {
    assert_eq!(client.get("orders/1").status, 200);
    assert_eq!(client.get("orders/2").status, 404);
    for path in ["/v1/fences/orders/1", "/v1/fences", "/v1/kv?prefix=orders/"] {
        assert_eq!(client.request("GET", path, &[], b"").status, 200, "{path}");
    }
    assert_eq!(client.request("GET", "/healthz", &[], b"").status, 200);
    let ready = client.request("GET", "/readyz", &[], b"");
    assert_eq!((ready.status, ready.problem().as_str()), (503, "poisoned"));
    assert!(ready.text().contains(reason), "does not say why: {}", ready.text());
    let metrics = client.request("GET", "/metrics", &[], b"").text();
    assert!(metrics.lines().any(|line| line == "fencepost_ready 0"), "{metrics}");
}

/// Makes one call of the committer fail during a commit, and follows the store to its end and through the restart.
fn a_failed_commit_poisons(call: &str, path: fn(&Path) -> PathBuf, error: &str, reason: &str, end: End) {
    let random = Random::from_environment();
    let data = tempfile::tempdir().unwrap();
    let gateway = strace::start_traceable(data.path(), &[]);
    let record = Record::new(10);
    load::run(gateway.address(), &record, 4, &random, Until::Requests(100), || {});
    let mut client = gateway.client();
    assert_eq!(client.put("orders/1", "34", "paid").status, 204);

    let tracer = attach(&gateway, &path(data.path()), &format!("{call}:error={error}:when=1"));
    assert_unknown(&client.put("orders/1", "35", "shipped"));
    let calls = tracer.detach();
    assert!(calls.contains("(INJECTED)"), "{calls}");

    // The disk works again, and RocksDB may resume by itself. Writes must stay stopped.
    let (until, mut rounds) = (Instant::now() + budget::pick(Duration::from_secs(1), Duration::from_secs(12)), 0);
    while rounds == 0 || Instant::now() < until {
        assert_poisoned(&mut client);
        assert_poisoned(&mut gateway.client());
        assert_reads_go_on(&mut client, reason);
        wait::pause(Duration::from_millis(50));
        rounds += 1;
    }

    match end {
        End::Killed => gateway.kill(),
        End::Stopped => {
            gateway.signal(Signal::TERM);
            assert!(gateway.wait(Duration::from_secs(30)).success(), "a poisoned gateway stops cleanly");
        }
    }
    let gateway = GatewayProcess::start(data.path(), &[]);
    record.check(&mut gateway.client());
    let mut client = gateway.client();
    let (read, text) = (client.get("orders/1"), client.get("orders/1").text());
    let found = (text.as_str(), read.header("fencing-token"));
    assert!(matches!(found, ("paid", Some("34")) | ("shipped", Some("35"))), "found {found:?}");
    assert_eq!(read.header("fence"), found.1, "fence and data disagree (G3)");
    assert_eq!(client.get("orders/2").status, 404, "a rejected write was applied");
    assert_eq!(client.put("orders/1", "33", "stale").status, 409);
    assert_eq!(client.put("orders/1", "36", "delivered").status, 204);
    assert_eq!(client.request("GET", "/readyz", &[], b"").status, 200);
    load::run(gateway.address(), &record, 4, &random.fork(1), Until::Requests(20), || {});
    record.check(&mut client);
    println!("{call} {error}, {end:?}: {rounds} rounds of rejected writes; {}", record.summary());
}

#[test]
fn t28_after_a_failed_fdatasync_no_write_is_answered_ok() {
    a_failed_commit_poisons("fdatasync", strace::current_journal, "EIO", "Input/output error", End::Killed);
}

#[test]
fn t28_after_a_failed_fdatasync_a_clean_stop_keeps_what_was_answered() {
    a_failed_commit_poisons("fdatasync", strace::current_journal, "EIO", "Input/output error", End::Stopped);
}

#[test]
fn t28_after_enospc_from_fdatasync_no_write_is_answered_ok() {
    a_failed_commit_poisons("fdatasync", strace::current_journal, "ENOSPC", "No space left", End::Killed);
}

#[test]
fn t28_after_a_failed_write_of_the_journal_no_write_is_answered_ok() {
    a_failed_commit_poisons("pwrite64", strace::current_journal, "EIO", "Input/output error", End::Killed);
}

#[test]
fn t28_after_enospc_from_a_write_of_the_journal_no_write_is_answered_ok() {
    a_failed_commit_poisons("pwrite64", strace::current_journal, "ENOSPC", "No space left", End::Killed);
}

#[test]
fn t28_after_enospc_from_a_write_of_the_journal_a_clean_stop_keeps_what_was_answered() {
    a_failed_commit_poisons("pwrite64", strace::current_journal, "ENOSPC", "No space left", End::Stopped);
}

#[test]
fn t28_after_a_failed_write_of_the_committed_mark_no_write_is_answered_ok() {
    a_failed_commit_poisons("pwrite64", strace::committed_mark, "EIO", "Input/output error", End::Killed);
}

#[test]
fn t28_after_enospc_from_the_committed_mark_no_write_is_answered_ok() {
    a_failed_commit_poisons("pwrite64", strace::committed_mark, "ENOSPC", "No space left", End::Stopped);
}

/// Guards name an engine beside it, whose resources are served.
#[test]
fn g8_a_poisoned_engine_stops_only_its_own_resources() {
    let dir = tempfile::tempdir().unwrap();
    let (data, toml) = (dir.path().join("data"), "[engines]\nb = 'memory'\n[[guard]]\nkeys = 'b/*'\nengine = 'b'\n");
    let config = write_config(dir.path(), toml);
    let arguments = ["--config", config.to_str().unwrap()];
    // From the second start on, the engine without a name is opened first: the first committer is that of the disk.
    GatewayProcess::start(&data, &arguments).kill();
    let gateway = strace::start_traceable(&data, &arguments);
    let mut client = gateway.client();
    for key in ["orders/1", "b/1"] {
        assert_eq!(client.put(key, "34", "paid").status, 204);
    }
    let tracer = attach(&gateway, &strace::current_journal(&data), "fdatasync:error=EIO:when=1");
    assert_unknown(&client.put("orders/1", "35", "shipped"));
    assert!(tracer.detach().contains("(INJECTED)"));

    assert_poisoned(&mut client);
    assert_eq!(client.put("b/1", "35", "served").status, 204);
    assert_eq!(client.put("b/1", "34", "stale").status, 409);
    let ready = client.request("GET", "/readyz", &[], b"");
    assert_eq!((ready.status, ready.problem().as_str()), (503, "poisoned"));
    let detail = ready.json()["detail"].as_str().unwrap().to_owned();
    assert!(detail.contains("engine `default` is not ready") && detail.ends_with("engine `b` is ready"), "{detail}");
    assert_eq!(client.request("GET", "/readyz?engine=b", &[], b"").status, 200);
    let health = client.request("GET", "/healthz", &[], b"");
    assert_eq!(health.status, 200);
    assert!(health.text().contains("stopped on the engine `default`"), "{}", health.text());
    let metrics = client.request("GET", "/metrics", &[], b"").text();
    for line in
        ["fencepost_ready 0", "fencepost_engine_ready{engine=\"default\"} 0", "fencepost_engine_ready{engine=\"b\"} 1"]
    {
        assert!(metrics.lines().any(|found| found == line), "{line} is missing: {metrics}");
    }
}

#[test]
fn free_space_that_cannot_be_read_rejects_and_does_not_poison() {
    let data = tempfile::tempdir().unwrap();
    let gateway = strace::start_traceable(data.path(), &[]);
    let mut client = gateway.client();
    assert_eq!(client.put("orders/1", "34", "paid").status, 204);
    let tracer = attach(&gateway, data.path(), "statfs:error=EIO:when=1");
    let rejected = client.put("orders/1", "35", "shipped");
    assert_eq!((rejected.status, rejected.problem().as_str()), (503, "unavailable"), "{rejected:?}");
    assert_eq!(rejected.json()["outcome"], "not-applied");
    assert!(tracer.detach().contains("(INJECTED)"));
    assert_eq!((client.get("orders/1").text().as_str(), client.get("orders/1").header("fence")), ("paid", Some("34")));
    assert_eq!(client.put("orders/1", "34", "equal").status, 204, "it was not applied, so nothing was raised");
}
