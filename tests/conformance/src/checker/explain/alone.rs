//! Answers that are wrong by themselves, whatever else happened.

use super::{Finding, understood};
use crate::answer::Answer;
use crate::history::{History, Operation};
use crate::manifest::{Equal, High, Manifest, Policy};
use crate::op::{Op, Verb};
use crate::words;

pub(super) fn find(history: &History) -> Vec<Finding> {
    let manifest = &history.manifest;
    let wrong = |operation: &Operation| {
        let sentence = match understood(manifest, operation) {
            false => not_a_token(manifest, operation),
            true => contradiction(manifest, operation),
        };
        sentence.map(|sentence| Finding::new(sentence, &[operation]))
    };
    history.operations.iter().filter_map(wrong).collect()
}

fn not_a_token(manifest: &Manifest, operation: &Operation) -> Option<String> {
    let bad = operation.op.tokens().into_iter().find(|token| super::usable(manifest, token).is_none())?;
    let shown = words::short(operation);
    let at = words::seconds(operation.returned);
    operation.answer.is_ok().then(|| match bad.number() {
        Some(_) => format!(
            "{shown} was accepted at {at}, but the resource says that its largest token is {}: a larger one must be \
             an error.",
            manifest.token_max
        ),
        None => format!("{shown} was accepted at {at}, but {bad} is not a number: nothing may be done with it."),
    })
}

fn contradiction(manifest: &Manifest, operation: &Operation) -> Option<String> {
    let shown = words::short(operation);
    let at = words::seconds(operation.returned);
    let verb = operation.op.verb();
    let exact = manifest.high == High::Exact;
    let token = match operation.op.tokens().as_slice() {
        [token] if verb != Verb::Batch => token.number(),
        _ => None,
    };
    match (&operation.answer, token) {
        (Answer::Stale { .. }, None) if verb == Verb::Read => {
            Some(format!("{shown} was refused as stale at {at}, but a read presents no token that could be stale."))
        }
        (Answer::Mismatch { .. }, _) if verb != Verb::Cas => {
            let kind = verb.name();
            Some(format!("{shown} was answered with a mismatch at {at}, but a {kind} has no condition."))
        }
        (Answer::Mismatch { current: Some(current) }, _) => match &operation.op {
            Op::Cas { expect, .. } if expect == current => Some(format!(
                "{shown} was answered with a mismatch at {at}, but the value it reports is the one that was expected, {}.",
                words::value(current.as_deref())
            )),
            _ => None,
        },
        (Answer::Stale { high: Some(high) }, Some(token)) if exact => {
            let ways_at_the_fence = match verb {
                Verb::CheckedRead => false,
                Verb::Claim => manifest.equal == Equal::Holder,
                _ => manifest.equal == Equal::Holder || manifest.policy == Policy::Gt,
            };
            let wrong = token > *high || (token == *high && !ways_at_the_fence);
            wrong.then(|| {
                let place = if token > *high { "above" } else { "at" };
                format!(
                    "{shown} was refused as stale at {at} with fence {high}, but token {token} is {place} that fence \
                     and must be admitted."
                )
            })
        }
        (Answer::Ok { high: Some(high), .. }, Some(token)) => match verb {
            Verb::CheckedRead if token < *high => Some(format!(
                "{shown} was accepted at {at} and reported fence {high}: token {token} was already fenced."
            )),
            Verb::CheckedRead | Verb::Read | Verb::Batch => None,
            Verb::Write | Verb::Claim | Verb::Cas | Verb::Delete if *high > token || (exact && *high != token) => Some(
                format!("{shown} was accepted at {at} and reported fence {high}, but after it the fence is {token}."),
            ),
            Verb::Write | Verb::Claim | Verb::Cas | Verb::Delete => None,
        },
        _ => None,
    }
}
