//! `POST /v1/admin/reload`, and SIGHUP: read the rules of the guards and the keys of the S3 front end again.

use fencepost_core::ProblemKind;
use fencepost_core::wire::ReloadAnswer;
use hyper::Method;

use super::Request;
use super::admin::{AdminCall, Facts, administer};
use crate::http::Gateway;
use crate::http::answer::{Answer, json};
use crate::http::audit::Entry;
use crate::http::openapi::{Details, Headers};
use crate::http::permit::{Identity, Permitted, permit};
use crate::http::problem::Problem;
use crate::http::routes::Route;

pub(super) struct Reload;

impl AdminCall for Reload {
    const ROUTE: Route = Route::new(
        Method::POST,
        "/v1/admin/reload",
        "read the rules of the guards and the keys of the S3 front end again",
    )
    .with_body();
    const ACTION: &'static str = "reload";

    fn decode(request: Request<'_>) -> Result<Reload, Problem> {
        request.empty().map(|()| Reload)
    }

    fn audit(&self, entry: Entry) -> Entry {
        entry
    }

    async fn act(_: Permitted<Reload>, gateway: &Gateway) -> Result<(Answer, Facts), Problem> {
        match gateway.reload.run(&gateway.stores, gateway.s3.as_deref()) {
            Ok(answer) => {
                let facts = vec![("changed", answer.changed.clone().into())];
                Ok((Answer::json_bytes(json(&answer)), facts))
            }
            Err(error) => {
                // A message about the file quotes its lines, and ends with a line end.
                let detail = format!("the old rules stay: {}", error.to_string().trim_end());
                Err(Problem::new(ProblemKind::ReloadRefused, detail))
            }
        }
    }

    fn describe() -> Details {
        Details::of("admin")
            .empty_body()
            .json::<ReloadAnswer>(200, "The rules are those of the file now.", Headers::new())
            .problems(&[ProblemKind::ReloadRefused, ProblemKind::Unavailable])
    }
}

impl Gateway {
    /// Reads the rules again after a signal. Audited like an administrator's call.
    pub(in crate::http) async fn reload_by_signal(&self) {
        let (id, signal) = (self.next_id(), Identity::Signal);
        let done = match permit(&signal, Reload) {
            Ok(permitted) => administer(permitted, self, &signal, &id).await,
            Err(problem) => Err(problem),
        };
        match done {
            Ok(_) => tracing::info!(request = id, "the rules were read again"),
            Err(problem) => tracing::error!(request = id, error = problem.detail(), "the rules were not read again"),
        }
    }
}
