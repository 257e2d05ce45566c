//! How a call can fail: one kind for each thing the caller would do differently.

use std::fmt;

use fencepost_core::{IdempotencyKey, ProblemDocument, ProblemKind};

/// A call without the answer hoped for.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// Refused by the fence: stop. Retrying with the same token is pointless or wrong.
    #[error("{}", sentence(.0))]
    Fenced(Box<ProblemDocument>),
    /// A condition failed, or a number cannot be added: read again, decide anew.
    #[error("{}", sentence(.0))]
    Conflict(Box<ProblemDocument>),
    /// The key has no value, or nobody holds the lock.
    #[error("{}", sentence(.0))]
    Absent(Box<ProblemDocument>),
    /// The lease is lost: stop what the lock protects.
    #[error("{}", sentence(.0))]
    Lost(Box<ProblemDocument>),
    /// Somebody else holds the lock.
    #[error("{}", sentence(.0))]
    Held(Box<ProblemDocument>),
    /// This request was surely not applied, and may be tried again later. An earlier one with the same idempotency key
    /// may have been.
    #[error("{}", sentence(.0))]
    NotApplied(Box<ProblemDocument>),
    /// The request itself is wrong.
    #[error("{}", sentence(.0))]
    Invalid(Box<ProblemDocument>),
    /// A write may or may not have been applied.
    #[error("{0}")]
    Unknown(Box<UnknownOutcome>),
    /// No connection, so nothing was sent.
    #[error("cannot reach the gateway at {url}: {why}. Is it running? Start one with `fencepost serve`")]
    Unreachable {
        /// Where.
        url: String,
        /// The system's words.
        why: String,
    },
    /// A read failed, or what answered is no Fencepost gateway.
    #[error("{0}")]
    Failed(String),
}

/// A write that may or may not have been applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownOutcome {
    /// What happened.
    pub why: String,
    /// The idempotency key it was sent with: [`Gateway::outcome`](crate::Gateway::outcome) and
    /// [`Guard::outcome`](crate::Guard::outcome) ask what became of it.
    pub key: Option<IdempotencyKey>,
}

impl fmt::Display for UnknownOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the outcome is unknown: {}. The write may or may not have been applied; ", self.why)?;
        match &self.key {
            Some(key) => write!(f, "ask what became of its idempotency key `{key}` (`fencepost outcome show`)"),
            None => f.write_str("read the key to learn which"),
        }
    }
}

fn sentence(problem: &ProblemDocument) -> String {
    match &problem.advice {
        Some(advice) => format!("{} {advice}", punctuated(&problem.detail)),
        None => problem.detail.clone(),
    }
}

fn punctuated(text: &str) -> String {
    if text.ends_with('.') { text.to_owned() } else { format!("{text}.") }
}

impl CallError {
    /// A write without an answer.
    pub(crate) fn unknown(why: String) -> CallError {
        CallError::Unknown(Box::new(UnknownOutcome { why, key: None }))
    }

    /// The same, of a request with this idempotency key.
    pub(crate) fn with_key(mut self, once: Option<&IdempotencyKey>) -> CallError {
        if let CallError::Unknown(unknown) = &mut self {
            unknown.key = once.cloned();
        }
        self
    }

    /// The kind of an error answer.
    pub(crate) fn from_problem(problem: ProblemDocument) -> CallError {
        match problem.status {
            _ if problem.outcome.as_deref() == Some("unknown") => CallError::unknown(problem.detail),
            409 | 428 => CallError::Fenced(problem.into()),
            412 => CallError::Conflict(problem.into()),
            422 if problem.kind() == Some(ProblemKind::AddImpossible) => CallError::Conflict(problem.into()),
            404 if matches!(problem.kind(), Some(ProblemKind::Absent | ProblemKind::NotHeld)) => {
                CallError::Absent(problem.into())
            }
            410 => CallError::Lost(problem.into()),
            423 => CallError::Held(problem.into()),
            408 | 429 | 503 | 507 => CallError::NotApplied(problem.into()),
            500.. => CallError::Failed(problem.detail),
            _ => CallError::Invalid(problem.into()),
        }
    }

    /// The gateway's words, if it answered.
    pub fn problem(&self) -> Option<&ProblemDocument> {
        match self {
            CallError::Fenced(problem)
            | CallError::Conflict(problem)
            | CallError::Absent(problem)
            | CallError::Lost(problem)
            | CallError::Held(problem)
            | CallError::NotApplied(problem)
            | CallError::Invalid(problem) => Some(problem),
            CallError::Unknown(_) | CallError::Unreachable { .. } | CallError::Failed(_) => None,
        }
    }
}
