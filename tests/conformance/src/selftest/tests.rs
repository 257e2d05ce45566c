//! Judging made-up reports.

use std::time::Duration;

use super::jobs::{self, Job};
use super::{AGAIN, Budget, ESCAPES, Report, Row, Tally, judge, tried};
use crate::reference::{LAZY, MUTANTS, SETUPS};
use crate::verdict::Status;

fn tally(statuses: &[(Status, u64)]) -> Tally {
    let mut tally = Tally::default();
    for (status, count) in statuses {
        (0..*count).for_each(|_| tally.add(*status, "", Duration::ZERO));
    }
    tally
}

/// A good report: every mutant was found, and there is no false alarm.
fn good() -> Report {
    let every = |status| -> Row { tried().map(|case| (case.id, tally(&[(status, 100)]))).collect() };
    let mut report = Report::default();
    report.reference.extend(SETUPS.map(|(name, _)| (name, every(Status::Pass))));
    report.lazy.extend(LAZY.map(|name| (name, every(Status::Unknown))));
    report.mutants.extend(MUTANTS.iter().map(|mutant| (mutant.name, every(Status::Fail))));
    report
}

fn problems(mut report: Report) -> Vec<String> {
    judge::judge(&Budget::default(), &mut report);
    report.problems
}

#[test]
fn nothing_is_wrong_where_everything_is_found() {
    assert_eq!(problems(good()), Vec::<String>::new());
}

#[test]
fn a_false_alarm_is_a_problem() {
    for status in [Status::Fail, Status::Skip, Status::Error] {
        let mut report = good();
        report.reference.get_mut("gt").unwrap().insert("A03", tally(&[(Status::Pass, 999), (status, 1)]));
        let problems = problems(report);
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(problems[0].contains("A03") && problems[0].contains("1 of 1000"), "{problems:?}");
    }
}

#[test]
fn a_mutant_may_escape_once_in_a_hundred() {
    for (escapes, wanted) in [(1, 0), (2, 1)] {
        let mut report = good();
        let row = report.mutants.get_mut("accept-all").unwrap();
        row.insert("A03", tally(&[(Status::Fail, 100 - escapes), (Status::Pass, escapes)]));
        assert_eq!(problems(report).len(), wanted);
    }
    let mut report = good();
    report.mutants.get_mut("accept-all").unwrap().insert("A03", tally(&[(Status::Fail, 2), (Status::Unknown, 1)]));
    assert_eq!(problems(report).len(), 1, "unknown is not failed");
}

#[test]
fn that_too_little_was_seen_of_the_reference_is_excused_if_it_is_rare() {
    for (unknown, runs, wanted) in [(1, 3, 1), (2, 16, 0), (3, 16, 1), (10, 1_000, 0), (11, 1_000, 1)] {
        let mut report = good();
        let tally = tally(&[(Status::Pass, runs - unknown), (Status::Unknown, unknown)]);
        report.reference.get_mut("gt").unwrap().insert("A03", tally);
        assert_eq!(problems(report).len(), wanted, "{unknown} of {runs}");
    }
}

#[test]
fn what_could_not_be_run_is_not_shown() {
    let mut report = good();
    assert_eq!(report.exit_code(), 0);
    report.missing.push("the mutants in Python: no python3".to_owned());
    assert_eq!(report.exit_code(), 2);
    assert!(report.text().contains("NOT RUN the mutants in Python: no python3"), "{}", report.text());
    assert!(report.text().contains("not shown: "), "{}", report.text());
    report.problems.push("worse".to_owned());
    assert_eq!(report.exit_code(), 1);
}

/// The probability of exactly `misses` in `of` runs, each missed with probability `missed`.
fn chance(of: u64, misses: u64, missed: f64) -> f64 {
    let ways = (0..misses).fold(1.0, |ways, index| ways * (of - index) as f64 / (index + 1) as f64);
    ways * missed.powf(misses as f64) * (1.0 - missed).powf((of - misses) as f64)
}

/// The probability that a self-test accepts a mutant that escapes with this probability.
fn let_go(missed: f64) -> f64 {
    let first = Budget::default().racy_seeds;
    let later = |most: u64| (0..=most).map(|misses| chance(AGAIN - first, misses, missed)).sum::<f64>();
    chance(first, 0, missed)
        + (1..=ESCAPES).map(|misses| chance(first, misses, missed) * later(ESCAPES - misses)).sum::<f64>()
}

#[test]
fn a_mutant_that_is_good_enough_is_not_flaky_and_one_that_is_not_is_found_out() {
    assert!(1.0 - let_go(0.01) < 0.001, "failed in 99 of 100: {}", let_go(0.01));
    assert!(let_go(0.5) < 0.01, "failed in every second run: {}", let_go(0.5));
}

#[test]
fn what_escapes_is_tried_again() {
    let named = |name: &str| MUTANTS.iter().find(|mutant| mutant.name == name).unwrap();
    let mut made = Vec::new();
    for seed in 5..8 {
        made.push(Job::mutant(named("accept-all"), "A03", seed));
        made.push(Job::mutant(named("accept-all"), "A04", seed));
        made.push(Job::mutant(named("off-by-one"), "A04", seed));
        made.push(Job::reference("ge", SETUPS[0].1, "A03", seed));
        made.push(Job::reference("gt", SETUPS[1].1, "A03", seed));
        made.push(Job::lazy("ok", "A03", seed));
    }
    let mut report = Report::default();
    let escaped = || tally(&[(Status::Fail, 2), (Status::Pass, 1)]);
    report.mutants.entry("accept-all").or_default().insert("A03", escaped());
    // Not the case that must fail it.
    report.mutants.entry("accept-all").or_default().insert("A04", escaped());
    report.mutants.entry("off-by-one").or_default().insert("A04", tally(&[(Status::Fail, 3)]));
    report.reference.entry("ge").or_default().insert("A03", tally(&[(Status::Pass, 2), (Status::Unknown, 1)]));
    // One false alarm is enough, however many runs pass.
    report.reference.entry("gt").or_default().insert("A03", tally(&[(Status::Pass, 2), (Status::Fail, 1)]));
    report.lazy.entry("ok").or_default().insert("A03", tally(&[(Status::Unknown, 3)]));
    let again: Vec<String> = jobs::again(&made, &report).iter().map(Job::to_string).collect();
    let expected = |who: &str| (8..21).map(move |seed| format!("{who} A03 {seed}")).collect::<Vec<_>>();
    assert_eq!(again, [expected("accept-all"), expected("ge")].concat());
}

#[test]
fn a_case_that_fails_nobody_is_a_problem() {
    let mut report = good();
    report.mutants.values_mut().for_each(|row| drop(row.remove("A13")));
    let problems = problems(report);
    assert!(problems.iter().any(|problem| problem.contains("fails no mutant")), "{problems:?}");
}

#[test]
fn an_adapter_that_does_nothing_must_not_pass() {
    let mut report = good();
    let all = tried().map(|case| (case.id, tally(&[(Status::Pass, 1)]))).collect();
    report.lazy.insert("ok", all);
    assert_eq!(problems(report).len(), 1);
}
