//! The rules of the engine contract as cases that run against any engine: in the test suite, and on a user's own server with
//! `fencepost engine check`.
//!
//! [`Check`] runs them over three gateways, in an empty place that nobody else uses. There are short cases for E1 to E6, and
//! three of stress: random commits of many writers, which must have one order; commits that need the same records in different
//! orders; and commits whose answers are lost, which are settled as a gateway settles them. [`races`] and [`crossing`] are parts
//! that tests of engines use by themselves, to show that a mistake is found.
//!
//! What a check does not show: that a commit survives a power cut or a failover, and anything that it did not meet in its time.

mod bench;
mod cases;
mod commits;
pub mod crossing;
mod failure;
mod graph;
mod history;
pub mod races;
mod random;
mod readers;
pub mod records;
mod report;
mod scans;
mod stress;
mod versions;
mod wants;
mod writer;

use std::time::{Duration, Instant};

use tokio::time::timeout;

pub use bench::{Bench, GATEWAYS, Gateways};
pub use cases::{Case, Needs, Running, all};
pub use failure::{Checked, Failure};
pub use report::{Ended, Report, Verdict};

/// The time in which a case must end, beside its share of the time for stress.
const PATIENCE: Duration = Duration::from_secs(180);

/// A check of an engine.
pub struct Check {
    gateways: Gateways,
    stress: Duration,
}

impl Check {
    /// Three engines over one place, which has to be empty; an engine with one owner is given three times. The cases of stress
    /// take this time, all together.
    pub fn new(gateways: Gateways, stress: Duration) -> Check {
        Check { gateways, stress }
    }

    /// The cases for this engine.
    pub fn cases(&self) -> Vec<&'static Case> {
        all().filter(|case| case.is_for(&*self.gateways[0])).collect()
    }

    /// Runs one case. It may run again: the round makes the names of its records.
    pub async fn run_case(&self, case: &Case, round: usize) -> Ended {
        let bench = Bench::new(&self.gateways, format!("check/{}/{round}/", case.name));
        let time = self.stress * case.share / 100;
        let started = Instant::now();
        let result = match timeout(time + PATIENCE, (case.run)(bench, time)).await {
            Ok(result) => result,
            Err(_) => Err(Failure::Unusable(format!("it did not end within {} s", (time + PATIENCE).as_secs()))),
        };
        Ended { name: case.name, took: started.elapsed(), result }
    }

    /// Runs all cases, and reports each that starts.
    pub async fn run(&self, mut starts: impl FnMut(&Case)) -> Report {
        let server = self.gateways[0].server().await;
        let mut ended = Vec::new();
        for case in self.cases() {
            starts(case);
            ended.push(self.run_case(case, 0).await);
        }
        Report { server, ended }
    }
}
