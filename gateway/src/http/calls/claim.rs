//! `POST /v1/claim/{resource}`: raise the fence and read, in one step.

use fencepost_core::wire::{ClaimAnswer, ClaimRequest, ClaimedValue, FenceView, MAX_CLAIM_KEYS};
use fencepost_core::{Access, Key, ProblemKind, Resource};
use fencepost_store::engine::Version;
use fencepost_store::record::Value;
use fencepost_store::{ClaimKeys, ClaimOutcome, Claimed};
use hyper::Method;
use serde_json::json;

use super::json_value::text_or_base64;
use super::{Context, HttpCall, Request};
use crate::http::answer::{Answer, etag};
use crate::http::body::hold_anyway;
use crate::http::headers;
use crate::http::openapi::{Details, WRITING, parts};
use crate::http::permit::Permitted;
use crate::http::problem::Problem;
use crate::http::routes::Route;

pub(super) struct Claim(ClaimKeys);

impl HttpCall for Claim {
    const ROUTE: Route =
        Route::new(Method::POST, "/v1/claim/", "raise the fence and read, in one step").named("resource").with_body();

    fn decode(request: Request<'_>) -> Result<Claim, Problem> {
        let headers = request.headers();
        headers::none_unsupported(headers)?;
        headers::no_idempotency_key(headers)?;
        headers::no_conditions(headers, "a claim has no conditions; it raises and reads")?;
        let resource = Resource::from_raw_path(request.name)?;
        let presented = headers::presented(headers)?;
        let asked = match request.body.as_ref() {
            [] => ClaimRequest::default(),
            _ => request.json(r#"{"keys": ["…"]} or no body"#)?,
        };
        let keys = asked.keys.unwrap_or_else(|| vec![resource.as_key()]);
        if keys.len() > MAX_CLAIM_KEYS {
            let detail = format!("a claim reads at most {MAX_CLAIM_KEYS} keys, and {} were asked for", keys.len());
            return Err(Problem::new(ProblemKind::TooLarge, detail));
        }
        Ok(Claim(ClaimKeys { resource, presented, keys, max_bytes: request.limits.body }))
    }

    async fn execute(call: Permitted<Claim>, context: &Context<'_>) -> Result<Answer, Problem> {
        let (Claim(claim), gateway) = (call.into_inner(), context.gateway);
        let _turn = context.room_for_an_answer().await?;
        let resource = claim.resource.clone();
        let outcome = gateway.stores.of_claim(&claim)?.claim(claim).await?;
        gateway.metrics.claim(&outcome);
        match outcome {
            ClaimOutcome::Claimed(claimed) => {
                let Claimed { state, values, observed } = *claimed;
                let values = values.into_iter().map(|(key, value)| claimed_value(key, value)).collect();
                let answer = ClaimAnswer { resource, fence: FenceView::of(&state), values };
                Ok(Answer::json_bytes(hold_anyway(answer.to_json().into(), &gateway.answers))
                    .fence(state.token())
                    .observed(observed.as_slice()))
            }
            ClaimOutcome::Refused(refusal) => Err(Problem::refused(*refusal)),
            ClaimOutcome::TooLarge(too_large) => Err(Problem::too_large(too_large)),
        }
    }

    fn describe() -> Details {
        Details::of("fences")
            .named::<Resource>()
            .parameters(parts::presented())
            .optional_body::<ClaimRequest>(json!({"keys": ["orders/123", "orders/123/lines"]}))
            .json::<ClaimAnswer>(200, "The fence, and the values as of the same instant.", parts::fenced())
            .refers_to::<ClaimedValue>()
            .refers_to::<FenceView>()
            .judged(Access::Claim)
            .problems(&[ProblemKind::MalformedToken, ProblemKind::UnsupportedHeader])
            .problems(&[ProblemKind::NotAResource, ProblemKind::SeveralEngines])
            .problems(&WRITING)
    }
}

fn claimed_value(key: Key, value: Option<(Version, Value)>) -> ClaimedValue {
    match value {
        None => ClaimedValue::Absent { key, absent: true },
        Some((version, Value { token, content_type, body })) => {
            let value = text_or_base64(&body);
            ClaimedValue::Present { key, etag: etag(version), token, content_type, value }
        }
    }
}
