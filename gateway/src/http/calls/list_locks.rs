//! `GET /v1/locks`: list locks that are held.

use fencepost_core::wire::{LockPage, LockView};
use hyper::Method;

use super::get_lock::lock_view;
use super::{Context, HttpCall, Request};
use crate::http::answer::{Answer, json};
use crate::http::body::hold;
use crate::http::openapi::{Details, Headers, READING, parts};
use crate::http::permit::Permitted;
use crate::http::problem::Problem;
use crate::http::query::ListQuery;
use crate::http::routes::Route;

pub(super) struct ListLocks(ListQuery);

impl HttpCall for ListLocks {
    const ROUTE: Route = Route::new(Method::GET, "/v1/locks", "list locks that are held").with_query();

    fn decode(request: Request<'_>) -> Result<ListLocks, Problem> {
        ListQuery::parse(request.query()).map(ListLocks)
    }

    async fn execute(call: Permitted<ListLocks>, context: &Context<'_>) -> Result<Answer, Problem> {
        let ListLocks(query) = call.into_inner();
        let page = context.gateway.stores.locks(&query.prefix, query.after.as_deref(), query.limit).await?;
        let locks = page.entries.into_iter().map(lock_view).collect();
        Ok(Answer::json_bytes(hold(json(&LockPage { locks, next: page.next }), &context.gateway.answers)?))
    }

    fn describe() -> Details {
        Details::of("locks")
            .parameters(parts::page())
            .json::<LockPage>(200, "One page of the locks that are held, in order of name.", Headers::new())
            .refers_to::<LockView>()
            .problems(&READING)
    }
}
