//! A fence never falls: nothing below a fence that somebody had already seen may be accepted or reported.

use std::collections::HashMap;

use super::{Finding, View};
use crate::answer::Answer;
use crate::history::{Operation, Time};
use crate::manifest::High;
use crate::op::Verb;
use crate::words;

/// The fence is at least this; or above it, if strict.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Floor {
    fence: u64,
    strict: bool,
}

impl Floor {
    fn excludes(self, fence: u64) -> bool {
        fence < self.fence || (self.strict && fence == self.fence)
    }
}

pub(super) fn find(view: &View<'_>, findings: &mut Vec<Finding>) {
    let mut proofs: Vec<(Time, Floor, &Operation)> = Vec::new();
    for operation in &view.operations {
        proofs.extend(floor(view, operation).map(|floor| (operation.latest(), floor, *operation)));
    }
    proofs.sort_by_key(|(latest, ..)| *latest);
    // The highest floor so far.
    let mut best: Vec<(Time, Floor, &Operation)> = Vec::with_capacity(proofs.len());
    for proof in proofs {
        if best.last().is_none_or(|(_, floor, _)| proof.1 > *floor) {
            best.push(proof);
        }
    }
    for operation in &view.operations {
        let before = best.partition_point(|(latest, ..)| *latest < operation.called);
        let Some((_, floor, proof)) = before.checked_sub(1).and_then(|last| best.get(last)) else { continue };
        let below = admitted(view, operation).into_iter().find(|token| floor.excludes(*token));
        let fallen = view.report(operation).filter(|_| view.manifest.high == High::Exact);
        let sentence = match (below, fallen.filter(|fence| floor.excludes(*fence))) {
            (Some(token), _) => below_the_fence(view, operation, token, proof),
            (None, Some(fence)) => reported_too_low(view, operation, fence, proof),
            (None, None) => continue,
        };
        findings.push(Finding::new(sentence, &[proof, operation]));
    }
    refused_before(view, findings);
}

/// What its answer proves about the fence.
fn floor(view: &View<'_>, operation: &Operation) -> Option<Floor> {
    let at_least = |fence: u64| Floor { fence, strict: false };
    let presented = view.presented(operation).into_iter().map(|presented| presented.token).max();
    let by_answer = match (&operation.answer, operation.op.verb()) {
        (Answer::Ok { .. }, Verb::Read | Verb::CheckedRead) => None,
        (Answer::Ok { .. }, _) => presented.map(at_least),
        (Answer::Mismatch { .. }, Verb::Cas) => presented.filter(|_| view.manifest.mismatch_raises).map(at_least),
        (Answer::Stale { .. }, Verb::Read | Verb::Batch) => None,
        (Answer::Stale { .. }, verb) => {
            let strict = match verb {
                Verb::CheckedRead => true,
                Verb::Claim => !view.holders(),
                _ => !view.holders() && !view.once(),
            };
            presented.map(|fence| Floor { fence, strict })
        }
        _ => None,
    };
    by_answer.max(view.report(operation).map(at_least))
}

/// The tokens that its answer says were not behind the fence.
fn admitted(view: &View<'_>, operation: &Operation) -> Vec<u64> {
    match (&operation.answer, operation.op.verb()) {
        (Answer::Ok { .. }, _) | (Answer::Mismatch { .. }, Verb::Cas) => {
            view.presented(operation).into_iter().map(|presented| presented.token).collect()
        }
        _ => Vec::new(),
    }
}

/// `had returned fence 9`, `had been accepted with token 9`, `had been refused`
fn evidence(view: &View<'_>, proof: &Operation) -> String {
    match (&proof.answer, view.report(proof)) {
        (_, Some(fence)) => format!("{} had returned fence {fence}", words::short(proof)),
        (answer, None) => format!("{} had been {}", words::short(proof), answer.word()),
    }
}

fn below_the_fence(view: &View<'_>, operation: &Operation, token: u64, proof: &Operation) -> String {
    let [at, before] = words::moments([operation.returned, proof.returned]);
    format!(
        "{} was {} at {at}, but {} at {before}: token {token} was already fenced.{}",
        words::short(operation),
        operation.answer.word(),
        evidence(view, proof),
        view.crash_between(proof.latest(), operation.called)
    )
}

fn reported_too_low(view: &View<'_>, operation: &Operation, fence: u64, proof: &Operation) -> String {
    let [at, before] = words::moments([operation.returned, proof.returned]);
    format!(
        "{} returned fence {fence} at {at}, but {} at {before}: a fence never falls.{}",
        words::short(operation),
        evidence(view, proof),
        view.crash_between(proof.latest(), operation.called)
    )
}

/// A token that was refused at the fence stays refused, where a fence alone does not say so: under `gt`, and for holders.
fn refused_before(view: &View<'_>, findings: &mut Vec<Finding>) {
    let mut refused: HashMap<(u64, &str, Verb), &Operation> = HashMap::new();
    let asking = |operation: &Operation| match operation.op.verb() {
        Verb::Claim => Some(Verb::Claim),
        Verb::Write | Verb::Cas | Verb::Delete => Some(Verb::Write),
        Verb::Read | Verb::CheckedRead | Verb::Batch => None,
    };
    let key = |token: u64, holder, verb| (token, if view.holders() { holder } else { "" }, verb);
    for operation in view.operations.iter().filter(|operation| operation.answer.is_stale()) {
        for presented in view.presented(operation) {
            let Some(verb) = asking(operation) else { continue };
            let first = refused.entry(key(presented.token, presented.holder, verb)).or_insert(operation);
            if operation.latest() < first.latest() {
                *first = operation;
            }
        }
    }
    for operation in &view.operations {
        let Some(verb) = asking(operation) else { continue };
        if !operation.answer.is_ok() && !matches!(operation.answer, Answer::Mismatch { .. }) {
            continue;
        }
        for presented in view.presented(operation) {
            if view.holders() && presented.holder.is_empty() {
                continue;
            }
            let by = |refusal: Verb| refused.get(&key(presented.token, presented.holder, refusal));
            // Under `gt` a write may be refused because the token was used, and then a claim may still be accepted.
            let refusals = [by(Verb::Claim), by(Verb::Write).filter(|_| verb == Verb::Write || !view.once())];
            let earlier = refusals.into_iter().flatten().find(|refusal| refusal.latest() < operation.called);
            if let Some(refusal) = earlier {
                let [at, before] = words::moments([operation.returned, refusal.returned]);
                let sentence = format!(
                    "{} was {} at {at}, but {} had been refused as stale at {before}: a token that was refused is never \
                     admitted again.{}",
                    words::short(operation),
                    operation.answer.word(),
                    words::short(refusal),
                    view.crash_between(refusal.latest(), operation.called)
                );
                findings.push(Finding::new(sentence, &[refusal, operation]));
            }
        }
    }
}
