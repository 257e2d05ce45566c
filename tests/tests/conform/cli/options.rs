//! The effect of options.

use fencepost_conformance::cases;
use fencepost_conformance::report::text::width;

use super::{adapter, command, conform, dir, last_line, results, text};

#[test]
fn a_reproduction_has_the_limits_that_were_given() {
    let dir = dir();
    let given = ["--timeout", "7s", "--ready", "40s", "--case-limit", "5min"];
    let output = conform(dir.path(), &[&["exec", "--only", "A03"][..], &given].concat(), &adapter(Some("accept-all")));
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stdout));
    let reproduce = || results(dir.path())["cases"][0]["reproduce"].as_str().unwrap().to_owned();
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
    let listed = |columns: &str| {
        let output = command(dir.path(), &["--list"], &[]).env("COLUMNS", columns).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let all = listed("80");
    for line in all.lines() {
        assert!(width(line) <= 80, "{} columns: {line}", width(line));
    }
    let one_line = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let said = one_line(&all);
    for case in cases::all() {
        let minima: Vec<String> = case.minima.iter().map(ToString::to_string).collect();
        let evidence = if minima.is_empty() { String::new() } else { format!(" evidence: {}", minima.join(", ")) };
        let entry = format!("{} {} {} {} why: {}{evidence}", case.id, case.level, case.title, case.rule, case.why);
        assert!(said.contains(&one_line(&entry)), "`{entry}` is missing in {all}");
    }
    assert!(listed("120").lines().count() < all.lines().count(), "lines are as wide as there is room");
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

/// A cache in each process is found only by running two processes over one store.
#[test]
fn several_adapters_serve_one_store_and_the_seed_is_the_one_that_was_given() {
    let dir = dir();
    let arguments = ["exec", "--instances", "2", "--seed", "9", "--only", "C07"];
    for (bug, code, said) in
        [(Some("process-cache"), 1, "NOT SAFE: 1 of 1 case failed (C07)"), (None, 0, "PASSED: 1 of 1 case (C07)")]
    {
        let output = conform(dir.path(), &arguments, &adapter(bug));
        assert_eq!(output.status.code(), Some(code), "{}{}", text(&output.stdout), text(&output.stderr));
        assert!(last_line(&output).starts_with(said), "{}", last_line(&output));
        let results = results(dir.path());
        assert_eq!((&results["instances"], &results["seed"]), (&2.into(), &"9".into()));
        let again = results["cases"][0]["reproduce"].as_str().unwrap();
        assert!(again.starts_with("fencepost conform exec --instances 2 --only C07 --seed 9 -- "), "{again}");
    }
    let alone = conform(dir.path(), &["exec", "--only", "C07"], &adapter(Some("process-cache")));
    assert_eq!(alone.status.code(), Some(2), "{}", text(&alone.stdout));
    let results = results(dir.path());
    assert_eq!((&results["instances"], &results["seed"]), (&1.into(), &"1".into()));
    assert_eq!(results["cases"][0]["status"], "not-applicable");
}
