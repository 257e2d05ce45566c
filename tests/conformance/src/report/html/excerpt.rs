//! The relevant part of a history.

use std::collections::BTreeSet;

use crate::history::{History, Mark, Operation, Time};
use crate::report::text::grouped;

/// The number of operations drawn, unless the counterexample itself has more.
const MOST: usize = 24;

/// The most operations of a counterexample that are drawn.
const MOST_NEEDED: usize = 60;

/// The most marks that are drawn.
const MOST_MARKS: usize = 10;

/// The counterexample and its neighbourhood.
pub(super) struct Excerpt<'a> {
    /// The drawn operations, in the order of their calls.
    pub operations: Vec<&'a Operation>,
    /// The drawn marks, in the order of time.
    pub marks: Vec<&'a Mark>,
    /// The operations that prove the violation; empty if they are not known.
    pub counterexample: BTreeSet<u64>,
    /// A sentence about what was left out; empty if nothing was.
    pub left_out: String,
    /// The call times of operations that are not drawn, in order.
    pub hidden: Vec<Time>,
    /// The decimals of a second in times: 3, 6 or 9.
    decimals: usize,
}

impl<'a> Excerpt<'a> {
    /// Selects the operations to draw: those on the resources of the counterexample first, and of those the nearest in
    /// time.
    pub(super) fn of(history: &'a History, wanted: &[u64]) -> Excerpt<'a> {
        let wanted: BTreeSet<u64> = wanted.iter().copied().collect();
        let all = &history.operations;
        let needed: Vec<&Operation> =
            all.iter().filter(|operation| wanted.contains(&operation.id)).take(MOST_NEEDED).collect();
        let counterexample: BTreeSet<u64> = needed.iter().map(|operation| operation.id).collect();
        let mut operations = needed.clone();
        if needed.is_empty() {
            // The operations are not known: the latest ones are the best guess.
            operations.extend(all.iter().skip(all.len().saturating_sub(MOST)));
        } else {
            let resources: BTreeSet<&str> = needed.iter().flat_map(|operation| operation.op.resources()).collect();
            let strange = |operation: &Operation| operation.op.resources().is_disjoint(&resources);
            let mut others: Vec<(bool, Time, &Operation)> = all
                .iter()
                .filter(|operation| !counterexample.contains(&operation.id))
                .map(|operation| (strange(operation), away(operation.called, operation.returned, &needed), operation))
                .collect();
            others.sort_by_key(|(strange, away, operation)| (*strange, *away, operation.id));
            let room = MOST.saturating_sub(needed.len());
            operations.extend(others.into_iter().take(room).map(|(_, _, operation)| operation));
        }
        operations.sort_by_key(|operation| (operation.called, operation.id));
        let marks = marks(history, &operations, &needed);
        let drawn: BTreeSet<u64> = operations.iter().map(|operation| operation.id).collect();
        let hidden: Vec<Time> =
            all.iter().filter(|operation| !drawn.contains(&operation.id)).map(|operation| operation.called).collect();
        let left_out = left_out(history, &operations, &marks, wanted.len() - needed.len().min(wanted.len()));
        let decimals = decimals(&operations);
        Excerpt { operations, marks, counterexample, left_out, hidden, decimals }
    }

    /// A time as drawn: truncated, as in sentences, and exact enough to distinguish neighbours.
    pub(super) fn time(&self, time: Time) -> String {
        let (digits, whole, rest) = (self.decimals, time / SECOND, time % SECOND);
        format!("{whole}.{:0digits$} s", rest / step(digits))
    }
}

/// Nanoseconds in a second.
const SECOND: Time = 1_000_000_000;

/// The nanoseconds that the last of this many decimals stands for.
fn step(decimals: usize) -> Time {
    match decimals {
        3 => 1_000_000,
        6 => 1_000,
        _ => 1,
    }
}

/// The distance in time to the nearest operation of the counterexample.
fn away(from: Time, to: Time, needed: &[&Operation]) -> Time {
    let apart = |other: &&Operation| {
        if to < other.called { other.called - to } else { from.saturating_sub(other.returned) }
    };
    needed.iter().map(apart).min().unwrap_or(0)
}

fn marks<'a>(history: &'a History, operations: &[&Operation], needed: &[&Operation]) -> Vec<&'a Mark> {
    let near = if needed.is_empty() { operations } else { needed };
    let mut marks: Vec<&Mark> = history.marks.iter().collect();
    marks.sort_by_key(|mark| (away(mark.at, mark.at, near), mark.at));
    marks.truncate(MOST_MARKS);
    marks.sort_by_key(|mark| mark.at);
    marks
}

fn left_out(history: &History, operations: &[&Operation], marks: &[&Mark], more: usize) -> String {
    let mut parts = Vec::new();
    if operations.len() < history.operations.len() {
        parts.push(format!(
            "{} of {} operations are drawn: those that show it, and what was nearest to them",
            grouped(operations.len()),
            grouped(history.operations.len())
        ));
    }
    if more > 0 {
        parts.push(format!("{} more operations belong to the counterexample", grouped(more)));
    }
    if marks.len() < history.marks.len() {
        parts.push(format!("{} of {} marks are drawn", grouped(marks.len()), grouped(history.marks.len())));
    }
    match parts.is_empty() {
        true => String::new(),
        false => format!("{}. The whole history is in the file beside this page.", parts.join("; ")),
    }
}

/// The decimals needed to distinguish calls and answers: milliseconds, else microseconds, else nanoseconds.
fn decimals(operations: &[&Operation]) -> usize {
    let mut times: Vec<Time> = operations
        .iter()
        .flat_map(|operation| [operation.called, operation.returned])
        .filter(|time| *time != Time::MAX)
        .collect();
    times.sort_unstable();
    times.dedup();
    let apart = |decimals: &usize| times.windows(2).all(|pair| pair[0] / step(*decimals) != pair[1] / step(*decimals));
    [3, 6].into_iter().find(apart).unwrap_or(9)
}
