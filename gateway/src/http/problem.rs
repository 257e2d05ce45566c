//! What went wrong, for the caller and for the log. Becomes HTTP once, at the end.

use fencepost_core::wire::PROBLEM_JSON;
use fencepost_core::{NameError, ProblemDocument, ProblemKind, Refusal, Timestamp, TokenError};
use fencepost_store::engine::Version;
use fencepost_store::{Failure, ReadError, Rejected, WrongResource};
use hyper::Method;
use hyper::header::{ALLOW, CONNECTION, CONTENT_TYPE, RETRY_AFTER};

use super::answer::{Answer, etag};

/// A request that ends with an error answer.
#[derive(Debug)]
pub(super) struct Problem {
    kind: ProblemKind,
    document: Box<ProblemDocument>,
    retry_after: Option<u32>,
    allow: Option<String>,
    close: bool,
}

/// Seconds after which a rejected request may be tried again.
const SOON: u32 = 1;
/// The same, when somebody has to act first.
const LATER: u32 = 30;

impl Problem {
    pub(super) fn new(kind: ProblemKind, detail: impl Into<String>) -> Problem {
        let document = Box::new(ProblemDocument::new(kind, detail));
        Problem { kind, document, retry_after: None, allow: None, close: false }
    }

    pub(super) fn kind(&self) -> ProblemKind {
        self.kind
    }

    fn advice(mut self, advice: &str) -> Problem {
        self.document.advice = Some(advice.to_owned());
        self
    }

    /// Surely not applied; may be tried again.
    fn not_applied(mut self, retry_after: u32) -> Problem {
        self.document.outcome = Some("not-applied".into());
        self.retry_after = Some(retry_after);
        self
    }

    /// The rest of the request is not worth reading.
    fn closing(mut self) -> Problem {
        self.close = true;
        self
    }

    pub(super) fn no_such_route(path: &str) -> Problem {
        let short: String = path.chars().take(80).collect();
        Problem::new(ProblemKind::NoSuchRoute, format!("there is nothing at {short}"))
            .advice("Values live at /v1/kv/{key}, fences at /v1/fences/{resource}.")
    }

    pub(super) fn method_not_allowed(method: &Method, allowed: &[&str]) -> Problem {
        let allowed = allowed.join(", ");
        let mut problem =
            Problem::new(ProblemKind::MethodNotAllowed, format!("{method} is not allowed here; use {allowed}"));
        problem.allow = Some(allowed);
        problem
    }

    pub(super) fn header(name: &str, why: &str) -> Problem {
        Problem::new(ProblemKind::MalformedHeader, format!("header {name}: {why}"))
    }

    pub(super) fn body_too_large(limit: usize) -> Problem {
        Problem::new(ProblemKind::TooLarge, format!("the body is larger than the limit of {limit} bytes"))
            .advice("Send less, or have the operator raise --max-body.")
            .closing()
    }

    pub(super) fn bodies_full(limit: usize) -> Problem {
        Problem::new(
            ProblemKind::Overloaded,
            format!("the bodies of all requests under way have reached the limit of {limit} bytes"),
        )
        .advice("Try again shortly.")
        .not_applied(SOON)
        .closing()
    }

    pub(super) fn answers_full(limit: usize) -> Problem {
        let detail = format!("answers that clients have not taken yet have reached the limit of {limit} bytes");
        Problem::new(ProblemKind::Overloaded, detail).advice("Try again shortly.").not_applied(SOON)
    }

    pub(super) fn body_timeout(seconds: f64) -> Problem {
        Problem::new(ProblemKind::Timeout, format!("the body did not arrive within {seconds} s")).closing()
    }

    pub(super) fn body_broken(why: &str) -> Problem {
        Problem::new(ProblemKind::MalformedBody, format!("the body could not be read: {why}")).closing()
    }

    pub(super) fn headers_too_large(bytes: usize, limit: usize) -> Problem {
        Problem::new(ProblemKind::HeadersTooLarge, format!("the headers have {bytes} bytes, the limit is {limit}"))
            .closing()
    }

    pub(super) fn refused(refusal: &Refusal) -> Problem {
        let reason = refusal.reason;
        let mut problem = Problem::new(reason.problem(), refusal.detail(Timestamp::now())).advice(reason.advice());
        let document = &mut problem.document;
        document.resource = Some(refusal.resource.clone());
        document.presented = refusal.presented_token();
        document.fence = refusal.found.token();
        document.generation = Some(refusal.found.generation);
        document.holder = refusal.found.holder.clone();
        document.issuer = refusal.found.issuer.clone();
        document.raised_at = refusal.found.raised_at.map(|at| at.to_string());
        document.outcome = Some("not-applied".into());
        problem
    }

    pub(super) fn condition_failed(current: Option<Version>) -> Problem {
        let detail = match current {
            Some(version) => format!("the key's version is now {}", etag(version)),
            None => "the key has no value".to_owned(),
        };
        let mut problem = Problem::new(ProblemKind::ConditionFailed, detail)
            .advice("Read the value again, decide anew, and retry with the new version. Your token is still good.");
        problem.document.etag = current.map(etag);
        problem.document.outcome = Some("not-applied".into());
        problem
    }

    pub(super) fn with_fence(mut self, fence: Option<fencepost_core::Token>) -> Problem {
        self.document.fence = fence;
        self
    }

    /// Writes down what the operator should know. Refusals are the caller's business, and only counted.
    pub(super) fn log(&self, id: &str) {
        let (kind, detail) = (self.kind.slug(), &self.document.detail);
        match self.kind.status() {
            _ if self.kind == ProblemKind::Unavailable => tracing::error!(request = id, kind, detail, "request failed"),
            500 => tracing::error!(request = id, kind, detail, "request failed"),
            503 | 507 => tracing::debug!(request = id, kind, detail, "request rejected"),
            _ => tracing::debug!(request = id, kind, detail, "request refused"),
        }
    }

    pub(super) fn into_answer(mut self, id: &str) -> Answer {
        self.document.request_id = Some(id.to_owned());
        let body = serde_json::to_vec(&self.document).unwrap_or_default();
        let mut answer = Answer::new(self.kind.status()).header_static(CONTENT_TYPE, PROBLEM_JSON).body(body.into());
        if let Some(seconds) = self.retry_after {
            answer = answer.header(RETRY_AFTER, &seconds.to_string());
        }
        if let Some(allow) = &self.allow {
            answer = answer.header(ALLOW, allow);
        }
        if self.close {
            answer = answer.header_static(CONNECTION, "close");
        }
        answer.fence(self.document.fence)
    }
}

impl From<TokenError> for Problem {
    fn from(error: TokenError) -> Problem {
        Problem::new(ProblemKind::MalformedToken, error.to_string())
            .advice("Send the number your lock service handed out, unchanged, in the Fencing-Token header.")
    }
}

impl From<NameError> for Problem {
    fn from(error: NameError) -> Problem {
        Problem::new(ProblemKind::MalformedName, error.to_string())
    }
}

impl From<WrongResource> for Problem {
    fn from(error: WrongResource) -> Problem {
        match error {
            WrongResource::Name(error) => error.into(),
            WrongResource::Belongs { name, resource } => {
                let mut problem = Problem::new(
                    ProblemKind::NotAResource,
                    format!("`{name}` is not a resource of its own: it is protected by `{resource}`"),
                )
                .advice("Use that resource's name, and a token of its lock.");
                problem.document.resource = Some(resource);
                problem
            }
        }
    }
}

impl From<Failure> for Problem {
    fn from(failure: Failure) -> Problem {
        match failure {
            Failure::Rejected(rejected) => rejected.into(),
            Failure::Unknown(why) => {
                let mut problem = Problem::new(
                    ProblemKind::OutcomeUnknown,
                    format!("the write may or may not have been applied: {why}"),
                )
                .advice("Read the key to learn what happened. Do not assume either outcome.");
                problem.document.outcome = Some("unknown".into());
                problem
            }
        }
    }
}

impl From<Rejected> for Problem {
    fn from(rejected: Rejected) -> Problem {
        let detail = rejected.to_string();
        match rejected {
            Rejected::Overloaded { .. } | Rejected::Contended { .. } => Problem::new(ProblemKind::Overloaded, detail)
                .advice("The write was not applied. Try again shortly.")
                .not_applied(SOON),
            Rejected::Unavailable(_) => Problem::new(ProblemKind::Unavailable, detail)
                .advice("The write was not applied. If this goes on, look at the gateway's log.")
                .not_applied(SOON),
            Rejected::Poisoned(_) => Problem::new(ProblemKind::Poisoned, detail)
                .advice(
                    "The write was not applied. The operator must check the disk and restart the gateway; reads go on.",
                )
                .not_applied(LATER),
            Rejected::MappingChanged => Problem::new(ProblemKind::MappingChanged, detail)
                .advice("Nothing was applied. The operator must restart this gateway with the stored guards.")
                .not_applied(LATER),
            Rejected::NoSpace { .. } => Problem::new(ProblemKind::NoSpace, detail)
                .advice("The write was not applied. Writes go on by themselves when the operator has freed disk space.")
                .not_applied(LATER),
        }
    }
}

impl From<ReadError> for Problem {
    fn from(error: ReadError) -> Problem {
        match error {
            ReadError::MappingChanged => Rejected::MappingChanged.into(),
            ReadError::Failed(why) => Problem::new(ProblemKind::ReadFailed, why)
                .advice("Nothing was changed. The operator should look at the gateway's log and the disk."),
        }
    }
}
