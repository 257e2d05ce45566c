//! Two successes where one excludes the other: one token under `gt` or for two holders, or one value that two
//! operations expected.

use std::collections::HashMap;

use super::values::attempts;
use super::{Finding, View};
use crate::answer::Answer;
use crate::history::Operation;
use crate::op::{Op, Verb};
use crate::words;

pub(super) fn find(view: &View<'_>, findings: &mut Vec<Finding>) {
    replaced_twice(view, findings);
    let mut used: HashMap<u64, &Operation> = HashMap::new();
    let mut held: HashMap<u64, (&str, &Operation)> = HashMap::new();
    let mut operations = view.operations.clone();
    operations.sort_by_key(|operation| operation.returned);
    for operation in operations {
        for presented in view.presented(operation) {
            let token = presented.token;
            if view.once() && view.wrote(operation) {
                let first = *used.entry(token).or_insert(operation);
                if first.id != operation.id {
                    let [before, at] = words::moments([first.returned, operation.returned]);
                    let sentence = format!(
                        "{} was accepted at {before} and {} at {at}, but each token writes once (policy gt).",
                        words::short(first),
                        words::short(operation)
                    );
                    findings.push(Finding::new(sentence, &[first, operation]));
                }
            }
            let raised = match (&operation.answer, operation.op.verb()) {
                (Answer::Ok { .. }, Verb::Read | Verb::CheckedRead) => false,
                (Answer::Ok { .. }, _) => true,
                (Answer::Mismatch { .. }, Verb::Cas) => view.manifest.mismatch_raises,
                _ => false,
            };
            if view.holders() && raised && !presented.holder.is_empty() {
                let (holder, first) = *held.entry(token).or_insert((presented.holder, operation));
                if holder != presented.holder && first.id != operation.id {
                    let [before, at] = words::moments([first.returned, operation.returned]);
                    let sentence = format!(
                        "{} by {holder} was {} at {before} and {} by {} was {} at {at}, but a token belongs to one \
                         holder (equal = holder).",
                        words::short(first),
                        first.answer.word(),
                        words::short(operation),
                        presented.holder,
                        operation.answer.word()
                    );
                    findings.push(Finding::new(sentence, &[first, operation]));
                }
            }
        }
    }
}

/// A value that was written once is replaced once: of the operations conditional on that value, only one succeeds.
fn replaced_twice(view: &View<'_>, findings: &mut Vec<Finding>) {
    let attempts = attempts(&view.operations);
    let mut replaced: HashMap<&str, &Operation> = HashMap::new();
    let mut operations = view.operations.clone();
    operations.sort_by_key(|operation| operation.returned);
    for operation in operations.into_iter().filter(|operation| operation.answer.is_ok()) {
        let Op::Cas { expect: Some(expect), .. } = &operation.op else { continue };
        let tried = attempts.get(&(view.resource, expect.as_str())).into_iter().flatten();
        let writers: Vec<&Operation> = tried.copied().filter(|writer| view.may_write(writer)).collect();
        let [writer] = writers.as_slice() else { continue };
        let first = *replaced.entry(expect).or_insert(operation);
        if first.id != operation.id {
            let [before, at] = words::moments([first.returned, operation.returned]);
            let sentence = format!(
                "{} was accepted at {before} and {} at {at}, both on the condition that {} was there, which only {} can have \
                 written: after the first of them it was there no more.",
                words::short(first),
                words::short(operation),
                words::value(Some(expect)),
                words::short(writer)
            );
            findings.push(Finding::new(sentence, &[writer, first, operation]));
        }
    }
}
