//! `GET /v1/kv`: list keys.

use fencepost_core::wire::{KeyEntry, KeyPage};
use hyper::Method;

use super::{Context, HttpCall, Request};
use crate::http::answer::{Answer, etag, json};
use crate::http::body::hold;
use crate::http::openapi::{Details, Headers, READING, parts};
use crate::http::permit::Permitted;
use crate::http::problem::Problem;
use crate::http::query::ListQuery;
use crate::http::routes::Route;

pub(super) struct ListKeys(ListQuery);

impl HttpCall for ListKeys {
    const ROUTE: Route = Route::new(Method::GET, "/v1/kv", "list keys").with_query();

    fn decode(request: Request<'_>) -> Result<ListKeys, Problem> {
        ListQuery::parse(request.query()).map(ListKeys)
    }

    async fn execute(call: Permitted<ListKeys>, context: &Context<'_>) -> Result<Answer, Problem> {
        let ListKeys(query) = call.into_inner();
        let page = context.gateway.stores.keys(&query.prefix, query.after.as_deref(), query.limit).await?;
        let keys = page
            .entries
            .into_iter()
            .map(|entry| KeyEntry {
                key: entry.key,
                etag: etag(entry.version),
                token: entry.token,
                content_type: entry.content_type,
                size: entry.size,
            })
            .collect();
        Ok(Answer::json_bytes(hold(json(&KeyPage { keys, next: page.next }), &context.gateway.answers)?))
    }

    fn describe() -> Details {
        Details::of("values")
            .parameters(parts::page())
            .json::<KeyPage>(200, "One page, in order of name.", Headers::new())
            .refers_to::<KeyEntry>()
            .problems(&READING)
    }
}
