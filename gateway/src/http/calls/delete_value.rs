//! `DELETE /v1/kv/{key}`: remove a value; the fence stays.

use fencepost_core::{Access, Key, ProblemKind};
use fencepost_store::Delete;
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

pub(super) struct DeleteValue(Delete);

impl HttpCall for DeleteValue {
    const ROUTE: Route = Route::new(Method::DELETE, "/v1/kv/", "remove a value; the fence stays").named("key");

    fn decode(request: Request<'_>) -> Result<DeleteValue, Problem> {
        let headers = request.headers();
        headers::none_unsupported(headers)?;
        let key = Key::from_raw_path(request.name)?;
        let once = request.once(|| {
            let [if_match, if_none_match] = headers::raw_conditions(headers);
            fingerprint(&[b"DELETE", key.as_str().as_bytes(), if_match, if_none_match])
        })?;
        let condition = headers::write_condition(headers)?;
        Ok(DeleteValue(Delete { presented: headers::presented(headers)?, key, condition, once }))
    }

    async fn execute(call: Permitted<DeleteValue>, context: &Context<'_>) -> Result<Answer, Problem> {
        let DeleteValue(delete) = call.into_inner();
        let store = context.gateway.stores.of(delete.key.as_str());
        written(context.gateway, store.delete(delete).await?)
    }

    fn describe() -> Details {
        Details::of("values")
            .named::<Key>()
            .parameters(parts::presented())
            .parameters(parts::write_conditions())
            .parameters([parts::idempotency_key()])
            .answer(204, "The key has no value now. The fence stays.", parts::written())
            .judged(Access::Write)
            .problems(&[ProblemKind::MalformedToken, ProblemKind::UnsupportedHeader, ProblemKind::ConditionFailed])
            .problems(&ONCE)
            .problems(&WRITING)
    }
}
