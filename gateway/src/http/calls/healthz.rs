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
        let stores = &context.gateway.stores;
        let mut stopped = String::new();
        for (engine, store) in stores.each() {
            if let Health::Poisoned(reason) = store.health() {
                let on = if stores.is_one() { String::new() } else { format!(" on the engine `{engine}`") };
                stopped.push_str(&format!("alive, but writes have stopped{on}: {reason}\n"));
            }
        }
        Ok(Answer::text(200, if stopped.is_empty() { "ok\n" } else { &stopped }))
    }

    fn describe() -> Details {
        Details::of("operations").text(200, "It is alive.", "text/plain")
    }
}
