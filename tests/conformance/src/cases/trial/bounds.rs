//! How much a case does, and when it must end: rounds, a time limit, and the end of the run from outside.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::{Ended, Trial};
use crate::evidence::{Evidence, Minimum};
use crate::run::{Options, Stop};

/// The number of rounds of the longest case. `--rounds` refers to it; the other cases scale in proportion.
const ROUNDS: u64 = 500;

/// How often races that overlapped too seldom are repeated, at most.
const AGAIN: u64 = 3;

/// The limits of a case.
pub(super) struct Bounds {
    rounds: Option<u64>,
    limit: Duration,
    stop: Stop,
    progress: Progress,
}

/// The progress of a case, for observers. Clones share the same counts.
#[derive(Clone, Debug, Default)]
pub struct Progress(Arc<[AtomicU64; 2]>);

impl Progress {
    /// The rounds begun, and the total as far as known; `None` if the case has no rounds.
    pub fn rounds(&self) -> Option<(u64, u64)> {
        let [begun, all] = &*self.0;
        let all = all.load(Ordering::Relaxed);
        (all > 0).then(|| (begun.load(Ordering::Relaxed), all))
    }
}

/// An iterator over the round numbers, from 0.
pub struct Rounds<'t, 'a> {
    trial: &'t Trial<'a>,
    next: u64,
    all: u64,
    /// How often the rounds may still be repeated if too few pairs overlapped.
    again: u64,
    each: u64,
}

impl Iterator for Rounds<'_, '_> {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        let [begun, all] = &*self.trial.bounds.progress.0;
        if self.next == self.all && self.again > 0 && self.trial.met_too_seldom() {
            self.again -= 1;
            self.all += self.each;
            all.fetch_add(self.each, Ordering::Relaxed);
        }
        let round = (self.next < self.all).then_some(self.next)?;
        self.next += 1;
        begun.fetch_add(1, Ordering::Relaxed);
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

impl<'a> Trial<'a> {
    /// The default number, or a proportional one if `--rounds` is given.
    pub fn scaled(&self, default: u64) -> u64 {
        let scaled = self.bounds.rounds.map_or(default, |rounds| default.saturating_mul(rounds) / ROUNDS);
        scaled.max(1)
    }

    /// This many rounds, scaled, with progress reports.
    pub fn rounds<'t>(&'t self, default: u64) -> Rounds<'t, 'a> {
        self.exactly(self.scaled(default))
    }

    /// This many rounds, not scaled, with progress reports.
    pub fn exactly<'t>(&'t self, all: u64) -> Rounds<'t, 'a> {
        self.bounds.progress.0[1].fetch_add(all, Ordering::Relaxed);
        Rounds { trial: self, next: 0, all, again: 0, each: all }
    }

    /// The same for races. On a busy machine, or with a resource that answers within a microsecond, requests that were
    /// released together often do not overlap. If fewer pairs overlapped than the case needs, the rounds are repeated,
    /// unless `--rounds` is given.
    pub fn races<'t>(&'t self, default: u64) -> Rounds<'t, 'a> {
        let again = if self.bounds.rounds.is_none() { AGAIN } else { 0 };
        Rounds { again, ..self.rounds(default) }
    }

    fn met_too_seldom(&self) -> bool {
        let overlapping = |minimum: &Minimum| match minimum {
            Minimum::Overlapping(wanted) => Some(*wanted),
            _ => None,
        };
        let wanted = self.case.minima.iter().find_map(overlapping);
        wanted.is_some_and(|wanted| Evidence::of(&self.history()).overlapping < wanted)
    }

    /// `Err`: the time is over, or the run was ended. Called before everything that takes time.
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
