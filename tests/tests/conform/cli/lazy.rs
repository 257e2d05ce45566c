//! Adapters that do nothing, as programs. None of them reaches a level.

use serde_json::{Value, json};

use super::{conform, dir, last_line, results, text};

/// An adapter with these verbs and an answer for each operation: that of its name, else that of `*`.
fn lazy(caps: &Value, answers: &Value) -> [String; 5] {
    const PROGRAM: &str = r#"
import json, sys
caps, answers = json.loads(sys.argv[1]), json.loads(sys.argv[2])
for line in sys.stdin:
    request = json.loads(line)
    op = request["op"]
    said = {"result": "ok", "caps": caps} if op == "init" else answers.get(op, answers["*"])
    print(json.dumps({"id": request["id"], **said}), flush=True)
"#;
    ["python3".to_owned(), "-c".to_owned(), PROGRAM.to_owned(), caps.to_string(), answers.to_string()]
}

#[test]
fn who_does_nothing_never_gets_a_level() {
    let every = json!(["write", "read", "checked_read", "claim", "cas", "delete", "batch"]);
    let (ok, none) = (json!({"result": "ok"}), json!({"result": "ok", "value": null}));
    let agrees = json!({"*": ok, "read": none, "checked_read": none, "claim": none});
    let seven = json!({"result": "ok", "high": "7"});
    let value = json!({"result": "ok", "value": "v-1", "high": "7"});
    let constant = json!({"*": seven, "batch": ok, "read": value, "checked_read": value, "claim": value});
    // A read carries no token, so it cannot be stale.
    let stale = json!({"*": {"result": "stale"}, "read": none});
    for (name, caps, answers, code, word) in [
        ("unknown", &every, json!({"*": {"result": "unknown", "why": "lazy"}}), 2, "UNKNOWN: "),
        ("unsupported", &every, json!({"*": {"result": "unsupported"}}), 1, "NOT SAFE: "),
        ("ok", &every, agrees.clone(), 1, "NOT SAFE: "),
        ("stale", &every, stale, 1, "NOT SAFE: "),
        ("ok with a value and a fence", &every, constant, 1, "NOT SAFE: "),
        ("ok, and has no other verb", &json!([]), agrees, 1, "NOT SAFE: "),
    ] {
        let dir = dir();
        let output = conform(dir.path(), &["exec", "--level", "L1"], &lazy(caps, &answers));
        assert_eq!(output.status.code(), Some(code), "{name}: {}{}", text(&output.stdout), text(&output.stderr));
        assert!(last_line(&output).starts_with(word), "{name}: {}", last_line(&output));
        let results = results(dir.path());
        assert_eq!((&results["level_asked"], &results["level_shown"]), (&"L1".into(), &Value::Null), "{name}");
    }
}
