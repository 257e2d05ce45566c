//! A fence never falls: nothing below a fence that an earlier answer proves may be accepted or reported.

use std::collections::HashMap;

use super::values::{Attempts, attempts, saw};
use super::{Finding, View};
use crate::answer::Answer;
use crate::history::Operation;
use crate::manifest::High;
use crate::op::Verb;
use crate::words;

/// A lower bound of the fence; the fence is above it if strict.
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

/// An operation whose answer proves a floor.
#[derive(Clone)]
struct Proof<'h> {
    floor: Floor,
    operation: &'h Operation,
    /// The operations that can have written the value it saw, if that value is the proof.
    writers: Vec<&'h Operation>,
}

pub(super) fn find(view: &View<'_>, findings: &mut Vec<Finding>) {
    let attempts = attempts(&view.operations);
    let (mut proofs, mut torn) = (Vec::new(), Vec::new());
    for operation in &view.operations {
        let by_value = by_value(view, &attempts, operation);
        torn.extend(by_value.as_ref().and_then(|proof| torn_by(view, operation, proof)));
        let by_answer = floor(view, operation).map(|floor| Proof { floor, operation, writers: Vec::new() });
        proofs.extend(by_answer.into_iter().chain(by_value));
    }
    proofs.sort_by_key(|proof| proof.operation.latest());
    // The proofs that raise the floor, in order of time.
    let mut best: Vec<Proof<'_>> = Vec::with_capacity(proofs.len());
    for proof in proofs {
        if best.last().is_none_or(|highest| proof.floor > highest.floor) {
            best.push(proof);
        }
    }
    for operation in &view.operations {
        let before = best.partition_point(|proof| proof.operation.latest() < operation.called);
        let Some(proof) = before.checked_sub(1).and_then(|last| best.get(last)) else { continue };
        let below = admitted(view, operation).into_iter().find(|token| proof.floor.excludes(*token));
        let fallen = view.report(operation).filter(|_| view.manifest.high == High::Exact);
        let sentence = match (below, fallen.filter(|fence| proof.floor.excludes(*fence))) {
            (Some(token), _) => below_the_fence(view, operation, token, proof),
            (None, Some(fence)) => reported_too_low(view, operation, fence, proof),
            (None, None) => continue,
        };
        findings.push(Finding::new(sentence, &proof.with(operation)));
    }
    findings.append(&mut torn);
    refused_before(view, findings);
}

impl<'h> Proof<'h> {
    /// The operations that prove the violation, the wrong one last.
    fn with(&self, wrong: &'h Operation) -> Vec<&'h Operation> {
        let mut operations = self.writers.clone();
        operations.extend([self.operation, wrong]);
        operations.dedup_by_key(|operation| operation.id);
        operations
    }
}

impl Proof<'_> {
    /// The crash, if any, between the proof and the operation that contradicts it.
    fn crash(&self, view: &View<'_>, wrong: &Operation) -> String {
        match self.writers.is_empty() {
            true => view.crash_between(self.operation.latest(), wrong.called),
            false => view.crash_during(&self.writers),
        }
    }
}

/// A value that was seen had been written by then, under a token that had raised the fence.
fn by_value<'h>(view: &View<'h>, attempts: &Attempts<'h>, operation: &'h Operation) -> Option<Proof<'h>> {
    let value = saw(operation).flatten().filter(|_| view.placed(operation))?;
    let tried = attempts.get(&(view.resource, value))?;
    let writers: Vec<&Operation> = tried.iter().copied().filter(|writer| view.may_write(writer)).collect();
    let tokens = writers.iter().map(|writer| view.presented(writer).into_iter().map(|presented| presented.token).min());
    let fence = tokens.min().flatten()?;
    Some(Proof { floor: Floor { fence, strict: false }, operation, writers })
}

/// A value was seen together with a fence that is older than it.
fn torn_by(view: &View<'_>, operation: &Operation, proof: &Proof<'_>) -> Option<Finding> {
    let told = view.report(operation).filter(|_| view.manifest.high == High::Exact);
    let fence = told.filter(|fence| proof.floor.excludes(*fence))?;
    let [at] = words::moments([operation.returned]);
    let sentence = format!(
        "{} returned fence {fence} at {at}, and with it {}{}: a value is never there without its fence.{}",
        words::short(operation),
        words::value(saw(operation).flatten()),
        by_whom(proof),
        proof.crash(view, operation)
    );
    Some(Finding::new(sentence, &proof.with(operation)))
}

/// `, which only write #32 (token 5) can have written`
fn by_whom(proof: &Proof<'_>) -> String {
    let writers: Vec<String> = proof.writers.iter().map(|writer| words::short(writer)).collect();
    format!(", which only {} can have written", writers.join(" or "))
}

/// The floor that an operation's answer proves.
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

/// The tokens that an operation's answer shows were not behind the fence.
fn admitted(view: &View<'_>, operation: &Operation) -> Vec<u64> {
    match (&operation.answer, operation.op.verb()) {
        (Answer::Ok { .. }, _) | (Answer::Mismatch { .. }, Verb::Cas) => {
            view.presented(operation).into_iter().map(|presented| presented.token).collect()
        }
        _ => Vec::new(),
    }
}

/// `had returned fence 9`, `had been accepted with token 9`, `had been refused`
fn evidence(view: &View<'_>, proof: &Proof<'_>) -> String {
    let shown = words::short(proof.operation);
    match (&proof.operation.answer, view.report(proof.operation)) {
        _ if !proof.writers.is_empty() => {
            let found = proof.operation.op.verb() == Verb::Cas && proof.operation.answer.is_ok();
            let how = if found { "been accepted because it found" } else { "returned" };
            format!("{shown} had {how} {}{},", words::value(saw(proof.operation).flatten()), by_whom(proof))
        }
        (_, Some(fence)) => format!("{shown} had returned fence {fence}"),
        (answer, None) => format!("{shown} had been {}", answer.word()),
    }
}

fn below_the_fence(view: &View<'_>, operation: &Operation, token: u64, proof: &Proof<'_>) -> String {
    let [at, before] = words::moments([operation.returned, proof.operation.returned]);
    format!(
        "{} was {} at {at}, but {} at {before}: token {token} was already fenced.{}",
        words::short(operation),
        operation.answer.word(),
        evidence(view, proof),
        proof.crash(view, operation)
    )
}

fn reported_too_low(view: &View<'_>, operation: &Operation, fence: u64, proof: &Proof<'_>) -> String {
    let [at, before] = words::moments([operation.returned, proof.operation.returned]);
    format!(
        "{} returned fence {fence} at {at}, but {} at {before}: a fence never falls.{}",
        words::short(operation),
        evidence(view, proof),
        proof.crash(view, operation)
    )
}

/// A token that was refused at the fence stays refused. Under `gt` and with holders, the fence alone does not imply
/// that.
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
            // Under `gt` a write may be refused because its token was used; a claim may still be accepted then.
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
