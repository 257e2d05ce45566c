//! `DELETE /v1/locks/{name}`: give a lock back.

use fencepost_core::{ProblemKind, Resource};
use fencepost_store::ReleaseOutcome;
use fencepost_store::record::LeaseId;
use hyper::Method;

use super::lease::{no_token_nor_conditions, one_lease};
use super::{Context, HttpCall, Request};
use crate::http::answer::Answer;
use crate::http::openapi::{Details, Headers, WRITING, parts};
use crate::http::permit::Permitted;
use crate::http::problem::Problem;
use crate::http::routes::Route;
use crate::http::{headers, query};

pub(super) struct ReleaseLock {
    resource: Resource,
    lease: LeaseId,
}

impl HttpCall for ReleaseLock {
    const ROUTE: Route = Route::new(Method::DELETE, "/v1/locks/", "give a lock back").named("name").with_query();

    fn decode(request: Request<'_>) -> Result<ReleaseLock, Problem> {
        headers::no_idempotency_key(request.headers())?;
        no_token_nor_conditions(request.headers())?;
        let lease = one_lease(headers::lease(request.headers())?, query::lease(request.query())?)?;
        let missing = "a release names its lease, as it was granted: in the header fencing-lease, or as ?lease=…";
        let lease = lease.ok_or_else(|| Problem::new(ProblemKind::MalformedQuery, missing))?;
        Ok(ReleaseLock { resource: Resource::from_raw_path(request.name)?, lease })
    }

    async fn execute(call: Permitted<ReleaseLock>, context: &Context<'_>) -> Result<Answer, Problem> {
        let ReleaseLock { resource, lease } = call.into_inner();
        let outcome = context.gateway.stores.of(resource.as_str()).release(&resource, lease).await?;
        context.gateway.metrics.lock(&outcome);
        match outcome {
            ReleaseOutcome::Released => Ok(Answer::new(204)),
            ReleaseOutcome::Lost(lost) => Err(Problem::lease_lost(resource, lost)),
        }
    }

    fn describe() -> Details {
        Details::of("locks")
            .named::<Resource>()
            .parameters([parts::lease_header(), parts::lease_query()])
            .answer(204, "The lock is free.", Headers::new())
            .problems(&[ProblemKind::UnsupportedHeader, ProblemKind::NotAResource, ProblemKind::LeaseLost])
            .problems(&WRITING)
    }
}
