//! `GET /openapi.json`: the API document.

use hyper::Method;
use serde_json::json;

use super::{Context, HttpCall, Request};
use crate::http::answer::Answer;
use crate::http::openapi::{self, Details, Headers, parts};
use crate::http::permit::Permitted;
use crate::http::problem::Problem;
use crate::http::routes::Route;

pub(super) struct OpenApi;

impl HttpCall for OpenApi {
    const ROUTE: Route = Route::new(Method::GET, "/openapi.json", "this table, for programs");

    fn decode(_: Request<'_>) -> Result<OpenApi, Problem> {
        Ok(OpenApi)
    }

    async fn execute(_: Permitted<OpenApi>, _: &Context<'_>) -> Result<Answer, Problem> {
        Ok(Answer::json_bytes(openapi::document()))
    }

    fn describe() -> Details {
        let document = parts::content("application/json", json!({"type": "object"}));
        Details::of("operations").with(200, parts::answer("This document.", Headers::new(), document))
    }
}
