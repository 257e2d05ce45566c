//! Does the suite still bite? With how many seeds is said by `Budget`: its default for every change, `Budget::full` at the full
//! budget, which takes hours.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use fencepost_conformance::harness::budget;
use fencepost_conformance::reference::MUTANTS;
use fencepost_conformance::selftest::{Budget, Report, selftest, tried};

/// Each of these tests takes all cores; the busy one would disturb the others.
static ALONE: Mutex<()> = Mutex::new(());

const DOCUMENT: &str = include_str!("../../docs/conformance/mutants.md");

#[test]
fn every_mutant_is_failed_by_its_case_and_the_reference_passes() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let report = selftest(&budget::pick(Budget::default(), Budget::full()), &|_, _| ());
    println!("{}", report.text());
    assert!(report.missing.is_empty(), "{:?}: run scripts/setup test", report.missing);
    assert_eq!(report.left_out, Vec::<String>::new());
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
        let reference_seeds = budget::pick(1, 20);
        let budget = Budget { only, seed: 1_000, reference_seeds, python: false, ..Budget::default() };
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
