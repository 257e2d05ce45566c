//! The protocol on the pipes.

use std::thread;

use fencepost_conformance::adapters::exec::Options;
use fencepost_conformance::manifest::{Equal, High, Kill, Policy, Reads};
use fencepost_conformance::subject::{Hook, Subject};
use fencepost_conformance::{Answer, Op, Token, Verb, Write};
use serde_json::{Value, json};

use super::{Marked, call, read, value};
use crate::marked::patient;

/// Answers each read with the request line.
const ECHO: &str = r#"
import json, sys
for line in sys.stdin:
    request = json.loads(line)
    if request["op"] == "init":
        answer = {"result": "ok", "caps": ["read", "claim", "checked_read"]}
        first = request
    elif request["op"] in ("read", "claim", "checked_read"):
        answer = {"result": "ok", "value": line if request.get("res") != "init" else json.dumps(first)}
    else:
        answer = {"result": "error", "definite": True, "code": line}
    print(json.dumps({"id": request["id"], **answer}))
"#;

fn code(answer: Answer) -> String {
    match answer {
        Answer::Error { code, .. } => code,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_request_says_everything() {
    let echo = Marked::python(ECHO);
    let subject = echo.open(Options::default()).unwrap();
    let init: Value = serde_json::from_str(&value(read(&subject, 0, "init"))).unwrap();
    let dir = init["dir"].as_str().unwrap().to_owned();
    assert_eq!(init, json!({"id": 1, "op": "init", "proto": 1, "dir": dir, "instance": 0}));
    assert!(std::path::Path::new(&dir).is_dir(), "an adapter may put its data there");
    let write = Op::write("r1", u64::MAX, "h3", "v \"17\"\n\u{0}ä");
    let asked: Value = serde_json::from_str(&code(call(&subject, 3, &write).unwrap())).unwrap();
    let id = &asked["id"];
    assert_eq!(
        asked,
        json!({"id": id, "case": "X01", "seed": 7, "operation": 41, "client": 3, "op": "write", "res": "r1",
               "token": "18446744073709551615", "holder": "h3", "value": "v \"17\"\n\u{0}ä"})
    );
    let asked = |op: Op| -> Value {
        let answer = call(&subject, 0, &op).unwrap();
        let line = answer.value().flatten().map(str::to_owned).unwrap_or_else(|| code(answer));
        serde_json::from_str(&line).unwrap()
    };
    assert_eq!(asked(Op::checked_read("r", Token::Absent)).get("token"), None);
    assert_eq!(asked(Op::claim("r", Token::Both("5".into(), "9".into()), "h"))["token"], json!(["5", "9"]));
    assert_eq!(asked(Op::claim("r", Token::text("-1"), "h"))["token"], "-1");
    assert_eq!(asked(Op::cas("r", 1, "h", None, "v"))["expect"], Value::Null);
    let batch = Op::Batch { writes: vec![Write::new("a", 1, "h", "v"), Write::new("b", Token::Absent, "h", "w")] };
    assert_eq!(
        asked(batch)["writes"],
        json!([{"res": "a", "token": "1", "holder": "h", "value": "v"}, {"res": "b", "holder": "h", "value": "w"}])
    );
    drop(subject);
    assert!(!std::path::Path::new(&dir).exists(), "the directory goes with the run");
    echo.left_nothing();
}

#[test]
fn answers_may_come_in_any_order() {
    let reversing = Marked::python(
        r#"
import json, sys
waiting = []
for line in sys.stdin:
    request = json.loads(line)
    if request["op"] == "init":
        print(json.dumps({"id": 1, "result": "ok", "caps": ["read"]}))
        continue
    waiting.append(request)
    if len(waiting) == 8:
        for request in reversed(waiting):
            print(json.dumps({"id": request["id"], "result": "ok", "value": request["res"]}))
"#,
    );
    let subject = reversing.open(patient()).unwrap();
    thread::scope(|scope| {
        for client in 0..8 {
            let subject = &subject;
            scope.spawn(move || {
                let res = format!("r{client}");
                assert_eq!(value(read(subject, client, &res)), res);
            });
        }
    });
}

#[test]
fn clients_are_spread_over_instances() {
    let adapter = Marked::python(
        r#"
import json, os, sys
for line in sys.stdin:
    request = json.loads(line)
    if request["op"] == "init":
        instance = request["instance"]
        open(os.path.join(request["dir"], str(instance)), "w").close()
        print(json.dumps({"id": 1, "result": "ok", "caps": ["read"]}))
    else:
        print(json.dumps({"id": request["id"], "result": "ok", "value": str(instance)}))
"#,
    );
    let subject = adapter.open(Options { instances: 3, ..Options::default() }).unwrap();
    assert_eq!(subject.instances(), 3);
    for client in 0..7 {
        assert_eq!(value(read(&subject, client, "r")), (client % 3).to_string());
    }
    assert_eq!(adapter.processes().len(), 3);
    drop(subject);
    adapter.left_nothing();
}

#[test]
fn the_manifest_is_what_init_said() {
    let adapter = Marked::shell(
        r#"read -r line; echo '{"id":1,"result":"ok","proto":1,"caps":["read","batch"],"policy":"gt","equal":"holder",
           "reads":"stale-ok","high":"at_least","mismatch_raises":true,"kill":"everything","token_max":"9007199254740992",
           "text_tokens":false}' | tr -d '\n'; echo; cat >/dev/null"#,
    );
    let subject = adapter.open(Options::default()).unwrap();
    let manifest = subject.manifest();
    assert!(manifest.has(Verb::Write) && manifest.has(Verb::Batch) && !manifest.has(Verb::Claim));
    assert_eq!((manifest.policy, manifest.equal, manifest.reads), (Policy::Gt, Equal::Holder, Reads::StaleOk));
    assert_eq!((manifest.high, manifest.kill, manifest.token_max), (High::AtLeast, Kill::Everything, 1 << 53));
    assert!(manifest.mismatch_raises && !manifest.text_tokens);
    for hook in [Hook::Start, Hook::Ready, Hook::Kill, Hook::Restart, Hook::Pause, Hook::Resume] {
        assert!(subject.has(hook));
    }
    for hook in [Hook::Powerloss, Hook::Reset, Hook::Restore] {
        assert!(!subject.has(hook), "nothing is there to do it");
    }
}
