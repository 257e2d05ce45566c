//! `POST /v1/s3/credentials`: a claim, answered with credentials that carry its token.

use fencepost_core::wire::S3CredentialsRequest;
use fencepost_core::{Presented, ProblemKind, Timestamp};
use fencepost_store::{ClaimKeys, Outcome};

use super::Gateway;
use super::answer::{Answer, json};
use super::call::{self, Request};
use super::execute::unfulfilled;
use super::headers;
use super::problem::Problem;

/// Credentials that are asked for.
pub(super) struct AskedCredentials {
    presented: Option<Presented>,
    request: S3CredentialsRequest,
}

pub(super) fn decode(request: &Request<'_>) -> Result<AskedCredentials, Problem> {
    let headers = &request.head.headers;
    headers::none_unsupported(headers)?;
    headers::no_idempotency_key(headers)?;
    headers::no_conditions(headers, "credentials have no conditions but their token")?;
    let presented = headers::presented(headers)?;
    let request = call::json(request.body, r#"{"resource": "reports/daily", "ttl_s": 3600}"#)?;
    Ok(AskedCredentials { presented, request })
}

impl Gateway {
    /// The fence is raised now, and not by the first write: until then the holder before could still write.
    pub(super) async fn s3_credentials(&self, asked: AskedCredentials) -> Result<Answer, Problem> {
        let AskedCredentials { presented, request: S3CredentialsRequest { resource, ttl_s } } = asked;
        let s3 = self.s3.as_deref().ok_or_else(|| {
            Problem::new(ProblemKind::NoS3Face, "this gateway serves no S3, so there are no credentials for it")
                .advice("Have the operator start it with --s3-listen and --objects.")
        })?;
        let seconds = s3.seconds(ttl_s).map_err(|error| Problem::new(ProblemKind::MalformedBody, error.to_string()))?;
        let token = presented.as_ref().map(|presented| presented.token);
        let claim = ClaimKeys { resource: resource.clone(), presented, keys: Vec::new(), max_bytes: 0 };
        let outcome = self.store.claim(claim).await??;
        self.metrics.claim(&outcome);
        match (outcome, token) {
            (Outcome::Claimed(claimed), Some(token)) => {
                let answer = s3.issue(resource, token, seconds, Timestamp::now());
                Ok(Answer::json_bytes(json(&answer)).fence(claimed.state.token()).observed(claimed.observed.as_slice()))
            }
            (Outcome::Claimed(_), None) => Err(Problem::new(
                ProblemKind::MissingToken,
                "credentials carry a fencing token, also where the guard only observes",
            )
            .advice("Send the token of your lock in the Fencing-Token header.")),
            (other, _) => Err(unfulfilled(other)),
        }
    }
}
