//! The processes that a conformance run starts, and what it leaves behind.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use fencepost_conformance::wait::{self, PATIENCE};
use fencepost_harness::fresh::Fresh;
use fencepost_harness::process::binary;
use tempfile::TempDir;

use super::text;

fn conform(dir: &Path, arguments: &[&str]) -> Output {
    Command::new(binary()).current_dir(dir).arg("conform").args(arguments).stdin(Stdio::null()).output().unwrap()
}

/// Does the process run? A zombie that was not yet reaped does not count.
fn lives(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
}

/// An adapter starts a process in a session of its own, which no signal to the adapter's group reaches.
#[test]
fn s21_what_an_adapter_starts_in_its_own_session_does_not_outlive_the_run() {
    let dir = TempDir::new().unwrap();
    let reference = Path::new(env!("CARGO_MANIFEST_DIR")).join("conformance/reference/reference.py");
    let pid = dir.path().join("pid");
    let script = format!(
        "setsid sh -c 'echo $$ > {0}.new; mv {0}.new {0}; exec sleep 600' & exec python3 {1}",
        pid.display(),
        reference.display()
    );
    let output = conform(dir.path(), &["exec", "--only", "A01", "--", "sh", "-c", &script]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let pid = std::fs::read_to_string(&pid).unwrap();
    wait::until("the process in its own session to be gone", PATIENCE, || (!lives(&pid)).then_some(()));
    assert!(text(&output.stderr).contains("left behind"), "{output:?}");
}

/// A map file can run commands; `--no-hooks` forbids that.
#[test]
fn s21_no_hooks_runs_nothing_of_a_map() {
    let gateway = Fresh::memory(&[]);
    let dir = TempDir::new().unwrap();
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/conformance/gateway/fencepost.toml");
    let map = std::fs::read_to_string(examples).unwrap();
    let mark = dir.path().join("mark");
    let reset = format!("reset = \"touch {}\"", mark.display());
    let swap = |line: &str| if line.starts_with("start = ") { reset.clone() } else { line.to_owned() };
    let hooked = map.lines().map(swap).collect::<Vec<_>>().join("\n");
    assert!(hooked.contains(&reset), "{hooked}");
    std::fs::write(dir.path().join("map.toml"), hooked).unwrap();
    let run = |more: &[&str]| {
        let line = ["http", "--map", "map.toml", "--base", gateway.url(), "--only", "A01"];
        let output = conform(dir.path(), &[&line, more].concat());
        assert_eq!(output.status.code(), Some(0), "{output:?}");
    };
    run(&["--no-hooks"]);
    assert!(!mark.exists(), "a hook was run");
    let results = std::fs::read_to_string(dir.path().join("conform-report/results.json")).unwrap();
    assert!(results.contains("--no-hooks"), "a reproduction has to have it: {results}");
    run(&[]);
    assert!(mark.exists(), "the hook is run otherwise");
}
