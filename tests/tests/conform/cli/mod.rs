//! `fencepost conform` as its users run it: exit codes, files, lists, and no leftovers.

mod crashes;
mod exits;
mod guide;
mod lazy;
mod options;
mod rechecks;
mod reports;
mod selftests;
mod services;
mod signals;
mod terminal;

use std::path::Path;
use std::process::{Command, Output, Stdio};

use fencepost_harness::process;
use serde_json::Value;
use tempfile::TempDir;

/// The Python reference, correct or with a bug.
fn adapter(bug: Option<&str>) -> Vec<String> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("conformance/reference/reference.py");
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

/// The Python executable itself, which is found without `PATH`.
fn interpreter() -> String {
    let python = Command::new("python3").args(["-c", "import sys; print(sys.executable)"]).output().unwrap();
    text(&python.stdout).trim().to_owned()
}

/// The machine-readable results of a run in this directory.
fn results(dir: &Path) -> Value {
    let text = std::fs::read_to_string(dir.join("conform-report/results.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}
