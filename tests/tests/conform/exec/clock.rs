//! The clock of an adapter, set by libfaketime as docs/conformance/exec.md describes, and always reset afterwards.

use fencepost_conformance::adapters::exec::Options;
use fencepost_conformance::adapters::hooks::Commands;
use fencepost_conformance::run;
use fencepost_conformance::subject::{Hook, Shift, Subject};
use fencepost_conformance::verdict::Outcome;

use super::{Marked, read, value};
use crate::marked::{patient, root};

/// Returns the time.
const ADAPTER: &str = r#"
import json, sys, time
for line in sys.stdin:
    request = json.loads(line)
    answer = {"caps": ["read"]} if request["op"] == "init" else {"value": str(int(time.time()))}
    print(json.dumps({"id": request["id"], "result": "ok", **answer}), flush=True)
"#;

#[test]
fn the_example_of_the_document_sets_the_clock_while_the_adapter_runs() {
    let book = std::fs::read_to_string(root().join("docs/conformance/exec.md")).unwrap();
    let example = book.split("```").find(|part| part.contains("libfaketime")).expect("it has an example");
    let between =
        |begin: &str| example.split(begin).nth(1).and_then(|rest| rest.split('\'').next()).unwrap().to_owned();
    let (clock, script) = (between("--hook clock='"), between("sh -c '"));
    let path = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(path.path(), ADAPTER).unwrap();
    assert!(script.contains("exec python3 adapter.py"));
    let adapter = Marked::shell(&script.replace("adapter.py", &path.path().display().to_string()));
    let hooks = Commands { clock: Some(clock), ..Commands::default() };
    let subject = adapter.open(Options { hooks, ..Options::default() }).unwrap();
    let time = || value(read(&subject, 0, "time")).parse::<i64>().unwrap();
    let right = time();
    for shift in [Shift::AHEAD, Shift::BEHIND, Shift::NONE] {
        subject.hook(Hook::Clock(shift)).unwrap();
        let away = time() - right - shift.0;
        assert!((0..3_600).contains(&away), "{away} s off with a clock of {shift} s");
    }
}

/// Correct, but it exits at any request while the last line of the file CLOCK is a day ahead.
const FRAIL: &str = r#"
import json, os, sys
fences = {}
for line in sys.stdin:
    if open(os.environ["CLOCK"]).read().endswith("+86400\n"):
        sys.exit("what day is it?")
    request = json.loads(line)
    answer = {"result": "ok"}
    if request["op"] == "init":
        answer["caps"] = []
    elif int(request["token"]) < fences.get(request["res"], 0):
        answer["result"] = "stale"
    else:
        fences[request["res"]] = int(request["token"])
    print(json.dumps({"id": request["id"], **answer}), flush=True)
"#;

#[test]
fn the_clock_is_set_right_also_if_the_adapter_is_gone() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().display();
    let adapter = Marked::new(&["env", &format!("CLOCK={path}"), "python3", "-c", FRAIL]);
    let hooks = Commands { clock: Some(format!("echo $CONFORM_CLOCK >> '{path}'")), ..Commands::default() };
    let subject = adapter.open(Options { hooks, ..patient() }).unwrap();
    let only = run::Options { only: vec!["R10".to_owned()], ..run::Options::default() };
    let results = run::run(&subject, &only, &mut ());
    assert_eq!((results.outcome(), results.exit_code()), (Outcome::Broken, 3), "{}", results.last_line());
    let broken = results.broken.unwrap();
    assert!(broken.contains("ended (exit status: 1)") && broken.contains("| what day is it?"), "{broken}");
    assert_eq!(std::fs::read_to_string(file.path()).unwrap(), "+86400\n+0\n");
    drop(subject);
    adapter.left_nothing();
}
