//! Does the suite still bite? The budget of every change; `fencepost conform selftest --full` is the whole of it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use fencepost_conformance::reference::MUTANTS;
use fencepost_conformance::selftest::{Budget, Report, selftest, tried};

/// Each of these tests takes all cores; the busy one would disturb the others.
static ALONE: Mutex<()> = Mutex::new(());

const DOCUMENT: &str = include_str!("../../docs/conformance/mutants.md");

#[test]
fn every_mutant_is_failed_by_its_case_and_the_reference_passes() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let report = selftest(&Budget::default(), &|_, _| ());
    println!("{}", report.text());
    assert!(report.left_out.is_empty(), "{:?}: run scripts/setup test", report.left_out);
    assert!(report.passed(), "{:#?}", report.problems);
}

#[test]
fn the_reference_stays_silent_on_a_busy_machine() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let done = AtomicBool::new(false);
    let cores = thread::available_parallelism().map_or(2, usize::from);
    let report = thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let only = vec!["reference".to_owned()];
        let budget = Budget { only, seed: 1_000, reference_seeds: 1, python: false, ..Budget::default() };
        let report = selftest(&budget, &|_, _| ());
        done.store(true, Ordering::Relaxed);
        report
    });
    assert!(report.problems.is_empty(), "{:#?}", report.problems);
    assert!(report.reference.values().all(|row| row.len() == tried().count()), "every case was run in every setup");
}

/// The text of the document is that of the list; the matrix in it is that of the run that wrote it.
#[test]
fn the_document_lists_every_mutant_with_its_case() {
    let written = Report::default().markdown();
    let rows = |text: &str| -> Vec<String> {
        text.lines().filter(|line| line.starts_with('|') || line.starts_with('#')).map(str::to_owned).collect()
    };
    assert_eq!(rows(DOCUMENT), rows(&written), "write it anew: -- --ignored write_the_document");
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

#[test]
#[ignore = "some minutes: 100 seeds of every mutant in Rust, and 20 of the reference"]
fn a_hundred_seeds() {
    let budget = Budget { seeds: 100, reference_seeds: 20, python: false, ..Budget::default() };
    let report = selftest(&budget, &|_, _| ());
    println!("{}", report.text());
    assert!(report.passed(), "{:#?}", report.problems);
}

#[test]
#[ignore = "hours: 100 seeds of every mutant, 1,000 of the reference"]
fn the_full_budget() {
    let report = selftest(&Budget::full(), &|_, _| ());
    println!("{}", report.text());
    assert!(report.passed(), "{:#?}", report.problems);
}
