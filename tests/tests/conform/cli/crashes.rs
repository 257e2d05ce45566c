//! Faults injected into an adapter: kills at its steps, a wrong clock, an older backup.

use std::process::Output;

use super::{adapter, command, conform, dir, interpreter, results, text};

/// The number of steps that a pass of R09 reports as hit, and their total.
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
    // A write and a sync of the log and an answer, for six requests. On a busy machine a kill may come too late for its
    // step, and fewer are tried, but never fewer than ten.
    assert!(all >= 18 && (5..=all).contains(&met), "{met} of {all}");
    let few = conform(dir.path(), &["exec", "--only", "R09", "--rounds", "50"], &adapter(None));
    assert_eq!(few.status.code(), Some(0), "{}", text(&few.stdout));
    assert!(steps(&few).0 <= 6, "a tenth of sixty: {}", text(&few.stdout));

    // A late kill may hit between two calls; then no call is named.
    let named = (0..3).any(|_| {
        let output = conform(dir.path(), &["exec", "--only", "R09"], &adapter(Some("removed-first")));
        assert_eq!(output.status.code(), Some(1), "{}", text(&output.stdout));
        let results = std::fs::read_to_string(dir.path().join("conform-report/results.json")).unwrap();
        results.contains(r#"just before rename(\"CONFORM_DIR/log.new\", \"CONFORM_DIR/log\")"#)
    });
    assert!(named, "the call is named");
}

#[test]
fn without_strace_nobody_is_killed_at_a_step_and_it_says_so() {
    let dir = dir();
    let mut words = adapter(None);
    words[0] = interpreter();
    let mut command = command(dir.path(), &["exec", "--only", "R09"], &words);
    let output = command.env("PATH", dir.path()).output().unwrap();
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("N/A") && said.contains("`strace` cannot be started") && said.contains("apt-get"), "{said}");
}

/// The suite copies and restores its log, so it forgets later writes; its clock is changed too.
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
    let results = results(dir.path());
    assert_eq!((&results["cases"][0]["id"], &results["cases"][1]["status"]), (&"R10".into(), &"info".into()));
    assert_eq!(std::fs::read_dir(temporary.path()).unwrap().count(), 0, "no copy is left");
}
