//! `POST /v1/admin/locks/{name}/force-release`: take a lock from its holder.

use fencepost_core::wire::ForceReleasedAnswer;
use fencepost_core::{ProblemKind, Resource};
use fencepost_store::ForceReleaseOutcome;
use hyper::Method;

use super::Request;
use super::admin::{AdminCall, Facts};
use crate::http::Gateway;
use crate::http::answer::{Answer, json};
use crate::http::audit::Entry;
use crate::http::openapi::{Details, Headers, WRITING};
use crate::http::permit::Permitted;
use crate::http::problem::Problem;
use crate::http::routes::Route;

pub(super) struct ForceRelease(Resource);

impl AdminCall for ForceRelease {
    const ROUTE: Route = Route::new(Method::POST, "/v1/admin/locks/", "take a lock from its holder")
        .named("name")
        .action("/force-release")
        .with_body();
    const ACTION: &'static str = "force-release";

    fn decode(request: Request<'_>) -> Result<ForceRelease, Problem> {
        request.empty()?;
        Ok(ForceRelease(Resource::from_raw_path(request.name)?))
    }

    fn audit(&self, entry: Entry) -> Entry {
        entry.with("lock", self.0.as_str())
    }

    async fn act(call: Permitted<ForceRelease>, gateway: &Gateway) -> Result<(Answer, Facts), Problem> {
        let ForceRelease(resource) = call.into_inner();
        match gateway.stores.of(resource.as_str()).force_release(&resource).await? {
            ForceReleaseOutcome::Released { holder, token, fence } => {
                let facts = vec![("holder", holder.as_str().into()), ("token", token.to_string().into())];
                let answer = ForceReleasedAnswer { name: resource, holder, token, fence };
                Ok((Answer::json_bytes(json(&answer)), facts))
            }
            ForceReleaseOutcome::NotHeld => Err(Problem::not_held(resource)),
            ForceReleaseOutcome::Refused(refusal) => Err(Problem::refused(*refusal)),
            ForceReleaseOutcome::Exhausted(exhausted) => Err(Problem::exhausted(exhausted)),
        }
    }

    fn describe() -> Details {
        Details::of("admin")
            .named::<Resource>()
            .empty_body()
            .json::<ForceReleasedAnswer>(200, "The lock is free, and its last token is refused.", Headers::new())
            .problems(&[ProblemKind::NotAResource, ProblemKind::NotHeld])
            .problems(&[ProblemKind::ForeignIssuer, ProblemKind::Exhausted])
            .problems(&WRITING)
    }
}
