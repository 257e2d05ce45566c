//! `POST /v1/admin/rotate-all`: end the generation of every resource.

use fencepost_core::ProblemKind;
use fencepost_core::wire::{RotateAllRequest, RotatedAnswer, RotatedEngine};
use fencepost_store::{EngineRotated, RotateOutcome, generation_by_clock};
use hyper::Method;
use serde_json::json;

use super::Request;
use super::admin::{AdminCall, Facts, readable_reason};
use crate::http::Gateway;
use crate::http::answer::{self, Answer};
use crate::http::audit::Entry;
use crate::http::openapi::{Details, Headers, WRITING};
use crate::http::permit::Permitted;
use crate::http::problem::Problem;
use crate::http::routes::Route;

pub(super) struct RotateAll(RotateAllRequest);

impl AdminCall for RotateAll {
    const ROUTE: Route =
        Route::new(Method::POST, "/v1/admin/rotate-all", "end the generation of every resource").with_body();
    const ACTION: &'static str = "rotate-all";

    fn decode(request: Request<'_>) -> Result<RotateAll, Problem> {
        let rotate: RotateAllRequest = request.json(r#"{"from": 0, "reason": "…"}"#)?;
        readable_reason(&rotate.reason)?;
        Ok(RotateAll(rotate))
    }

    fn audit(&self, entry: Entry) -> Entry {
        entry.with("from", self.0.from).with("reason", self.0.reason.as_str())
    }

    async fn act(call: Permitted<RotateAll>, gateway: &Gateway) -> Result<(Answer, Facts), Problem> {
        let RotateAll(RotateAllRequest { from, .. }) = call.into_inner();
        // The clock also gives a lower bound, in case this store is an older copy that was restored unnoticed (trap
        // 40).
        let (outcome, engines) = gateway.stores.rotate_all(from, generation_by_clock()).await?;
        match outcome {
            RotateOutcome::Rotated { generation } => {
                let answer =
                    RotatedAnswer { resource: None, generation, engines: engines.into_iter().map(engine).collect() };
                Ok((Answer::json_bytes(answer::json(&answer)), vec![("generation", generation.into())]))
            }
            RotateOutcome::OtherGeneration { found } => Err(Problem::other_generation(found)),
            RotateOutcome::Exhausted(exhausted) => Err(Problem::exhausted(exhausted)),
        }
    }

    fn describe() -> Details {
        Details::of("admin")
            .body::<RotateAllRequest>(json!({"from": 0, "reason": "etcd was restored from a backup"}))
            .json::<RotatedAnswer>(200, "The new generation has begun for every resource.", Headers::new())
            .refers_to::<RotatedEngine>()
            .problems(&[ProblemKind::ConditionFailed, ProblemKind::Exhausted])
            .problems(&WRITING)
    }
}

fn engine(rotated: EngineRotated) -> RotatedEngine {
    let EngineRotated { engine, generation, rotated } = rotated;
    RotatedEngine { engine, generation, rotated }
}
