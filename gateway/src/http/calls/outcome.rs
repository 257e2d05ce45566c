//! Outcomes of the store that several calls can end in.

use fencepost_core::ProblemKind;
use fencepost_store::Outcome;

use crate::http::answer::Answer;
use crate::http::problem::Problem;

/// Marks a replayed answer and adds the current fence: the recorded answer names the fence of its time.
pub(super) fn marked(
    outcome: Outcome,
    answer: impl FnOnce(Outcome) -> Result<Answer, Problem>,
) -> Result<Answer, Problem> {
    match outcome {
        Outcome::Replayed(outcome, fences) => {
            let fence = match fences.as_slice() {
                [(_, fence)] => *fence,
                _ => None,
            };
            answer(*outcome).map(|answer| answer.replayed(fence)).map_err(|problem| problem.replayed(fence))
        }
        outcome => answer(outcome),
    }
}

/// The problem for an outcome other than the success of the call.
pub(super) fn unfulfilled(outcome: Outcome) -> Problem {
    match outcome {
        Outcome::Refused(refusals) => match refusals.first() {
            Some(refusal) => Problem::refused(refusal),
            None => another_question(),
        },
        Outcome::ConditionFailed { at, key, current, .. } => Problem::txn_condition_failed(at, key, current),
        Outcome::Impossible { at, key, why } => Problem::add_impossible(at, key, &why),
        Outcome::TooLarge { bytes, limit } => {
            let detail =
                format!("the values asked for have {bytes} bytes, the limit is {limit}; ask for fewer keys at once");
            Problem::new(ProblemKind::TooLarge, detail)
        }
        Outcome::Exhausted { fence, generation } => Problem::exhausted(fence, generation),
        Outcome::OtherGeneration { found } => Problem::other_generation(found),
        Outcome::KeyReused => Problem::key_reused(),
        Outcome::Abandoned => Problem::abandoned(),
        Outcome::Applied(_)
        | Outcome::Transacted(_)
        | Outcome::Claimed(_)
        | Outcome::Granted(_)
        | Outcome::Held(_)
        | Outcome::LeaseLost { .. }
        | Outcome::Released
        | Outcome::ForceReleased { .. }
        | Outcome::NotHeld
        | Outcome::Rotated { .. }
        | Outcome::Replayed(..)
        | Outcome::Changed(_)
        | Outcome::Unmet { .. }
        | Outcome::Forgotten => another_question(),
    }
}

fn another_question() -> Problem {
    Problem::new(ProblemKind::OutcomeUnknown, "the store answered another question than was asked")
}
