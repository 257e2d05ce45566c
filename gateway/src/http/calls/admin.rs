//! Calls of administrators. Each is written to the audit log before it is executed, and again with its result.

use fencepost_core::{ProblemKind, is_hidden};
use fencepost_store::Rejected;
use serde_json::Value;

use super::{Context, HttpCall, Request};
use crate::http::Gateway;
use crate::http::answer::Answer;
use crate::http::audit::Entry;
use crate::http::openapi::Details;
use crate::http::permit::{Identity, Permitted};
use crate::http::problem::Problem;
use crate::http::routes::Route;

/// Facts about the result of a call, for the audit log.
pub(super) type Facts = Vec<(&'static str, Value)>;

/// A call that only administrators may make: a call like the others, and audited.
pub(super) trait AdminCall: Sized {
    /// Method and path of the call.
    const ROUTE: Route;
    /// The call's name in the audit log.
    const ACTION: &'static str;

    /// Decodes the call from a request, or returns the problem of the request.
    fn decode(request: Request<'_>) -> Result<Self, Problem>;

    /// Adds the call's parameters to its line in the audit log.
    fn audit(&self, entry: Entry) -> Entry;

    /// Executes the call and returns its answer, with facts for the audit log.
    async fn act(call: Permitted<Self>, gateway: &Gateway) -> Result<(Answer, Facts), Problem>;

    /// The call's part of the API document.
    fn describe() -> Details;
}

impl<C: AdminCall> HttpCall for C {
    const ROUTE: Route = <C as AdminCall>::ROUTE.for_administrators();

    fn decode(request: Request<'_>) -> Result<C, Problem> {
        <C as AdminCall>::decode(request)
    }

    async fn execute(call: Permitted<C>, context: &Context<'_>) -> Result<Answer, Problem> {
        administer(call, context.gateway, &context.caller.identity, context.id).await
    }

    fn describe() -> Details {
        <C as AdminCall>::describe().problems(&[ProblemKind::AdminOnly])
    }
}

/// Executes an administrator's call between two lines of the audit log.
pub(super) async fn administer<C: AdminCall>(
    call: Permitted<C>,
    gateway: &Gateway,
    identity: &Identity,
    id: &str,
) -> Result<Answer, Problem> {
    let entry = call.get().audit(Entry::new(C::ACTION, identity, id));
    // A call that cannot be recorded is not executed.
    gateway.audit.write(entry.clone().with("outcome", "requested")).await.map_err(|error| {
        tracing::error!(%error, "the audit log cannot be written");
        Problem::from(Rejected::Unavailable(format!("the audit log cannot be written: {error}")))
    })?;
    let result = C::act(call, gateway).await;
    let entry = match &result {
        Ok((_, facts)) => facts.iter().fold(entry, |entry, (name, fact)| entry.with(name, fact.clone())).again("done"),
        Err(problem) => entry.with("problem", problem.kind().slug()).again(match problem.kind() {
            ProblemKind::OutcomeUnknown => "unknown",
            _ => "not-done",
        }),
    };
    if let Err(error) = gateway.audit.write(entry).await {
        tracing::error!(%error, request = id, "the end of an administrator's act could not be written to the audit log");
    }
    result.map(|(answer, _)| answer)
}

/// Refuses a reason that is empty, too long or has hidden characters: readers of the audit log must see all of it.
pub(super) fn readable_reason(text: &str) -> Result<(), Problem> {
    match text.trim().len() {
        1..=1024 => match text.chars().find(|character| is_hidden(*character)) {
            None => Ok(()),
            Some(hidden) => {
                let detail = format!("`reason` contains {hidden:?}, which readers of the audit log would not see");
                Err(Problem::new(ProblemKind::MalformedBody, detail))
            }
        },
        _ => Err(Problem::new(ProblemKind::MalformedBody, "`reason` says why, in 1 to 1024 bytes; it is audited")),
    }
}
