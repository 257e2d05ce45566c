//! `PUT /v1/kv/{key}`: write a value.

use fencepost_core::{Access, Key, ProblemKind};
use fencepost_store::Put;
use hyper::Method;

use super::written::written;
use super::{Context, HttpCall, Request};
use crate::http::answer::Answer;
use crate::http::fingerprint::fingerprint;
use crate::http::headers;
use crate::http::openapi::{Details, ONCE, WRITING, parts};
use crate::http::permit::Permitted;
use crate::http::problem::Problem;
use crate::http::routes::Route;

pub(super) struct PutValue(Put);

impl HttpCall for PutValue {
    const ROUTE: Route = Route::new(Method::PUT, "/v1/kv/", "write a value").named("key").with_body();

    fn decode(request: Request<'_>) -> Result<PutValue, Problem> {
        let headers = request.headers();
        headers::none_unsupported(headers)?;
        let (key, content_type) = (Key::from_raw_path(request.name)?, headers::content_type(headers)?);
        let condition = headers::write_condition(headers)?;
        let once = request.once(|| {
            let [if_match, if_none_match] = headers::raw_conditions(headers);
            let content_type = content_type.as_deref().unwrap_or_default().as_bytes();
            fingerprint(&[b"PUT", key.as_str().as_bytes(), if_match, if_none_match, content_type, &request.body])
        })?;
        let presented = headers::presented(headers)?;
        Ok(PutValue(Put { presented, key, condition, content_type, body: request.body, once }))
    }

    async fn execute(call: Permitted<PutValue>, context: &Context<'_>) -> Result<Answer, Problem> {
        let PutValue(put) = call.into_inner();
        let store = context.gateway.stores.of(put.key.as_str());
        written(context.gateway, store.put(put).await?)
    }

    fn describe() -> Details {
        Details::of("values")
            .named::<Key>()
            .parameters(parts::presented())
            .parameters(parts::write_conditions())
            .parameters([parts::idempotency_key()])
            .value_body()
            .answer(204, "Written.", parts::written().required("ETag", "The value's version.", parts::etag()))
            .judged(Access::Write)
            .problems(&[ProblemKind::MalformedToken, ProblemKind::UnsupportedHeader, ProblemKind::ConditionFailed])
            .problems(&ONCE)
            .problems(&WRITING)
    }
}
