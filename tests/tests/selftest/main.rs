//! Does the suite still detect every mutant? The number of seeds comes from `Budget`: its default for every change,
//! `Budget::full` at the full budget, which takes hours.

use std::collections::BTreeSet;

use fencepost_conformance::reference::{LAZY, MUTANTS};
use fencepost_conformance::selftest::{Budget, Report, selftest, tried};
use fencepost_conformance::verdict::{Level, Status};
use fencepost_harness::{budget, cpu};
use parking_lot::Mutex;

/// One of the two selftests uses all cores, and would disturb the one on a busy CPU.
static ALONE: Mutex<()> = Mutex::new(());

const DOCUMENT: &str = include_str!("../../../docs/conformance/mutants.md");

/// The cases that do not apply to the reference, by setup. All others must pass, or inform.
const NOT_APPLICABLE: [(&str, &str); 8] = [
    ("ge", "E02 E04 E05 C04 C07 Z02 Z09"),
    ("gt", "E01 E05 C03 C07 Z02 Z09"),
    ("holder", "E02 E04 C04 C07 Z02 Z09"),
    ("two instances", "E02 E04 E05 C04 Z02 Z09"),
    ("http", "E02 E04 E05 C04 C07 R09"),
    ("gt holder", "E01 C03 C07 Z02 Z09"),
    ("stale-ok", "E02 E04 E05 F05 M04 C04 C05 C07 Z02 Z09"),
    ("at_least", "E02 E04 E05 C04 C07 Z02 Z09"),
];

#[test]
fn every_mutant_is_failed_by_its_case_and_the_reference_passes() {
    let _alone = ALONE.lock();
    let report = selftest(&budget::pick(Budget::default(), Budget::full()), &|_, _| ());
    println!("{}", report.text());
    assert!(report.missing.is_empty(), "{:?}: run scripts/setup test", report.missing);
    assert_eq!(report.left_out, Vec::<String>::new());
    assert!(report.passed(), "{:#?}", report.problems);
    every_case_was_run_where_it_applies(&report);
    let first = || tried().filter(|case| case.level == Level::L1);
    let ran = |name: &str| report.lazy.get(name).is_some_and(|row| first().all(|case| row.contains_key(case.id)));
    assert!(LAZY.into_iter().all(ran), "every adapter that does nothing was tried");
}

#[test]
fn the_reference_stays_silent_on_one_busy_cpu() {
    let _alone = ALONE.lock();
    let budget = budget::pick(Budget::default(), Budget::full()).on_a_busy_cpu();
    let report = cpu::on_a_busy_one(|| selftest(&budget, &|_, _| ()));
    println!("{}", report.text());
    assert!(report.passed(), "{:#?}", report.problems);
    every_case_was_run_where_it_applies(&report);
}

/// A case that wrongly reports "not applicable" tests nothing; without this check that would go unnoticed.
fn every_case_was_run_where_it_applies(report: &Report) {
    assert_eq!(report.reference.len(), NOT_APPLICABLE.len());
    for (setup, cases) in NOT_APPLICABLE {
        let row = &report.reference[setup];
        assert_eq!(row.len(), tried().count(), "every case was run ({setup})");
        let not = row.iter().filter(|(_, tally)| tally.count(Status::NotApplicable) > 0).map(|(case, _)| *case);
        let (found, expected): (BTreeSet<&str>, BTreeSet<&str>) = (not.collect(), cases.split(' ').collect());
        assert_eq!(found, expected, "what does not apply ({setup})");
    }
}

/// The text of the document is generated from the list; its matrix comes from the run that wrote it.
#[test]
fn the_document_lists_every_mutant_with_its_case() {
    let written = Report::default().markdown();
    let text = |document: &str| document.split("\n```\n").next().unwrap_or_default().to_owned();
    assert_eq!(text(DOCUMENT), text(&written), "write it anew: -- --ignored write_the_document");
    for mutant in MUTANTS {
        let line = DOCUMENT.lines().find(|line| line.split_whitespace().next() == Some(mutant.name));
        let line = line.unwrap_or_else(|| panic!("the matrix has no line for {}", mutant.name));
        assert!(line.contains('#'), "{} was not failed by {}: {line}", mutant.name, mutant.case());
    }
}

#[test]
#[ignore = "minutes: runs the whole matrix once, and writes docs/conformance/mutants.md"]
fn write_the_document() {
    let report = selftest(&Budget { matrix: true, ..Budget::default() }, &|_, _| ());
    println!("{}", report.text());
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/conformance/mutants.md");
    std::fs::write(path, report.markdown()).unwrap();
    assert!(report.passed(), "{:#?}", report.problems);
}
