//! What is promised, checked at every commit and at every answer.

use std::fmt::{self, Display, Formatter};

use super::engine::{Batch, Engine};
use super::gateway::{Task, value_bit};
use super::request::{Answer, Kind, REQUESTS, Reason, Token, Write};

/// A promise that was not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Broken {
    FenceFell,
    StaleWriteApplied,
    AppliedTwice,
    AppliedAfterAll,
    NotInHistory,
    UnjustifiedRefusal,
    AppliedWriteRefused,
    OldValue,
    NotRotated,
    WentOnWithoutItsCommits,
    StoppedForNothing,
    Stuck,
}

/// The highest generation and number that were ever durable.
pub(super) type Height = (u8, Option<u8>);

/// Checks a batch that is about to be applied to these records.
pub(super) fn check_commit(engine: &Engine, batch: &Batch) -> Result<(), Broken> {
    if batch.is_given_up {
        return Err(Broken::AppliedAfterAll);
    }
    let kind = batch.request.map(|request| REQUESTS[usize::from(request)].kind);
    if let (Some(write), Some(token)) = (batch.changes.value, kind.and_then(Kind::token)) {
        if engine.fence_now().admit(token).is_err() {
            return Err(Broken::StaleWriteApplied);
        }
        if engine.has_applied(write) {
            return Err(Broken::AppliedTwice);
        }
    }
    Ok(())
}

/// Checks the records after a commit. `highest` includes what was lost since.
pub(super) fn check_fence(engine: &Engine, highest: Height) -> Result<(), Broken> {
    if engine.fence_now().height() < highest { Err(Broken::FenceFell) } else { Ok(()) }
}

/// Checks an answer about to be given.
pub(super) fn check_answer(engine: &Engine, highest: Height, task: &Task, answer: Answer) -> Result<(), Broken> {
    let kind = task.kind();
    let is_applied = kind.write().is_some_and(|write| engine.has_applied(write));
    let is_retryable = matches!(kind, Kind::Once(..));
    let kept = match answer {
        Answer::Applied => (is_applied, Broken::NotInHistory),
        Answer::Replayed => (is_applied && engine.outcome.is_some(), Broken::NotInHistory),
        Answer::Claimed(value) => (task.values & value_bit(value) != 0, Broken::OldValue),
        Answer::Rotated(base) => (engine.meta.of >= base, Broken::NotRotated),
        Answer::OtherGeneration => (engine.meta.of != 0, Broken::NotRotated),
        Answer::Refused(reason @ (Reason::Stale | Reason::RetiredGeneration)) => {
            if is_retryable && engine.outcome.is_some() {
                return Err(Broken::AppliedWriteRefused);
            }
            (kind.token().is_some_and(|token| is_refused(token, highest, reason)), Broken::UnjustifiedRefusal)
        }
        // A generation that is unknown now was unknown when the request began.
        Answer::Refused(Reason::UnknownGeneration) => {
            if is_retryable && task.was_recorded {
                return Err(Broken::AppliedWriteRefused);
            }
            (kind.token().is_some_and(|token| token.generation > task.generation), Broken::UnjustifiedRefusal)
        }
        Answer::Rejected | Answer::Unknown => (true, Broken::AppliedAfterAll),
    };
    match kept {
        (false, broken) => Err(broken),
        // A write with a key may have been applied through the other gateway.
        (true, _) if says_not_applied(answer) && is_applied && !is_retryable => Err(Broken::AppliedAfterAll),
        (true, _) => Ok(()),
    }
}

/// Checks a checked read: the value, or why it was refused.
pub(super) fn check_read(
    engine: &Engine,
    highest: Height,
    token: Token,
    answer: Result<Option<Write>, Reason>,
) -> Result<(), Broken> {
    let fence = engine.fence_now();
    match answer {
        Ok(value) if value == engine.value_now() && fence.admit(token).is_ok() => Ok(()),
        Ok(_) => Err(Broken::OldValue),
        Err(Reason::UnknownGeneration) if token.generation > fence.generation => Ok(()),
        Err(reason @ (Reason::Stale | Reason::RetiredGeneration)) if is_refused(token, highest, reason) => Ok(()),
        Err(_) => Err(Broken::UnjustifiedRefusal),
    }
}

fn is_refused(token: Token, (generation, high): Height, reason: Reason) -> bool {
    match reason {
        Reason::RetiredGeneration => token.generation < generation,
        _ => (token.generation, Some(token.number)) < (generation, high),
    }
}

pub(super) fn says_not_applied(answer: Answer) -> bool {
    matches!(answer, Answer::Refused(_) | Answer::Rejected)
}

impl Display for Broken {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Broken::FenceFell => "a commit while the fence is lower than it was (G1)",
            Broken::StaleWriteApplied => "a write is applied with a token that the fence refuses (G2)",
            Broken::AppliedTwice => "a write is applied twice (G7)",
            Broken::AppliedAfterAll => "a write is applied that was declared not to be (G7)",
            Broken::NotInHistory => "a write is answered as applied that is not (G8)",
            Broken::UnjustifiedRefusal => "a refusal without a reason that is durable (G4, G5)",
            Broken::AppliedWriteRefused => "the retry of an applied write is refused (G7)",
            Broken::OldValue => "a value is answered that was not current, or to a token that is refused (G8)",
            Broken::NotRotated => "a wrong answer to a rotation",
            Broken::WentOnWithoutItsCommits => "a gateway goes on in a history that lacks commits confirmed to it (G1)",
            Broken::StoppedForNothing => "a gateway stops writing although nothing was lost",
            Broken::Stuck => "a request that cannot end",
        })
    }
}
