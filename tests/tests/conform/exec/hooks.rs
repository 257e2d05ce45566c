//! Adapters that are killed, stopped and restarted.

use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use fencepost_conformance::adapters::exec::{ExecSubject, Options};
use fencepost_conformance::adapters::hooks::Commands;
use fencepost_conformance::subject::{Hook, Subject};
use fencepost_conformance::wait;

use super::{Marked, quick, read, value};
use crate::marked::patient;

/// `pid` returns its process, `dir` its directory, `environment` a port; `hang` is noted there and never answered. It
/// ends with its input.
const ADAPTER: &str = r#"
import json, os, subprocess, sys
for line in sys.stdin:
    request = json.loads(line)
    answer = {"result": "ok"}
    if request["op"] == "init":
        directory = request["dir"]
        open(os.path.join(directory, f"started-{os.getpid()}"), "w").close()
        subprocess.Popen(["sleep", "600"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        answer["caps"] = ["read"]
    elif request["res"] == "hang":
        open(os.path.join(directory, f"hang-{request['id']}-{os.getpid()}"), "w").close()
        continue
    else:
        facts = {"pid": str(os.getpid()), "dir": directory, "environment": os.environ.get("CONFORM_PORT")}
        answer["value"] = facts[request["res"]]
    print(json.dumps({"id": request["id"], **answer}))
open(os.path.join(directory, f"ended-{os.getpid()}"), "w").close()
"#;

fn pid(subject: &ExecSubject) -> String {
    value(read(subject, 0, "pid"))
}

fn dir(subject: &ExecSubject) -> PathBuf {
    PathBuf::from(value(read(subject, 0, "dir")))
}

/// Waits until this many adapters run, and asserts that there are never more. One that is just starting may not be
/// visible yet.
#[track_caller]
fn as_many_run(adapter: &Marked, count: usize, who: &str) {
    wait::until(who, wait::PATIENCE, || {
        let running = adapter.processes();
        assert!(running.len() <= count, "{who}: {running:?}");
        (running.len() == count).then_some(())
    });
}

/// The number of requests in flight that will never be answered.
fn hanging(home: &Path) -> usize {
    let names = std::fs::read_dir(home).unwrap().map(|entry| entry.unwrap().file_name());
    names.filter(|name| name.to_string_lossy().starts_with("hang-")).count()
}

#[test]
fn a_kill_leaves_outcomes_unknown_and_nothing_else() {
    let adapter = Marked::python(ADAPTER);
    let subject = adapter.open(Options { instances: 2, ..patient() }).unwrap();
    as_many_run(&adapter, 4, "two adapters and a child of each");
    let before = pid(&subject);
    let home = dir(&subject);
    thread::scope(|scope| {
        let in_flight: Vec<_> = (0..4)
            .map(|client| {
                scope.spawn({
                    let subject = &subject;
                    move || read(subject, client, "hang")
                })
            })
            .collect();
        wait::until("all four to arrive", wait::PATIENCE, || (hanging(&home) == 4).then_some(()));
        let began = Instant::now();
        subject.hook(Hook::Kill).unwrap();
        for call in in_flight {
            assert!(call.join().unwrap().unwrap().is_unknown());
        }
        assert!(began.elapsed() < Duration::from_secs(30), "they fail soon, not at their limit");
    });
    adapter.left_nothing();
    assert!(read(&subject, 0, "pid").unwrap().is_unknown(), "nobody is there");
    assert!(!home.join(format!("ended-{before}")).exists(), "a kill is no orderly end");
    subject.hook(Hook::Restart).unwrap();
    assert_ne!(pid(&subject), before);
    assert_eq!(dir(&subject), home, "the data is the same");
    drop(subject);
    adapter.left_nothing();
    assert!(!home.exists());
}

#[test]
fn a_start_can_be_killed_before_it_is_ready() {
    let adapter = Marked::python(ADAPTER);
    let subject = adapter.open(patient()).unwrap();
    for _ in 0..3 {
        subject.hook(Hook::Kill).unwrap();
        subject.hook(Hook::Start).unwrap();
        subject.hook(Hook::Kill).unwrap();
        adapter.left_nothing();
        subject.hook(Hook::Start).unwrap();
        subject.hook(Hook::Ready).unwrap();
        pid(&subject);
    }
}

#[test]
fn a_restart_begins_with_the_end_of_the_input() {
    let adapter = Marked::python(ADAPTER);
    let subject = adapter.open(patient()).unwrap();
    let (before, home) = (pid(&subject), dir(&subject));
    subject.hook(Hook::Restart).unwrap();
    assert!(home.join(format!("ended-{before}")).exists(), "it came to its end by itself");
    assert_ne!(pid(&subject), before);
    as_many_run(&adapter, 2, "the new one and its child, and not the old one's");
}

#[test]
fn one_that_does_not_end_gets_a_signal_and_then_the_other() {
    let script = |trap: &str| {
        format!(
            r#"trap '{trap}' TERM; read -r line; dir=${{line#*\"dir\":\"}}; dir=${{dir%%\"*}}; touch "$dir/$$"
               echo '{{"id":1,"result":"ok","caps":[]}}'; while :; do sleep 0.05; done"#
        )
    };
    for (trap, asked) in [("touch $dir/asked; exit 0", true), ("", false)] {
        let adapter = Marked::shell(&script(trap));
        let subject = adapter.open(quick()).unwrap();
        let place = wait::until("its directory", Duration::from_secs(5), || place(&adapter));
        subject.hook(Hook::Restart).unwrap();
        assert_eq!(place.join("asked").exists(), asked);
        drop(subject);
        adapter.left_nothing();
    }
}

/// The directory of an adapter, found without asking it.
fn place(adapter: &Marked) -> Option<PathBuf> {
    let stat = adapter.processes().into_iter().next()?;
    let environment = std::fs::read(Path::new("/proc").join(stat.split(' ').next()?).join("environ")).ok()?;
    let entries = String::from_utf8(environment).ok()?;
    entries.split('\0').find_map(|entry| entry.strip_prefix("CONFORM_DIR=")).map(PathBuf::from)
}

#[test]
fn a_pause_is_no_silence() {
    let adapter = Marked::python(ADAPTER);
    let subject = adapter.open(Options { timeout: Duration::from_secs(3), ..Options::default() }).unwrap();
    let before = pid(&subject);
    subject.hook(Hook::Pause).unwrap();
    // For a running adapter, four unanswered requests would count as silence.
    for _ in 0..5 {
        assert!(read(&subject, 0, "pid").unwrap().is_unknown());
    }
    subject.hook(Hook::Resume).unwrap();
    assert_eq!(pid(&subject), before);
    // Stopped and killed, and stopped and restarted.
    subject.hook(Hook::Pause).unwrap();
    subject.hook(Hook::Kill).unwrap();
    subject.hook(Hook::Restart).unwrap();
    subject.hook(Hook::Pause).unwrap();
    subject.hook(Hook::Restart).unwrap();
    assert_ne!(pid(&subject), before);
}

#[test]
fn one_that_comes_back_different_is_broken() {
    let adapter = Marked::shell(
        r#"read -r line; dir=${line#*\"dir\":\"}; dir=${dir%%\"*}; caps='"read"'; [ -e "$dir/seen" ] && caps=''; touch "$dir/seen"
           echo "{\"id\":1,\"result\":\"ok\",\"caps\":[$caps]}"; cat >/dev/null"#,
    );
    let subject = adapter.open(quick()).unwrap();
    let broken = subject.hook(Hook::Restart).unwrap_err();
    assert!(broken.0.contains("answered init with") && broken.0.contains("answer the same"), "{broken}");
    drop(subject);
    adapter.left_nothing();
}

#[test]
fn commands_reach_what_lies_behind() {
    let adapter = Marked::python(ADAPTER);
    let note = |word: &str| Some(format!("echo {word} >> $CONFORM_DIR/log"));
    let hooks = Commands {
        kill: note("kill"),
        restart: note("restart"),
        pause: note("pause"),
        resume: note("resume"),
        reset: note("reset"),
        ..Commands::default()
    };
    let subject = adapter.open(Options { hooks, ..patient() }).unwrap();
    let (before, home) = (pid(&subject), dir(&subject));
    assert!(subject.has(Hook::Reset) && !subject.has(Hook::Powerloss));
    subject.hook(Hook::Reset).unwrap();
    subject.hook(Hook::Pause).unwrap();
    assert_eq!(pid(&subject), before, "what lies behind is stopped, and not the adapter");
    subject.hook(Hook::Resume).unwrap();
    subject.hook(Hook::Kill).unwrap();
    adapter.left_nothing();
    subject.hook(Hook::Restart).unwrap();
    assert_ne!(pid(&subject), before);
    let log = std::fs::read_to_string(home.join("log")).unwrap();
    assert_eq!(log, "reset\npause\nresume\nkill\nrestart\n");
}

#[test]
fn a_server_of_its_own_lives_and_dies_with_the_adapter() {
    let adapter = Marked::python(ADAPTER);
    let start = "echo $CONFORM_PORT > $CONFORM_DIR/server; echo $$ >> $CONFORM_DIR/servers; exec sleep 600";
    // The new server, not its predecessor.
    let ready = "kill -0 $(tail -n1 $CONFORM_DIR/servers)";
    let hooks = Commands { start: Some(start.to_owned()), ready: Some(ready.to_owned()), ..Commands::default() };
    let subject = adapter.open(Options { hooks, ..patient() }).unwrap();
    let home = dir(&subject);
    let port = std::fs::read_to_string(home.join("server")).unwrap();
    assert_eq!(value(read(&subject, 0, "environment")), port.trim());
    let servers = || -> Vec<String> {
        std::fs::read_to_string(home.join("servers")).unwrap().lines().map(str::to_owned).collect()
    };
    let runs = |pid: &String| Path::new("/proc").join(pid).exists();
    subject.hook(Hook::Kill).unwrap();
    assert!(!runs(&servers()[0]));
    subject.hook(Hook::Restart).unwrap();
    let both = servers();
    assert!(both.len() == 2 && runs(&both[1]), "{both:?}");
    drop(subject);
    assert!(!runs(&both[1]));
    adapter.left_nothing();
}

#[test]
fn a_command_that_fails_is_told() {
    let adapter = Marked::python(ADAPTER);
    let hooks = Commands { kill: Some("echo no such server >&2; exit 4".to_owned()), ..Commands::default() };
    let subject = adapter.open(Options { hooks, ..patient() }).unwrap();
    let broken = subject.hook(Hook::Kill).unwrap_err();
    assert!(broken.0.contains("`kill` failed (exit status: 4)") && broken.0.contains("no such server"), "{broken}");
    drop(subject);
    adapter.left_nothing();
}
