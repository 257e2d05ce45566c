//! `fencepost txn`, `outcome`, `lock` and `fence rotate`: what they print, and their exit codes.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use fencepost_conformance::proxy::{Direction, Proxy, Rule};
use fencepost_conformance::wait;
use fencepost_harness::command_line::{Said, command, run, run_with_input};
use fencepost_harness::fresh::Fresh;
use fencepost_harness::process::binary;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

/// Runs a command as an administrator.
fn admin(gateway: &Fresh, line: &str) -> Said {
    let arguments: Vec<_> = line.split_whitespace().collect();
    let socket = gateway.data().join("admin.sock");
    command(gateway, &arguments).env("FENCEPOST_ADMIN_SOCKET", socket).output().unwrap().into()
}

fn txn(gateway: &Fresh, line: &str, body: &Value) -> Said {
    run_with_input(gateway, line, body.to_string().as_bytes())
}

/// The lease of an acquired lock, and its token.
fn acquire(gateway: &Fresh, line: &str) -> (String, String) {
    let json = run(gateway, &format!("lock acquire {line} --json")).json();
    (json["lease"].as_str().unwrap().to_owned(), json["token"].as_str().unwrap().to_owned())
}

#[test]
fn a_transaction_from_a_file_or_standard_input() {
    let gateway = Fresh::memory(&[]);
    let body = json!({"tokens": {"a": "1", "n": "2", "d": "1"},
                      "then": [{"put": "a", "text": "x"}, {"add": "n", "by": 5}, {"delete": "d"}, {"get": "none"}]});
    let done = txn(&gateway, "txn", &body);
    let lines: Vec<String> = done.text().lines().map(str::to_owned).collect();
    assert_eq!((done.code, lines.len()), (0, 4), "{done:?}");
    assert!(lines[0].starts_with("a, version \"") && lines[1].ends_with("\": 5"), "{lines:?}");
    assert_eq!((lines[2].as_str(), lines[3].as_str()), ("d: no value", "none: no value"));
    let read = txn(&gateway, "txn -", &json!({"then": [{"get": "a"}]}));
    assert!(read.text().starts_with("a, version \"") && read.text().contains("\"x\""), "{read:?}");
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("txn.json");
    std::fs::write(&path, json!({"then": [{"get": "n"}]}).to_string()).unwrap();
    let json = run(&gateway, &format!("txn {} --json", path.display())).json();
    assert_eq!((&json["results"][0]["text"], &json["results"][0]["token"]), (&"5".into(), &"2".into()));
}

#[test]
fn a_transaction_fails_with_the_code_of_its_reason() {
    let gateway = Fresh::memory(&[]);
    assert_eq!(run(&gateway, "kv put k 1 --token 34").code, 0);
    let stale = json!({"tokens": {"k": "33"}, "then": [{"put": "k", "text": "x"}]});
    txn(&gateway, "txn", &stale).assert_failed(3, &["token 33 is stale for `k`"]);
    let missing = json!({"then": [{"put": "k", "text": "x"}]});
    txn(&gateway, "txn", &missing).assert_failed(3, &["needs a fencing token"]);
    let condition = json!({"tokens": {"k": "34"}, "if": [{"key": "k", "absent": true}], "then": [{"delete": "k"}]});
    txn(&gateway, "txn", &condition).assert_failed(4, &["condition 0 of `if`"]);
    let add = json!({"tokens": {"k": "34"}, "then": [{"add": "k", "by": -2, "min": 0}]});
    txn(&gateway, "txn", &add).assert_failed(4, &["at least 0"]);
    let twice = json!({"then": [{"get": "k"}, {"get": "k"}]});
    txn(&gateway, "txn", &twice).assert_failed(1, &["occurs twice"]);
    for bad in ["", "{", "[]", r#"{"tokenz": {}}"#, r#"{"then": [{"add": "k", "by": 1.5}]}"#] {
        let said = run_with_input(&gateway, "txn", bad.as_bytes());
        assert!(matches!(said.code, 1 | 2) && !said.err.is_empty() && said.out.is_empty(), "{bad}: {said:?}");
    }
    run_with_input(&gateway, "txn", b"{").assert_failed(2, &["this is not a transaction"]);
    run(&gateway, "txn /does/not/exist").assert_failed(2, &["/does/not/exist"]);
    assert_eq!(run(&gateway, "kv get k").text(), "1");
}

#[test]
fn idempotency_keys_make_retries_safe_and_outcomes_tell_of_them() {
    let gateway = Fresh::memory(&[]);
    let put = run(&gateway, "kv put k v --token 34 --idempotency-key w-1 --json").json();
    assert_eq!(put["replayed"], false);
    assert_eq!(run(&gateway, "kv put k w --token 35").code, 0);
    let again = run(&gateway, "kv put k v --token 34 --idempotency-key w-1");
    assert_eq!(again.code, 0, "applied, not fenced: {again:?}");
    assert!(again.text().contains("by an earlier request with this idempotency key"), "{again:?}");
    assert_eq!(run(&gateway, "kv put k v --token 34 --idempotency-key w-1 --json").json()["replayed"], true);
    run(&gateway, "kv put k other --token 34 --idempotency-key w-1").assert_failed(1, &["was used before"]);
    let add = json!({"tokens": {"n": "1"}, "then": [{"add": "n", "by": 1}]});
    for _ in 0..2 {
        let sum = txn(&gateway, "txn --idempotency-key t-1 --json", &add).json();
        assert_eq!(sum["results"][0]["value"], "1");
    }
    assert_eq!(run(&gateway, "kv delete k --token 35 --idempotency-key d-1 --json").json()["replayed"], false);

    let shown = run(&gateway, "outcome show w-1");
    assert!(shown.text().starts_with("w-1: applied at 20"), "{shown:?}");
    assert_eq!(run(&gateway, "outcome show t-1 --json").json()["results"][0]["value"], "1");
    let never = run(&gateway, "outcome show never");
    assert_eq!((never.code, never.text().contains("never: not recorded; it may still arrive")), (0, true), "{never:?}");
    assert_eq!(run(&gateway, "outcome show never --json").json()["outcome"], "not-recorded");
    let abandoned = run(&gateway, "outcome abandon late");
    assert!(
        abandoned.text().starts_with("late: failed") && abandoned.text().ends_with("(abandoned)\n"),
        "{abandoned:?}"
    );
    assert_eq!(run(&gateway, "outcome abandon w-1 --json").json()["outcome"], "applied");
    run(&gateway, "kv put k v --token 36 --idempotency-key late").assert_failed(1, &["was abandoned", "new key"]);
    run(&gateway, &format!("outcome show {}", "x".repeat(257))).assert_failed(2, &["257"]);
    run(&gateway, "kv put k v --token 36 --idempotency-key").assert_failed(2, &["--idempotency-key"]);
}

#[test]
fn a_lock_is_acquired_renewed_shown_listed_and_released() {
    let gateway = Fresh::memory(&[]);
    let acquired = run(&gateway, "lock acquire orders/1 --holder me#1 --ttl 20s");
    let lines: Vec<String> = acquired.text().lines().map(str::to_owned).collect();
    assert_eq!((acquired.code, lines.len()), (0, 5), "{acquired:?}");
    assert_eq!((lines[0].as_str(), lines[1].as_str()), ("acquired orders/1 for 20s", "token  1"));
    assert_eq!(lines[3], "holder me#1");
    assert!(lines[4].starts_with("issuer fencepost:"), "{lines:?}");
    let lease = lines[2].strip_prefix("lease  ").unwrap();
    let renewed = run(&gateway, &format!("lock renew orders/1 --lease {lease} --ttl 40s"));
    assert!(renewed.text().starts_with("renewed orders/1 for 40s\ntoken  1\n"), "{renewed:?}");
    assert_eq!(run(&gateway, &format!("lock renew orders/1 --lease {lease} --json")).json()["ttl_ms"], 30_000);
    let shown = run(&gateway, "lock show orders/1");
    assert!(shown.text().starts_with("orders/1: held by me#1, token 1, "), "{shown:?}");
    assert!(shown.text().ends_with(" s left unless it is renewed\n"), "{shown:?}");
    assert_eq!(run(&gateway, "lock show orders/1 --json").json()["holder"], "me#1");
    acquire(&gateway, "stock");
    assert_eq!(run(&gateway, "lock list").text().lines().count(), 2);
    assert_eq!(run(&gateway, "lock list st").text().lines().count(), 1);
    let first = run(&gateway, "lock list --limit 1");
    assert!(first.err.contains("--after 'orders/1'"), "{first:?}");
    assert_eq!(run(&gateway, "lock list --json").json()["locks"].as_array().unwrap().len(), 2);
    let released = run(&gateway, &format!("lock release orders/1 --lease {lease}"));
    assert_eq!((released.code, released.text().as_str()), (0, "released orders/1\n"));
    let (lease, token) = acquire(&gateway, "orders/1");
    assert_eq!(token, "2");
    let json: Said = command(&gateway, &["lock", "release", "orders/1", "--json"])
        .env("FENCEPOST_LEASE", &lease)
        .output()
        .unwrap()
        .into();
    assert_eq!(json.json(), json!({"name": "orders/1", "released": true}));
}

#[test]
fn e3_e5_e8_a_lock_that_is_lost_free_or_held() {
    let gateway = Fresh::memory(&[]);
    let (lease, _) = acquire(&gateway, "k --holder a#1");
    run(&gateway, "lock acquire k --holder b#2").assert_failed(8, &["held by `a#1`", "wait_ms"]);
    let started = Instant::now();
    // The wait is not counted against --timeout.
    run(&gateway, "lock acquire k --holder b#2 --wait 6s --timeout 5s").assert_failed(8, &["held by `a#1`"]);
    assert!(started.elapsed() >= Duration::from_secs(6), "{:?}", started.elapsed());
    run(&gateway, "lock show free").assert_failed(5, &["the lock `free` is free"]);
    admin(&gateway, "lock force-release free").assert_failed(5, &["the lock `free` is free"]);
    let taken = admin(&gateway, "lock force-release k");
    assert_eq!(taken.text(), "took k from a#1, whose token was 1; the fence is 2\n");
    for line in ["lock renew k --lease", "lock release k --lease"] {
        run(&gateway, &format!("{line} {lease}")).assert_failed(3, &["not current any more", "Stop what the lock"]);
    }
    acquire(&gateway, "k --holder c#3");
    let taken = admin(&gateway, "lock force-release k --json").json();
    assert_eq!(taken, json!({"name": "k", "holder": "c#3", "token": "3", "fence": "4"}));
    // A resource of another lock service.
    assert_eq!(run(&gateway, "kv put e v --token 5 --issuer etcd:1").code, 0);
    run(&gateway, "lock acquire e").assert_failed(3, &["etcd:1"]);
}

#[test]
fn an_acquire_without_a_holder_names_this_machine_and_one_with_a_key_may_be_retried() {
    let gateway = Fresh::memory(&[]);
    let machine = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let holders = ["a", "b"].map(|lock| {
        let json = run(&gateway, &format!("lock acquire {lock} --json")).json();
        json["holder"].as_str().unwrap().to_owned()
    });
    assert!(holders.iter().all(|holder| holder.starts_with(&format!("{}#", machine.trim()))), "{holders:?}");
    assert_ne!(holders[0], holders[1], "unique per acquisition");
    let first = acquire(&gateway, "k --holder me#1 --idempotency-key acquire-1");
    assert_eq!(acquire(&gateway, "k --holder me#1 --idempotency-key acquire-1"), first);
    let shown = run(&gateway, "outcome show acquire-1");
    assert!(shown.text().ends_with(", token 1\n"), "{shown:?}");
}

#[test]
fn waiting_for_a_lock_ends_when_it_is_released() {
    let gateway = Fresh::memory(&[]);
    let (lease, _) = acquire(&gateway, "k --holder a#1");
    let mut waiting =
        command(&gateway, &["lock", "acquire", "k", "--holder", "b#2", "--wait", "60s", "--timeout", "70s"]);
    let child = waiting.stdout(std::process::Stdio::piped()).spawn().unwrap();
    wait::until("the waiter", Duration::from_secs(10), || {
        (run(&gateway, "lock show k --json").json()["waiting"] == 1).then_some(())
    });
    assert_eq!(run(&gateway, &format!("lock release k --lease {lease}")).code, 0);
    let said: Said = child.wait_with_output().unwrap().into();
    assert!(said.text().starts_with("acquired k for 30s\ntoken  2\n"), "{said:?}");
}

fn is_free(gateway: &Fresh, lock: &str) -> bool {
    run(gateway, &format!("lock show {lock}")).code == 5
}

#[test]
fn a_lock_that_cannot_be_printed_is_given_back() {
    let gateway = Fresh::memory(&[]);
    let service = format!("fencepost://{}", gateway.address());
    for arguments in [&["lock", "acquire", "k"][..], &["lock", "acquire", "k", "--lock", &service]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = command(&gateway, arguments);
        let status = command.stdout(writer).stderr(Stdio::null()).status().unwrap();
        assert_eq!(status.code(), Some(1));
        assert!(is_free(&gateway, "k"), "{arguments:?}");
    }
    assert_eq!(run(&gateway, "lock acquire k --json").json()["token"], "3", "it was granted each time");
}

/// Acquires the lock `k` through a proxy; the service grants it and then stops answering.
fn granted_and_silent(gateway: &Fresh) -> (std::process::Child, Proxy) {
    let proxy = Proxy::start(gateway.address().parse().unwrap());
    proxy.set(Direction::Down, Rule::DropAfter(1));
    let service = format!("fencepost://{}", proxy.address());
    let mut command = command(gateway, &["lock", "acquire", "k", "--lock", &service, "--ttl", "60s"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let silent = || (proxy.count(Direction::Down).dropped > 0).then_some(());
    wait::until("the answer after the grant to be lost", Duration::from_secs(10), silent);
    assert!(!is_free(gateway, "k"));
    (child, proxy)
}

#[test]
fn a_lock_that_is_granted_before_something_fails_is_given_back() {
    let gateway = Fresh::memory(&[]);
    let (child, proxy) = granted_and_silent(&gateway);
    proxy.pass();
    proxy.cut();
    let said: Said = child.wait_with_output().unwrap().into();
    said.assert_failed(6, &["cannot be reached"]);
    assert!(is_free(&gateway, "k"));
    // The same when a signal arrives.
    let (child, proxy) = granted_and_silent(&gateway);
    proxy.pass();
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    let said: Said = child.wait_with_output().unwrap().into();
    said.assert_failed(143, &[]);
    assert!(is_free(&gateway, "k"));
}

#[test]
fn fences_are_rotated_one_by_prefix_and_all() {
    let gateway = Fresh::memory(&[]);
    for key in ["a", "p/1", "p/2"] {
        assert_eq!(run(&gateway, &format!("kv put {key} v --token 34")).code, 0);
    }
    let one = admin(&gateway, "fence rotate a --from 0 --reason restored");
    assert_eq!((one.code, one.text().as_str()), (0, "a: generation 1 from now on; older tokens are refused\n"));
    admin(&gateway, "fence rotate a --from 0 --reason restored").assert_failed(4, &["the generation is 1 now"]);
    run(&gateway, "kv put a w --token 35").assert_failed(3, &["35"]);
    assert!(run(&gateway, "fence show a").text().ends_with("generation 1\n"));
    let json = admin(&gateway, "fence rotate a --from 1 --reason again --issuer etcd:7 --json").json();
    assert_eq!(json, json!({"resource": "a", "generation": 2}));
    run(&gateway, "kv put a w --token 2:1 --issuer redis:1").assert_failed(3, &["etcd:7"]);
    let prefix = admin(&gateway, "fence rotate --prefix p/ --from 0 --reason restored");
    assert!(prefix.text().starts_with("2 resources rotated; resources first seen later"), "{prefix:?}");
    let again = admin(&gateway, "fence rotate --prefix p/ --from 0 --reason restored --json").json();
    assert_eq!(again, json!({"rotated": 0, "left": 2}));
    let all = admin(&gateway, "fence rotate --all --from 0 --reason restored").text();
    let base = all.strip_prefix("every resource: generation ").and_then(|rest| rest.split(' ').next()).expect(&all);
    assert!(base.parse::<u32>().is_ok_and(|base| base >= 1_700_000_000), "the time in seconds, at least: {all}");
    assert!(all.ends_with(" from now on; older tokens are refused\n"), "{all}");
    let now = format!("the generation is {base} now");
    admin(&gateway, "fence rotate --all --from 0 --reason restored").assert_failed(4, &[&now]);
    assert_eq!(run(&gateway, &format!("kv put never/seen v --token {base}:1")).code, 0);
}

#[test]
fn e2_the_command_line_is_wrong() {
    let gateway = Fresh::memory(&[]);
    for (line, words) in [
        ("fence rotate a --reason x", "--from"),
        ("fence rotate a --from 0", "--reason"),
        ("fence rotate --from 0 --reason x", "--prefix"),
        ("fence rotate a --all --from 0 --reason x", "cannot be used with"),
        ("fence rotate a --prefix a --from 0 --reason x", "cannot be used with"),
        ("fence rotate --all --from 0 --reason x --issuer etcd:1", "cannot be used with"),
        ("fence rotate a --from -1 --reason x", "-1"),
        ("fence rotate a//b --from 0 --reason x", "empty segment"),
        ("lock acquire", "<NAME>"),
        ("lock acquire k --ttl 30", "`30` is not a duration"),
        ("lock renew k", "--lease"),
        ("lock release k", "--lease"),
        ("lock frobnicate", "frobnicate"),
        ("outcome show", "<KEY>"),
        ("reload now", "now"),
    ] {
        admin(&gateway, line).assert_failed(2, &[words]);
    }
    admin(&gateway, "lock acquire k --ttl 10ms").assert_failed(1, &["from 100 to 86400000 ms"]);
    run(&gateway, "lock renew k --lease xyz").assert_failed(1, &["32 hexadecimal digits"]);
    assert_eq!(gateway.client().fence("k"), None);
}

#[test]
fn e6_there_is_no_administrators_listener() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("admin.sock");
    let away = |line: &str| -> Said {
        let arguments: Vec<_> = line.split_whitespace().collect();
        Command::new(binary()).args(arguments).arg("--admin-socket").arg(&socket).output().unwrap().into()
    };
    for line in ["reload", "fence rotate k --from 0 --reason x", "lock force-release k"] {
        away(line).assert_failed(6, &[socket.to_str().unwrap()]);
    }
}
