//! `GET /readyz`: whether the gateway can take writes.

use std::sync::atomic::Ordering;

use fencepost_core::ProblemKind;
use fencepost_store::{Health, Rejected, Store};
use futures_util::future::join_all;
use hyper::Method;

use super::{Context, HttpCall, Request};
use crate::http::answer::Answer;
use crate::http::openapi::{Details, parts};
use crate::http::permit::Permitted;
use crate::http::problem::Problem;
use crate::http::query;
use crate::http::routes::Route;

pub(super) struct Readyz {
    /// The engine asked about; every engine if absent.
    engine: Option<String>,
}

impl HttpCall for Readyz {
    const ROUTE: Route = Route::new(Method::GET, "/readyz", "can it take writes?").with_query();

    fn decode(request: Request<'_>) -> Result<Readyz, Problem> {
        Ok(Readyz { engine: query::engine(request.query())? })
    }

    async fn execute(call: Permitted<Readyz>, context: &Context<'_>) -> Result<Answer, Problem> {
        let (Readyz { engine: asked }, stores) = (call.into_inner(), &context.gateway.stores);
        if context.gateway.draining.load(Ordering::Relaxed) {
            return Err(Problem::draining("the gateway is finishing its last requests"));
        }
        let is_asked = |name: &str| asked.as_deref().is_none_or(|asked| asked == name);
        let engines: Vec<_> = stores.each().filter(|(name, _)| is_asked(name)).collect();
        if engines.is_empty() {
            let detail = format!("there is no engine `{}`", asked.unwrap_or_default());
            return Err(Problem::new(ProblemKind::MalformedQuery, detail));
        }
        let results = join_all(engines.iter().map(|(_, store)| readiness(store))).await;
        let (mut ready, mut failed) = (Vec::new(), Vec::new());
        for ((name, _), result) in engines.into_iter().zip(results) {
            match result {
                Ok(()) => ready.push(name),
                Err(rejected) => failed.push((name, rejected)),
            }
        }
        // What needs a restart comes before what may end by itself.
        let Some((_, first)) = failed.iter().find(|(_, why)| needs_restart(why)).or(failed.first()) else {
            return Ok(Answer::text(200, "ready\n"));
        };
        let problem = Problem::from(first.clone());
        if stores.is_one() { Err(problem) } else { Err(problem.with_detail(not_ready(&failed, &ready))) }
    }

    fn describe() -> Details {
        Details::of("operations")
            .parameters([parts::engine_query()])
            .text(200, "It takes writes.", "text/plain")
            .problems(&[
                ProblemKind::Draining,
                ProblemKind::Poisoned,
                ProblemKind::MappingChanged,
                ProblemKind::Unavailable,
            ])
    }
}

/// Whether a store takes writes, and its engine can be reached.
async fn readiness(store: &Store) -> Result<(), Rejected> {
    match store.health() {
        Health::Ready => store.reach_engine().await,
        Health::Poisoned(reason) => Err(Rejected::Poisoned(reason)),
    }
}

fn needs_restart(rejected: &Rejected) -> bool {
    matches!(rejected, Rejected::Poisoned(_) | Rejected::MappingChanged)
}

/// The engines that are not ready, with the reasons, and those that are.
fn not_ready(failed: &[(&str, Rejected)], ready: &[&str]) -> String {
    let failed: Vec<_> = failed.iter().map(|(name, why)| format!("engine `{name}` is not ready: {why}")).collect();
    let ready: String = ready.iter().map(|name| format!("; engine `{name}` is ready")).collect();
    failed.join("; ") + &ready
}
