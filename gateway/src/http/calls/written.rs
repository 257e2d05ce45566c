//! The answer to a write or a delete.

use fencepost_store::{Applied, FailedCondition, RecordedWrite, WriteOutcome};

use super::replayed::replayed;
use crate::http::Gateway;
use crate::http::answer::Answer;
use crate::http::problem::Problem;

/// 204 with the new version and the fence, or the refusal.
pub(super) fn written(gateway: &Gateway, outcome: WriteOutcome) -> Result<Answer, Problem> {
    gateway.metrics.write(&outcome);
    match outcome {
        WriteOutcome::Applied(done) => Ok(applied(done)),
        WriteOutcome::Refused(refusal) => Err(Problem::refused(*refusal)),
        WriteOutcome::ConditionFailed(failed) => Err(condition_failed(failed)),
        WriteOutcome::Replayed(RecordedWrite::Applied(done), fence) => replayed(Ok(applied(done)), fence),
        WriteOutcome::Replayed(RecordedWrite::ConditionFailed(failed), fence) => {
            replayed(Err(condition_failed(failed)), fence)
        }
        WriteOutcome::KeyReused => Err(Problem::key_reused()),
        WriteOutcome::Abandoned => Err(Problem::abandoned()),
    }
}

fn applied(applied: Applied) -> Answer {
    let answer = Answer::new(204).fence(applied.fence).observed(applied.observed.as_slice());
    match applied.version {
        Some(version) => answer.etag(version),
        None => answer,
    }
}

fn condition_failed(failed: FailedCondition) -> Problem {
    Problem::condition_failed(failed.current).with_fence(failed.fence)
}
