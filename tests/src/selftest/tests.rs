//! The judgement, over reports that were made up.

use std::time::Duration;

use super::{Budget, Report, Row, Tally, judge, tried};
use crate::reference::{LAZY, MUTANTS, SETUPS};
use crate::verdict::Status;

fn tally(statuses: &[(Status, u64)]) -> Tally {
    let mut tally = Tally::default();
    for (status, count) in statuses {
        (0..*count).for_each(|_| tally.add(*status, "", Duration::ZERO));
    }
    tally
}

/// As it should be: everything was found, and nothing else.
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
    for status in [Status::Fail, Status::Unknown, Status::Skip, Status::Error] {
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
