//! `GET /v1/fences/{resource}`: show a fence, also of a resource never seen.

use fencepost_core::wire::{FenceAnswer, FenceView};
use fencepost_core::{FenceState, ProblemKind, Resource};
use hyper::Method;

use super::{Context, HttpCall, Request};
use crate::http::answer::{Answer, json};
use crate::http::openapi::{Details, Headers, READING};
use crate::http::permit::Permitted;
use crate::http::problem::Problem;
use crate::http::routes::Route;

pub(super) struct GetFence(Resource);

impl HttpCall for GetFence {
    const ROUTE: Route = Route::new(Method::GET, "/v1/fences/", "show a fence").named("resource");

    fn decode(request: Request<'_>) -> Result<GetFence, Problem> {
        Ok(GetFence(Resource::from_raw_path(request.name)?))
    }

    async fn execute(call: Permitted<GetFence>, context: &Context<'_>) -> Result<Answer, Problem> {
        let GetFence(resource) = call.into_inner();
        let state = context.gateway.stores.of(resource.as_str()).fence(&resource).await?;
        Ok(Answer::json_bytes(json(&fence_answer(resource, &state))))
    }

    fn describe() -> Details {
        Details::of("fences")
            .named::<Resource>()
            .json::<FenceAnswer>(200, "Its generation and fence, also if it was never seen.", Headers::new())
            .refers_to::<FenceView>()
            .problems(&[ProblemKind::NotAResource])
            .problems(&READING)
    }
}

/// A resource with its fence.
pub(super) fn fence_answer(resource: Resource, state: &FenceState) -> FenceAnswer {
    FenceAnswer { resource, generation: state.generation, fence: FenceView::of(state) }
}
