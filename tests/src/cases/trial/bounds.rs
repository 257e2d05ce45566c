//! How much a case does, and when it must end: rounds, a limit of time, and the end of the run from outside.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::{Ended, Trial};
use crate::run::{Options, Stop};

/// The rounds of the case that has most; `--rounds` is given for it, and the others do as many in proportion.
const ROUNDS: u64 = 500;

/// What a case may use up.
pub(super) struct Bounds {
    rounds: Option<u64>,
    limit: Duration,
    stop: Stop,
    progress: Progress,
}

/// How far a case is, for whoever looks on. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Progress(Arc<[AtomicU64; 2]>);

impl Progress {
    /// Rounds that were begun, and how many there are so far as is known; none if the case has no rounds.
    pub fn rounds(&self) -> Option<(u64, u64)> {
        let [begun, all] = &*self.0;
        let all = all.load(Ordering::Relaxed);
        (all > 0).then(|| (begun.load(Ordering::Relaxed), all))
    }
}

/// The numbers of the rounds, from 0.
pub struct Rounds {
    next: u64,
    all: u64,
    progress: Progress,
}

impl Iterator for Rounds {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        let round = (self.next < self.all).then_some(self.next)?;
        self.next += 1;
        self.progress.0[0].fetch_add(1, Ordering::Relaxed);
        Some(round)
    }
}

impl Bounds {
    pub(super) fn of(options: &Options, progress: &Progress) -> Bounds {
        Bounds {
            rounds: options.rounds,
            limit: options.case_limit,
            stop: options.stop.clone(),
            progress: progress.clone(),
        }
    }
}

impl Trial<'_> {
    /// How often: this, or in proportion if `--rounds` says something else.
    pub fn scaled(&self, default: u64) -> u64 {
        let scaled = self.bounds.rounds.map_or(default, |rounds| default.saturating_mul(rounds) / ROUNDS);
        scaled.max(1)
    }

    /// So many rounds, scaled, and told to whoever looks on.
    pub fn rounds(&self, default: u64) -> Rounds {
        let all = self.scaled(default);
        self.bounds.progress.0[1].fetch_add(all, Ordering::Relaxed);
        Rounds { next: 0, all, progress: self.bounds.progress.clone() }
    }

    /// `Err`: its time is over, or the run was ended. Asked before everything that takes time.
    pub(super) fn go_on(&self) -> Result<(), Ended> {
        if let Some(why) = self.bounds.stop.asked() {
            return Err(Ended::Unknown(format!("not finished: {why}")));
        }
        let limit = self.bounds.limit;
        if self.started.elapsed() < limit {
            return Ok(());
        }
        let operations = self.recorded().operations.len();
        Err(Ended::Unknown(format!(
            "not finished after {limit:?} and {operations} operations: that is the limit of time for one case; raise it with \
             --case-limit, or let the case do less with --rounds"
        )))
    }
}
