//! Everything an adapter can do wrong: each is reported with the offending line and what was expected, and leaves no
//! process behind.

use std::time::{Duration, Instant};

use fencepost_conformance::adapters::exec::{self, Options};
use fencepost_conformance::run;
use fencepost_conformance::subject::{Hook, Subject};
use fencepost_conformance::verdict::Outcome;
use fencepost_conformance::wait;
use fencepost_conformance::{Answer, Op};

use super::{Marked, call, quick, read};

/// Answers `init`.
const INIT: &str = r#"read -r line; echo '{"id":1,"result":"ok","caps":["read"]}';"#;

#[track_caller]
fn says(said: &str, parts: &[&str]) {
    for part in parts {
        assert!(said.contains(part), "`{part}` is missing in:\n{said}");
    }
    assert!(said.len() < 4_000, "{} bytes are too many for a message", said.len());
}

/// Asserts that the adapter fails before its first request.
#[track_caller]
fn does_not_open(adapter: &Marked, options: Options, parts: &[&str]) {
    let Err(broken) = adapter.open(options) else { panic!("it was taken") };
    says(&broken.0, parts);
    adapter.left_nothing();
}

/// Asserts that the adapter starts and then breaks at a request.
#[track_caller]
fn breaks(script: &str, op: &Op, parts: &[&str]) {
    let adapter = Marked::shell(&format!("{INIT} read -r line; {script}"));
    let subject = adapter.open(Options { timeout: Duration::from_secs(20), ..Options::default() }).unwrap();
    let broken = call(&subject, 0, op).expect_err("it was taken");
    says(&broken.0, parts);
    let again = call(&subject, 0, op).expect_err("what is broken stays so");
    assert_eq!(again, broken);
    drop(subject);
    adapter.left_nothing();
}

#[test]
fn it_cannot_be_started() {
    let missing = ["./no-such-adapter".to_owned()];
    let Err(broken) = exec::open(&missing, Options::default()) else { panic!() };
    says(&broken.0, &["`./no-such-adapter` cannot be started", "No such file", "executable"]);
    let Err(broken) = exec::open(&["/dev/null".to_owned()], Options::default()) else { panic!() };
    says(&broken.0, &["`/dev/null` cannot be started", "ermission denied", "python3 adapter.py"]);
    let Err(broken) = exec::open(&[], Options::default()) else { panic!() };
    says(&broken.0, &["no adapter", "after `--`"]);
    let none = Options { instances: 0, ..Options::default() };
    let Err(broken) = exec::open(&missing, none) else { panic!() };
    says(&broken.0, &["--instances is 0"]);
}

#[test]
fn it_dies_before_init() {
    let adapter = Marked::shell("echo 'no database here' >&2; exit 3");
    does_not_open(
        &adapter,
        Options::default(),
        &["instance 0", "ended (exit status: 3) before it answered init", "| no database here"],
    );
    // Its child processes are ended too, although they hold the pipes.
    let adapter = Marked::shell("sleep 600 & kill -9 $$");
    does_not_open(&adapter, quick(), &["before it answered init"]);
}

#[test]
fn it_dies_later() {
    let script = "for i in $(seq 30); do echo \"note $i\" >&2; done; exit 7";
    breaks(script, &Op::read("r"), &["ended (exit status: 7) while requests waited", "| note 11\n", "| note 30"]);
    breaks("kill -SEGV $$", &Op::read("r"), &["ended (signal: 11 (SIGSEGV)", "standard error is empty"]);
    breaks("exec >&-; sleep 600", &Op::read("r"), &["closed its standard output, but runs on"]);
}

#[test]
fn one_of_several_dies() {
    let adapter = Marked::shell(&format!(
        r#"{INIT} case "$line" in *'"instance":1'*) read -r line; exit 9;; esac; while read -r line; do
           id=${{line#*\"id\":}}; echo "{{\"id\":${{id%%,*}},\"result\":\"ok\",\"value\":null}}"; done"#
    ));
    let subject = adapter.open(Options { instances: 2, ..Options::default() }).unwrap();
    assert!(read(&subject, 0, "r").unwrap().is_ok());
    says(&read(&subject, 1, "r").unwrap_err().0, &["instance 1", "exit status: 9"]);
    drop(subject);
    adapter.left_nothing();
}

#[test]
fn it_hangs_at_init() {
    let adapter = Marked::shell("echo thinking >&2; sleep 600");
    let options = Options { ready: Duration::from_secs(5), ..Options::default() };
    does_not_open(&adapter, options, &["did not answer init within 5s", "{\"id\":1,\"result\":\"ok\"", "| thinking"]);
}

#[test]
fn it_says_that_it_cannot_start() {
    let script = r#"read -r line; echo 'tried twice' >&2; echo '{"id":1,"result":"error","definite":true,"code":"no database"}'"#;
    // The adapter prints more after its answer: it is asked to end, and its output collected, before the error is
    // reported.
    let adapter = Marked::shell(&format!("{script}; cat >/dev/null; echo 'gave up' >&2"));
    let Err(broken) = adapter.open(Options::default()) else { panic!("it was taken") };
    says(&broken.0, &["(instance 0) cannot start: no database", "answer to init", "| tried twice\n", "| gave up"]);
    assert!(!broken.0.contains("wrong line"), "the line is right: {broken}");
    adapter.left_nothing();
}

#[test]
fn it_answers_init_wrongly() {
    for (answer, parts) in [
        (r#"{"id":1,"result":"ok","caps":["reed"]}"#, &["unknown variant `reed`", "checked_read"][..]),
        (r#"{"id":1,"result":"ok","caps":["read"],"proto":2}"#, &["version 2 of the protocol", "version 1"]),
        (r#"{"id":1,"result":"ok"}"#, &["no `caps`"]),
        (r#"{"id":1,"result":"ok","caps":[],"polcy":"gt"}"#, &["unknown field `polcy`", "policy"]),
        (r#"{"id":2,"result":"ok","caps":[]}"#, &["nobody asked request 2; the latest is 1"]),
        ("Starting up…", &["wrong line 1", "not JSON", "standard error"]),
    ] {
        let adapter = Marked::shell(&format!("read -r line; echo '{answer}'; cat >/dev/null"));
        let expected = [parts, &[answer, "Expected: ", "docs/conformance/exec.md"]].concat();
        does_not_open(&adapter, Options::default(), &expected);
    }
}

#[test]
fn its_instances_disagree() {
    let adapter = Marked::shell(
        r#"read -r line; policy=ge; case "$line" in *'"instance":1'*) policy=gt;; esac
           echo "{\"id\":1,\"result\":\"ok\",\"caps\":[],\"policy\":\"$policy\"}"; cat >/dev/null"#,
    );
    let options = Options { instances: 2, ..Options::default() };
    does_not_open(&adapter, options, &["instance 1", r#""policy":"gt""#, r#""policy":"ge""#, "answer the same"]);
}

#[test]
fn it_prints_rubbish() {
    let read = Op::read("r");
    breaks("echo 'DEBUG: connected'", &read, &["wrong line 2:\n  DEBUG: connected\n", "not JSON", "standard error"]);
    breaks("echo; cat", &read, &["wrong line 2", "not JSON"]);
    breaks("echo '[]'; cat", &read, &["not an object"]);
    breaks("printf '\\377\\376\\n'; cat", &read, &["not JSON"]);
    breaks(r#"printf '{"id":2,"result"'"#, &read, &[r#"has no end: {"id":2,"result""#, "ended (exit status: 0)"]);
    breaks(r#"echo '{"result":"ok"}'; cat"#, &read, &["it has no `id`"]);
    breaks(r#"echo '{"id":"2","result":"ok"}'; cat"#, &read, &["not the number of a request"]);
}

#[test]
fn it_prints_a_line_without_end() {
    // Reported as soon as the line is too long, without waiting for its end.
    let endless = "head -c 100000000 /dev/zero | tr '\\0' x; cat";
    breaks(endless, &Op::read("r"), &["longer than 16 MiB", "xxx… (16"]);
}

#[test]
fn it_answers_what_nobody_asked() {
    let read = Op::read("r");
    let ok = |id: u32| format!(r#"echo '{{"id":{id},"result":"ok","value":null}}';"#);
    breaks(&format!("{} cat", ok(99)), &read, &[r#"{"id":99,"#, "nobody asked request 99; the latest is 2"]);
    breaks(&format!("{} cat", ok(0)), &read, &["nobody asked request 0"]);
    breaks(r#"echo '{"id":1,"result":"ok","caps":[]}'; cat"#, &read, &["request 1 was answered before"]);
    let adapter = Marked::shell(&format!("{INIT} read -r line; {} {} cat", ok(2), ok(2)));
    let subject = adapter.open(Options::default()).unwrap();
    assert!(super::read(&subject, 0, "r").unwrap().is_ok(), "the first answer is one");
    says(&super::read(&subject, 0, "r").unwrap_err().0, &["wrong line 3", "request 2 was answered before"]);
}

#[test]
fn it_answers_what_cannot_be() {
    let (read, write, claim) = (Op::read("r"), Op::write("r", 1, "h", "v"), Op::claim("r", 1, "h"));
    for (op, answer, parts) in [
        (&write, r#""ok","high":42"#, &["the number 42", "as a string"][..]),
        (&read, r#""ok","high":"1""#, &["an ok of read must have `value`", r#""value":"v-17""#]),
        (&claim, r#""ok","high":"1""#, &["an ok of claim must have `value`"]),
        (&write, r#""success""#, &["`success` is no result: ok, stale, mismatch, error, unknown, unsupported"]),
        (&write, r#""mismatch","current":"v""#, &["only cas has a mismatch"]),
        (&read, r#""stale""#, &["cannot be stale"]),
        (&write, r#""error","code":"x""#, &["must have `definite`"]),
    ] {
        let line = format!(r#"{{"id":2,"result":{answer}}}"#);
        let expected = [parts, &["instance 0", "wrong line 2", &line, "Expected: an answer to "]].concat();
        breaks(&format!("echo '{line}'; cat"), op, &expected);
    }
}

#[test]
fn a_request_without_an_answer_is_unknown_and_silence_is_not() {
    // It never answers the first operation, but every later one.
    let adapter = Marked::shell(&format!(
        r#"{INIT} read -r line; while read -r line; do id=${{line#*\"id\":}}
           echo "{{\"id\":${{id%%,*}},\"result\":\"ok\",\"value\":null}}"; done"#
    ));
    let subject = adapter.open(Options { timeout: Duration::from_secs(5), ..Options::default() }).unwrap();
    let unknown = read(&subject, 0, "r").unwrap();
    assert_eq!(unknown, Answer::unknown("no answer within 5s"));
    for _ in 0..20 {
        assert!(read(&subject, 0, "r").unwrap().is_ok());
    }

    let adapter = Marked::shell(&format!("echo 'lost in thought' >&2; {INIT} cat >/dev/null"));
    let subject = adapter.open(Options { timeout: Duration::from_millis(500), ..Options::default() }).unwrap();
    for _ in 0..3 {
        assert!(read(&subject, 0, "r").unwrap().is_unknown());
    }
    says(
        &read(&subject, 0, "r").unwrap_err().0,
        &[
            "answers nobody: 4 requests in a row waited 500ms",
            "request without an answer is 2, a read",
            "lost in thought",
        ],
    );
    drop(subject);
    adapter.left_nothing();
}

/// A case may end after one unanswered request, and after three such cases the others are not tried. These are fewer
/// requests than are needed to detect silence while they are made.
#[test]
fn one_that_has_answered_init_and_nothing_else_is_an_error() {
    for (only, timeout) in [(vec![], 2_500), (vec!["A01".to_owned()], 500)] {
        let adapter = Marked::shell(&format!("echo 'lost in thought' >&2; {INIT} cat >/dev/null"));
        let options = Options { timeout: Duration::from_millis(timeout), ..Options::default() };
        let subject = adapter.open(options).unwrap();
        let results = run::run(&subject, &run::Options { only, ..run::Options::default() }, &mut ());
        assert_eq!((results.outcome(), results.exit_code()), (Outcome::Broken, 3), "{}", results.last_line());
        assert!(results.cases.len() <= 4, "{} cases waited", results.cases.len());
        says(
            &results.broken.unwrap(),
            &["answers nobody", "request without an answer is 2, a write", "never answered any", "lost in thought"],
        );
        drop(subject);
        adapter.left_nothing();
    }
}

#[test]
fn one_that_answers_too_late_is_slow_and_not_broken() {
    // It answers only when it is allowed to, after the request was given up.
    let beside = tempfile::TempDir::new().unwrap();
    let allowed = beside.path().join("allowed");
    let adapter = Marked::shell(&format!(
        r#"read -r line; echo '{{"id":1,"result":"ok","caps":[]}}'; while read -r line; do
           until rm '{}'; do sleep 0.05; done 2>/dev/null; id=${{line#*\"id\":}}
           echo "{{\"id\":${{id%%,*}},\"result\":\"ok\"}}"; done"#,
        allowed.display()
    ));
    let subject = adapter.open(Options { timeout: Duration::from_millis(500), ..Options::default() }).unwrap();
    let write = Op::write("r", 1, "h", "v");
    assert!(call(&subject, 0, &write).unwrap().is_unknown());
    assert!(subject.never_answered().is_err(), "nothing has come yet");
    std::fs::write(&allowed, "").unwrap();
    wait::until("its late answer", wait::PATIENCE, || subject.never_answered().ok());
    let only = run::Options { only: vec!["A01".to_owned()], ..run::Options::default() };
    let results = run::run(&subject, &only, &mut ());
    assert_eq!(results.outcome(), Outcome::Unknown, "{:?}", results.broken);
    drop(subject);
    adapter.left_nothing();
}

/// The adapter has answered before, so the resource behind it is silent: the outcome is unknown, as over HTTP.
#[test]
fn silence_after_an_answer_is_unknown() {
    let script = format!(
        r#"{INIT} for i in 1 2 3; do read -r line; id=${{line#*\"id\":}}; echo "{{\"id\":${{id%%,*}},\"result\":\"ok\"}}"; done; cat >/dev/null"#
    );
    let adapter = Marked::shell(&script);
    // An adapter that answers none of four requests counts as silent, so each request gets plenty of time.
    let subject = adapter.open(Options { timeout: Duration::from_secs(2), ..Options::default() }).unwrap();
    let only = run::Options { only: vec!["A13".to_owned()], ..run::Options::default() };
    let results = run::run(&subject, &only, &mut ());
    assert_eq!(results.outcome(), Outcome::Unknown, "{:?}", results.broken);
    let reason = &results.cases[0].reason;
    says(reason, &["not answered"]);
    // On a busy machine one of the three answers may have been too late for the case, and is left for one of these
    // requests.
    let write = Op::write("r", 1, "h", "v");
    let silent = (0..8).find_map(|_| match call(&subject, 0, &write).unwrap() {
        Answer::Unknown { why } if why.contains("answers nobody") => Some(why),
        _ => None,
    });
    let why = silent.expect("the latest four were not answered");
    says(&why, &["answers nobody: 4 requests in a row waited 2s", "request without an answer is "]);
    drop(subject);
    adapter.left_nothing();
}

#[test]
fn many_at_once_without_an_answer_are_one_silence() {
    let adapter = Marked::shell(&format!("{INIT} cat >/dev/null"));
    // All requests must have begun before the first is given up.
    let subject = adapter.open(Options { timeout: Duration::from_secs(2), ..Options::default() }).unwrap();
    std::thread::scope(|scope| {
        for client in 0..16 {
            let subject = &subject;
            scope.spawn(move || assert!(read(subject, client, "r").unwrap().is_unknown()));
        }
    });
}

#[test]
fn what_is_wrong_between_requests_is_not_forgotten_by_a_restart() {
    for (script, parts) in [("exit 5", "ended (exit status: 5) between requests"), ("echo rubbish; cat", "rubbish")] {
        let adapter =
            Marked::shell(&format!(r#"{INIT} read -r line; echo '{{"id":2,"result":"ok","value":null}}'; {script}"#));
        let subject = adapter.open(Options::default()).unwrap();
        assert!(read(&subject, 0, "r").unwrap().is_ok());
        let broken = wait::until("it to be seen", Duration::from_secs(10), || subject.hook(Hook::Resume).err());
        says(&broken.0, &[parts]);
        assert_eq!(subject.hook(Hook::Restart).map_err(|broken| broken.0.contains(parts)), Err(true));
        drop(subject);
        adapter.left_nothing();
    }
}

#[test]
fn a_late_answer_is_taken_once() {
    // Answers the first operation when the second one arrives, and again when the third one does.
    let adapter = Marked::shell(&format!(
        r#"{INIT} read -r line; read -r line; for id in 2 3; do echo "{{\"id\":$id,\"result\":\"ok\",\"value\":null}}"; done
           read -r line; echo '{{"id":2,"result":"ok","value":null}}'; cat >/dev/null"#
    ));
    let subject = adapter.open(Options { timeout: Duration::from_secs(5), ..Options::default() }).unwrap();
    assert!(read(&subject, 0, "r").unwrap().is_unknown());
    assert!(read(&subject, 0, "r").unwrap().is_ok());
    says(&read(&subject, 0, "r").unwrap_err().0, &["wrong line 4", "request 2 was answered before"]);
}

#[test]
fn one_that_is_paused_and_does_not_read_holds_up_nobody() {
    let adapter = Marked::shell(&format!("{INIT} cat >/dev/null"));
    let subject = adapter.open(Options { timeout: Duration::from_millis(1), ..Options::default() }).unwrap();
    subject.hook(Hook::Pause).unwrap();
    let began = Instant::now();
    // More than a pipe and the queue before it can hold.
    let large = Op::write("r", 1, "h", &"x".repeat(1000));
    for _ in 0..1500 {
        assert!(call(&subject, 0, &large).unwrap().is_unknown());
    }
    assert!(began.elapsed() < Duration::from_secs(120), "{:?}", began.elapsed());
    drop(subject);
    adapter.left_nothing();
}
