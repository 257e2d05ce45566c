//! `fencepost conform` as its users run it: exit codes, files, lists, and nothing left behind.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests")]

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use fencepost_conformance::cases;
use fencepost_conformance::harness::{process, wait};
use fencepost_conformance::history::{History, Judge, Judged};
use fencepost_conformance::verdict::Status;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// The reference in Python, right or with a bug.
fn adapter(bug: Option<&str>) -> Vec<String> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("reference/reference.py");
    let mut words = vec!["python3".to_owned(), script.display().to_string()];
    words.extend(bug.into_iter().flat_map(|bug| ["--bug".to_owned(), bug.to_owned()]));
    words
}

fn command(dir: &Path, arguments: &[&str], adapter: &[String]) -> Command {
    let mut command = Command::new(process::binary());
    command.current_dir(dir).arg("conform").args(arguments).stdin(Stdio::null());
    if !adapter.is_empty() {
        command.arg("--").args(adapter);
    }
    command
}

fn conform(dir: &Path, arguments: &[&str], adapter: &[String]) -> Output {
    command(dir, arguments, adapter).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn last_line(output: &Output) -> String {
    text(&output.stdout).lines().last().unwrap_or_default().to_owned()
}

fn dir() -> TempDir {
    TempDir::new().unwrap()
}

#[test]
fn a_level_that_is_shown_is_0() {
    let dir = dir();
    let output = conform(dir.path(), &["exec", "--level", "L1"], &adapter(None));
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stdout));
    assert_eq!(
        last_line(&output),
        "SAFE at L1 · not tested: concurrency and network, process crash, power loss and disk faults"
    );
    for file in ["report.html", "results.json", "junit.xml"] {
        assert!(dir.path().join("conform-report").join(file).exists(), "{file}");
    }
}

#[test]
fn a_broken_rule_is_1_and_its_history_can_be_judged_again() {
    let dir = dir();
    let output = conform(dir.path(), &["exec", "--only", "a03,A05", "--out", "here"], &adapter(Some("accept-all")));
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stdout));
    assert!(last_line(&output).starts_with("NOT SAFE: 2 of 2 cases failed (A03, A05)"), "{}", last_line(&output));
    let again = conform(dir.path(), &["recheck", "here/history-A03.jsonl"], &[]);
    assert_eq!(again.status.code(), Some(1), "{}", text(&again.stdout));
    assert!(text(&again.stdout).starts_with("VIOLATED: "), "{}", text(&again.stdout));
}

#[test]
fn a_history_that_is_explained_is_0_and_one_that_cannot_be_read_is_3() {
    let dir = dir();
    let missing = conform(dir.path(), &["recheck", "none.jsonl"], &[]);
    assert_eq!(missing.status.code(), Some(3));
    assert!(text(&missing.stderr).contains("none.jsonl"), "{}", text(&missing.stderr));
    std::fs::write(dir.path().join("odd.jsonl"), "rubbish\n").unwrap();
    let odd = conform(dir.path(), &["recheck", "odd.jsonl"], &[]);
    assert_eq!(odd.status.code(), Some(3));
    assert!(text(&odd.stderr).contains("odd.jsonl: line 1: "), "{}", text(&odd.stderr));
    let mut history = Vec::new();
    History::default().write_to(&mut history).unwrap();
    std::fs::write(dir.path().join("good.jsonl"), history).unwrap();
    let good = conform(dir.path(), &["recheck", "good.jsonl"], &[]);
    assert_eq!(good.status.code(), Some(0), "{}", text(&good.stderr));
}

/// An error explains itself to the checker; that a first write must be accepted is known to the case.
#[test]
fn what_the_case_itself_has_seen_broken_stays_1() {
    let dir = dir();
    let script = r#"read -r line; echo '{"id":1,"result":"ok","caps":[]}'
        while read -r line; do id=${line#*\"id\":}; echo "{\"id\":${id%%,*},\"result\":\"error\",\"definite\":true,\"code\":\"no\"}"; done"#;
    let output = conform(dir.path(), &["exec", "--only", "A01"], &["sh", "-c", script].map(str::to_owned));
    assert_eq!(output.status.code(), Some(1), "{}{}", text(&output.stdout), text(&output.stderr));
    let said = text(&output.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains("no write was ever accepted: is the adapter right? The first was the write of v-"), "{said}");
    assert!(said.contains("and was answered with an error (no)"), "{said}");
    let again = conform(dir.path(), &["recheck", "conform-report/history-A01.jsonl"], &[]);
    let stdout = text(&again.stdout);
    assert_eq!(again.status.code(), Some(1), "{stdout}");
    assert!(stdout.starts_with("FAIL: ") && stdout.contains("the case itself ended with FAIL"), "{stdout}");
}

/// An error for a token behind the fence is no refusal as stale, and perhaps only called by a wrong name.
#[test]
fn an_error_in_the_place_of_stale_is_told_with_the_verdict() {
    let dir = dir();
    let script = r#"read -r line; echo '{"id":1,"result":"ok","caps":[]}'
        while read -r line; do id=${line#*\"id\":}; id=${id%%,*}
        case $line in
            *'"token":"100"'*) echo "{\"id\":$id,\"result\":\"ok\"}";;
            *) echo "{\"id\":$id,\"result\":\"error\",\"definite\":true,\"code\":\"old\"}";;
        esac; done"#;
    let output = conform(dir.path(), &["exec", "--only", "A03"], &["sh", "-c", script].map(str::to_owned));
    assert_eq!(output.status.code(), Some(1), "{}{}", text(&output.stdout), text(&output.stderr));
    let said = text(&output.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    let hint = "no write was ever refused as stale; `old` was answered once to a token behind the fence, and the adapter calls \
                that an error: does it belong to `stale`?";
    assert!(said.contains(hint), "{said}");
}

/// The adapter ends only when it is killed, some seconds after it was asked to.
#[test]
fn who_waits_for_the_end_after_the_verdict_is_told_why() {
    let dir = dir();
    let script = r#"trap '' TERM; read -r line; echo '{"id":1,"result":"ok","caps":[]}'
        while read -r line; do id=${line#*\"id\":}; echo "{\"id\":${id%%,*},\"result\":\"ok\"}"; done; sleep 600; sleep 600"#;
    let output = conform(dir.path(), &["exec", "--only", "A01"], &["sh", "-c", script].map(str::to_owned));
    assert_eq!(output.status.code(), Some(0), "{}{}", text(&output.stdout), text(&output.stderr));
    assert!(
        text(&output.stderr).contains("That is the verdict. What was started is being ended"),
        "{}",
        text(&output.stderr)
    );
}

/// A checker that is given more time may explain everything, and too little was seen all the same.
#[test]
fn what_the_checker_had_given_up_is_not_enough_if_too_little_was_seen() {
    let dir = dir();
    for (case, code, said) in [("C01", 2, "UNKNOWN: too little was seen: "), ("", 0, "EXPLAINED: ")] {
        let judged = Judged { status: Status::Unknown, reason: "no time".to_owned(), by: Judge::Checker };
        let history = History { case: case.to_owned(), judged: Some(judged), ..History::default() };
        let mut file = std::fs::File::create(dir.path().join("h.jsonl")).unwrap();
        history.write_to(&mut file).unwrap();
        let output = conform(dir.path(), &["recheck", "h.jsonl"], &[]);
        let stdout = text(&output.stdout);
        assert_eq!(output.status.code(), Some(code), "{stdout}{}", text(&output.stderr));
        assert!(stdout.starts_with(said) && stdout.contains("the run had said UNKNOWN: no time"), "{stdout}");
    }
}

#[test]
fn what_was_not_shown_is_2() {
    let dir = dir();
    let output = conform(dir.path(), &["exec", "--level", "L1", "--exclude", "B10=takes too long"], &adapter(None));
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stdout));
    assert!(text(&output.stdout).contains("takes too long"), "{}", text(&output.stdout));
}

#[test]
fn whatever_keeps_the_suite_from_its_work_is_3() {
    let dir = dir();
    std::fs::write(dir.path().join("map.toml"), "map = 1\nnonsense = true\n").unwrap();
    for (arguments, adapter, said) in [
        (vec!["exec", "--level", "L9"], adapter(None), "`L9` is not a level"),
        (vec!["exec", "--only", "X01"], adapter(None), "there is no case or group `X01`"),
        (vec!["exec", "--exclude", "A01"], adapter(None), "an exclusion needs a reason"),
        (vec!["exec", "--rounds", "0"], adapter(None), "without rounds nothing is tried: give a number from 1 on"),
        (vec!["exec", "--rounds", "many"], adapter(None), "give a number of rounds, such as 500"),
        (vec!["exec", "--timeout", "0s"], adapter(None), "nothing can be answered in no time: give a time such as"),
        (vec!["exec", "--ready", "0ms"], adapter(None), "nothing can be answered in no time: give a time such as"),
        (vec!["exec", "--case-limit", "0min"], adapter(None), "nothing can be answered in no time"),
        (vec!["http", "--map", "map.toml", "--timeout", "0s"], vec![], "nothing can be answered in no time"),
        (vec!["exec", "--hook", "explode=true"], adapter(None), "there is no hook `explode`"),
        (vec!["exec", "--hook", "backup=true"], adapter(None), "`backup` and `restore` belong together"),
        (vec!["exec"], vec!["/nonexistent/adapter".to_owned()], "cannot be started"),
        (vec!["exec"], vec!["false".to_owned()], "ended"),
        (vec!["exec"], vec!["sh".to_owned(), "-c".to_owned(), "echo rubbish; cat".to_owned()], "rubbish"),
        (vec!["http", "--map", "none.toml"], vec![], "none.toml"),
        (vec!["http", "--map", "map.toml"], vec![], "nonsense"),
        (vec!["selftest", "--only", "no-such-mutant"], vec![], "there is no mutant `no-such-mutant`"),
    ] {
        let output = conform(dir.path(), &arguments, &adapter);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{arguments:?}: {stderr}");
        assert!(stderr.contains(said), "{arguments:?}: {stderr}");
    }
}

/// Requests are answered twice, or not at all from the start, or not at all after `init`. A child of the adapter is left to find.
#[test]
fn an_adapter_that_hangs_or_answers_twice_is_3_and_leaves_no_process_behind() {
    let init = r#"sleep 600 & read -r line; echo '{"id":1,"result":"ok","caps":[]}';"#;
    let twice = format!(
        r#"{init} while read -r line; do id=${{line#*\"id\":}}; id=${{id%%,*}}; for i in 1 2; do echo "{{\"id\":$id,\"result\":\"ok\"}}"; done; done"#
    );
    let patient = ["exec", "--only", "A"];
    for (arguments, script, said) in [
        (
            &[&patient[..], &["--ready", "2s"]].concat(),
            "sleep 600 & sleep 600".to_owned(),
            "did not answer init within 2s",
        ),
        (&[&patient[..], &["--timeout", "500ms"]].concat(), format!("{init} cat >/dev/null"), "answers nobody"),
        (&patient.to_vec(), twice, "was answered before"),
    ] {
        let (dir, temporary) = (dir(), dir());
        let mark = temporary.path().display().to_string();
        let adapter = ["env", &format!("CONFORM_CLI_MARK={mark}"), "sh", "-c", &script].map(str::to_owned);
        let output = command(dir.path(), arguments, &adapter).env("TMPDIR", temporary.path()).output().unwrap();
        let printed = text(&output.stdout) + &text(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{printed}");
        assert!(printed.contains(said), "`{said}` is missing in {printed}");
        assert_eq!(marked(&mark), Vec::<PathBuf>::new(), "processes were left behind");
        assert_eq!(std::fs::read_dir(temporary.path()).unwrap().count(), 0, "or directories");
    }
}

/// Processes that were started with this mark in their environment, or by one that was.
fn marked(mark: &str) -> Vec<PathBuf> {
    let entry = format!("CONFORM_CLI_MARK={mark}").into_bytes();
    let processes = std::fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    let of_it = |path: &PathBuf| {
        let environment = std::fs::read(path.join("environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|found| found == entry)
    };
    processes.filter(of_it).collect()
}

/// Answers `ok` to everything, and does this at the first request.
fn agreeable(at_first: &str) -> [String; 3] {
    let script = format!(
        r#"
import json, os, shutil, sys
for line in sys.stdin:
    request = json.loads(line)
    answer = {{"id": request["id"], "result": "ok"}}
    if request["op"] == "init":
        answer["caps"] = []
        {at_first}
    print(json.dumps(answer), flush=True)
"#
    );
    ["python3".to_owned(), "-c".to_owned(), script]
}

#[test]
fn a_directory_that_cannot_be_written_to_is_told_before_the_run() {
    let dir = dir();
    std::fs::write(dir.path().join("file"), "").unwrap();
    let adapter = agreeable("open('started', 'w').close()");
    let output = conform(dir.path(), &["exec", "--only", "A01", "--out", "file/reports"], &adapter);
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{stderr}");
    assert!(stderr.contains("file/reports cannot be written") && stderr.contains("--out"), "{stderr}");
    assert!(!dir.path().join("started").exists(), "nothing was run for nothing");
}

#[test]
fn a_verdict_is_told_although_its_report_cannot_be_written() {
    for (case, code, said) in
        [("A01", 3, "PASSED: 1 of 1 case (A01)"), ("A03", 1, "NOT SAFE: 1 of 1 case failed (A03)")]
    {
        let dir = dir();
        let adapter = agreeable("shutil.rmtree('conform-report'); open('conform-report', 'w').close()");
        let output = conform(dir.path(), &["exec", "--only", case], &adapter);
        let printed = text(&output.stdout) + &text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{printed}");
        assert!(text(&output.stdout).contains(said), "{printed}");
        assert!(text(&output.stderr).contains("conform-report cannot be written"), "{printed}");
    }
}

#[test]
fn a_reproduction_has_the_limits_that_were_given() {
    let dir = dir();
    let given = ["--timeout", "7s", "--ready", "40s", "--case-limit", "5min"];
    let output = conform(dir.path(), &[&["exec", "--only", "A03"][..], &given].concat(), &adapter(Some("accept-all")));
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stdout));
    let reproduce = || {
        let results = std::fs::read_to_string(dir.path().join("conform-report/results.json")).unwrap();
        let results: serde_json::Value = serde_json::from_str(&results).unwrap();
        results["cases"][0]["reproduce"].as_str().unwrap().to_owned()
    };
    let told = reproduce();
    for option in ["--timeout 7s", "--ready 40s", "--case-limit 300s"] {
        assert!(told.contains(option), "{told}");
    }
    conform(dir.path(), &["exec", "--only", "A03"], &adapter(Some("accept-all")));
    let told = reproduce();
    assert!(told.starts_with("fencepost conform exec --only A03 --seed 1 -- "), "nothing that was not given: {told}");
}

#[test]
fn every_case_is_listed() {
    let dir = dir();
    let all = text(&conform(dir.path(), &["--list"], &[]).stdout);
    for case in cases::all() {
        assert!(all.contains(case.id) && all.contains(case.title) && all.contains(case.rule), "{}: {all}", case.id);
    }
    let some = text(&conform(dir.path(), &["exec", "--list", "--only", "E"], &[]).stdout);
    assert!(some.contains("E01") && !some.contains("A01"), "{some}");
    let over_http = conform(dir.path(), &["http", "--list", "--only", "E"], &[]);
    assert_eq!((text(&over_http.stdout), over_http.status.code()), (some, Some(0)), "{}", text(&over_http.stderr));
    assert!(!dir.path().join("conform-report").exists(), "nothing was run");
}

#[test]
fn tap_is_all_that_standard_output_has() {
    let dir = dir();
    let output = conform(dir.path(), &["exec", "--only", "A01,A02", "--tap"], &adapter(None));
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let stdout = text(&output.stdout);
    assert!(stdout.starts_with("TAP version 14\n"), "{stdout}");
    assert!(stdout.lines().any(|line| line.starts_with("ok 1")), "{stdout}");
    assert!(text(&output.stderr).contains("A01"), "the tree is on standard error");
}

#[test]
fn the_self_test_is_run_from_the_command_line() {
    let dir = dir();
    let arguments = ["selftest", "--only", "accept-all", "--seeds", "1", "--without-python"];
    let output = conform(dir.path(), &arguments, &[]);
    let stdout = text(&output.stdout);
    assert!(stdout.contains("accept-all"), "{stdout}{}", text(&output.stderr));
    assert!(!stdout.contains("reference:") && !stdout.contains("lazy:"), "nothing else was asked for: {stdout}");
    assert_eq!(output.status.code(), Some(0), "{stdout}");
    // Without an interpreter less is shown than was asked for.
    let nowhere = dir.path().display().to_string();
    let output = command(dir.path(), &arguments[..5], &[]).env("PATH", nowhere).output().unwrap();
    let stdout = text(&output.stdout);
    assert_eq!(output.status.code(), Some(2), "{stdout}");
    assert!(stdout.contains("NOT RUN the mutants in Python: `python3` cannot be started"), "{stdout}");
    assert!(stdout.lines().last().unwrap().starts_with("not shown: "), "{stdout}");
}

#[test]
fn what_the_case_itself_missed_stays_when_its_history_is_judged_again() {
    let dir = dir();
    let output = conform(dir.path(), &["exec", "--only", "C02", "--rounds", "1"], &adapter(None));
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stdout));
    let again = conform(dir.path(), &["recheck", "conform-report/history-C02.jsonl"], &[]);
    let stdout = text(&again.stdout);
    assert_eq!(again.status.code(), Some(2), "{stdout}");
    assert!(stdout.starts_with("UNKNOWN: too little was seen: "), "{stdout}");
    assert!(stdout.contains("EXPLAINED") && stdout.contains("the case itself ended with UNKNOWN"), "{stdout}");
}

#[test]
fn a_case_has_a_limit_of_time() {
    let dir = dir();
    let output = conform(dir.path(), &["exec", "--only", "C01", "--case-limit", "10ms"], &adapter(None));
    let stdout = text(&output.stdout);
    assert_eq!(output.status.code(), Some(2), "{stdout}");
    assert!(stdout.contains("not finished after 10ms") && stdout.contains("--case-limit"), "{stdout}");
}

/// Prints its last words, of two lines, instead of its second answer.
const DIES: &str =
    r#"read -r line; echo '{"id":1,"result":"ok","caps":[]}'; read -r line; printf 'no disk\nno hope\n' >&2; exit 5"#;

#[test]
fn the_lines_of_a_crash_stay_lines() {
    let dir = dir();
    let dies = ["sh", "-c", DIES].map(str::to_owned);
    for arguments in [&["exec", "--only", "A01"][..], &["exec", "--only", "A01", "--tap"]] {
        let output = conform(dir.path(), arguments, &dies);
        let said = text(&output.stdout) + &text(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{said}");
        assert!(said.contains("no hope") && !said.contains('\u{240a}'), "{said}");
    }
    let output = conform(dir.path(), &["exec", "--only", "A01"], &dies);
    let stdout = text(&output.stdout);
    assert!(stdout.lines().any(|line| line.trim() == "| no hope"), "{stdout}");
    assert!(last_line(&output).contains("| no disk | no hope"), "{stdout}");
    for file in ["report.html", "junit.xml", "results.json"] {
        let written = std::fs::read_to_string(dir.path().join("conform-report").join(file)).unwrap();
        assert!(written.contains("no hope") && !written.contains('\u{240a}'), "{file}");
    }
}

#[test]
fn a_verdict_does_not_wait_for_the_resource_to_go() {
    let dir = dir();
    let script = r#"
import json, os, sys
for line in sys.stdin:
    request = json.loads(line)
    answer = {"id": request["id"], "result": "ok"}
    if request["op"] == "init":
        answer["caps"] = []
    print(json.dumps(answer), flush=True)
with open("note", "w") as note:
    note.write(str(os.path.exists("conform-report/results.json")))
"#;
    let adapter = ["python3", "-c", script].map(str::to_owned);
    let output = conform(dir.path(), &["exec", "--only", "A01"], &adapter);
    assert_eq!(output.status.code(), Some(0), "{}{}", text(&output.stdout), text(&output.stderr));
    let note = std::fs::read_to_string(dir.path().join("note")).unwrap();
    assert_eq!(note, "True", "the report was there before the adapter was told to end");
}

#[test]
fn a_run_that_is_ended_says_what_it_has_and_leaves_no_process_behind() {
    for (signal, name) in [(Signal::INT, "SIGINT"), (Signal::TERM, "SIGTERM")] {
        let (dir, temporary) = (dir(), dir());
        let mut command = command(dir.path(), &["exec", "--only", "A01,C01", "--rounds", "100000"], &adapter(None));
        command.env("TMPDIR", temporary.path()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let passed = lines.find(|line| line.as_ref().unwrap().contains("PASS    A01"));
        assert!(passed.is_some(), "the first case passes");
        wait::until("the next one to write", Duration::from_secs(60), || {
            (writes_of_the_reference(temporary.path()) > 20).then_some(())
        });
        let started = children_of(&child.id().to_string());
        assert_eq!(started.len(), 1, "the adapter runs");
        kill_process(Pid::from_child(&child), signal).unwrap();
        let said: Vec<String> = lines.map(Result::unwrap).collect();
        let status = wait::until("the run to end", Duration::from_secs(60), || child.try_wait().unwrap());
        assert_eq!(status.code(), Some(3), "{said:?}");
        let last = said.last().unwrap();
        assert!(last.starts_with("ERROR: ") && last.contains(&format!("ended by {name} in case 2 of 2")), "{last}");
        let results = std::fs::read_to_string(dir.path().join("conform-report/results.json")).unwrap();
        let results: serde_json::Value = serde_json::from_str(&results).unwrap();
        assert_eq!((&results["cases"][0]["status"], &results["exit_code"]), (&"pass".into(), &3.into()));
        assert_eq!(results["cases"][1]["reason"], format!("not finished: ended by {name}"));
        assert!(started.iter().all(|child| !child.exists()), "its adapter is gone");
        assert_eq!(std::fs::read_dir(temporary.path()).unwrap().count(), 0, "and its directories");
    }
}

/// How many writes its logs hold, in the directories that the suite has made here.
fn writes_of_the_reference(temporary: &Path) -> usize {
    let made = std::fs::read_dir(temporary).unwrap().map(|entry| entry.unwrap().path().join("log"));
    made.map(|log| std::fs::read_to_string(log).unwrap_or_default().lines().count()).sum()
}

/// Its log is copied and put back, so it forgets what came since; and its clock is set.
#[test]
fn an_adapter_is_backed_up_by_the_suite_and_nothing_is_left_of_it() {
    let (dir, temporary) = (dir(), dir());
    let clock = "clock=echo $CONFORM_CLOCK >> seen";
    let mut command = command(dir.path(), &["exec", "--only", "R10,R11", "--hook", clock], &adapter(None));
    let output = command.env("TMPDIR", temporary.path()).output().unwrap();
    let stdout = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{stdout}{}", text(&output.stderr));
    assert!(stdout.contains("PASS    R10") && stdout.contains("INFO    R11"), "{stdout}");
    assert_eq!(std::fs::read_to_string(dir.path().join("seen")).unwrap(), "+86400\n-86400\n+0\n");
    let results = std::fs::read_to_string(dir.path().join("conform-report/results.json")).unwrap();
    let results: serde_json::Value = serde_json::from_str(&results).unwrap();
    assert_eq!((&results["cases"][0]["id"], &results["cases"][1]["status"]), (&"R10".into(), &"info".into()));
    assert_eq!(std::fs::read_dir(temporary.path()).unwrap().count(), 0, "no copy is left");
}

#[test]
fn a_second_signal_ends_a_run_at_once() {
    let (dir, temporary) = (dir(), dir());
    let hangs =
        r#"read -r line; echo '{"id":1,"result":"ok","caps":[]}'; read -r line; echo asked >&2; exec sleep 600"#;
    let hangs = ["sh", "-c", hangs].map(str::to_owned);
    let mut command = command(dir.path(), &["exec", "--only", "A01", "--timeout", "10min", "--adapter-log"], &hangs);
    command.env("TMPDIR", temporary.path()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("asked")), "a request waits");
    let started = children_of(&child.id().to_string());
    assert_eq!(started.len(), 1, "the adapter runs");
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    assert!(lines.any(|line| line.unwrap().contains("once more ends at once")), "the first one is gentle");
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let status = wait::until("the run to end", Duration::from_secs(60), || child.try_wait().unwrap());
    assert_eq!(status.code(), Some(3));
    wait::until("its adapter to end", Duration::from_secs(60), || {
        started.iter().all(|child| !child.exists()).then_some(())
    });
    assert_eq!(std::fs::read_dir(temporary.path()).unwrap().count(), 0, "nor a directory");
}

/// Processes whose parent is this one.
fn children_of(parent: &str) -> Vec<PathBuf> {
    let processes = std::fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    let of_parent = |path: &PathBuf| {
        let status = std::fs::read_to_string(path.join("status")).unwrap_or_default();
        status.lines().any(|line| line.split_whitespace().eq(["PPid:", parent]))
    };
    processes.filter(of_parent).collect()
}

/// The steps that a pass of R09 says it has met, and how many there were.
fn steps(output: &Output) -> (u64, u64) {
    let said = text(&output.stdout);
    let words: Vec<&str> =
        said.split("killed at ").nth(2).unwrap_or_else(|| panic!("{said}")).split_whitespace().collect();
    let ["of", "the"] = words[1..3] else { panic!("{said}") };
    (words[0].parse().unwrap(), words[3].parse().unwrap())
}

#[test]
fn a_process_is_killed_at_each_of_its_steps() {
    let dir = dir();
    let output = conform(dir.path(), &["exec", "--only", "R09"], &adapter(None));
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stdout));
    let (met, all) = steps(&output);
    // A write and a sync of the log and an answer, for six requests. On a busy machine a kill may come too late for its step.
    assert!(all >= 18 && met * 2 >= all && met <= all, "{met} of {all}");
    let few = conform(dir.path(), &["exec", "--only", "R09", "--rounds", "50"], &adapter(None));
    assert!(steps(&few).0 <= 6, "a tenth of sixty: {}", text(&few.stdout));

    let output = conform(dir.path(), &["exec", "--only", "R09"], &adapter(Some("removed-first")));
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stdout));
    let results = std::fs::read_to_string(dir.path().join("conform-report/results.json")).unwrap();
    assert!(results.contains(r#"just before rename(\"CONFORM_DIR/log.new\", \"CONFORM_DIR/log\")"#), "{results}");
}

#[test]
fn without_strace_nobody_is_killed_at_a_step_and_it_says_so() {
    let dir = dir();
    let python = Command::new("python3").args(["-c", "import sys; print(sys.executable)"]).output().unwrap();
    let mut words = adapter(None);
    words[0] = text(&python.stdout).trim().to_owned();
    let mut command = command(dir.path(), &["exec", "--only", "R09"], &words);
    let output = command.env("PATH", dir.path()).output().unwrap();
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("N/A") && said.contains("`strace` cannot be started") && said.contains("apt-get"), "{said}");
}
