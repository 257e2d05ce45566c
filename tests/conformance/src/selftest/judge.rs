//! The required results of a self-test.

use super::{AGAIN, Budget, ESCAPES, Report, Row, Tally, selected, tried};
use crate::reference::{MUTANTS, SETUPS};
use crate::verdict::{Level, Status};

/// Collects the problems in a report.
pub(super) fn judge(budget: &Budget, report: &mut Report) {
    let mut problems = Vec::new();
    for (setup, row) in &report.reference {
        silent(&format!("the reference ({setup})"), row, &mut problems);
    }
    for (name, row) in &report.python {
        if SETUPS.iter().any(|(setup, _)| setup == name) {
            silent(&format!("the reference in Python ({name})"), row, &mut problems);
        }
    }
    for (name, row) in &report.lazy {
        let good = [Status::Pass, Status::NotApplicable, Status::Info];
        let bad = |tally: &Tally| good.into_iter().map(|status| tally.count(status)).sum::<u64>() < tally.runs();
        let first = tried().filter(|case| case.level == Level::L1);
        if !first.filter_map(|case| row.get(case.id)).any(bad) {
            problems.push(format!("an adapter that always answers {name} passes {}", Level::L1));
        }
    }
    for mutant in selected(budget) {
        for case in mutant.cases() {
            bites(mutant.name, case, report.mutants.get(mutant.name), &mut problems);
        }
        if let Some(row) = report.python.get(mutant.name) {
            bites(&format!("{} in Python", mutant.name), mutant.case(), Some(row), &mut problems);
        }
    }
    if budget.only.is_empty() {
        unused(report, &mut problems);
    }
    report.problems = problems;
}

/// How many runs may have the wrong result: one in a hundred; with few runs none or, after more seeds, [`ESCAPES`].
pub(super) fn excused(runs: u64) -> u64 {
    match runs {
        few if few < AGAIN => 0,
        some if some < 100 => ESCAPES,
        many => many / 100,
    }
}

/// The reference must pass, or the case must not apply. A false alarm is never excused. Too little evidence, as on a
/// busy machine, is excused if it is rare.
fn silent(who: &str, row: &Row, problems: &mut Vec<String>) {
    for (case, tally) in row {
        for status in [Status::Fail, Status::Error, Status::Unknown, Status::Skip] {
            let count = tally.count(status);
            let excused = if status == Status::Unknown { excused(tally.runs()) } else { 0 };
            if count > excused {
                let (word, runs, reason) = (status.word(), tally.runs(), &tally.reason);
                problems.push(format!("{who} is right, and {case} ends with {word} in {count} of {runs}: {reason}"));
            }
        }
    }
}

/// The case must fail the mutant in 99 of 100 runs.
fn bites(who: &str, case: &str, row: Option<&Row>, problems: &mut Vec<String>) {
    let none = Tally::default();
    let tally = row.and_then(|row| row.get(case)).unwrap_or(&none);
    let (failed, runs) = (tally.count(Status::Fail), tally.runs());
    if runs == 0 {
        problems.push(format!("{who} was never run against {case}"));
    } else if runs - failed > excused(runs) {
        let reason = if tally.reason.is_empty() { "it passed" } else { &tally.reason };
        problems.push(format!("{who} is failed by {case} in only {failed} of {runs}: {reason}"));
    }
}

/// Each case must fail a mutant and pass the reference in some setup, or it is useless.
fn unused(report: &Report, problems: &mut Vec<String>) {
    for case in tried() {
        let in_any = |rows: &std::collections::BTreeMap<&'static str, Row>, status| {
            rows.values().any(|row| row.get(case.id).is_some_and(|tally| tally.count(status) > 0))
        };
        if !in_any(&report.mutants, Status::Fail) {
            problems.push(format!("{} ({}) fails no mutant", case.id, case.title));
        }
        if !in_any(&report.reference, Status::Pass) && !in_any(&report.reference, Status::Info) {
            problems.push(format!("{} ({}) applies to the reference in no setup", case.id, case.title));
        }
    }
    for mutant in MUTANTS {
        for case in mutant.cases() {
            if tried().all(|known| known.id != case) {
                problems.push(format!("{} names {case}, which is not a case", mutant.name));
            }
        }
    }
}
