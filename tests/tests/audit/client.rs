//! The client, the command line and the conformance adapters.

mod conform;
mod scripted;
mod secrets;

use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use fencepost_client::{Client, Error, ErrorKind, Gateway, Guard, LockOptions, UnknownOutcome, locks};
use fencepost_core::wire::OutcomeState;
use fencepost_harness::fresh::Fresh;
use fencepost_harness::process::{GatewayProcess, binary};
use fencepost_harness::strace::{self, COMMITTER, Strace};

use scripted::{Act, ScriptedGateway};

/// The command line against this gateway, with none of our own variables in its environment.
fn command(gateway: &GatewayProcess, arguments: &[&str]) -> Command {
    let mut command = Command::new(binary());
    command.args(arguments).env("FENCEPOST_URL", gateway.url()).stdin(Stdio::null());
    command
}

fn fencepost(gateway: &GatewayProcess, arguments: &[&str]) -> Output {
    command(gateway, arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn rotate(gateway: &Fresh, resource: &str, from: &str) {
    let socket = gateway.data().join("admin.sock");
    let line = ["fence", "rotate", resource, "--from", from, "--reason", "the lock service was replaced"];
    let rotated = command(gateway, &line).env("FENCEPOST_ADMIN_SOCKET", socket).output().unwrap();
    assert!(rotated.status.success(), "{rotated:?}");
}

/// `fencepost run --lock URL -- fencepost kv put r VALUE`
fn write_under(gateway: &Fresh, lock: &str, value: &str) -> Output {
    let program = binary();
    let program = program.to_str().unwrap();
    fencepost(gateway, &["run", "--lock", lock, "--resource", "r", "--", program, "kv", "put", "r", value])
}

/// T30, T39: a number granted before a rotation is not moved into the new generation.
#[test]
fn c01_a_number_from_before_a_rotation_stays_in_its_generation() {
    let gateway = Fresh::memory(&[]);
    assert!(write_under(&gateway, "token:33", "old").status.success());
    rotate(&gateway, "r", "0");
    let mut client = gateway.client();
    assert_eq!(client.put("r", "1:2", "new").status, 204);
    let programs = ["exec:sh?arg=-c&arg=echo%2033", "exec:sh?arg=-c&arg=echo%200:33"];
    for lock in ["token:33", "token:34"].into_iter().chain(programs) {
        let zombie = write_under(&gateway, lock, "zombie");
        assert_eq!(zombie.status.code(), Some(3), "{lock}: {zombie:?}");
        let said = text(&zombie.stderr);
        assert!(said.contains("generation 0") && said.contains("generation 1"), "{lock}: {said}");
        assert_eq!((client.get("r").text().as_str(), client.get("r").header("fence")), ("new", Some("1:2")), "{lock}");
    }
    assert_eq!(client.put("r", "1:2", "still mine").status, 204, "the rightful holder is not fenced off");
    // A newer generation that is written out is accepted.
    for (lock, fence) in [
        ("token:1:3", "1:3"),
        ("exec:sh?arg=-c&arg=echo%20%24FENCEPOST_GENERATION:%24%28%28FENCEPOST_FLOOR%2B1%29%29", "1:4"),
    ] {
        let issuer = if lock.starts_with("token") { "?issuer=exec:caller" } else { "" };
        let written = write_under(&gateway, &format!("{lock}{issuer}"), "newer");
        assert!(written.status.success(), "{lock}: {written:?}");
        assert_eq!(client.get("r").header("fence"), Some(fence), "{lock}");
    }
}

/// A guard with a given number and this hold time. Calls are repeated until the hold ends.
async fn guard(gateway: &str, token: &str, hold: Duration) -> Guard {
    let options = LockOptions::new().ttl(Duration::from_secs(60)).max_hold(hold);
    let backend = locks::connect(token).await.unwrap();
    let gateway = Gateway::new(gateway).unwrap();
    Client::new(gateway, backend).with_lock_options(options).acquire("orders/1").await.unwrap()
}

fn unknown(error: Error) -> UnknownOutcome {
    assert_eq!(error.kind(), ErrorKind::UnknownOutcome, "{error:?}");
    error.unknown_outcome().cloned().unwrap()
}

/// T44, G7: the result of a later attempt does not settle an earlier one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c02_an_unknown_attempt_is_not_forgotten_when_a_later_one_is_rejected() {
    let problem = |status, kind, outcome| Act::Problem { status, kind, outcome };
    for (name, acts) in [
        (
            "poisoned by the very commit",
            vec![problem(500, "outcome-unknown", "unknown"), problem(503, "poisoned", "not-applied-by-this-request")],
        ),
        (
            "answered by a gateway of before",
            vec![problem(500, "outcome-unknown", "unknown"), problem(503, "poisoned", "not-applied")],
        ),
        ("out of space", vec![Act::Swallow, problem(507, "no-space", "not-applied-by-this-request")]),
        ("gone", vec![Act::Swallow, Act::Leave]),
        ("a condition that may hold later", vec![Act::Swallow, problem(412, "condition-failed", "not-applied")]),
    ] {
        let gateway = ScriptedGateway::start(acts);
        let guard = guard(gateway.url(), "token:34", Duration::from_secs(2)).await;
        let unknown = unknown(guard.put("orders/1", "paid").await.unwrap_err());
        let key = unknown.key.clone().unwrap();
        let sent = gateway.keys();
        assert!(!sent.is_empty() && sent.iter().all(|sent| *sent == key.as_str()), "{name}: {sent:?}");
        assert!(unknown.to_string().contains(key.as_str()), "{name}: {unknown}");
    }
    // A refusal of the token is final, and so is a recorded answer.
    for (kind, status) in [("stale", 409), ("retired-generation", 409)] {
        let gateway = ScriptedGateway::start(vec![Act::Swallow, problem(status, kind, "not-applied")]);
        let guard = guard(gateway.url(), "token:34", Duration::from_secs(60)).await;
        let error = guard.put("orders/1", "paid").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Fenced, "{kind}: {error:?}");
    }
}

/// The same on a real disk: a commit whose mark could not be written is present after the restart.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c02_a_write_that_poisons_the_store_is_reported_unknown_and_can_be_asked_for() {
    let data = tempfile::tempdir().unwrap();
    let gateway = strace::start_traceable(data.path(), &[]);
    let guard = guard(gateway.url(), "token:34", Duration::from_secs(3)).await;
    guard.put("orders/1", "open").await.unwrap();
    let mark = strace::committed_mark(data.path());
    let tracer = Strace::attach(strace::thread(&gateway, COMMITTER), Some(&mark), &["pwrite64:error=EIO:when=1"]);
    let unknown = unknown(guard.put("orders/1", "paid").await.unwrap_err());
    assert!(tracer.detach().contains("(INJECTED)"));
    let key = unknown.key.unwrap();
    let rejected = gateway.client().request(
        "PUT",
        "/v1/kv/orders/1",
        &[("fencing-token", "34"), ("idempotency-key", key.as_str())],
        b"paid",
    );
    assert_eq!((rejected.status, rejected.problem().as_str()), (503, "poisoned"), "{rejected:?}");
    assert_eq!(rejected.json()["outcome"], "not-applied-by-this-request", "{rejected:?}");
    assert!(rejected.json()["advice"].as_str().unwrap().contains("/v1/outcomes/"), "{rejected:?}");
    let put =
        fencepost(&gateway, &["kv", "put", "orders/1", "paid", "--token", "34", "--idempotency-key", key.as_str()]);
    assert_eq!(put.status.code(), Some(6), "{put:?}");
    assert!(text(&put.stderr).contains("may have been applied"), "{put:?}");
    gateway.kill();
    let gateway = GatewayProcess::start(data.path(), &[]);
    assert_eq!(gateway.client().get("orders/1").text(), "paid", "the log is replayed");
    let asked = Gateway::new(gateway.url()).unwrap().outcome(&key).await.unwrap();
    assert_eq!(asked.outcome, OutcomeState::Applied);
}

/// A guard can query the outcome itself, even after the lease is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c02_a_guard_asks_what_became_of_a_call() {
    let gateway = Fresh::memory(&[]);
    let guard = Arc::new(guard(gateway.url(), "token:34", Duration::from_millis(300)).await);
    let key = fencepost_core::IdempotencyKey::new("k").unwrap();
    guard.lost().await;
    assert_eq!(guard.outcome(&key).await.unwrap().outcome, OutcomeState::NotRecorded);
    assert_eq!(guard.abandon(&key).await.unwrap().outcome, OutcomeState::Failed);
    assert_eq!(guard.outcome(&key).await.unwrap().problem.as_deref(), Some("abandoned"));
}
