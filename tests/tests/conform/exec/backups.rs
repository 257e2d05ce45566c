//! Backups and clocks of adapters: what the suite copies, and what hook commands do.

use std::path::Path;

use fencepost_conformance::adapters::exec::{ExecSubject, Options};
use fencepost_conformance::adapters::hooks::Commands;
use fencepost_conformance::subject::{Hook, Restored, Shift, Subject};

use super::{Marked, read, value};

/// `count` returns how often it was read, which the adapter keeps in a file of its directory or in ELSEWHERE; `dir` and
/// `pid` are its own. It also notes the count in the file STRICT, and does not start with a smaller count.
const ADAPTER: &str = r#"
import json, os, sys
for line in sys.stdin:
    request = json.loads(line)
    answer = {"result": "ok"}
    if request["op"] == "init":
        path = os.environ.get("ELSEWHERE") or os.path.join(request["dir"], "count")
        count = int(open(path).read()) if os.path.exists(path) else 0
        if os.environ.get("STRICT"):
            if count < int(open(os.environ["STRICT"]).read() or 0):
                sys.exit("this is an older count")
        directory, answer["caps"] = request["dir"], ["read"]
    elif request["res"] == "pid":
        answer["value"] = str(os.getpid())
    elif request["res"] == "dir":
        answer["value"] = directory
    else:
        count = int(open(path).read()) + 1 if os.path.exists(path) else 1
        for file in filter(None, [path, os.environ.get("STRICT")]):
            open(file, "w").write(str(count))
        answer["value"] = str(count)
    print(json.dumps({"id": request["id"], **answer}), flush=True)
"#;

/// The adapter with this variable in its environment.
fn adapter(variable: &str) -> Marked {
    Marked::new(&["env", variable, "python3", "-c", ADAPTER])
}

fn open(adapter: &Marked, hooks: Commands) -> ExecSubject {
    adapter.open(Options { hooks, instances: 2, ..Options::default() }).unwrap()
}

fn count(subject: &ExecSubject) -> String {
    value(read(subject, 0, "count"))
}

#[test]
fn adapters_are_stopped_and_their_directory_goes_back() {
    let adapter = adapter("STRICT=");
    let subject = open(&adapter, Commands::default());
    assert!(!subject.has(Hook::Backup), "there is nothing yet");
    assert_eq!(count(&subject), "1");
    assert!(subject.has(Hook::Backup) && subject.has(Hook::Restore));
    let before = value(read(&subject, 1, "pid"));
    subject.hook(Hook::Backup).unwrap();
    assert_ne!(value(read(&subject, 1, "pid")), before, "nobody wrote while it was copied");
    assert_eq!((count(&subject), count(&subject)), ("2".to_owned(), "3".to_owned()));
    assert_eq!(subject.restore().unwrap(), Restored::Serves);
    assert_eq!(count(&subject), "2", "after the 1 that was kept");
    drop(subject);
    adapter.left_nothing();
}

#[test]
fn an_adapter_that_does_not_begin_with_a_backup_gets_back_what_it_had() {
    let beside = tempfile::NamedTempFile::new().unwrap();
    let adapter = adapter(&format!("STRICT={}", beside.path().display()));
    let subject = adapter.open(Options::default()).unwrap();
    count(&subject);
    subject.hook(Hook::Backup).unwrap();
    count(&subject);
    let Restored::Refuses(why) = subject.restore().unwrap() else { panic!("it serves") };
    assert!(why.contains("this is an older count"), "{why}");
    assert_eq!(count(&subject), "3");
}

#[test]
fn what_lies_elsewhere_or_belongs_to_others_is_not_copied() {
    let elsewhere = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(elsewhere.path(), "0").unwrap();
    let subject = open(&adapter(&format!("ELSEWHERE={}", elsewhere.path().display())), Commands::default());
    assert_eq!(count(&subject), "1");
    assert!(!subject.has(Hook::Backup), "its directory is empty");
    let hooks = Commands { kill: Some("true".to_owned()), restart: Some("true".to_owned()), ..Commands::default() };
    let subject = open(&adapter("STRICT="), hooks);
    assert_eq!(count(&subject), "1");
    assert!(!subject.has(Hook::Backup), "a server that the suite does not own may be writing there");
}

#[test]
fn commands_do_it_instead_and_the_clock_is_told_to_one() {
    let hooks = Commands {
        backup: Some("cp $CONFORM_DIR/count $CONFORM_DIR/kept".to_owned()),
        restore: Some("cp $CONFORM_DIR/kept $CONFORM_DIR/count".to_owned()),
        clock: Some("echo $CONFORM_CLOCK >> $CONFORM_DIR/clock".to_owned()),
        ..Commands::default()
    };
    let subject = open(&adapter("STRICT="), hooks);
    count(&subject);
    let before = value(read(&subject, 1, "pid"));
    subject.hook(Hook::Backup).unwrap();
    assert_eq!(value(read(&subject, 1, "pid")), before, "a command knows how to do it while it runs");
    count(&subject);
    subject.hook(Hook::Restore).unwrap();
    assert_ne!(value(read(&subject, 1, "pid")), before, "nobody works on while it goes back");
    assert_eq!(count(&subject), "2");
    for shift in [Shift::AHEAD, Shift::BEHIND, Shift::NONE] {
        subject.hook(Hook::Clock(shift)).unwrap();
    }
    let clock = Path::new(&value(read(&subject, 0, "dir"))).join("clock");
    assert_eq!(std::fs::read_to_string(clock).unwrap(), "+86400\n-86400\n+0\n");
}
