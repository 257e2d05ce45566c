//! `GET /metrics`: counters and histograms.

use hyper::Method;
use hyper::header::CONTENT_TYPE;

use super::{Context, HttpCall, Request};
use crate::http::answer::Answer;
use crate::http::openapi::Details;
use crate::http::permit::Permitted;
use crate::http::problem::Problem;
use crate::http::routes::Route;
use crate::metrics::METRICS_CONTENT_TYPE;

pub(super) struct Metrics;

impl HttpCall for Metrics {
    const ROUTE: Route = Route::new(Method::GET, "/metrics", "counters and histograms");

    fn decode(_: Request<'_>) -> Result<Metrics, Problem> {
        Ok(Metrics)
    }

    async fn execute(_: Permitted<Metrics>, context: &Context<'_>) -> Result<Answer, Problem> {
        let body = context.gateway.metrics.encode(&context.gateway.stores);
        Ok(Answer::new(200).header_static(CONTENT_TYPE, METRICS_CONTENT_TYPE).body(body.into()))
    }

    fn describe() -> Details {
        Details::of("operations").text(200, "OpenMetrics text.", METRICS_CONTENT_TYPE)
    }
}
