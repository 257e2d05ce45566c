//! The cases for any engine, each in a place of its own, and all of them in one place as `fencepost engine check` runs them.

use std::time::Duration;

use fencepost_harness::budget;
use fencepost_store::engine_check::{Case, Needs, Verdict};
use fencepost_store::engines::EngineKind;

use super::bench::Bench;

/// The time for stress.
fn stress() -> Duration {
    budget::pick(Duration::from_secs(6), Duration::from_secs(60))
}

pub(crate) fn is_for(case: &Case, kind: &EngineKind) -> bool {
    match case.needs {
        Needs::AnyEngine => true,
        Needs::Sharing => kind.is_shared(),
    }
}

pub(crate) async fn pass(bench: Bench, case: &Case) {
    let ended = bench.check(stress()).await.run_case(case, 0).await;
    match ended.result {
        Ok(said) => println!("{said}"),
        Err(failure) => panic!("{failure}"),
    }
}

/// Cases do not disturb each other, and the report says on what they ran.
pub(crate) async fn all_cases_pass_in_one_place(bench: Bench) {
    let check = bench.check(Duration::from_secs(3)).await;
    let mut started = Vec::new();
    let report = check.run(|case| started.push(case.name)).await;
    let failed: Vec<_> = report.ended.iter().filter(|case| case.result.is_err()).collect();
    assert_eq!(report.verdict(), Verdict::Safe, "{failed:?}");
    assert_eq!(report.ended.len(), check.cases().len());
    assert_eq!(started, report.ended.iter().map(|case| case.name).collect::<Vec<_>>());
    assert_eq!(report.server.is_some(), bench.is_on_a_server());
    println!("{report}");
}
