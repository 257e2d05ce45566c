//! What administrators do. Each act is written to the audit log before it is done, and again with how it ended.

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

/// What the audit log should know of how an act ended.
pub(super) type Facts = Vec<(&'static str, Value)>;

/// A call that only administrators may make. It is a call like the others, and audited.
pub(super) trait AdminCall: Sized {
    /// Where it is found.
    const ROUTE: Route;
    /// Its name in the audit log.
    const ACTION: &'static str;

    /// The call that a request asks for, or why it is none.
    fn decode(request: Request<'_>) -> Result<Self, Problem>;

    /// Adds what is asked for to its line in the audit log.
    fn audit(&self, entry: Entry) -> Entry;

    /// Does it: the answer, and what the audit log should know of it.
    async fn act(call: Permitted<Self>, gateway: &Gateway) -> Result<(Answer, Facts), Problem>;

    /// What the API document says about it.
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

/// Does what an administrator asks for, between two lines of the audit log.
pub(super) async fn administer<C: AdminCall>(
    call: Permitted<C>,
    gateway: &Gateway,
    identity: &Identity,
    id: &str,
) -> Result<Answer, Problem> {
    let entry = call.get().audit(Entry::new(C::ACTION, identity, id));
    // An act that cannot be written down is not done.
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

/// A reason is for the reader of the audit log, who must see all of it.
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
