//! `GET /readyz`: whether the gateway can take writes.

use std::sync::atomic::Ordering;

use fencepost_core::ProblemKind;
use fencepost_store::{Health, Rejected};
use hyper::Method;

use super::{Context, HttpCall, Request};
use crate::http::answer::Answer;
use crate::http::openapi::Details;
use crate::http::permit::Permitted;
use crate::http::problem::Problem;
use crate::http::routes::Route;

pub(super) struct Readyz;

impl HttpCall for Readyz {
    const ROUTE: Route = Route::new(Method::GET, "/readyz", "can it take writes?");

    fn decode(_: Request<'_>) -> Result<Readyz, Problem> {
        Ok(Readyz)
    }

    async fn execute(_: Permitted<Readyz>, context: &Context<'_>) -> Result<Answer, Problem> {
        if context.gateway.draining.load(Ordering::Relaxed) {
            return Err(Problem::draining("the gateway is finishing its last requests"));
        }
        match context.gateway.store.health() {
            Health::Ready => {
                context.gateway.store.reach_engine().await?;
                Ok(Answer::text(200, "ready\n"))
            }
            Health::Poisoned(reason) => Err(Rejected::Poisoned(reason).into()),
        }
    }

    fn describe() -> Details {
        Details::of("operations").text(200, "It takes writes.", "text/plain").problems(&[
            ProblemKind::Draining,
            ProblemKind::Poisoned,
            ProblemKind::Unavailable,
        ])
    }
}
