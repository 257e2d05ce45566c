//! Runs that are ended by a signal.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use fencepost_conformance::wait;
use rustix::process::{Pid, Signal, kill_process};

use super::{adapter, command, dir, results};

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
        let results = results(dir.path());
        assert_eq!((&results["cases"][0]["status"], &results["exit_code"]), (&"pass".into(), &3.into()));
        assert_eq!(results["cases"][1]["reason"], format!("not finished: ended by {name}"));
        assert!(started.iter().all(|child| !child.exists()), "its adapter is gone");
        assert_eq!(std::fs::read_dir(temporary.path()).unwrap().count(), 0, "and its directories");
    }
}

/// The number of writes in its logs, in the directories that the suite made here.
fn writes_of_the_reference(temporary: &Path) -> usize {
    let made = std::fs::read_dir(temporary).unwrap().map(|entry| entry.unwrap().path().join("log"));
    made.map(|log| std::fs::read_to_string(log).unwrap_or_default().lines().count()).sum()
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
