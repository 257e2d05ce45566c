//! How much a case does, and when it must end: rounds, a limit of time, and the end of the run from outside.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::{Ended, Trial};
use crate::evidence::{Evidence, Minimum};
use crate::run::{Options, Stop};

/// The rounds of the case that has most; `--rounds` is given for it, and the others do as many in proportion.
const ROUNDS: u64 = 500;

/// Races that met too seldom are run again, so often at most.
const AGAIN: u64 = 3;

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
pub struct Rounds<'t, 'a> {
    trial: &'t Trial<'a>,
    next: u64,
    all: u64,
    /// How often as many are done once more, where too few pairs have overlapped.
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
    /// How often: this, or in proportion if `--rounds` says something else.
    pub fn scaled(&self, default: u64) -> u64 {
        let scaled = self.bounds.rounds.map_or(default, |rounds| default.saturating_mul(rounds) / ROUNDS);
        scaled.max(1)
    }

    /// So many rounds, scaled, and told to whoever looks on.
    pub fn rounds<'t>(&'t self, default: u64) -> Rounds<'t, 'a> {
        self.exactly(self.scaled(default))
    }

    /// So many rounds, told to whoever looks on.
    pub fn exactly<'t>(&'t self, all: u64) -> Rounds<'t, 'a> {
        self.bounds.progress.0[1].fetch_add(all, Ordering::Relaxed);
        Rounds { trial: self, next: 0, all, again: 0, each: all }
    }

    /// The same for races: on a busy machine, or with a resource that answers within a microsecond, those who were released
    /// together often miss each other. Where fewer pairs overlapped than the case needs, as many rounds are done once more,
    /// unless `--rounds` says how many.
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
