//! `POST /v1/admin/rotate-prefix`: end the generation of resources with a prefix.

use fencepost_core::wire::{RotatePrefixAnswer, RotatePrefixRequest};
use fencepost_store as store;
use hyper::Method;
use serde_json::json;

use super::Request;
use super::admin::{AdminCall, Facts, readable_reason};
use crate::http::Gateway;
use crate::http::answer::{self, Answer};
use crate::http::audit::Entry;
use crate::http::openapi::{Details, Headers, WRITING};
use crate::http::permit::Permitted;
use crate::http::problem::Problem;
use crate::http::routes::Route;

pub(super) struct RotatePrefix(RotatePrefixRequest);

impl AdminCall for RotatePrefix {
    const ROUTE: Route =
        Route::new(Method::POST, "/v1/admin/rotate-prefix", "end the generation of resources with a prefix")
            .with_body();
    const ACTION: &'static str = "rotate-prefix";

    fn decode(request: Request<'_>) -> Result<RotatePrefix, Problem> {
        let rotate: RotatePrefixRequest = request.json(r#"{"prefix": "orders/", "from": 0, "reason": "…"}"#)?;
        readable_reason(&rotate.reason)?;
        Ok(RotatePrefix(rotate))
    }

    fn audit(&self, entry: Entry) -> Entry {
        let RotatePrefix(asked) = self;
        entry
            .with("prefix", asked.prefix.as_str())
            .with("after", asked.after.as_deref())
            .with("from", asked.from)
            .with("reason", asked.reason.as_str())
            .with("issuer", asked.issuer.as_ref().map(ToString::to_string))
    }

    async fn act(call: Permitted<RotatePrefix>, gateway: &Gateway) -> Result<(Answer, Facts), Problem> {
        let RotatePrefix(RotatePrefixRequest { prefix, from, issuer, after, .. }) = call.into_inner();
        let done = gateway.stores.rotate_prefix(store::RotatePrefix { prefix, from, issuer, after }).await?;
        let answer = RotatePrefixAnswer { rotated: done.rotated, left: done.left, next: done.next };
        let facts = vec![("rotated", answer.rotated.into()), ("left", answer.left.into())];
        Ok((Answer::json_bytes(answer::json(&answer)), facts))
    }

    fn describe() -> Details {
        Details::of("admin")
            .body::<RotatePrefixRequest>(
                json!({"prefix": "orders/", "from": 0, "reason": "etcd was restored from a backup"}),
            )
            .json::<RotatePrefixAnswer>(200, "One page of fences is done.", Headers::new())
            .problems(&WRITING)
    }
}
