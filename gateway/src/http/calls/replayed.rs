//! Answers to a request whose idempotency key is already recorded.

use fencepost_core::Token;

use crate::http::answer::Answer;
use crate::http::problem::Problem;

/// Marks an answer as that of an earlier request, with the fence now: what was recorded names that of its time.
pub(super) fn replayed(answered: Result<Answer, Problem>, fence: Option<Token>) -> Result<Answer, Problem> {
    answered.map(|answer| answer.replayed(fence)).map_err(|problem| problem.replayed(fence))
}
