//! How much a history proves. A case that saw too little is unknown, not passed.

mod shown;

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::answer::Answer;
use crate::history::{Event, History, Operation, Time};
use crate::op::Verb;

/// The largest percentage of operations with unknown outcome.
pub const MOST_UNKNOWN: u64 = 20;

/// Evidence that a case must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Minimum {
    /// This many accepted writes, deletes, claims, cas or batches.
    Accepted(u64),
    /// This many operations refused as stale.
    Refused(u64),
    /// This many pairs of operations on one resource that overlapped in time. The two are of different clients, at
    /// least one of them is not a read, and both were answered with more than an error.
    Overlapping(u64),
    /// This many kills with an unanswered operation in flight.
    KillsInFlight(u64),
    /// This many kills or restarts after which the resource answered again with more than an error.
    Restarts(u64),
    /// This many reads that were answered with a value, or with its absence.
    Read(u64),
}

/// The evidence in a history, as counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
    /// All operations.
    pub operations: u64,
    /// Changes that were accepted.
    pub accepted: u64,
    /// Operations refused as stale.
    pub refused: u64,
    /// Reads that returned a value or its absence.
    pub read: u64,
    /// Unknown outcomes, except those while the process was down.
    pub unknown: u64,
    /// Pairs of operations that overlapped.
    pub overlapping: u64,
    /// Kills with an unanswered operation in flight.
    pub kills_in_flight: u64,
    /// Those of them where an answer to another operation had already shown the one in flight: a refusal that nothing
    /// else justifies, its value, or its fence. These kills expose a resource that answers before its data is durable.
    #[serde(default)]
    pub shown_in_flight: u64,
    /// How often the resource came back.
    pub restarts: u64,
}

impl Evidence {
    /// Counts the evidence in a history.
    pub fn of(history: &History) -> Evidence {
        let mut evidence = Evidence { operations: history.operations.len() as u64, ..Evidence::default() };
        let downs = downs(history);
        let mut touched: BTreeMap<&str, Vec<&Operation>> = BTreeMap::new();
        for operation in &history.operations {
            let accepted = operation.answer.is_ok();
            let told = operation.answer.value().is_some();
            evidence.accepted += u64::from(accepted && !reads(operation));
            evidence.read += u64::from(accepted && told && reads(operation));
            evidence.refused += u64::from(operation.answer.is_stale());
            let hit = downs.iter().any(|(from, to)| operation.called <= *to && *from <= operation.returned);
            evidence.unknown += u64::from(operation.answer.is_unknown() && !hit);
            if answered(operation) {
                for res in operation.op.resources() {
                    touched.entry(res).or_default().push(operation);
                }
            }
        }
        evidence.overlapping = touched.values().map(|operations| overlapping(operations)).sum();
        for mark in &history.marks {
            match mark.event {
                Event::Killed => {
                    // An operation that was answered despite the kill proves nothing: the kill may have had no effect.
                    let in_flight = |operation: &&Operation| {
                        operation.called < mark.at && mark.at < operation.returned && operation.answer.is_unknown()
                    };
                    let hit: Vec<&Operation> = history.operations.iter().filter(in_flight).collect();
                    evidence.kills_in_flight += u64::from(!hit.is_empty());
                    evidence.shown_in_flight += u64::from(hit.iter().any(|hit| shown::shown(history, hit, mark.at)));
                }
                Event::Restarted => {
                    let until = downs.iter().map(|(from, _)| *from).find(|from| *from > mark.at).unwrap_or(Time::MAX);
                    let again = |operation: &Operation| {
                        operation.called > mark.at && operation.called < until && answered(operation)
                    };
                    evidence.restarts += u64::from(history.operations.iter().any(again));
                }
                Event::Paused | Event::Resumed | Event::Stopped | Event::Clock(_) => {}
            }
        }
        evidence
    }

    /// Describes the missing evidence; `None` if there is enough.
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
            (seen < wanted).then(|| format!("too little was seen: {minimum}, and there were {seen}"))
        })
    }
}

impl fmt::Display for Minimum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Minimum::Accepted(wanted) => write!(f, "at least {wanted} accepted"),
            Minimum::Refused(wanted) => write!(f, "at least {wanted} refused as stale"),
            Minimum::Overlapping(wanted) => write!(f, "at least {wanted} overlapping pairs"),
            Minimum::KillsInFlight(wanted) => {
                write!(f, "at least {wanted} kills that left a request in flight without an answer")
            }
            Minimum::Restarts(wanted) => write!(f, "at least {wanted} restarts"),
            Minimum::Read(wanted) => write!(f, "at least {wanted} reads"),
        }
    }
}

/// The intervals in which the process was down.
fn downs(history: &History) -> Vec<(Time, Time)> {
    let mut downs: Vec<(Time, Time)> = Vec::new();
    let mut down = false;
    for mark in &history.marks {
        match mark.event {
            // A process that is killed while it starts has been down since the first kill.
            Event::Killed | Event::Stopped if !down => {
                down = true;
                downs.push((mark.at, Time::MAX));
            }
            Event::Restarted => {
                down = false;
                if let Some((_, to)) = downs.last_mut() {
                    *to = mark.at;
                }
            }
            Event::Killed | Event::Stopped | Event::Paused | Event::Resumed | Event::Clock(_) => {}
        }
    }
    downs
}

fn reads(operation: &Operation) -> bool {
    matches!(operation.op.verb(), Verb::Read | Verb::CheckedRead)
}

/// Whether the answer shows something about the fence or the value.
fn answered(operation: &Operation) -> bool {
    matches!(operation.answer, Answer::Ok { .. } | Answer::Stale { .. } | Answer::Mismatch { .. })
}

/// The number of overlapping pairs, for operations in call order: counts the open ones at each call.
fn overlapping(operations: &[&Operation]) -> u64 {
    let mut pairs = 0;
    let mut open: Vec<&Operation> = Vec::new();
    for called in operations {
        open.retain(|other| other.returned > called.called);
        let meets = |other: &&&Operation| other.client != called.client && !(reads(other) && reads(called));
        pairs += open.iter().filter(meets).count() as u64;
        open.push(called);
    }
    pairs
}

#[cfg(test)]
mod tests {
    use super::{Evidence, Minimum};
    use crate::answer::Answer;
    use crate::history::{Event, History, Mark, Operation, Time};
    use crate::op::Op;

    fn operation(id: u64, op: Op, called: Time, returned: Time, answer: Answer) -> Operation {
        Operation { id, client: id as u32, op, called, returned, answer, dead_by: None, copy_of: None }
    }

    fn write(id: u64, called: Time, returned: Time, answer: Answer) -> Operation {
        operation(id, Op::write("r", id, "h", "v"), called, returned, answer)
    }

    fn seen(operations: Vec<Operation>, marks: Vec<(Time, Event)>) -> Evidence {
        let marks = marks.into_iter().map(|(at, event)| Mark::new(at, event)).collect();
        Evidence::of(&History { operations, marks, ..History::default() })
    }

    #[test]
    fn only_answers_that_say_something_count() {
        let stale = || Answer::Stale { high: None };
        let evidence = seen(
            vec![
                write(1, 0, 10, Answer::ok()),
                write(2, 5, 15, stale()),
                write(3, 6, 9, Answer::error("busy")),
                write(4, 7, 8, Answer::unknown("timeout")),
                operation(5, Op::read("r"), 20, 21, Answer::ok()),
                operation(6, Op::read("r"), 22, 23, Answer::Ok { value: Some(None), high: None }),
                operation(7, Op::read("r"), 22, 23, Answer::Ok { value: Some(None), high: None }),
            ],
            Vec::new(),
        );
        let expected = Evidence { operations: 7, accepted: 1, refused: 1, read: 2, unknown: 1, ..Evidence::default() };
        assert_eq!(evidence, Evidence { overlapping: 1, ..expected }, "an error and a read of nothing show nothing");
    }

    /// If a case required nothing, a resource that does nothing would pass.
    #[test]
    fn every_case_must_have_seen_something() {
        for case in crate::cases::all() {
            let nothing = Evidence::default().lacks(case.minima);
            assert!(nothing.is_some(), "{} passes without having seen anything", case.id);
        }
    }

    #[test]
    fn a_kill_explains_what_it_hit_and_nothing_else() {
        let lost = || Answer::unknown("reset");
        let marks = vec![
            (100, Event::Killed),
            (150, Event::Killed),
            (200, Event::Restarted),
            (300, Event::Killed),
            (400, Event::Killed),
        ];
        let evidence = seen(
            vec![
                write(1, 10, 20, lost()),
                write(2, 90, 110, lost()),
                write(3, 120, 130, lost()),
                write(4, 210, 220, Answer::ok()),
                write(5, 290, 310, lost()),
                // This kill had no effect.
                write(6, 390, 410, Answer::ok()),
            ],
            marks,
        );
        assert_eq!((evidence.unknown, evidence.kills_in_flight, evidence.restarts), (1, 2, 1));
        assert_eq!(evidence.shown_in_flight, 0, "nobody was told of them");
        assert_eq!(evidence.lacks(&[Minimum::KillsInFlight(2)]), None);
        assert!(evidence.lacks(&[Minimum::KillsInFlight(3)]).is_some());
        assert!(seen(vec![write(1, 10, 20, lost())], Vec::new()).lacks(&[]).is_some(), "all are unknown");
    }
}
