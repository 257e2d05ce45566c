//! `POST /v1/outcomes/{key}/abandon`: make sure that a request is never applied.

use fencepost_core::IdempotencyKey;
use fencepost_core::wire::OutcomeAnswer;
use hyper::Method;

use super::get_outcome::outcome_answer;
use super::{Context, HttpCall, Request};
use crate::http::answer::{Answer, json};
use crate::http::body::hold_anyway;
use crate::http::openapi::{Details, Headers, WRITING};
use crate::http::permit::Permitted;
use crate::http::problem::Problem;
use crate::http::routes::Route;

pub(super) struct AbandonOutcome {
    /// The scope of the key.
    caller: &'static str,
    key: IdempotencyKey,
}

impl HttpCall for AbandonOutcome {
    const ROUTE: Route = Route::new(Method::POST, "/v1/outcomes/", "make sure that a request is never applied")
        .named("key")
        .action("/abandon")
        .with_body();

    fn decode(request: Request<'_>) -> Result<AbandonOutcome, Problem> {
        request.empty()?;
        Ok(AbandonOutcome { caller: request.identity.caller(), key: request.outcome_key()? })
    }

    async fn execute(call: Permitted<AbandonOutcome>, context: &Context<'_>) -> Result<Answer, Problem> {
        let AbandonOutcome { caller, key } = call.into_inner();
        let _turn = context.room_for_an_answer().await?;
        let outcome = context.gateway.stores.abandon(caller, &key).await?;
        let answer = json(&outcome_answer(key, outcome, None));
        Ok(Answer::json_bytes(hold_anyway(answer, &context.gateway.answers)))
    }

    fn describe() -> Details {
        Details::of("outcomes")
            .named::<IdempotencyKey>()
            .empty_body()
            .json::<OutcomeAnswer>(200, "What is recorded now: `applied`, or `failed` for ever.", Headers::new())
            .problems(&WRITING)
    }
}
