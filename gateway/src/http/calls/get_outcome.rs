//! `GET /v1/outcomes/{key}`: show the outcome of a request with an idempotency key.

use fencepost_core::wire::{OutcomeAnswer, OutcomeState, TxnResult};
use fencepost_core::{IdempotencyKey, ProblemKind, Timestamp};
use fencepost_store::FinalOutcome;
use hyper::Method;

use super::transact::result;
use super::{Context, HttpCall, Request};
use crate::http::answer::{Answer, json};
use crate::http::body::hold;
use crate::http::openapi::{Details, Headers, READING};
use crate::http::permit::Permitted;
use crate::http::problem::Problem;
use crate::http::routes::Route;

pub(super) struct GetOutcome {
    /// The scope of the key.
    caller: &'static str,
    key: IdempotencyKey,
}

impl HttpCall for GetOutcome {
    const ROUTE: Route = Route::new(Method::GET, "/v1/outcomes/", "what became of a request?").named("key");

    fn decode(request: Request<'_>) -> Result<GetOutcome, Problem> {
        Ok(GetOutcome { caller: request.identity.caller(), key: request.outcome_key()? })
    }

    async fn execute(call: Permitted<GetOutcome>, context: &Context<'_>) -> Result<Answer, Problem> {
        let GetOutcome { caller, key } = call.into_inner();
        let answer = match context.gateway.stores.outcome(caller, &key).await? {
            Some(recorded) => outcome_answer(key, recorded.outcome, Some(recorded.at)),
            None => OutcomeAnswer {
                key,
                outcome: OutcomeState::NotRecorded,
                problem: None,
                results: None,
                token: None,
                recorded_at: None,
            },
        };
        Ok(Answer::json_bytes(hold(json(&answer), &context.gateway.answers)?))
    }

    fn describe() -> Details {
        Details::of("outcomes")
            .named::<IdempotencyKey>()
            .json::<OutcomeAnswer>(200, "What is recorded. Only `applied` and `failed` are final.", Headers::new())
            .refers_to::<OutcomeState>()
            .refers_to::<TxnResult>()
            .problems(&READING)
    }
}

/// A recorded outcome, as it is answered.
pub(super) fn outcome_answer(key: IdempotencyKey, outcome: FinalOutcome, at: Option<Timestamp>) -> OutcomeAnswer {
    let failed = |kind: ProblemKind| (OutcomeState::Failed, Some(kind.slug().to_owned()));
    let (mut results, mut token) = (None, None);
    let (state, problem) = match outcome {
        FinalOutcome::Transacted(transacted) => {
            results = Some(transacted.results.into_iter().map(result).collect());
            (OutcomeState::Applied, None)
        }
        FinalOutcome::Granted(grant) => {
            token = Some(grant.token);
            (OutcomeState::Applied, None)
        }
        FinalOutcome::ConditionFailed(_) => failed(ProblemKind::ConditionFailed),
        FinalOutcome::Impossible(_) => failed(ProblemKind::AddImpossible),
        FinalOutcome::Abandoned => failed(ProblemKind::Abandoned),
    };
    let recorded_at = at.map(|at| at.to_string());
    OutcomeAnswer { key, outcome: state, problem, results, token, recorded_at }
}
