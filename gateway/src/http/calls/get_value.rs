//! `GET /v1/kv/{key}`: read a value, as it is committed.

use fencepost_core::wire::header;
use fencepost_core::{Access, Key, Presented, ProblemKind};
use hyper::Method;
use hyper::header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName};

use super::{Context, HttpCall, Request};
use crate::http::answer::Answer;
use crate::http::body::hold;
use crate::http::headers::{self, Tags};
use crate::http::openapi::{Details, READING, parts};
use crate::http::permit::Permitted;
use crate::http::problem::Problem;
use crate::http::routes::Route;

const FENCING_TOKEN: HeaderName = HeaderName::from_static(header::FENCING_TOKEN);
const CROSS_ORIGIN_RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");
const FENCING_UNCLAIMED: HeaderName = HeaderName::from_static(header::FENCING_UNCLAIMED);

pub(super) struct GetValue {
    key: Key,
    presented: Option<Presented>,
    if_match: Option<Tags>,
    if_none_match: Option<Tags>,
}

impl HttpCall for GetValue {
    const ROUTE: Route = Route::new(Method::GET, "/v1/kv/", "read a value").named("key");

    fn decode(request: Request<'_>) -> Result<GetValue, Problem> {
        let (if_match, if_none_match) = headers::read_conditions(request.headers())?;
        let presented = headers::presented_for_read(request.headers())?;
        Ok(GetValue { key: Key::from_raw_path(request.name)?, presented, if_match, if_none_match })
    }

    async fn execute(call: Permitted<GetValue>, context: &Context<'_>) -> Result<Answer, Problem> {
        let (get, gateway) = (call.into_inner(), context.gateway);
        let read = gateway.stores.of(get.key.as_str()).read(&get.key, get.presented.as_ref()).await?;
        let read = read.map_err(|refusal| {
            gateway.metrics.read_refused(refusal.reason);
            Problem::refused(*refusal)
        })?;
        gateway.metrics.read_observed(read.observed);
        let fence = read.state.token();
        let current = read.value.as_ref().map(|(version, _)| *version);
        if get.if_match.is_some_and(|tags| !tags.match_weakly(current)) {
            return Err(Problem::condition_failed(current).with_fence(fence));
        }
        let Some((version, value)) = read.value else {
            let detail = format!("the key `{}` has no value", get.key);
            return Err(Problem::new(ProblemKind::Absent, detail).with_fence(fence));
        };
        let mut answer = if get.if_none_match.is_some_and(|tags| tags.match_weakly(current)) {
            Answer::new(304)
        } else {
            let answer = Answer::new(200);
            // A length above 0 is added with the body.
            let answer = if value.body.is_empty() { answer.header_static(CONTENT_LENGTH, "0") } else { answer };
            answer
                .header(CONTENT_TYPE, value.content_type.as_deref().unwrap_or("application/octet-stream"))
                .body(hold(value.body, &gateway.answers)?)
        };
        if let Some(token) = value.token {
            answer = answer.token(FENCING_TOKEN, token);
        }
        if read.unclaimed {
            answer = answer.header_static(FENCING_UNCLAIMED, "true");
        }
        // The writer of the value chose its type. A browser that shows it as a page must not run it with the gateway's
        // origin, nor embed it in another site's page.
        Ok(answer
            .header_static(CONTENT_SECURITY_POLICY, "default-src 'none'; sandbox")
            .header_static(CROSS_ORIGIN_RESOURCE_POLICY, "same-origin")
            .etag(version)
            .header_static(CACHE_CONTROL, "no-store")
            .fence(fence)
            .observed(read.observed.as_slice()))
    }

    fn describe() -> Details {
        let headers = || {
            parts::fenced()
                .required("ETag", "The value's version.", parts::etag())
                .optional(
                    header::FENCING_TOKEN,
                    "The token of the write that made this value.",
                    parts::schema::<fencepost_core::Token>(),
                )
                .optional(
                    header::FENCING_UNCLAIMED,
                    "Your token is above the fence, so nothing protects what you read.",
                    serde_json::json!({"type": "string", "enum": ["true"]}),
                )
        };
        Details::of("values")
            .named::<Key>()
            .parameters(parts::presented())
            .parameters(parts::read_conditions())
            .value(200, "The value, with the content type it was written with.", headers())
            .answer(304, "`If-None-Match` holds: the value is the one you know.", headers())
            .judged(Access::CheckedRead)
            .problems(&[ProblemKind::MalformedToken, ProblemKind::Absent, ProblemKind::ConditionFailed])
            .problems(&READING)
    }
}
