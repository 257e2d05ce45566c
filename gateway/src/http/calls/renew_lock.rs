//! `POST /v1/locks/{name}/renew`: renew a lease.

use std::time::Duration;

use fencepost_core::wire::{LeaseAnswer, RenewRequest};
use fencepost_core::{ProblemKind, Resource};
use fencepost_store::RenewOutcome;
use fencepost_store::record::LeaseId;
use hyper::Method;
use serde_json::json;

use super::lease::{leased, no_token_nor_conditions, one_lease, ttl};
use super::{Context, HttpCall, Request};
use crate::http::answer::Answer;
use crate::http::headers;
use crate::http::openapi::{Details, WRITING, parts};
use crate::http::permit::Permitted;
use crate::http::problem::Problem;
use crate::http::routes::Route;

pub(super) struct RenewLock {
    resource: Resource,
    lease: LeaseId,
    ttl: Duration,
}

impl HttpCall for RenewLock {
    const ROUTE: Route =
        Route::new(Method::POST, "/v1/locks/", "renew a lease").named("name").action("/renew").with_body();

    fn decode(request: Request<'_>) -> Result<RenewLock, Problem> {
        headers::no_idempotency_key(request.headers())?;
        no_token_nor_conditions(request.headers())?;
        let RenewRequest { lease, ttl_ms } = request.json(r#"{"lease": "…", "ttl_ms": 30000}"#)?;
        let lease = lease.map(|lease| lease.parse::<LeaseId>()).transpose();
        let lease = lease.map_err(|why: &str| Problem::new(ProblemKind::MalformedBody, why))?;
        let missing = "a renewal names its lease, as it was granted: in the header fencing-lease, or as `lease`";
        let lease = one_lease(headers::lease(request.headers())?, lease)?;
        let lease = lease.ok_or_else(|| Problem::new(ProblemKind::MalformedBody, missing))?;
        Ok(RenewLock { resource: Resource::from_raw_path(request.name)?, lease, ttl: ttl(ttl_ms)? })
    }

    async fn execute(call: Permitted<RenewLock>, context: &Context<'_>) -> Result<Answer, Problem> {
        let RenewLock { resource, lease, ttl } = call.into_inner();
        let outcome = context.gateway.stores.of(resource.as_str()).renew(&resource, lease, ttl).await?;
        context.gateway.metrics.lock(&outcome);
        match outcome {
            RenewOutcome::Renewed(grant) => Ok(leased(200, resource, *grant)),
            RenewOutcome::Lost(lost) => Err(Problem::lease_lost(resource, lost)),
        }
    }

    fn describe() -> Details {
        Details::of("locks")
            .named::<Resource>()
            .parameters([parts::lease_header()])
            .body::<RenewRequest>(json!({"lease": "00000000000000000000000000000000", "ttl_ms": 30_000}))
            .json::<LeaseAnswer>(200, "The lease lasts for its new time from now on.", parts::observed())
            .problems(&[ProblemKind::UnsupportedHeader, ProblemKind::NotAResource, ProblemKind::LeaseLost])
            .problems(&WRITING)
    }
}
