//! Shrinks a history without an order to few operations, and describes the contradiction.
//!
//! Leaving an operation out must not make a correct history wrong. A read, a refusal, and a mismatch that raises
//! nothing change no state, so they can be removed. Any other operation may have changed something: it stays as an
//! operation of unknown outcome, which explains more and never less. The operations that keep their answers are the
//! counterexample.

use std::time::{Duration, Instant};

use super::model::{Cell, Value};
use super::prepare::{Prepared, prepare};
use super::search::{Found, Stuck, search};
use super::{Counterexample, named};
use crate::answer::Answer;
use crate::history::Operation;
use crate::manifest::Manifest;
use crate::op::Verb;
use crate::words;

/// The time limit for shrinking.
const MOST_SHRINKING: Duration = Duration::from_secs(2);

/// The counterexample of a component that has no order.
pub(super) fn counterexample(manifest: &Manifest, component: &[&Operation], deadline: Instant) -> Counterexample {
    let until = deadline.min(Instant::now() + MOST_SHRINKING);
    let mut kept: Vec<Operation> = component.iter().map(|operation| (*operation).clone()).collect();
    let mut size = kept.len().div_ceil(2).max(1);
    loop {
        let mut from = 0;
        let mut smaller = false;
        while from < kept.len() && Instant::now() < until {
            let to = (from + size).min(kept.len());
            let less = without(manifest, &kept, from..to);
            let shorter = less.len() < kept.len();
            let works =
                (shorter || told(&less) < told(&kept)) && matches!(find(manifest, &less, until), Found::Nothing(_));
            if works {
                kept = less;
                smaller = true;
            }
            // If operations were removed, the next ones are now at the same index.
            if !(works && shorter) {
                from = to;
            }
        }
        match size {
            1 if !smaller || Instant::now() >= until => break,
            1 => {}
            _ => size = size.div_ceil(2),
        }
    }
    let operations: Vec<&Operation> = kept.iter().collect();
    let prepared = prepare(manifest, &operations);
    let stuck = match search(&prepared, Instant::now() + MOST_SHRINKING) {
        Found::Nothing(stuck) => stuck,
        Found::Order | Found::GivenUp { .. } => Stuck::default(),
    };
    let others = component.len() - told(&kept);
    Counterexample {
        sentence: sentence(&operations, &prepared, &stuck, others),
        operations: kept.iter().filter(|operation| bound(operation)).map(|operation| operation.id).collect(),
    }
}

fn find(manifest: &Manifest, operations: &[Operation], until: Instant) -> Found {
    let operations: Vec<&Operation> = operations.iter().collect();
    search(&prepare(manifest, &operations), until)
}

/// How many operations have an answer that constrains the order.
fn told(operations: &[Operation]) -> usize {
    operations.iter().filter(|operation| bound(operation)).count()
}

/// Whether its answer constrains the order. An error does so as little as a missing answer: it may have raised the
/// fence.
fn bound(operation: &Operation) -> bool {
    !operation.answer.is_unknown() && !matches!(operation.answer, Answer::Error { .. })
}

fn without(manifest: &Manifest, operations: &[Operation], range: std::ops::Range<usize>) -> Vec<Operation> {
    let mut less = Vec::with_capacity(operations.len());
    for (index, operation) in operations.iter().enumerate() {
        if !range.contains(&index) || !bound(operation) {
            less.push(operation.clone());
            continue;
        }
        let (answer, dead_by) = match (&operation.answer, operation.op.verb()) {
            (Answer::Stale { .. }, _) | (_, Verb::Read | Verb::CheckedRead) => continue,
            (Answer::Mismatch { .. }, _) if !manifest.mismatch_raises => continue,
            (Answer::Mismatch { .. }, _) => (Answer::error("left out"), None),
            _ => (Answer::unknown("left out"), Some(operation.returned)),
        };
        less.push(Operation { answer, dead_by, ..operation.clone() });
    }
    let last = less.iter().filter(|operation| bound(operation)).map(Operation::latest).max();
    less.retain(|operation| last.is_none_or(|last| operation.called <= last));
    less
}

fn sentence(operations: &[&Operation], prepared: &Prepared<'_>, stuck: &Stuck, others: usize) -> String {
    let known = |index: &&usize| operations.get(**index).is_some_and(|operation| bound(operation));
    let list = |indexes: &[usize]| {
        let shown: Vec<String> = indexes
            .iter()
            .filter_map(|index| operations.get(*index))
            .map(|operation| format!("#{}", operation.id))
            .collect();
        shown.join(", ")
    };
    let told: Vec<String> = operations
        .iter()
        .filter(|operation| bound(operation))
        .map(|operation| {
            let [called, returned] = words::moments([operation.called, operation.returned]);
            let (what, answer) = (words::operation(&operation.op), words::answer(&operation.answer));
            format!("#{} {what}, {called} to {returned}: {answer}", operation.id)
        })
        .collect();
    let these = if told.len() == 1 { "this answer".to_owned() } else { format!("these {} answers", told.len()) };
    let mut text = format!("no order explains {these}: {}.", told.join("; "));
    let order: Vec<usize> = stuck.order.iter().filter(known).copied().collect();
    let next: Vec<usize> = stuck.next.iter().filter(known).copied().collect();
    if !next.is_empty() {
        let state: Vec<String> = prepared
            .resources
            .iter()
            .zip(&stuck.cells)
            .take(3)
            .map(|(resource, cell)| state(resource, cell, prepared))
            .collect();
        let start = match order.as_slice() {
            [] => "At first".to_owned(),
            [_] => format!("After {}", list(&order)),
            _ => format!("After {} in this order", list(&order)),
        };
        let verb = if next.len() == 1 { "does not fit" } else { "do not fit" };
        text += &format!(" {start}, {}, and {} {verb}.", state.join(", "), list(&next));
    }
    if others > 0 {
        let resources = named(&prepared.resources);
        let rest =
            if others == 1 { "The other operation".to_owned() } else { format!("The other {others} operations") };
        let (verb, them) = if others == 1 { ("does", "it") } else { ("do", "them") };
        text += &format!(" {rest} on {resources} {verb} not help, whatever became of {them}.");
    }
    text
}

fn state(resource: &str, cell: &Cell, prepared: &Prepared<'_>) -> String {
    let fence = cell.high.map_or_else(|| "no fence".to_owned(), |high| format!("fence {high}"));
    let value = match cell.value {
        Value::UNSEEN => "a value that nobody saw".to_owned(),
        Value::NOTHING => words::value(None),
        value => format!("value {}", words::value(prepared.values.get(value.0 as usize).copied().flatten())),
    };
    format!("{resource} has {fence} and {value}")
}
