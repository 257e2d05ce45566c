//! `GET /healthz`: whether the process is alive.

use fencepost_store::Health;
use hyper::Method;

use super::{Context, HttpCall, Request};
use crate::http::answer::Answer;
use crate::http::openapi::Details;
use crate::http::permit::Permitted;
use crate::http::problem::Problem;
use crate::http::routes::Route;

pub(super) struct Healthz;

impl HttpCall for Healthz {
    const ROUTE: Route = Route::new(Method::GET, "/healthz", "is the process alive?");

    fn decode(_: Request<'_>) -> Result<Healthz, Problem> {
        Ok(Healthz)
    }

    async fn execute(_: Permitted<Healthz>, context: &Context<'_>) -> Result<Answer, Problem> {
        Ok(match context.gateway.store.health() {
            Health::Ready => Answer::text(200, "ok\n"),
            Health::Poisoned(reason) => Answer::text(200, &format!("alive, but writes have stopped: {reason}\n")),
        })
    }

    fn describe() -> Details {
        Details::of("operations").text(200, "It is alive.", "text/plain")
    }
}
