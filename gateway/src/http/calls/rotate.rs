//! `POST /v1/admin/fences/{resource}/rotate`: end a resource's generation.

use fencepost_core::wire::{RotateRequest, RotatedAnswer, RotatedEngine};
use fencepost_core::{ProblemKind, Resource};
use fencepost_store::RotateOutcome;
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

pub(super) struct Rotate {
    resource: Resource,
    request: RotateRequest,
}

impl AdminCall for Rotate {
    const ROUTE: Route = Route::new(Method::POST, "/v1/admin/fences/", "end a resource's generation")
        .named("resource")
        .action("/rotate")
        .with_body();
    const ACTION: &'static str = "rotate";

    fn decode(request: Request<'_>) -> Result<Rotate, Problem> {
        let rotate: RotateRequest = request.json(r#"{"from": 0, "reason": "…"}"#)?;
        readable_reason(&rotate.reason)?;
        Ok(Rotate { resource: Resource::from_raw_path(request.name)?, request: rotate })
    }

    fn audit(&self, entry: Entry) -> Entry {
        entry
            .with("resource", self.resource.as_str())
            .with("from", self.request.from)
            .with("reason", self.request.reason.as_str())
            .with("issuer", self.request.issuer.as_ref().map(ToString::to_string))
    }

    async fn act(call: Permitted<Rotate>, gateway: &Gateway) -> Result<(Answer, Facts), Problem> {
        let Rotate { resource, request: RotateRequest { from, issuer, .. } } = call.into_inner();
        match gateway.stores.of(resource.as_str()).rotate(&resource, from, issuer).await? {
            RotateOutcome::Rotated { generation } => {
                let answer = RotatedAnswer { resource: Some(resource), generation, engines: Vec::new() };
                Ok((Answer::json_bytes(answer::json(&answer)), vec![("generation", generation.into())]))
            }
            RotateOutcome::OtherGeneration { found } => Err(Problem::other_generation(found)),
            RotateOutcome::Exhausted(exhausted) => Err(Problem::exhausted(exhausted)),
        }
    }

    fn describe() -> Details {
        Details::of("admin")
            .named::<Resource>()
            .body::<RotateRequest>(json!({"from": 0, "reason": "etcd was restored from a backup"}))
            .json::<RotatedAnswer>(200, "The new generation has begun.", Headers::new())
            .refers_to::<RotatedEngine>()
            .problems(&[ProblemKind::NotAResource, ProblemKind::ConditionFailed, ProblemKind::Exhausted])
            .problems(&WRITING)
    }
}
