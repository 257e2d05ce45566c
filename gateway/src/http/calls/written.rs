//! The answer to a write or a delete.

use fencepost_store::Outcome;

use super::outcome::{marked, unfulfilled};
use crate::http::Gateway;
use crate::http::answer::Answer;
use crate::http::problem::Problem;

/// 204 with the new version and the fence, or the refusal.
pub(super) fn written(gateway: &Gateway, outcome: Outcome) -> Result<Answer, Problem> {
    gateway.metrics.write(&outcome);
    marked(outcome, |outcome| match outcome {
        Outcome::Applied(applied) => {
            let answer = Answer::new(204).fence(applied.fence).observed(applied.observed.as_slice());
            Ok(match applied.version {
                Some(version) => answer.etag(version),
                None => answer,
            })
        }
        Outcome::ConditionFailed { current, fence, .. } => Err(Problem::condition_failed(current).with_fence(fence)),
        other => Err(unfulfilled(other)),
    })
}
