//! A refusal must be justified by the token of another operation, and so must a reported fence.

use std::collections::HashMap;

use super::{Finding, Presented, View};
use crate::answer::Answer;
use crate::history::{Operation, Time};
use crate::manifest::High;
use crate::op::{Op, Verb};
use crate::words;

pub(super) fn find(view: &View<'_>, findings: &mut Vec<Finding>) {
    let raises = Raises::new(view);
    for operation in &view.operations {
        if let Some(sentence) = unjustified(view, &raises, operation).or_else(|| unheard(view, &raises, operation)) {
            findings.push(Finding::new(sentence, &[operation]));
        }
    }
}

/// The operations that may have raised the fence, and the earliest time of each.
struct Raises<'h> {
    /// By time of the call: the highest token so far.
    highest: Vec<(Time, u64)>,
    /// By token: the earliest calls, of two different holders.
    at: HashMap<u64, Vec<(Time, &'h str)>>,
    /// By token: the earliest call that may have used it.
    used: HashMap<u64, Time>,
}

impl<'h> Raises<'h> {
    fn new(view: &View<'h>) -> Raises<'h> {
        let mut raises = Raises { highest: Vec::new(), at: HashMap::new(), used: HashMap::new() };
        let mut raising: Vec<&Operation> =
            view.operations.iter().copied().filter(|operation| view.may_raise(operation)).collect();
        raising.sort_by_key(|operation| operation.called);
        for operation in raising {
            for Presented { token, holder } in view.presented(operation) {
                if raises.highest.last().is_none_or(|(_, highest)| token > *highest) {
                    raises.highest.push((operation.called, token));
                }
                let at = raises.at.entry(token).or_default();
                if at.len() < 2 && at.iter().all(|(_, other)| *other != holder) {
                    at.push((operation.called, holder));
                }
                if view.may_write(operation) {
                    raises.used.entry(token).or_insert(operation.called);
                }
            }
        }
        raises
    }

    fn highest_by(&self, time: Time) -> Option<u64> {
        let count = self.highest.partition_point(|(called, _)| *called <= time);
        count.checked_sub(1).map(|last| self.highest[last].1)
    }

    fn reached(&self, token: u64, time: Time) -> bool {
        self.at.get(&token).is_some_and(|at| at.iter().any(|(called, _)| *called <= time))
    }

    /// Whether this may have been refused by then.
    fn justify(&self, view: &View<'_>, verb: Verb, presented: Presented<'_>, time: Time) -> bool {
        let Presented { token, holder } = presented;
        let above = self.highest_by(time).is_some_and(|highest| highest > token);
        let other = || {
            let others = self.at.get(&token).into_iter().flatten();
            others.into_iter().any(|(called, found)| *called <= time && *found != holder)
        };
        let used = || self.used.get(&token).is_some_and(|called| *called <= time);
        match verb {
            Verb::Read | Verb::CheckedRead => above,
            Verb::Claim => above || (view.holders() && other()),
            Verb::Write | Verb::Cas | Verb::Delete | Verb::Batch => {
                above || (view.holders() && other()) || (view.once() && used())
            }
        }
    }
}

fn unjustified(view: &View<'_>, raises: &Raises<'_>, operation: &Operation) -> Option<String> {
    if !operation.answer.is_stale() {
        return None;
    }
    let presented = view.presented(operation);
    // A batch over several resources is left to the search: each of them can justify the refusal.
    let [presented] = presented.as_slice() else { return None };
    if matches!(&operation.op, Op::Batch { writes } if writes.len() > 1) {
        return None;
    }
    let verb = operation.op.verb();
    (!raises.justify(view, verb, *presented, operation.latest())).then(|| {
        let token = presented.token;
        let [at] = words::moments([operation.returned]);
        let nobody = match (verb, view.once(), view.holders()) {
            (Verb::CheckedRead, ..) | (Verb::Claim, _, false) | (_, false, false) => {
                format!("no operation called by then could have raised the fence above {token}")
            }
            (Verb::Claim, _, true) | (_, false, true) => format!(
                "no operation called by then could have raised the fence above {token}, or to {token} for another holder"
            ),
            (_, true, false) => format!(
                "no operation called by then could have raised the fence above {token}, or used token {token}"
            ),
            (_, true, true) => format!(
                "no operation called by then could have raised the fence above {token}, used token {token}, or raised \
                 the fence to it for another holder"
            ),
        };
        let hint = hint(view, operation, |presented| presented > token).unwrap_or_default();
        format!("{} was refused as stale at {at}, but {nobody}.{hint}", words::short(operation))
    })
}

/// An operation that the resource may have mistaken for a reason to refuse: its token fits, but it is not a valid
/// reason.
fn hint(view: &View<'_>, refused: &Operation, could_be: impl Fn(u64) -> bool) -> Option<String> {
    let higher = |operation: &&&Operation| {
        operation.called <= refused.latest()
            && view.presented(operation).into_iter().any(|presented| could_be(presented.token))
    };
    let tried: Vec<&Operation> = view.operations.iter().filter(higher).copied().collect();
    let mismatch = tried.iter().find(|operation| matches!(operation.answer, Answer::Mismatch { .. }));
    if let Some(mismatch) = mismatch.filter(|_| !view.manifest.mismatch_raises) {
        return Some(format!(
            " {} did not match; if that raises the fence of yours, say `mismatch_raises`.",
            words::sentence(&words::short(mismatch))
        ));
    }
    if let Some(other) = tried.iter().find(|operation| operation.answer.is_stale()) {
        return Some(format!(" {} was refused itself.", words::sentence(&words::short(other))));
    }
    let accepted = |operation: &&&Operation| operation.answer.is_ok() && operation.returned <= refused.called;
    let before = view.history.operations.iter().filter(|operation| accepted(&operation));
    let other = before.max_by_key(|operation| operation.returned)?;
    let elsewhere = other.op.resources().into_iter().find(|resource| *resource != view.resource)?;
    let above =
        other.op.tokens().into_iter().filter_map(crate::token::Token::number).max().filter(|high| could_be(*high))?;
    (refused.answer.high().is_none_or(|high| high == above)).then(|| {
        format!(
            " {} to {} had been accepted just before: are that and {} one resource to it?",
            words::sentence(&words::short(other)),
            elsewhere.escape_default(),
            view.resource.escape_default()
        )
    })
}

/// A reported fence that no presented token can have set.
fn unheard(view: &View<'_>, raises: &Raises<'_>, operation: &Operation) -> Option<String> {
    let fence = operation.answer.high().filter(|fence| *fence > 0)?;
    if operation.op.verb() == Verb::Batch {
        return None;
    }
    let by = operation.latest();
    let (possible, what) = match view.manifest.high {
        High::Exact => (raises.reached(fence, by), format!("token {fence}")),
        High::AtLeast => {
            let highest = raises.highest_by(by);
            (highest.is_some_and(|highest| highest >= fence), format!("token {fence} or a higher one"))
        }
    };
    (!possible).then(|| {
        let [at] = words::moments([operation.returned]);
        let exact = view.manifest.high == High::Exact;
        let could_be = |token: u64| if exact { token == fence } else { token >= fence };
        format!(
            "{} returned fence {fence} at {at}, but no operation called by then could have raised the fence with {what}.{}",
            words::short(operation),
            hint(view, operation, could_be).unwrap_or_default()
        )
    })
}
