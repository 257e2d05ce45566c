//! `fencepost conform` as its users run it: exit codes, files, lists, and nothing left behind.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use fencepost_conformance::cases;
use fencepost_conformance::harness::{process, wait};
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
    fencepost_conformance::history::History::default().write_to(&mut history).unwrap();
    std::fs::write(dir.path().join("good.jsonl"), history).unwrap();
    let good = conform(dir.path(), &["recheck", "good.jsonl"], &[]);
    assert_eq!(good.status.code(), Some(0), "{}", text(&good.stderr));
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
        (vec!["exec", "--hook", "explode=true"], adapter(None), "there is no hook `explode`"),
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

#[test]
fn every_case_is_listed() {
    let dir = dir();
    let all = text(&conform(dir.path(), &["--list"], &[]).stdout);
    for case in cases::all() {
        assert!(all.contains(case.id) && all.contains(case.title) && all.contains(case.rule), "{}: {all}", case.id);
    }
    let some = text(&conform(dir.path(), &["exec", "--list", "--only", "E"], &[]).stdout);
    assert!(some.contains("E01") && !some.contains("A01"), "{some}");
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
}

#[test]
fn a_run_that_is_ended_leaves_no_process_behind() {
    let dir = dir();
    let mut command = command(dir.path(), &["exec", "--rounds", "100000"], &adapter(None));
    let temporary = self::dir();
    let mut child =
        command.env("TMPDIR", temporary.path()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let children = || children_of(&child.id().to_string());
    wait::until("the adapter to run", Duration::from_secs(20), || (!children().is_empty()).then_some(()));
    let started = children();
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let status = wait::until("the run to end", Duration::from_secs(10), || child.try_wait().unwrap());
    assert_eq!(status.code(), Some(130));
    wait::until("its adapter to end", Duration::from_secs(5), || {
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
