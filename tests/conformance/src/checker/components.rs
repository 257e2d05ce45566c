//! Groups operations that must be ordered together: those on one resource, and those on resources that a batch
//! connects.

use std::collections::BTreeMap;

use crate::answer::Answer;
use crate::history::{History, Operation};
use crate::manifest::{Manifest, Reads};
use crate::op::{Op, Verb};
use crate::token::Token;

/// The number of a token that this resource must accept as a token.
pub(super) fn usable(manifest: &Manifest, token: &Token) -> Option<u64> {
    token.number().filter(|number| *number <= manifest.token_max)
}

/// Whether an operation takes part in the order. Operations that change nothing and show nothing do not: those without
/// a usable token, unsupported ones, and reads without an answer. Reads that may be stale have no fixed place in the
/// order; the explainers check them.
pub(super) fn counts(manifest: &Manifest, operation: &Operation) -> bool {
    let answered = !operation.answer.is_unknown() && !matches!(operation.answer, Answer::Error { .. });
    let reads = match operation.op.verb() {
        Verb::Read => answered && manifest.reads == Reads::Linearizable,
        Verb::CheckedRead => answered,
        Verb::Write | Verb::Claim | Verb::Cas | Verb::Delete | Verb::Batch => true,
    };
    let empty = matches!(&operation.op, Op::Batch { writes } if writes.is_empty());
    let tokens = operation.op.tokens().into_iter().all(|token| usable(manifest, token).is_some());
    reads && tokens && !empty && operation.answer != Answer::Unsupported
}

/// The operations that take part, in independent groups, each in the order of the calls.
pub(super) fn components(history: &History) -> Vec<Vec<&Operation>> {
    let mut numbers: BTreeMap<&str, usize> = BTreeMap::new();
    let mut parents: Vec<usize> = Vec::new();
    let taking_part: Vec<&Operation> =
        history.operations.iter().filter(|operation| counts(&history.manifest, operation)).collect();
    for operation in &taking_part {
        let mut first = None;
        for resource in operation.op.resources() {
            let number = *numbers.entry(resource).or_insert_with(|| {
                parents.push(parents.len());
                parents.len() - 1
            });
            let root = root(&mut parents, number);
            parents[root] = *first.get_or_insert(root);
        }
    }
    let mut groups: BTreeMap<usize, Vec<&Operation>> = BTreeMap::new();
    for operation in taking_part {
        let number = operation.op.resources().first().and_then(|resource| numbers.get(resource).copied());
        if let Some(number) = number {
            groups.entry(root(&mut parents, number)).or_default().push(operation);
        }
    }
    let mut groups: Vec<_> = groups.into_values().collect();
    groups.iter_mut().for_each(|group| group.sort_by_key(|operation| (operation.called, operation.id)));
    groups
}

fn root(parents: &mut [usize], mut number: usize) -> usize {
    while parents[number] != number {
        parents[number] = parents[parents[number]];
        number = parents[number];
    }
    number
}
