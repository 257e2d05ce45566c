//! Reloading the rules by the socket, by command and by SIGHUP: only the policy of guards changes.

use std::process::{Command, Output};

use fencepost_conformance::wait::{self, PATIENCE};
use fencepost_harness::fresh::{Fresh, write_config};
use fencepost_harness::http::{Answer, Client};
use fencepost_harness::process::binary;
use rustix::process::Signal;
use serde_json::json;

const OBSERVE: &str = "[[guard]]\nkeys = 'k'\nmode = 'observe'\n";
const ENFORCE: &str = "[[guard]]\nkeys = 'k'\nmode = 'enforce'\n";

/// An observing gateway whose key `k` has the fence 34.
fn observing() -> Fresh {
    let gateway = Fresh::configured(OBSERVE, &[]);
    assert_eq!(gateway.client().put("k", "34", "v").status, 204);
    assert_eq!(stale(&gateway), 204);
    gateway
}

/// The status of a stale write: 204 when it is only observed, 409 when it is refused.
fn stale(gateway: &Fresh) -> u16 {
    gateway.client().put("k", "33", "stale").status
}

fn configure(gateway: &Fresh, toml: &str) {
    write_config(gateway.data().parent().unwrap(), toml);
}

fn reload(gateway: &Fresh) -> Answer {
    Client::connect_unix(&gateway.data().join("admin.sock")).request("POST", "/v1/admin/reload", &[], b"")
}

fn cli(gateway: &Fresh, arguments: &[&str]) -> Output {
    let mut command = Command::new(binary());
    command.arg("reload").args(arguments).env("FENCEPOST_ADMIN_SOCKET", gateway.data().join("admin.sock"));
    command.output().unwrap()
}

#[test]
fn observe_becomes_enforce_over_the_socket() {
    let gateway = observing();
    assert_eq!(reload(&gateway).json(), json!({"changed": [], "needs_restart": []}), "nothing was changed yet");
    configure(&gateway, ENFORCE);
    assert_eq!(stale(&gateway), 204, "a file alone changes nothing");
    let answer = reload(&gateway);
    assert_eq!((answer.status, &answer.json()["needs_restart"]), (200, &json!([])));
    let changed = answer.json()["changed"][0].as_str().unwrap().to_owned();
    assert!(changed.starts_with("guard 1 (k): observe,") && changed.contains("-> enforce,"), "{changed}");
    assert_eq!(stale(&gateway), 409);
    let mut txn = gateway.client();
    let body = json!({"tokens": {"k": "33"}, "then": [{"delete": "k"}]});
    assert_eq!(txn.post("/v1/txn", &body).status, 409, "by every call");
    configure(&gateway, &format!("{ENFORCE}equal = 'reject'\nmax_jump = 5\n"));
    assert_eq!(reload(&gateway).status, 200);
    assert_eq!(gateway.client().put("k", "40", "w").problem(), "implausible");
    assert_eq!(gateway.client().put("k", "34", "w").problem(), "spent");
    configure(&gateway, OBSERVE);
    assert_eq!(reload(&gateway).status, 200);
    assert_eq!(stale(&gateway), 204, "and back");
}

#[test]
fn observe_becomes_enforce_by_command() {
    let gateway = observing();
    let same = cli(&gateway, &[]);
    assert_eq!(String::from_utf8_lossy(&same.stdout), "no rule has changed\n", "{same:?}");
    configure(&gateway, &format!("queue = 77\n{ENFORCE}"));
    let changed = cli(&gateway, &[]);
    assert!(String::from_utf8_lossy(&changed.stdout).starts_with("guard 1 (k): observe"), "{changed:?}");
    assert!(String::from_utf8_lossy(&changed.stderr).contains("at the next start only: queue 77"), "{changed:?}");
    assert_eq!(stale(&gateway), 409);
    let json = cli(&gateway, &["--json"]);
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(json, json!({"changed": [], "needs_restart": ["queue 77"]}));
    configure(&gateway, "listn = 'x'");
    let refused = cli(&gateway, &[]);
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("the old rules stay"), "{refused:?}");
    assert_eq!(stale(&gateway), 409);
}

#[test]
fn observe_becomes_enforce_by_sighup() {
    let gateway = observing();
    configure(&gateway, ENFORCE);
    gateway.signal(Signal::HUP);
    wait::until("the log line", PATIENCE, || gateway.stderr().contains("rules were read again").then_some(()));
    assert_eq!(stale(&gateway), 409);
    configure(&gateway, "[[guard]]\nkeys = 'other'\n");
    gateway.signal(Signal::HUP);
    let line = wait::until("the log line", PATIENCE, || {
        gateway.stderr().lines().find(|line| line.contains("the old rules stay")).map(str::to_owned)
    });
    assert!(line.contains("ERROR") && line.contains("guard mapping differs"), "{line}");
    let audit = std::fs::read_to_string(gateway.data().join("audit.jsonl")).unwrap();
    let outcomes: Vec<String> = audit
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
        .inspect(|line| assert_eq!((&line["action"], &line["by"]), (&"reload".into(), &"signal".into()), "{line}"))
        .map(|line| line["outcome"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(outcomes, ["requested", "done", "requested", "not-done"], "audited like any other act");
    assert_eq!(stale(&gateway), 409, "and the gateway goes on");
    assert_eq!(gateway.client().request("GET", "/readyz", &[], b"").status, 200);
}

#[test]
fn what_cannot_be_used_keeps_the_old_rules_and_says_why() {
    let gateway = observing();
    for (toml, words) in [
        ("[[guard]]\nkeys = 'k/**'\nresource = 'k'\nmode = 'enforce'\n", "the guard mapping differs"),
        ("[[guard]]\nkeys = 'other'\n", "the guard mapping differs"),
        ("", "the guard mapping differs"),
        ("listn = 'x'\n", "listn"),
        ("[[guard]]\nkeys = 'k'\nmode = 'perhaps'\n", "perhaps"),
        ("[[guard]\n", "fencepost.toml"),
        ("[[guard]]\nkeys = 'k'\nmode = 'enforce'\n[[guard]]\nkeys = 'k'\n", "guard 2"),
        ("queue = 0\n[[guard]]\nkeys = 'k'\nmode = 'enforce'\n", "queue must be at least 1"),
    ] {
        configure(&gateway, toml);
        let refused = reload(&gateway);
        assert_eq!((refused.status, refused.problem().as_str()), (422, "reload-refused"), "{toml}");
        let detail = refused.json()["detail"].as_str().unwrap().to_owned();
        assert!(detail.contains(words) && detail.contains("the old rules stay"), "{words} in {detail}");
        assert_eq!(stale(&gateway), 204, "{toml}");
    }
    std::fs::remove_file(gateway.data().parent().unwrap().join("fencepost.toml")).unwrap();
    let gone = reload(&gateway);
    assert_eq!((gone.status, gone.problem().as_str()), (422, "reload-refused"));
    assert_eq!(stale(&gateway), 204);
    configure(&gateway, ENFORCE);
    assert_eq!(reload(&gateway).status, 200);
    assert_eq!(stale(&gateway), 409);
}

#[test]
fn other_settings_are_named_but_do_not_change() {
    let gateway = observing();
    configure(&gateway, &format!("lock_delay = '9s'\n[limits]\nmax_body = '1KiB'\n{ENFORCE}"));
    let answer = reload(&gateway).json();
    assert_eq!(answer["needs_restart"], json!(["lock_delay 9s", "max_body 1KiB"]), "{answer}");
    assert_eq!(answer["changed"].as_array().unwrap().len(), 1, "the rules change all the same: {answer}");
    assert_eq!(gateway.client().put("large", "1", &"x".repeat(2048)).status, 204);
    assert_eq!(stale(&gateway), 409);
}

#[test]
fn reloading_under_load_loses_no_request() {
    let gateway = observing();
    let writers: Vec<_> = (0..4)
        .map(|writer| {
            let mut client = gateway.client();
            std::thread::spawn(move || {
                for at in 0..200 {
                    let answer = client.put(&format!("w/{writer}/{at}"), "1", "v");
                    assert_eq!(answer.status, 204, "{}", answer.text());
                }
            })
        })
        .collect();
    for round in 0..20 {
        configure(&gateway, if round % 2 == 0 { ENFORCE } else { OBSERVE });
        assert_eq!(reload(&gateway).status, 200);
        assert_eq!(stale(&gateway), if round % 2 == 0 { 409 } else { 204 }, "round {round}");
    }
    writers.into_iter().for_each(|writer| writer.join().unwrap());
}
