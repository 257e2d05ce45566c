//! Administration over the Unix socket: rotate and force-release, and their entries in the audit log.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use fencepost_conformance::wait::{self, PATIENCE};
use fencepost_harness::fresh::Fresh;
use fencepost_harness::http::{Answer, Client};
use fencepost_harness::process::{GatewayProcess, binary};
use serde_json::{Value, json};

fn admin(data: &Path) -> Client {
    Client::connect_unix(&data.join("admin.sock"))
}

fn rotate(client: &mut Client, resource: &str, from: u32) -> Answer {
    client.post(&format!("/v1/admin/fences/{resource}/rotate"), &json!({"from": from, "reason": "a test"}))
}

/// The lines of the audit log.
fn audit(data: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(data.join("audit.jsonl")).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// `fencepost … --admin-socket` of this gateway.
fn cli(data: &Path, line: &str) -> Output {
    let mut command = Command::new(binary());
    command.args(line.split_whitespace()).env("FENCEPOST_ADMIN_SOCKET", data.join("admin.sock"));
    command.output().unwrap()
}

fn generation(client: &mut Client, resource: &str) -> Value {
    client.request("GET", &format!("/v1/fences/{resource}"), &[], b"").json()["generation"].clone()
}

#[test]
fn the_public_listener_answers_403_to_every_administrative_call() {
    let gateway = Fresh::memory(&[]);
    let mut client = gateway.client();
    assert_eq!(client.put("k", "34", "v").status, 204);
    assert_eq!(client.acquire("l", "a#1", 60_000).status, 201);
    let reason = json!({"from": 0, "reason": "a test"});
    let prefix = json!({"prefix": "", "from": 0, "reason": "a test"});
    for (path, body) in [
        ("/v1/admin/fences/k/rotate", &reason),
        ("/v1/admin/rotate-all", &reason),
        ("/v1/admin/rotate-prefix", &prefix),
        ("/v1/admin/locks/l/force-release", &json!({})),
        ("/v1/admin/reload", &json!({})),
    ] {
        let answer = client.post(path, body);
        assert_eq!((answer.status, answer.problem().as_str()), (403, "admin-only"), "{path}");
        assert!(answer.json()["advice"].as_str().unwrap().contains("admin.sock"), "{}", answer.text());
    }
    assert_eq!(generation(&mut client, "k"), 0);
    assert_eq!(client.request("GET", "/v1/locks/l", &[], b"").status, 200);
    assert_eq!(audit(&gateway.data()), Vec::<Value>::new());
}

#[test]
fn the_admin_socket_serves_everything_else_too() {
    let gateway = Fresh::memory(&[]);
    let mut admin = admin(&gateway.data());
    assert_eq!(admin.put("k", "34", "v").status, 204);
    assert_eq!(admin.put("k", "33", "w").problem(), "stale", "administrators are fenced like everybody");
    assert_eq!(admin.get("k").text(), "v");
    assert_eq!(admin.request("GET", "/readyz", &[], b"").status, 200);
}

#[test]
fn rotating_one_resource_retires_its_tokens_and_no_others() {
    let gateway = Fresh::rocksdb(&[]);
    let (mut client, data) = (gateway.client(), gateway.data());
    let mut socket = admin(&data);
    assert_eq!(client.put("a", "34", "v").status, 204);
    assert_eq!(client.put("b", "34", "v").status, 204);
    let rotated = rotate(&mut socket, "a", 0);
    assert_eq!((rotated.status, rotated.json()), (200, json!({"resource": "a", "generation": 1})));
    let again = rotate(&mut socket, "a", 0);
    assert_eq!((again.status, again.problem().as_str()), (412, "condition-failed"), "a retry does not rotate twice");
    assert_eq!((&again.json()["generation"], &again.json()["outcome"]), (&1.into(), &"not-applied".into()));
    assert_eq!(client.put("a", "35", "w").problem(), "retired-generation");
    assert_eq!(client.put("b", "34", "w").status, 204);
    assert_eq!(client.get("a").text(), "v", "the data stays");
    let shown = client.request("GET", "/v1/fences/a", &[], b"").json();
    assert_eq!((&shown["generation"], &shown["fence"]), (&1.into(), &Value::Null), "high, holder, issuer are cleared");
    let (process, dir) = gateway.into_parts();
    process.kill();
    let gateway = GatewayProcess::start(&dir.path().join("data"), &[]);
    let mut client = gateway.client();
    assert_eq!(client.put("a", "99", "w").problem(), "retired-generation", "also after a restart");
    assert_eq!(client.put("a", "1:1", "w").header("fence"), Some("1:1"));
}

#[test]
fn rotating_may_bind_the_resource_to_its_new_lock_service() {
    let gateway = Fresh::memory(&[]);
    let mut client = gateway.client();
    let body = json!({"from": 0, "reason": "from redis to etcd", "issuer": "etcd:1"});
    assert_eq!(admin(&gateway.data()).post("/v1/admin/fences/k/rotate", &body).status, 200);
    let put = |client: &mut Client, issuer| {
        client.request("PUT", "/v1/kv/k", &[("fencing-token", "1:7"), ("fencing-issuer", issuer)], b"v")
    };
    assert_eq!(put(&mut client, "redis:2").problem(), "foreign-issuer");
    assert_eq!(put(&mut client, "etcd:1").status, 204);
}

#[test]
fn rotating_a_prefix_covers_what_exists_and_says_what_it_left() {
    let gateway = Fresh::memory(&[]);
    let (mut client, data) = (gateway.client(), gateway.data());
    for key in ["orders/1", "orders/2", "orders/3", "stock/1"] {
        assert_eq!(client.put(key, "34", "v").status, 204);
    }
    assert_eq!(rotate(&mut admin(&data), "orders/2", 0).status, 200);
    let body = json!({"prefix": "orders/", "from": 0, "reason": "a test"});
    let rotated = admin(&data).post("/v1/admin/rotate-prefix", &body);
    assert_eq!((rotated.status, rotated.json()), (200, json!({"rotated": 2, "left": 1})));
    let again = admin(&data).post("/v1/admin/rotate-prefix", &body).json();
    assert_eq!(again, json!({"rotated": 0, "left": 3}), "a retry does not rotate twice");
    for (key, expected) in [("orders/1", 1), ("orders/2", 1), ("orders/3", 1), ("stock/1", 0), ("orders/9", 0)] {
        assert_eq!(generation(&mut client, key), expected, "{key}");
    }
    assert_eq!(client.put("orders/9", "34", "first seen later, so not covered").status, 204);
}

#[test]
fn a_prefix_of_more_than_a_page_is_rotated_page_by_page() {
    let gateway = Fresh::memory(&[]);
    let (mut client, data) = (gateway.client(), gateway.data());
    for at in 0..1_100 {
        assert_eq!(client.claim(&format!("p/{at:04}"), "1").status, 200);
    }
    let mut body = json!({"prefix": "p/", "from": 0, "reason": "a test"});
    let first = admin(&data).post("/v1/admin/rotate-prefix", &body).json();
    assert_eq!((&first["rotated"], &first["next"]), (&1_000.into(), &"p/0999".into()));
    body["after"] = first["next"].clone();
    let second = admin(&data).post("/v1/admin/rotate-prefix", &body).json();
    assert_eq!(second, json!({"rotated": 100, "left": 0}));
    let by_cli = cli(&data, "fence rotate --prefix p/ --from 1 --reason again");
    let said = String::from_utf8_lossy(&by_cli.stdout).into_owned();
    assert!(by_cli.status.success() && said.starts_with("1100 resources rotated"), "{by_cli:?}");
    assert_eq!(generation(&mut client, "p/0500"), 2);
}

#[test]
fn a_prefix_larger_than_the_queue_is_rotated_in_the_end() {
    let gateway = Fresh::memory(&["--queue", "4"]);
    let (mut client, data) = (gateway.client(), gateway.data());
    for at in 0..200 {
        assert_eq!(client.claim(&format!("p/{at:03}"), "1").status, 200);
    }
    let body = json!({"prefix": "p/", "from": 0, "reason": "a test"});
    wait::until("every fence to be rotated", Duration::from_secs(20), || {
        let answer = admin(&data).post("/v1/admin/rotate-prefix", &body);
        // Part of it may have been done: then the answer must not claim that nothing was.
        assert!(answer.status == 200 || answer.json()["outcome"] == "unknown", "{}", answer.text());
        (answer.status == 200).then_some(())
    });
    for at in [0, 63, 64, 199] {
        assert_eq!(generation(&mut client, &format!("p/{at:03}")), 1, "each once");
    }
}

#[test]
fn rotating_all_covers_what_was_never_seen() {
    let gateway = Fresh::rocksdb(&[]);
    let (mut client, data) = (gateway.client(), gateway.data());
    assert_eq!(client.put("a", "34", "v").status, 204);
    let id = client.acquire("lock", "a#1", 60_000).json()["lease"].as_str().unwrap().to_owned();
    for from in [0, 1, 2] {
        assert_eq!(rotate(&mut admin(&data), "a", from).status, 200);
    }
    let all = |from: u32| admin(&data).post("/v1/admin/rotate-all", &json!({"from": from, "reason": "restored"}));
    assert_eq!(all(1).status, 412);
    let rotated = all(0);
    assert_eq!(rotated.status, 200, "{}", rotated.text());
    let base = rotated.json()["generation"].as_u64().unwrap();
    assert!(base >= 1_700_000_000, "above every generation that any copy of it ever had: the time in seconds, {base}");
    assert_eq!(all(0).json()["generation"], base, "compared: {}", all(0).text());
    for key in ["a", "never/seen"] {
        assert_eq!(generation(&mut client, key), base, "{key}");
        assert_eq!(client.put(key, "3:99", "w").problem(), "retired-generation", "{key}");
        assert_eq!(client.put(key, &format!("{base}:1"), "w").status, 204, "{key}");
    }
    assert_eq!(client.renew("lock", &id, 60_000).problem(), "lease-lost");
}

#[test]
fn a_reason_is_required_and_bodies_are_strict() {
    let gateway = Fresh::configured("[[guard]]\nkeys = 'orders/*/**'\nresource = 'orders/*'\n", &[]);
    let data = gateway.data();
    let long = "x".repeat(1_025);
    for body in [
        json!({"from": 0}),
        json!({"from": 0, "reason": ""}),
        json!({"from": 0, "reason": "  "}),
        json!({"from": 0, "reason": long}),
        json!({"reason": "a test"}),
        json!({"from": -1, "reason": "a test"}),
        json!({"from": "0", "reason": "a test"}),
        json!({"from": 0, "reason": "a test", "force": true}),
        json!({"from": 0, "reason": "a test", "issuer": ""}),
    ] {
        for path in ["/v1/admin/fences/k/rotate", "/v1/admin/rotate-all"] {
            let answer = admin(&data).post(path, &body);
            assert_eq!((answer.status, answer.problem().as_str()), (400, "malformed-body"), "{path} {body}");
        }
    }
    let other = rotate(&mut admin(&data), "orders/1/lines", 0);
    assert_eq!((other.status, other.problem().as_str()), (400, "not-a-resource"));
    assert_eq!(other.json()["resource"], "orders/1");
    assert_eq!(generation(&mut gateway.client(), "k"), 0);
}

#[test]
fn force_release_fences_the_holder_and_lets_the_next_one_in() {
    let gateway = Fresh::memory(&[]);
    let (mut client, data) = (gateway.client(), gateway.data());
    let a = client.acquire("k", "a#1", 60_000).json();
    assert_eq!(client.put("k", "1", "a").status, 204);
    let mut waiter = gateway.client();
    let body = json!({"holder": "b#2", "ttl_ms": 60_000, "wait_ms": 60_000}).to_string();
    let head = format!("POST /v1/locks/k HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    waiter.send(head.as_bytes()).unwrap();
    let taken = admin(&data).request("POST", "/v1/admin/locks/k/force-release", &[], b"");
    assert_eq!((taken.status, taken.json()), (200, json!({"name": "k", "holder": "a#1", "token": "1", "fence": "2"})));
    assert_eq!(client.put("k", "1", "zombie").problem(), "stale");
    assert_eq!(waiter.receive().unwrap().json()["token"], "3", "whoever waits is next");
    assert_eq!(client.renew("k", a["lease"].as_str().unwrap(), 60_000).problem(), "lease-lost");
    let none = admin(&data).request("POST", "/v1/admin/locks/free/force-release", &[], b"");
    assert_eq!((none.status, none.problem().as_str()), (404, "not-held"));
    assert_eq!(client.fence("free"), None);
}

#[test]
fn a_holder_that_is_fenced_already_can_be_released_by_force_too() {
    let gateway = Fresh::memory(&[]);
    let (mut client, data) = (gateway.client(), gateway.data());
    let highest = "18446744073709551615";
    assert_eq!(client.acquire("poisoned", "a#1", 60_000).status, 201);
    assert_eq!(client.put("poisoned", highest, "poison").status, 204);
    let taken = admin(&data).request("POST", "/v1/admin/locks/poisoned/force-release", &[], b"");
    assert_eq!((taken.status, &taken.json()["fence"]), (200, &highest.into()), "{}", taken.text());
    assert_eq!(client.request("GET", "/v1/locks/poisoned", &[], b"").status, 404);
    assert_eq!(client.acquire("rotated", "a#1", 60_000).status, 201);
    assert_eq!(rotate(&mut admin(&data), "rotated", 0).status, 200);
    let taken = admin(&data).request("POST", "/v1/admin/locks/rotated/force-release", &[], b"");
    assert_eq!((taken.status, &taken.json()["token"]), (200, &"1".into()), "{}", taken.text());
    assert_eq!(client.acquire("rotated", "b#2", 60_000).json()["token"], "1:1");
}

#[test]
fn an_act_goes_on_to_its_end_also_if_its_administrator_hangs_up() {
    let gateway = Fresh::rocksdb(&[]);
    let data = gateway.data();
    for at in 0..20 {
        let body = json!({"from": 0, "reason": "hung up"}).to_string();
        let head = format!(
            "POST /v1/admin/fences/r/{at}/rotate HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        admin(&data).send(format!("{head}{body}").as_bytes()).unwrap();
    }
    // Further operations may begin after this look at the log.
    let begun = wait::until("each act that was begun to have its end in the log", PATIENCE, || {
        let lines = audit(&data);
        let count = |outcome: &str| lines.iter().filter(|line| line["outcome"] == outcome).count();
        (count("requested") == count("done")).then_some(lines)
    });
    for line in begun {
        let resource = line["resource"].as_str().unwrap();
        assert_eq!(generation(&mut gateway.client(), resource), 1, "what the log says was done: {line}");
    }
}

#[test]
fn every_act_is_in_the_audit_log_before_and_after() {
    let gateway = Fresh::memory(&[]);
    let data = gateway.data();
    let rotated = rotate(&mut admin(&data), "k", 0);
    let refused = rotate(&mut admin(&data), "k", 0);
    let all = admin(&data).post("/v1/admin/rotate-all", &json!({"from": 0, "reason": "restored"}));
    let base = u32::try_from(all.json()["generation"].as_u64().unwrap()).unwrap();
    gateway.client().acquire("l", "a#1", 60_000);
    admin(&data).post("/v1/admin/locks/l/force-release", &json!({}));
    admin(&data).post("/v1/admin/reload", &json!({}));
    admin(&data).post("/v1/admin/rotate-prefix", &json!({"prefix": "x", "from": 2, "reason": "prefix"}));
    let lines = audit(&data);
    let acts: Vec<_> =
        lines.iter().map(|line| (line["action"].as_str().unwrap(), line["outcome"].as_str().unwrap())).collect();
    let done = |action| [(action, "requested"), (action, "done")];
    let expected = [
        done("rotate"),
        [("rotate", "requested"), ("rotate", "not-done")],
        done("rotate-all"),
        done("force-release"),
        done("reload"),
        done("rotate-prefix"),
    ];
    assert_eq!(acts, expected.concat());
    for line in &lines {
        assert_eq!(line["uid"], rustix::process::geteuid().as_raw(), "{line}");
        assert_eq!(line["pid"], std::process::id(), "{line}");
        assert!(line["at"].as_str().unwrap().starts_with("20"), "{line}");
    }
    for (pair, answer) in [(&lines[0..2], rotated), (&lines[2..4], refused)] {
        for line in pair {
            assert_eq!(line["request_id"].as_str(), answer.header("request-id"), "{line}");
            assert_eq!((&line["resource"], &line["from"], &line["reason"]), (&"k".into(), &0.into(), &"a test".into()));
        }
    }
    assert_eq!((&lines[1]["generation"], &lines[3]["problem"]), (&1.into(), &"condition-failed".into()));
    assert_eq!((&lines[6]["lock"], &lines[10]["prefix"]), (&"l".into(), &"x".into()));
    let mode = std::fs::metadata(data.join("audit.jsonl")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // The log file may be moved away at any time.
    std::fs::rename(data.join("audit.jsonl"), data.join("audit.old")).unwrap();
    assert_eq!(rotate(&mut admin(&data), "new", base).status, 200);
    assert_eq!(audit(&data).len(), 2);
}

#[test]
fn what_cannot_be_written_down_is_not_done() {
    let gateway = Fresh::configured("[[guard]]\nkeys = 'o'\nmode = 'observe'\n", &[]);
    let (mut client, data) = (gateway.client(), gateway.data());
    std::fs::create_dir(data.join("audit.jsonl")).unwrap();
    assert_eq!(client.acquire("l", "a#1", 60_000).status, 201);
    let reason = json!({"from": 0, "reason": "a test"});
    for (path, body) in [
        ("/v1/admin/fences/k/rotate", &reason),
        ("/v1/admin/rotate-all", &reason),
        ("/v1/admin/locks/l/force-release", &json!({})),
        ("/v1/admin/reload", &json!({})),
    ] {
        let answer = admin(&data).post(path, body);
        assert_eq!((answer.status, answer.problem().as_str()), (503, "unavailable"), "{path}");
        assert!(answer.json()["detail"].as_str().unwrap().contains("audit log"), "{}", answer.text());
        assert_eq!((&answer.json()["outcome"], answer.header("retry-after")), (&"not-applied".into(), Some("1")));
    }
    assert_eq!(generation(&mut client, "k"), 0);
    assert_eq!(client.request("GET", "/v1/locks/l", &[], b"").status, 200);
    wait::until("the log line", Duration::from_secs(10), || {
        gateway.stderr().contains("the audit log cannot be written").then_some(())
    });
    std::fs::remove_dir(data.join("audit.jsonl")).unwrap();
    assert_eq!(rotate(&mut admin(&data), "k", 0).status, 200, "and then it is done again");
}
