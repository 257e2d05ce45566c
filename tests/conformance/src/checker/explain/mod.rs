//! Counterexamples that can be found without a search, each in one sentence.
//!
//! Every explainer is sound: its finding holds whatever became of operations with unknown outcome, so it never reports
//! a history that some order explains. None is complete; the search covers the rest.

mod alone;
mod fences;
mod older;
mod refusals;
mod twice;
mod values;

use std::collections::BTreeMap;

use super::Counterexample;
use super::components::usable;
use crate::answer::Answer;
use crate::history::{Event, History, Mark, Operation, Time};
use crate::manifest::{Equal, Manifest, Policy, Reads};
use crate::op::{Op, Verb, Write};
use crate::words;

/// The earliest complete counterexample, if there is one.
pub(super) fn explain(history: &History) -> Option<Counterexample> {
    let mut findings = alone::find(history);
    let mut views: BTreeMap<&str, Vec<&Operation>> = BTreeMap::new();
    for operation in history.operations.iter().filter(|operation| understood(&history.manifest, operation)) {
        for resource in operation.op.resources() {
            views.entry(resource).or_default().push(operation);
        }
    }
    let unused: Vec<&Operation> =
        history.operations.iter().filter(|operation| !understood(&history.manifest, operation)).collect();
    let unused = values::attempts(&unused);
    for (resource, operations) in views {
        let view = View { history, manifest: &history.manifest, resource, operations };
        fences::find(&view, &mut findings);
        refusals::find(&view, &mut findings);
        twice::find(&view, &mut findings);
        values::find(&view, &unused, &mut findings);
        older::find(&view, &mut findings);
    }
    let first = findings.into_iter().min_by_key(|finding| finding.at)?;
    Some(Counterexample { sentence: first.sentence, operations: first.operations })
}

/// A counterexample, and the time at which it was complete.
struct Finding {
    at: Time,
    sentence: String,
    operations: Vec<u64>,
}

impl Finding {
    /// A finding; the last operation is the wrong one.
    fn new(sentence: String, operations: &[&Operation]) -> Finding {
        let at = operations.last().map_or(0, |operation| operation.returned);
        Finding { at, sentence, operations: operations.iter().map(|operation| operation.id).collect() }
    }
}

/// One resource, and the operations on it whose tokens it must accept as tokens.
struct View<'h> {
    history: &'h History,
    manifest: &'h Manifest,
    resource: &'h str,
    operations: Vec<&'h Operation>,
}

/// Whether it is supported and has only tokens that the resource must accept as tokens.
fn understood(manifest: &Manifest, operation: &Operation) -> bool {
    operation.answer != Answer::Unsupported
        && operation.op.tokens().into_iter().all(|token| usable(manifest, token).is_some())
}

/// A token presented to a resource, and its holder.
#[derive(Clone, Copy)]
struct Presented<'h> {
    token: u64,
    holder: &'h str,
}

impl<'h> View<'h> {
    fn once(&self) -> bool {
        self.manifest.policy == Policy::Gt
    }

    fn holders(&self) -> bool {
        self.manifest.equal == Equal::Holder
    }

    /// What an operation presents to this resource: nothing for a read, several tokens for a batch that names it twice.
    fn presented(&self, operation: &'h Operation) -> Vec<Presented<'h>> {
        let one = |token: &crate::token::Token, holder: &'h str| {
            token.number().map(|token| Presented { token, holder }).into_iter().collect()
        };
        match &operation.op {
            Op::Read { .. } => Vec::new(),
            Op::CheckedRead { token, .. } => one(token, ""),
            Op::Write(Write { token, holder, .. })
            | Op::Claim { token, holder, .. }
            | Op::Cas { token, holder, .. }
            | Op::Delete { token, holder, .. } => one(token, holder),
            Op::Batch { writes } => writes
                .iter()
                .filter(|write| write.res == self.resource)
                .flat_map(|write| one(&write.token, &write.holder))
                .collect(),
        }
    }

    /// Whether its answer has a fixed place in the order.
    fn placed(&self, operation: &Operation) -> bool {
        operation.op.verb() != Verb::Read || self.manifest.reads == Reads::Linearizable
    }

    /// Whether it was certainly done and may have changed the value.
    fn wrote(&self, operation: &Operation) -> bool {
        operation.answer.is_ok() && writes(operation)
    }

    /// Whether it may have changed the value.
    fn may_write(&self, operation: &Operation) -> bool {
        (operation.answer.is_ok() || operation.answer.is_unknown()) && writes(operation)
    }

    /// Whether it may have raised the fence.
    fn may_raise(&self, operation: &Operation) -> bool {
        let changes = writes(operation) || operation.op.verb() == Verb::Claim;
        changes
            && match operation.answer {
                Answer::Ok { .. } | Answer::Unknown { .. } | Answer::Error { .. } => true,
                Answer::Mismatch { .. } => self.manifest.mismatch_raises,
                Answer::Stale { .. } | Answer::Unsupported => false,
            }
    }

    /// The fence it reports for this resource, valid at its place in the order. A batch does not name the resource it
    /// means.
    fn report(&self, operation: &Operation) -> Option<u64> {
        operation.answer.high().filter(|_| self.placed(operation) && operation.op.verb() != Verb::Batch)
    }

    /// ` The process was killed at 1.150 s, between the two.` if it was. The kill need not be the cause.
    fn crash_between(&self, from: Time, to: Time) -> String {
        let between = |event: Event| {
            self.history.marks.iter().find(|mark| mark.event == event && from <= mark.at && mark.at <= to)
        };
        if let Some(mark) = between(Event::Killed) {
            format!(" The process was killed at {}, between the two{}.", words::seconds(mark.at), about_to(mark))
        } else if let Some(set) = self.clock_between(from, to) {
            set
        } else if let Some(mark) = between(Event::Stopped) {
            format!(" The process was restarted at {}, between the two.", words::seconds(mark.at))
        } else {
            String::new()
        }
    }

    /// ` The process was killed at 1.150 s, with write #32 in flight.` if it was.
    fn crash_during(&self, operations: &[&Operation]) -> String {
        let killed = self.history.marks.iter().filter(|mark| mark.event == Event::Killed);
        let mut hits = killed.filter_map(|mark| {
            let during = |operation: &&&Operation| operation.called <= mark.at && mark.at <= operation.returned;
            Some((mark, operations.iter().find(during)?))
        });
        let Some((mark, hit)) = hits.next() else { return String::new() };
        let (at, hit) = (words::seconds(mark.at), words::short(hit));
        format!(" The process was killed at {at}, with {hit} in flight{}.", about_to(mark))
    }

    /// The last time its clock was set between the two, in words.
    fn clock_between(&self, from: Time, to: Time) -> Option<String> {
        self.history.marks.iter().rev().filter(|mark| from <= mark.at && mark.at <= to).find_map(|mark| {
            let Event::Clock(shift) = mark.event else { return None };
            Some(format!(" Its clock was set to {shift} s at {}, between the two.", words::seconds(mark.at)))
        })
    }
}

/// `, just before fsync(3<CONFORM_DIR/log>)`
fn about_to(mark: &Mark) -> String {
    mark.before.as_ref().map_or_else(String::new, |step| format!(", just before {step}"))
}

fn writes(operation: &Operation) -> bool {
    match operation.op.verb() {
        Verb::Write | Verb::Cas | Verb::Delete | Verb::Batch => true,
        Verb::Read | Verb::CheckedRead | Verb::Claim => false,
    }
}
