//! Error answers, for the caller and for the log. They become HTTP once, at the end.

use std::sync::Arc;

use bytes::Bytes;
use fencepost_core::wire::PROBLEM_JSON;
use fencepost_core::{NameError, ProblemDocument, ProblemKind, Token, TokenError};
use hyper::Method;
use hyper::header::{ALLOW, CONNECTION, CONTENT_TYPE, RETRY_AFTER};

use super::answer::Answer;
use super::body::{ByteBudget, hold_anyway};
use super::wording::{MAX_TEXT, shorten};

/// A request that ends with an error answer.
#[derive(Debug)]
pub(super) struct Problem {
    kind: ProblemKind,
    pub(super) document: Box<ProblemDocument>,
    retry_after: Option<u32>,
    allow: Option<String>,
    close: bool,
    /// Set if this is a recorded answer, with the current fence.
    replayed: Option<Option<Token>>,
}

/// An error answer of up to this many bytes is not counted against the budget of answers.
const SMALL: usize = 4 << 10;

/// Like [`MAX_TEXT`], for the reason why a configuration cannot be used.
const MAX_RELOAD_TEXT: usize = 2_000;

/// Seconds after which a rejected request may be tried again.
pub(super) const SOON: u32 = 1;
/// Like [`SOON`], when an operator has to act first.
pub(super) const LATER: u32 = 30;

impl Problem {
    pub(super) fn new(kind: ProblemKind, detail: impl Into<String>) -> Problem {
        let document = Box::new(ProblemDocument::new(kind, detail));
        Problem { kind, document, retry_after: None, allow: None, close: false, replayed: None }
    }

    /// Shortens its texts to a bounded length.
    pub(super) fn bounded(mut self) -> Problem {
        let limit = match self.kind {
            // Only administrators get it, and it quotes their own file.
            ProblemKind::ReloadRefused => MAX_RELOAD_TEXT,
            _ => MAX_TEXT,
        };
        shorten(&mut self.document.detail, limit);
        for refusal in &mut self.document.refusals {
            shorten(&mut refusal.detail, limit);
        }
        self
    }

    pub(super) fn kind(&self) -> ProblemKind {
        self.kind
    }

    pub(super) fn detail(&self) -> &str {
        &self.document.detail
    }

    pub(super) fn advice(mut self, advice: &'static str) -> Problem {
        self.document.advice = Some(advice.into());
        self
    }

    /// States that the request was not applied and may be retried.
    pub(super) fn not_applied(mut self, retry_after: u32) -> Problem {
        self.document.outcome = Some("not-applied".into());
        self.retry_after = Some(retry_after);
        self
    }

    /// For a request with an idempotency key: a rejection before the record of the key was read says nothing about
    /// earlier requests with the same key (T44).
    pub(super) fn of_a_keyed_request(mut self) -> Problem {
        if matches!(self.kind.status(), 408 | 429 | 503 | 507) {
            self.document.outcome = Some("not-applied-by-this-request".into());
            let advice = self.document.advice.take().unwrap_or_default();
            let earlier = "An earlier request with the same idempotency key may have been applied: retry with that key \
                           until the answer is final, or ask /v1/outcomes/{key}.";
            self.document.advice = Some(format!("{advice} {earlier}").trim_start().to_owned().into());
        }
        self
    }

    pub(super) fn with_detail(mut self, detail: String) -> Problem {
        self.document.detail = detail;
        self
    }

    /// Closes the connection: the rest of the request is not worth reading.
    fn closing(mut self) -> Problem {
        self.close = true;
        self
    }

    pub(super) fn no_such_route(path: &str) -> Problem {
        Problem::new(ProblemKind::NoSuchRoute, format!("there is nothing at `{path}`"))
            .advice("Values live at /v1/kv/{key}, fences at /v1/fences/{resource}.")
    }

    pub(super) fn method_not_allowed(method: &Method, allowed: &[&str]) -> Problem {
        let allowed = allowed.join(", ");
        let mut problem =
            Problem::new(ProblemKind::MethodNotAllowed, format!("`{method}` is not allowed here; use {allowed}"));
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

    /// The limit of all callers together, or that of this caller, is reached.
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

    /// Marks the recorded answer of an earlier request. The fence may have been raised since.
    pub(super) fn replayed(mut self, fence_now: Option<Token>) -> Problem {
        self.replayed = Some(fence_now);
        self
    }

    pub(super) fn draining(detail: &str) -> Problem {
        Problem::new(ProblemKind::Draining, detail).advice("Try again shortly.").not_applied(SOON)
    }

    pub(super) fn admin_only() -> Problem {
        Problem::new(ProblemKind::AdminOnly, "this call is served on the administrator's Unix socket only")
            .advice("Use `fencepost` on the gateway's machine, or curl --unix-socket <data>/admin.sock.")
    }

    pub(super) fn with_fence(mut self, fence: Option<Token>) -> Problem {
        self.document.fence = fence;
        self
    }

    /// Logs what the operator should know. Refusals concern the caller, and are only counted.
    pub(super) fn log(&self, id: &str) {
        let (kind, detail) = (self.kind.slug(), &self.document.detail);
        match self.kind.status() {
            _ if self.kind == ProblemKind::Unavailable => tracing::error!(request = id, kind, detail, "request failed"),
            500 => tracing::error!(request = id, kind, detail, "request failed"),
            503 | 507 => tracing::debug!(request = id, kind, detail, "request rejected"),
            _ => tracing::debug!(request = id, kind, detail, "request refused"),
        }
    }

    pub(super) fn into_answer(mut self, id: &str, budget: &Arc<ByteBudget>) -> Answer {
        self.document.request_id = Some(id.to_owned());
        let mut body = Bytes::from(self.document.to_json());
        // A transaction may be refused by many resources with long names.
        if body.len() > SMALL {
            body = hold_anyway(body, budget);
        }
        let mut answer = Answer::new(self.kind.status()).header_static(CONTENT_TYPE, PROBLEM_JSON).body(body);
        if let Some(seconds) = self.retry_after {
            answer = answer.header(RETRY_AFTER, &seconds.to_string());
        }
        if let Some(allow) = &self.allow {
            answer = answer.header(ALLOW, allow);
        }
        if let Some(fence_now) = self.replayed {
            answer = answer.replayed(fence_now);
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

#[cfg(test)]
mod tests {
    use super::*;
    use fencepost_core::{Holder, Issuer, Key, Resource};
    use hyper::body::Body as _;

    #[test]
    fn s05_no_problem_is_larger_than_its_facts_allow() {
        let budget = ByteBudget::new(0);
        let name = "n".repeat(1024);
        for kind in ProblemKind::ALL.iter().copied() {
            for text in ["x".repeat(5 << 20), "\u{1}\"é`".repeat(1 << 20), format!("`{name}` and `{name}`")] {
                let mut problem =
                    Problem::new(kind, text).advice("Try again later, or wait for it in turn: give wait_ms.");
                problem.document.resource = Some(Resource::new(&name).unwrap());
                problem.document.holder = Some(Holder::new(&"h".repeat(256)).unwrap());
                problem.document.issuer = Some(Issuer::new(&"i".repeat(256)).unwrap());
                problem.document.fence = Token::new(u32::MAX, u64::MAX);
                problem.document.presented = Token::new(u32::MAX, u64::MAX);
                let answer = problem.bounded().into_answer("0123abcd-18446744073709551615", &budget);
                let bytes = answer.into_response().body().size_hint().exact().unwrap();
                assert!(bytes <= 4 << 10, "{kind:?}: {bytes} bytes");
            }
        }
        let mut key =
            Problem::new(ProblemKind::ConditionFailed, format!("condition 7 of `if` does not hold: `{name}`"));
        key.document.key = Some(Key::new(&name).unwrap());
        let bytes = key.bounded().into_answer("0", &budget).into_response().body().size_hint().exact().unwrap();
        assert!(bytes <= 4 << 10, "{bytes}");
    }
}
