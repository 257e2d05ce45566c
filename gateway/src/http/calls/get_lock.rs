//! `GET /v1/locks/{name}`: show the holder of a lock.

use fencepost_core::wire::LockView;
use fencepost_core::{ProblemKind, Resource};
use fencepost_store::LockInfo;
use hyper::Method;

use super::{Context, HttpCall, Request};
use crate::http::answer::{Answer, json};
use crate::http::openapi::{Details, Headers, READING};
use crate::http::permit::Permitted;
use crate::http::problem::Problem;
use crate::http::routes::Route;

pub(super) struct GetLock(Resource);

impl HttpCall for GetLock {
    const ROUTE: Route = Route::new(Method::GET, "/v1/locks/", "who holds a lock?").named("name");

    fn decode(request: Request<'_>) -> Result<GetLock, Problem> {
        Ok(GetLock(Resource::from_raw_path(request.name)?))
    }

    async fn execute(call: Permitted<GetLock>, context: &Context<'_>) -> Result<Answer, Problem> {
        let GetLock(resource) = call.into_inner();
        match context.gateway.stores.of(resource.as_str()).lock(&resource).await? {
            Some(lock) => Ok(Answer::json_bytes(json(&lock_view(lock)))),
            None => Err(Problem::not_held(resource)),
        }
    }

    fn describe() -> Details {
        Details::of("locks")
            .named::<Resource>()
            .json::<LockView>(200, "Who holds it, and how long at the most.", Headers::new())
            .problems(&[ProblemKind::NotAResource, ProblemKind::NotHeld])
            .problems(&READING)
    }
}

/// A lock as any caller may see it: without its lease.
pub(super) fn lock_view(lock: LockInfo) -> LockView {
    let LockInfo { resource, holder, token, ttl_ms, remaining_ms, waiting } = lock;
    LockView { name: resource, token, holder, ttl_ms, remaining_ms, waiting }
}
