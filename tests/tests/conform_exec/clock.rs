//! The clock of an adapter, set by libfaketime as docs/conformance/exec.md says.

use fencepost_conformance::adapters::exec::Options;
use fencepost_conformance::adapters::hooks::Commands;
use fencepost_conformance::subject::{Hook, Shift, Subject};

use super::marked::root;
use super::{Marked, read, value};

/// Reads the time.
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
