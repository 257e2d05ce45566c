//! `fencepost conform selftest`.

use std::process::Command;

use fencepost_conformance::selftest::tried;
use serde_json::Value;

use super::terminal::shown;
use super::{command, conform, dir, interpreter, text};

#[test]
fn the_self_test_is_run_from_the_command_line() {
    let dir = dir();
    let arguments = ["selftest", "--only", "accept-all", "--seeds", "1", "--without-python"];
    let output = conform(dir.path(), &arguments, &[]);
    let stdout = text(&output.stdout);
    assert!(stdout.contains("accept-all"), "{stdout}{}", text(&output.stderr));
    assert!(!stdout.contains("reference:") && !stdout.contains("lazy:"), "nothing else was asked for: {stdout}");
    assert_eq!(output.status.code(), Some(0), "{stdout}");
    // Without an interpreter, part of the selftest cannot run.
    let nowhere = dir.path().display().to_string();
    let output = command(dir.path(), &arguments[..5], &[]).env("PATH", nowhere).output().unwrap();
    let stdout = text(&output.stdout);
    assert_eq!(output.status.code(), Some(2), "{stdout}");
    assert!(stdout.contains("NOT RUN the mutants in Python: `python3` cannot be started"), "{stdout}");
    assert!(stdout.lines().last().unwrap().starts_with("not shown: "), "{stdout}");
}

/// A mutant that every case fails at once.
const REJECTS: [&str; 6] = ["selftest", "--only", "reject-all", "--seeds", "1", "--without-python"];

/// The marks in its line of the matrix, one for each case that it was run against.
fn marks(printed: &str) -> String {
    let mut lines = printed.lines().filter_map(|line| line.strip_prefix("reject-all "));
    let marks = lines.next().unwrap_or_else(|| panic!("{printed}"));
    assert_eq!(lines.next(), None, "{printed}");
    marks.split_whitespace().collect()
}

#[test]
fn a_mutant_is_run_against_its_case_or_for_the_matrix_against_all() {
    let dir = dir();
    let its_own = conform(dir.path(), &REJECTS, &[]);
    let stdout = text(&its_own.stdout);
    assert_eq!(its_own.status.code(), Some(0), "{stdout}{}", text(&its_own.stderr));
    assert_eq!(marks(&stdout), "#", "{stdout}");
    assert_eq!(stdout.lines().last(), Some("the suite bites: 1 mutants, 0 problems"), "{stdout}");
    let all = conform(dir.path(), &[&REJECTS[..], &["--matrix"]].concat(), &[]);
    let stdout = text(&all.stdout);
    assert_eq!(all.status.code(), Some(0), "{stdout}{}", text(&all.stderr));
    let marks = marks(&stdout);
    assert_eq!(marks.chars().count(), tried().count(), "{stdout}");
    assert!(marks.starts_with("#x"), "{stdout}");
}

#[test]
fn the_matrix_is_printed_as_a_document() {
    let dir = dir();
    let output = conform(dir.path(), &[&REJECTS[..], &["--markdown"]].concat(), &[]);
    let stdout = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{stdout}{}", text(&output.stderr));
    assert!(stdout.starts_with("# Does the suite bite?\n"), "{stdout}");
    assert!(stdout.contains("\n| `reject-all` | Everything is refused. | A01 "), "{stdout}");
    assert_eq!(marks(&stdout), "#", "{stdout}");
    assert!(stdout.ends_with("\n```\n") && !stdout.contains("the suite bites"), "nothing but the document: {stdout}");
    // The note about what was not run is not part of the document.
    let arguments = ["selftest", "--only", "reject-all", "--seeds", "1", "--markdown"];
    let output = command(dir.path(), &arguments, &[]).env("PATH", dir.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stdout));
    let stderr = text(&output.stderr);
    assert!(stderr.contains("fencepost: not run: the mutants in Python: `python3` cannot be started"), "{stderr}");
    assert!(!text(&output.stdout).contains("cannot be started"), "{}", text(&output.stdout));
}

#[test]
fn a_mutant_is_run_with_as_many_seeds_as_were_asked_for() {
    let dir = dir();
    for (seeds, runs) in [(&["--seeds", "4"][..], "4 of 4 runs"), (&[][..], "3 of 3 runs")] {
        let arguments = [&["selftest", "--only", "off-by-one", "--without-python"][..], seeds].concat();
        let (screen, code) = shown(command(dir.path(), &arguments, &[]), "the suite bites: ");
        assert_eq!(code, Some(0), "{screen:?}");
        assert!(screen.contains(&format!("\r{runs}")), "{screen:?}");
    }
    let both = conform(dir.path(), &["selftest", "--full", "--seeds", "4"], &[]);
    assert_eq!(both.status.code(), Some(3));
    assert!(text(&both.stderr).contains("cannot be used with"), "{}", text(&both.stderr));
}

/// Every request to a Python mutant contains its seed; an interpreter that records its input shows it.
#[test]
fn the_first_seed_is_the_one_that_was_given() {
    let dir = dir();
    let script = format!(
        "#!/bin/sh\n[ \"$1\" != --version ] || exec {0} --version\ntee -a requests | {0} \"$@\"\n",
        interpreter()
    );
    std::fs::write(dir.path().join("script"), script).unwrap();
    // Copied by another process: a file that this process has open for writing cannot be executed.
    let mut install = Command::new("install");
    let installed = install.args(["-m", "755", "script", "python3"]).current_dir(dir.path()).status().unwrap();
    assert!(installed.success());
    let path = format!("{}:{}", dir.path().display(), std::env::var("PATH").unwrap());
    let arguments = ["selftest", "--only", "off-by-one", "--seeds", "1", "--seed", "77"];
    let output = command(dir.path(), &arguments, &[]).env("PATH", path).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}{}", text(&output.stdout), text(&output.stderr));
    let sent = std::fs::read_to_string(dir.path().join("requests")).unwrap();
    let asked: Vec<Value> = sent.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let seeds: Vec<&Value> =
        asked.iter().filter(|request| request["op"] != "init").map(|asked| &asked["seed"]).collect();
    assert!(!seeds.is_empty() && seeds.iter().all(|seed| **seed == 77), "{sent}");
}
