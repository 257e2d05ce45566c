//! `POST /v1/s3/credentials`: a claim, answered with credentials that carry its token.

use fencepost_core::wire::{S3CredentialsAnswer, S3CredentialsRequest};
use fencepost_core::{Access, Presented, ProblemKind, Timestamp};
use fencepost_store::{ClaimKeys, ClaimOutcome};
use hyper::Method;
use serde_json::json;

use super::{Context, HttpCall, Request};
use crate::http::answer::{self, Answer};
use crate::http::headers;
use crate::http::openapi::{Details, WRITING, parts};
use crate::http::permit::Permitted;
use crate::http::problem::Problem;
use crate::http::routes::Route;

pub(super) struct IssueS3Credentials {
    presented: Option<Presented>,
    request: S3CredentialsRequest,
}

impl HttpCall for IssueS3Credentials {
    const ROUTE: Route =
        Route::new(Method::POST, "/v1/s3/credentials", "claim, and get credentials for the S3 front end").with_body();

    fn decode(request: Request<'_>) -> Result<IssueS3Credentials, Problem> {
        let headers = request.headers();
        headers::none_unsupported(headers)?;
        headers::no_idempotency_key(headers)?;
        headers::no_conditions(headers, "credentials have no conditions but their token")?;
        let presented = headers::presented(headers)?;
        let request = request.json(r#"{"resource": "reports/daily", "ttl_s": 3600}"#)?;
        Ok(IssueS3Credentials { presented, request })
    }

    /// The fence is raised now and not by the first write: until then the previous holder could still write.
    async fn execute(call: Permitted<IssueS3Credentials>, context: &Context<'_>) -> Result<Answer, Problem> {
        let IssueS3Credentials { presented, request: S3CredentialsRequest { resource, ttl_s } } = call.into_inner();
        let s3 = context.gateway.s3.as_deref().ok_or_else(|| {
            Problem::new(ProblemKind::NoS3Face, "this gateway serves no S3, so there are no credentials for it")
                .advice("Have the operator start it with --s3-listen and --objects.")
        })?;
        let seconds = s3.seconds(ttl_s).map_err(|error| Problem::new(ProblemKind::MalformedBody, error.to_string()))?;
        let token = presented.as_ref().map(|presented| presented.token);
        let claim = ClaimKeys { resource: resource.clone(), presented, keys: Vec::new(), max_bytes: 0 };
        let outcome = context.gateway.stores.unnamed().claim(claim).await?;
        context.gateway.metrics.claim(&outcome);
        match (outcome, token) {
            (ClaimOutcome::Claimed(claimed), Some(token)) => {
                let answer = s3.issue(resource, token, seconds, Timestamp::now());
                Ok(Answer::json_bytes(answer::json(&answer))
                    .fence(claimed.state.token())
                    .observed(claimed.observed.as_slice()))
            }
            (ClaimOutcome::Claimed(_), None) => Err(Problem::new(
                ProblemKind::MissingToken,
                "credentials carry a fencing token, also where the guard only observes",
            )
            .advice("Send the token of your lock in the Fencing-Token header.")),
            (ClaimOutcome::Refused(refusal), _) => Err(Problem::refused(*refusal)),
            (ClaimOutcome::TooLarge(too_large), _) => Err(Problem::too_large(too_large)),
        }
    }

    fn describe() -> Details {
        Details::of("s3")
            .parameters(parts::presented())
            .body::<S3CredentialsRequest>(json!({"resource": "reports/daily", "ttl_s": 3600}))
            .json::<S3CredentialsAnswer>(
                200,
                "The fence is raised; these credentials carry the token.",
                parts::fenced(),
            )
            .judged(Access::Claim)
            .problems(&[
                ProblemKind::MalformedToken,
                ProblemKind::UnsupportedHeader,
                ProblemKind::NotAResource,
                ProblemKind::NoS3Face,
            ])
            .problems(&WRITING)
    }
}
