//! How much a history shows. A case that saw too little is unknown, not passed.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::history::{Event, History};

/// At most this many of a hundred operations may have an unknown outcome.
pub const MOST_UNKNOWN: u64 = 20;

/// Something a case must have seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Minimum {
    /// So many writes, deletes, claims, cas or batches that were accepted.
    Accepted(u64),
    /// So many operations that were refused as stale.
    Refused(u64),
    /// So many pairs of operations on one resource that overlapped in time, of different clients, at least one of them
    /// no read.
    Overlapping(u64),
    /// So many kills with an operation in flight.
    KillsInFlight(u64),
    /// So many kills or restarts after which the resource was asked again.
    Restarts(u64),
    /// So many reads that were answered.
    Read(u64),
}

/// What was seen.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
    /// Operations in all.
    pub operations: u64,
    /// Changes that were accepted.
    pub accepted: u64,
    /// Operations refused as stale.
    pub refused: u64,
    /// Reads that were answered.
    pub read: u64,
    /// Outcomes that are unknown, without those that a kill explains.
    pub unknown: u64,
    /// Pairs that overlapped.
    pub overlapping: u64,
    /// Kills with an operation in flight.
    pub kills_in_flight: u64,
    /// Times that the resource came back.
    pub restarts: u64,
}

impl Evidence {
    /// Counts.
    pub fn of(history: &History) -> Evidence {
        let mut evidence = Evidence { operations: history.operations.len() as u64, ..Evidence::default() };
        let mut changed: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (index, operation) in history.operations.iter().enumerate() {
            let reads = matches!(operation.op.verb(), crate::op::Verb::Read | crate::op::Verb::CheckedRead);
            evidence.accepted += u64::from(operation.answer.is_ok() && !reads);
            evidence.read += u64::from(operation.answer.is_ok() && reads);
            evidence.refused += u64::from(operation.answer.is_stale());
            evidence.unknown += u64::from(operation.answer.is_unknown() && operation.dead_by.is_none());
            for res in operation.op.resources() {
                changed.entry(res).or_default().push(index);
            }
        }
        for indexes in changed.values() {
            evidence.overlapping += overlapping(history, indexes);
        }
        for mark in &history.marks {
            match mark.event {
                Event::Killed => {
                    let in_flight = |operation: &crate::history::Operation| {
                        operation.called < mark.at && mark.at < operation.returned
                    };
                    evidence.kills_in_flight += u64::from(history.operations.iter().any(in_flight));
                }
                Event::Restarted => {
                    evidence.restarts += u64::from(history.operations.iter().any(|asked| asked.called > mark.at));
                }
                Event::Paused | Event::Resumed | Event::Stopped => {}
            }
        }
        evidence
    }

    /// What is missing, in words; `None` if it is enough.
    pub fn lacks(&self, minima: &[Minimum]) -> Option<String> {
        if self.unknown * 100 > self.operations * MOST_UNKNOWN {
            let (unknown, operations) = (self.unknown, self.operations);
            return Some(format!("{unknown} of {operations} outcomes are unknown, at most {MOST_UNKNOWN} % may be"));
        }
        minima.iter().find_map(|minimum| {
            let (wanted, seen) = match minimum {
                Minimum::Accepted(wanted) => (*wanted, self.accepted),
                Minimum::Refused(wanted) => (*wanted, self.refused),
                Minimum::Overlapping(wanted) => (*wanted, self.overlapping),
                Minimum::KillsInFlight(wanted) => (*wanted, self.kills_in_flight),
                Minimum::Restarts(wanted) => (*wanted, self.restarts),
                Minimum::Read(wanted) => (*wanted, self.read),
            };
            (seen < wanted).then(|| format!("too little was seen: {minimum}, only {seen}"))
        })
    }
}

impl fmt::Display for Minimum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Minimum::Accepted(wanted) => write!(f, "at least {wanted} accepted"),
            Minimum::Refused(wanted) => write!(f, "at least {wanted} refused as stale"),
            Minimum::Overlapping(wanted) => write!(f, "at least {wanted} overlapping pairs"),
            Minimum::KillsInFlight(wanted) => write!(f, "at least {wanted} kills with an operation in flight"),
            Minimum::Restarts(wanted) => write!(f, "at least {wanted} restarts"),
            Minimum::Read(wanted) => write!(f, "at least {wanted} reads"),
        }
    }
}

/// Pairs that overlap, in n log n and not n²: how many are still open whenever one is called.
fn overlapping(history: &History, indexes: &[usize]) -> u64 {
    let mut pairs = 0;
    let mut open: Vec<usize> = Vec::new();
    for &index in indexes {
        let called = &history.operations[index];
        open.retain(|&other| history.operations[other].returned > called.called);
        let meets = |&&other: &&usize| {
            let other = &history.operations[other];
            let reads = |operation: &crate::history::Operation| operation.op.verb() == crate::op::Verb::Read;
            other.client != called.client && !(reads(other) && reads(called))
        };
        pairs += open.iter().filter(meets).count() as u64;
        open.push(index);
    }
    pairs
}
