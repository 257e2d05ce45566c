//! Programs and commands of a map: started, disturbed, and gone when the run is over.

use std::path::Path;
use std::time::{Duration, Instant};

use fencepost_conformance::adapters::http::HttpSubject;
use fencepost_conformance::run::{Options, run};
use fencepost_conformance::subject::{Hook, Part, Shift, Subject};
use fencepost_conformance::verdict::Outcome;
use fencepost_conformance::wait;
use fencepost_conformance::{Answer, Op};

use crate::http::scripted::Scripted;
use crate::http::{MapFile, call, request, why};

/// Serves on its port, and records events in its directory.
const SERVER: &str = r#"
import http.server, os, signal, sys

def note(text):
    with open(os.environ["CONFORM_DIR"] + "/notes", "a") as notes:
        notes.write(text + "\n")

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        self.send_response(204)
        self.end_headers()
    def do_PUT(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        if self.path.endswith("/die"):
            print("the disk is on fire", flush=True)
            os._exit(9)
        self.do_GET()
    def log_message(self, *_):
        pass

def end(*_):
    note("term")
    os._exit(0)

signal.signal(signal.SIGTERM, end)
note("start %s of %s" % (os.environ["CONFORM_INSTANCE"], os.environ["CONFORM_INSTANCES"]))
note("pid %d" % os.getpid())
http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ["CONFORM_PORT"])), Handler).serve_forever()
"#;

fn map(base: &str, hooks: &str) -> MapFile {
    let text = format!(
        "map = 1\n[resource]\nbase = {base}\ntimeout = \"5s\"\n[write]\nmethod = \"PUT\"\npath = \"/{{res}}\"\n\
         headers = {{ Token = \"{{token}}\" }}\nbody = \"{{value}}\"\nok = [204]\nstale = [409]\n[hooks]\n{hooks}\n"
    );
    let map = MapFile::new(&text);
    std::fs::write(map.dir().join("server.py"), SERVER).unwrap();
    map
}

const FREE: &str = "\"http://127.0.0.1:{port}\"";

fn write(subject: &HttpSubject, res: &str) -> Answer {
    call(subject, &Op::write(res, 5, "h", "v"))
}

fn notes(subject: &HttpSubject) -> Vec<String> {
    let text = std::fs::read_to_string(subject.dir().join("notes")).unwrap_or_default();
    text.lines().filter(|line| !line.starts_with("pid")).map(str::to_owned).collect()
}

fn pids(dir: &Path) -> Vec<u32> {
    let text = std::fs::read_to_string(dir.join("notes")).unwrap_or_default();
    text.lines().filter_map(|line| line.strip_prefix("pid ")).map(|pid| pid.parse().unwrap()).collect()
}

/// Does the process run? A zombie that was not yet reaped does not count.
fn runs(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| !rest.is_empty() && !rest.trim_start().starts_with('Z'))
}

#[test]
fn a_program_of_the_suite_can_be_killed_restarted_and_stopped() {
    let map = map(FREE, "start = \"exec python3 server.py\"");
    let subject = map.open().unwrap();
    assert_eq!(write(&subject, "r"), Answer::ok());
    for hook in [Hook::Start, Hook::Ready, Hook::Kill, Hook::Restart, Hook::Pause, Hook::Resume] {
        assert!(subject.has(hook), "{}", hook.name());
    }
    for hook in [Hook::Powerloss, Hook::Reset, Hook::Clock(Shift::NONE)] {
        assert!(!subject.has(hook), "{}", hook.name());
    }
    subject.hook(Hook::Kill).unwrap();
    assert!(why(write(&subject, "r")).contains("Connection refused"), "calls fail soon, not at their limit");
    subject.hook(Hook::Restart).unwrap();
    assert_eq!(write(&subject, "r"), Answer::ok(), "after a restart calls reach the new process");
    subject.hook(Hook::Pause).unwrap();
    assert_eq!(why(write(&subject, "r")), "no answer in time");
    subject.hook(Hook::Resume).unwrap();
    assert_eq!(write(&subject, "r"), Answer::ok());
    assert_eq!(notes(&subject), ["start 0 of 1", "start 0 of 1"], "a kill is no SIGTERM");
    subject.hook(Hook::Restart).unwrap();
    assert_eq!(notes(&subject)[2..], ["term", "start 0 of 1"], "a restart is");
    subject.hook(Hook::Kill).unwrap();
    subject.hook(Hook::Start).unwrap();
    subject.hook(Hook::Ready).unwrap();
    assert_eq!(write(&subject, "r"), Answer::ok());
}

/// A listener may be away for a moment, also while a request is sent in parts: that is no error of the suite.
#[test]
fn a_part_that_cannot_be_sent_is_an_unknown_outcome() {
    let map = map(FREE, "start = \"exec python3 server.py\"");
    let subject = map.open().unwrap();
    subject.hook(Hook::Kill).unwrap();
    let op = Op::write("r", 5, "h", "0123456789");
    for part in [Part::Head, Part::HalfBody] {
        let begun = subject.begin(&request(&op), part).unwrap().unwrap();
        let said = why(begun.finish().unwrap());
        assert!(said.contains("could not be sent") && said.contains("Connection refused"), "{said}");
        subject.begin(&request(&op), part).unwrap().unwrap().abandon();
    }
    let only = vec!["Z02".to_owned(), "Z09".to_owned()];
    let results = run(&subject, &Options { only, ..Options::default() }, &mut ());
    assert_eq!(results.outcome(), Outcome::Unknown, "{:?}", results.broken);
}

#[test]
fn nothing_survives() {
    // The shell stays as the group leader, with a second program in its group.
    let hooks = "start = \"sleep 1000 & echo pid $! >> $CONFORM_DIR/notes; python3 server.py; true\"";
    let map = map(FREE, hooks);
    let subject = map.open().unwrap();
    assert_eq!(write(&subject, "r"), Answer::ok());
    subject.hook(Hook::Restart).unwrap();
    assert_eq!(notes(&subject), ["start 0 of 1", "term", "start 0 of 1"], "the program got its SIGTERM and its time");
    let (dir, pids) = (subject.dir().to_owned(), pids(subject.dir()));
    assert_eq!(pids.len(), 4, "two programs, twice");
    assert_eq!(pids.iter().filter(|pid| runs(**pid)).count(), 2);
    drop(subject);
    assert_eq!(pids.iter().filter(|pid| runs(**pid)).count(), 0);
    assert!(!dir.exists());
}

#[test]
fn several_instances_share_a_directory() {
    let map = map(&format!("[{FREE}, {FREE}]"), "start = \"exec python3 server.py\"");
    let subject = map.open().unwrap();
    assert_eq!(subject.instances(), 2);
    let mut started = notes(&subject);
    started.sort();
    assert_eq!(started, ["start 0 of 2", "start 1 of 2"]);
    subject.hook(Hook::Kill).unwrap();
    assert_eq!(pids(subject.dir()).into_iter().filter(|pid| runs(*pid)).count(), 0, "a kill is for all");
    subject.hook(Hook::Restart).unwrap();
    assert_eq!(pids(subject.dir()).into_iter().filter(|pid| runs(*pid)).count(), 2);
}

#[test]
fn a_program_that_ends_or_never_serves_is_an_error_with_what_it_said() {
    let error = map(FREE, "start = \"echo no such database; exit 3\"").error();
    assert!(error.contains("the program of `start` has ended (exit status: 3)"), "{error}");
    assert!(error.contains("no such database"), "{error}");
    assert!(!error.contains("foreground") && !error.contains("$CONFORM_PORT"), "{error}");
    let error = map(FREE, "start = \"python3 server.py &\"").error();
    assert!(error.contains("has ended (exit status: 0); `start` must stay in the foreground: no `&`"), "{error}");
    let began = Instant::now();
    let error = map(FREE, "start = \"echo recovering; exec sleep 1000\"\nlimit = \"8s\"").error();
    assert!(error.contains("does not serve after 8s (`limit` in [hooks])"), "{error}");
    assert!(error.contains("recovering") && error.contains("does not answer"), "{error}");
    assert!(error.ends_with("the suite has chosen the port: does `start` use $CONFORM_PORT?"), "{error}");
    let error = map(FREE, "start = \"echo $CONFORM_PORT; exec sleep 1000\"\nlimit = \"1s\"").error();
    assert!(!error.contains("has chosen the port"), "{error}");
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
    let error =
        map(FREE, "start = \"exec python3 server.py\"\nready = \"echo not yet; false\"\nlimit = \"8s\"").error();
    assert!(error.contains("the hook `ready` failed (exit status: 1)") && error.contains("not yet"), "{error}");
}

/// Another process listens on the port, perhaps from an earlier run. `ready` succeeds once the program has ended.
#[test]
fn a_program_that_has_ended_does_not_serve_whoever_answers() {
    let service = Scripted::start([]);
    let hooks = "start = \"echo $$ > $CONFORM_DIR/pid; exit 3\"\n\
                 ready = \"until grep zombie /proc/$(cat $CONFORM_DIR/pid)/status; do sleep 0.05; done\"";
    let error = map(&format!("{:?}", service.base()), hooks).error();
    assert!(error.contains("does not serve: the program of `start` has ended (exit status: 3)"), "{error}");
}

#[test]
fn a_program_that_dies_by_itself_is_named() {
    let map = map(FREE, "start = \"exec python3 server.py\"");
    let subject = map.open().unwrap();
    let first = why(write(&subject, "die"));
    assert!(first.starts_with("the connection"), "{first}");
    let said = wait::until("the end to be noticed", Duration::from_secs(10), || {
        Some(why(write(&subject, "r"))).filter(|said| said.contains("has ended"))
    });
    assert!(said.contains("(exit status: 9)") && said.contains("the disk is on fire"), "{said}");
}

#[test]
fn commands_run_where_the_map_is_and_know_where_the_service_is() {
    let service = Scripted::start([]);
    let port = service.base().rsplit(':').next().unwrap().to_owned();
    let note = |hook: &str| {
        format!("{hook} = \"echo {hook} $CONFORM_PORT $CONFORM_INSTANCES >> notes; test -d $CONFORM_DIR\"\n")
    };
    let names = ["kill", "restart", "pause", "resume", "powerloss", "reset", "backup", "restore", "clock"];
    let map = map(&format!("{:?}", service.base()), &names.map(note).concat());
    let subject = map.open().unwrap();
    for hook in Hook::ALL.into_iter().filter(|hook| !matches!(hook, Hook::Start | Hook::Ready)) {
        assert!(subject.has(hook), "{}", hook.name());
        subject.hook(hook).unwrap();
    }
    assert!(!subject.has(Hook::Start), "the suite cannot start what it does not own");
    let notes = std::fs::read_to_string(map.dir().join("notes")).unwrap();
    let expected: Vec<_> = names.iter().map(|name| format!("{name} {port} 1")).collect();
    assert_eq!(notes.lines().collect::<Vec<_>>(), expected);
}

#[test]
fn a_hook_that_fails_or_hangs_is_an_error_and_is_gone() {
    let service = Scripted::start([]);
    let base = format!("{:?}", service.base());
    let hooks = "reset = \"echo cannot; exit 4\"\nbackup = \"true\"\n\
                 restore = \"sleep 1000 & echo pid $! >> notes\"\npowerloss = \"no-such-program\"";
    let failing = map(&base, hooks);
    let subject = failing.open().unwrap();
    assert_eq!(
        subject.hook(Hook::Reset).unwrap_err().0,
        "the hook `reset` failed (exit status: 4); it printed:\ncannot"
    );
    let missing = subject.hook(Hook::Powerloss).unwrap_err().0;
    assert!(missing.contains("exit status: 127") && missing.contains("no-such-program"), "{missing}");
    subject.hook(Hook::Restore).unwrap();
    // Only this command uses up its whole limit.
    let hanging = map(&base, "kill = \"echo waiting; echo pid $$ >> notes; sleep 1000\"\nlimit = \"8s\"");
    let subject = hanging.open().unwrap();
    let began = Instant::now();
    let hung = subject.hook(Hook::Kill).unwrap_err().0;
    assert!(hung.contains("`kill` was ended after 8s (`limit` in [hooks])") && hung.contains("waiting"), "{hung}");
    assert!(began.elapsed() < Duration::from_secs(60));
    let pids = [pids(failing.dir()), pids(hanging.dir())].concat();
    assert_eq!(pids.len(), 2);
    assert!(!pids.into_iter().any(runs), "what a hook leaves in its group ends with it");
}

#[test]
fn the_steps_of_a_program_can_be_watched_if_it_was_started_here() {
    let owned = map(FREE, "start = \"exec python3 server.py\"").open().unwrap();
    let steps = owned.steps().map_err(|why| panic!("{why}")).unwrap();
    assert_eq!(steps.made(), 0);
    assert!(write(&owned, "r").is_ok());
    wait::until("its answer to be seen", wait::PATIENCE, || (steps.made() > 0).then_some(()));
    let base = format!("\"{}\"", owned.describe().split_whitespace().nth(2).unwrap().trim_end_matches(','));
    let other = map(&base, "").open().unwrap();
    let Err(why) = other.steps() else { panic!("nobody knows its process") };
    assert!(why.contains("`start` hook"), "{why}");
}
