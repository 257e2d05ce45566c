//! The claim that a run allows, row by row.

use fencepost_conformance::manifest::Kill;
use fencepost_conformance::verdict::Level::{self, L1, L2, L3, L4};
use fencepost_conformance::verdict::Outcome;
use fencepost_conformance::verdict::Status::{self, Error, Fail, Info, NotApplicable, Pass, Skip, Unknown};

use crate::report::made_up::results;

type Row = (Level, &'static [(&'static str, Level, Status)], Option<Level>, u8, &'static str);

#[test]
fn each_row_claims_what_was_seen_and_no_more() {
    let rows: &[Row] = &[
        (
            L3,
            &[("A01", L1, Pass), ("C01", L2, Pass), ("R01", L3, Pass)],
            Some(L3),
            0,
            "SAFE at L3 · not tested: power loss and disk faults",
        ),
        (
            L1,
            &[("A01", L1, Pass)],
            Some(L1),
            0,
            "SAFE at L1 · not tested: concurrency and network, process crash, power loss and disk faults",
        ),
        // What the resource does not offer does not limit the level, and information is no failure.
        (
            L2,
            &[("A01", L1, Pass), ("M01", L1, NotApplicable), ("C01", L2, Pass), ("Z01", L2, Info)],
            Some(L2),
            0,
            "SAFE at L2 · not tested: process crash, power loss and disk faults",
        ),
        // A level at which nothing passed is not shown.
        (
            L2,
            &[("A01", L1, Pass), ("C01", L2, NotApplicable)],
            Some(L1),
            2,
            "SAFE at L1, asked for L2: nothing passed that would show L2 · not tested: concurrency and network, process \
             crash, power loss and disk faults",
        ),
        (
            L2,
            &[("A01", L1, Pass), ("C01", L2, Info)],
            Some(L1),
            2,
            "SAFE at L1, asked for L2: nothing passed that would show L2 · not shown: concurrency and network · not tested: \
             process crash, power loss and disk faults",
        ),
        // No cases at all, and a level without cases.
        (
            L1,
            &[],
            None,
            2,
            "UNKNOWN: nothing passed that would show L1 · not tested: ordering, concurrency and network, process crash, \
             power loss and disk faults",
        ),
        (
            L4,
            &[("A01", L1, Pass), ("C01", L2, Pass), ("R01", L3, Pass)],
            Some(L3),
            2,
            "SAFE at L3, asked for L4: nothing passed that would show L4 · not tested: power loss and disk faults",
        ),
        // A skip limits the level.
        (
            L3,
            &[("A01", L1, Pass), ("C01", L2, Pass), ("R01", L3, Skip)],
            Some(L2),
            2,
            "SAFE at L2, asked for L3: 1 of 3 cases skipped (R01) · not tested: process crash, power loss and disk faults",
        ),
        (
            L3,
            &[("A01", L1, Pass), ("C01", L2, Skip), ("C02", L2, Pass), ("R01", L3, Pass)],
            Some(L1),
            2,
            "SAFE at L1, asked for L3: 1 of 4 cases skipped (C01) · not shown: concurrency and network, process crash · \
             not tested: power loss and disk faults",
        ),
        (
            L1,
            &[("A01", L1, Pass), ("A02", L1, Skip)],
            None,
            2,
            "UNKNOWN: 1 of 2 cases skipped (A02) · not shown: ordering · not tested: concurrency and network, process \
             crash, power loss and disk faults",
        ),
        // Unknown never counts as a pass.
        (
            L2,
            &[("A01", L1, Pass), ("C01", L2, Unknown), ("C02", L2, Pass)],
            Some(L1),
            2,
            "UNKNOWN: 1 of 3 cases could not be judged (C01) · shown: L1 · not shown: concurrency and network · not tested: \
             process crash, power loss and disk faults",
        ),
        (L1, &[("A01", L1, Fail), ("A02", L1, Pass)], None, 1, "NOT SAFE: 1 of 2 cases failed (A01)"),
        // A failure at a higher level withdraws the claim of the lower one, and takes precedence over unknown.
        (
            L2,
            &[("A01", L1, Pass), ("A02", L1, Unknown), ("C01", L2, Fail), ("C02", L2, Fail)],
            None,
            1,
            "NOT SAFE: 2 of 4 cases failed (C01, C02)",
        ),
    ];
    for (level, cases, shown, exit, line) in rows {
        let results = results(*level, cases);
        assert_eq!(results.shown(), *shown, "{cases:?}");
        assert_eq!(results.exit_code(), *exit, "{cases:?}");
        assert_eq!(results.last_line(), *line, "{cases:?}");
    }
}

#[test]
fn with_cases_left_out_no_level_is_claimed() {
    let mut results = results(L3, &[("R03", L3, Pass)]);
    results.left_out = 60;
    assert_eq!((results.shown(), results.outcome(), results.exit_code()), (None, Outcome::Passed, 0));
    assert_eq!(results.last_line(), "PASSED: 1 of 1 case (R03) · no level is claimed: 60 cases not selected");
    for (status, exit) in [(Skip, 2), (NotApplicable, 2), (Unknown, 2), (Info, 2), (Fail, 1), (Error, 3)] {
        results.cases[0].status = status;
        assert_eq!((results.shown(), results.exit_code()), (None, exit), "{status:?}");
        assert!(!results.last_line().contains("SAFE at"), "{}", results.last_line());
    }
}

#[test]
fn a_run_that_broke_off_shows_nothing_but_what_failed_before() {
    let mut results = results(L1, &[("A01", L1, Pass), ("A02", L1, Error)]);
    results.broken = Some("the adapter ended".into());
    assert_eq!((results.shown(), results.outcome(), results.exit_code()), (None, Outcome::Broken, 3));
    assert_eq!(results.last_line(), "ERROR: nothing is shown, because the run was broken off: the adapter ended");
    results.cases[0].status = Fail;
    assert_eq!((results.shown(), results.exit_code()), (None, 1));
    assert_eq!(results.last_line(), "NOT SAFE: 1 of 2 cases failed (A01)");
}

#[test]
fn killing_only_the_process_is_said_with_the_level() {
    let mut results = results(L3, &[("A01", L1, Pass), ("C01", L2, Pass), ("R01", L3, Pass)]);
    results.manifest.kill = Kill::Process;
    assert_eq!(
        results.last_line(),
        "SAFE at L3 · not tested: a crash of what lies behind the process (kill = process), power loss and disk faults"
    );
    results.level = L2;
    results.cases.pop();
    assert_eq!(results.last_line(), "SAFE at L2 · not tested: process crash, power loss and disk faults");
}

#[test]
fn a_kill_that_could_not_be_aimed_is_said_with_the_level() {
    let cases = [("A01", L1, Pass), ("C01", L2, Pass), ("R01", L3, Pass), ("R09", L3, NotApplicable)];
    assert_eq!(
        results(L3, &cases).last_line(),
        "SAFE at L3 · not tested: a kill at each system call, power loss and disk faults"
    );
    let cases = [("A01", L1, Pass), ("C01", L2, Pass), ("R01", L3, NotApplicable), ("R09", L3, NotApplicable)];
    let last = results(L3, &cases).last_line();
    assert!(last.ends_with("not tested: process crash, power loss and disk faults"), "said once: {last}");
}

#[test]
fn long_lists_are_cut() {
    let ids = ["A01", "A02", "A03", "A04", "A05", "A06", "A07", "A08", "A09", "A10"];
    let cases: Vec<_> = ids.into_iter().map(|id| (id, L1, Fail)).collect();
    assert_eq!(
        results(L1, &cases).last_line(),
        "NOT SAFE: 10 of 10 cases failed (A01, A02, A03, A04, A05, A06, A07, A08 and 2 more)"
    );
}

#[test]
fn only_passes_and_nothing_short_of_them_gives_zero() {
    // Every status beside a pass, at every requested level.
    for status in Status::ALL {
        for level in [L1, L2, L3] {
            let cases = [("A01", L1, Pass), ("C01", L2, Pass), ("R01", L3, Pass), ("R02", level, status)];
            let zero = results(L3, &cases).exit_code() == 0;
            assert_eq!(zero, matches!(status, Pass | NotApplicable | Info), "{status:?} at {level}");
        }
    }
}
