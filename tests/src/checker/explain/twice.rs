//! One token, two successes: under `gt`, or for two holders.

use std::collections::HashMap;

use super::{Finding, View};
use crate::answer::Answer;
use crate::history::Operation;
use crate::op::Verb;
use crate::words;

pub(super) fn find(view: &View<'_>, findings: &mut Vec<Finding>) {
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
