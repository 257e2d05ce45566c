//! `GET /v1/fences`: list fences.

use fencepost_core::wire::{FenceAnswer, FencePage};
use hyper::Method;

use super::get_fence::fence_answer;
use super::{Context, HttpCall, Request};
use crate::http::answer::{Answer, json};
use crate::http::body::hold;
use crate::http::openapi::{Details, Headers, READING, parts};
use crate::http::permit::Permitted;
use crate::http::problem::Problem;
use crate::http::query::ListQuery;
use crate::http::routes::Route;

pub(super) struct ListFences(ListQuery);

impl HttpCall for ListFences {
    const ROUTE: Route = Route::new(Method::GET, "/v1/fences", "list fences").with_query();

    fn decode(request: Request<'_>) -> Result<ListFences, Problem> {
        ListQuery::parse(request.query()).map(ListFences)
    }

    async fn execute(call: Permitted<ListFences>, context: &Context<'_>) -> Result<Answer, Problem> {
        let ListFences(query) = call.into_inner();
        let page = context.gateway.stores.fences(&query.prefix, query.after.as_deref(), query.limit).await?;
        let fences = page.entries.into_iter().map(|(resource, state)| fence_answer(resource, &state)).collect();
        Ok(Answer::json_bytes(hold(json(&FencePage { fences, next: page.next }), &context.gateway.answers)?))
    }

    fn describe() -> Details {
        Details::of("fences")
            .parameters(parts::page())
            .json::<FencePage>(200, "One page, in order of name.", Headers::new())
            .refers_to::<FenceAnswer>()
            .problems(&READING)
    }
}
