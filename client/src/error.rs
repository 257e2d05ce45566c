//! The error type of this crate: one kind for each way a caller may react, and the facts needed to do so.

mod cause;
mod facts;

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use fencepost_core::{IdempotencyKey, ProblemDocument, ProblemKind};

use crate::Loss;
use crate::locks::LockError;
use crate::transport::Missed;

pub(crate) use cause::Cause;
pub use facts::{Refusal, UnknownOutcome};

/// What to do about an [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The fence refused the token, and nothing was applied: **stop**. Retrying with the same token is pointless or
    /// wrong. [`Error::refusal`] has both sides.
    Fenced,
    /// A condition failed, or a number cannot be added: read again and decide anew. The lock is still held.
    Conflict,
    /// The lease is lost: stop the work that the lock protects.
    Lost,
    /// The lock is held by another holder, or was lost before its token was claimed: acquire it again later.
    Busy,
    /// The gateway or the lock service cannot be used at the moment. This request was not applied; try again later. An
    /// earlier one with the same idempotency key may have been applied.
    Unavailable,
    /// A write may or may not have been applied. [`Error::unknown_outcome`] has the idempotency key to query it with.
    UnknownOutcome,
    /// The request, its arguments or the configuration is wrong; trying again does not help.
    Invalid,
}

/// Why a call failed. Match on [`kind`](Error::kind); the other methods return the facts.
///
/// `Display` is a complete sentence for people: what happened, which limit, and the next step.
/// [`source`](StdError::source) is the error of the connection or of the lock service, for callers that look for a
/// specific one; its text is already part of the sentence.
pub struct Error(Box<Inner>);

struct Inner {
    cause: Cause,
    retry_after: Option<Duration>,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl Error {
    /// The kind, which determines what to do about the error.
    pub fn kind(&self) -> ErrorKind {
        match &self.0.cause {
            Cause::Answered(problem) | Cause::Plain(problem) => kind_of(problem),
            Cause::Unknown(_) => ErrorKind::UnknownOutcome,
            Cause::Unreachable { .. } | Cause::Failed(_) => ErrorKind::Unavailable,
            Cause::Invalid(_) => ErrorKind::Invalid,
            Cause::LeaseLost(_) | Cause::Cancelled(_) => ErrorKind::Lost,
            Cause::Busy(_) | Cause::LostBeforeClaim(_) => ErrorKind::Busy,
            Cause::WentBackwards { .. } | Cause::ForeignIssuer { .. } | Cause::OtherGeneration { .. } => {
                ErrorKind::Fenced
            }
            Cause::Service(LockError::Unreachable { .. }) => ErrorKind::Unavailable,
            Cause::Service(LockError::Refused { .. }) => ErrorKind::Fenced,
            Cause::Service(LockError::Failed { .. } | LockError::Invalid(_)) => ErrorKind::Invalid,
        }
    }

    /// Both sides of the refusal, if the fence refused the token.
    pub fn refusal(&self) -> Option<Refusal> {
        match &self.0.cause {
            Cause::WentBackwards { refusal, .. }
            | Cause::ForeignIssuer { refusal, .. }
            | Cause::OtherGeneration { refusal, .. } => Some(refusal.clone()),
            Cause::Answered(problem) | Cause::Plain(problem) if self.kind() == ErrorKind::Fenced => {
                Some(Refusal::of(problem))
            }
            _ => None,
        }
    }

    /// The write whose outcome is not known, with its idempotency key.
    pub fn unknown_outcome(&self) -> Option<&UnknownOutcome> {
        match &self.0.cause {
            Cause::Unknown(unknown) => Some(unknown),
            _ => None,
        }
    }

    /// Why the lease of a guard was lost.
    pub fn loss(&self) -> Option<Loss> {
        match &self.0.cause {
            Cause::LeaseLost(loss) | Cause::Cancelled(loss) => Some(*loss),
            _ => None,
        }
    }

    /// How long the gateway asks the client to wait before the next attempt.
    pub fn retry_after(&self) -> Option<Duration> {
        self.0.retry_after
    }

    /// The gateway's complete problem document, if it answered with one.
    pub fn problem(&self) -> Option<&ProblemDocument> {
        match &self.0.cause {
            Cause::Answered(problem) | Cause::Plain(problem) => Some(problem),
            _ => None,
        }
    }

    /// The error of the lock service, if it caused this one.
    pub fn lock_error(&self) -> Option<&LockError> {
        match &self.0.cause {
            Cause::Service(error) => Some(error),
            _ => None,
        }
    }

    /// True if no connection to the gateway could be made, so that nothing was sent.
    pub fn is_unreachable(&self) -> bool {
        matches!(self.0.cause, Cause::Unreachable { .. })
    }

    pub(crate) fn unknown(why: String, key: Option<IdempotencyKey>) -> Error {
        Cause::Unknown(UnknownOutcome { why, key }).into()
    }

    pub(crate) fn invalid(why: impl Into<String>) -> Error {
        Cause::Invalid(why.into()).into()
    }

    /// The error for a problem document.
    pub(crate) fn answered(problem: ProblemDocument) -> Error {
        if problem.outcome.as_deref() == Some("unknown") {
            return Error::unknown(problem.detail, None);
        }
        match problem.status {
            500.. if !is_rejected(&problem) => Cause::Plain(problem).into(),
            _ => Cause::Answered(problem).into(),
        }
    }

    pub(crate) fn with_retry_after(mut self, time: Option<Duration>) -> Error {
        self.0.retry_after = time;
        self
    }

    pub(crate) fn with_source(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Error {
        self.0.source = Some(source.into());
        self
    }

    /// Adds the idempotency key to an unknown outcome; leaves other errors as they are.
    pub(crate) fn with_key(mut self, once: Option<&IdempotencyKey>) -> Error {
        if let Cause::Unknown(unknown) = &mut self.0.cause {
            unknown.key = once.cloned();
        }
        self
    }

    /// Removes the advice from a refusal, as guards and acquisitions report it.
    pub(crate) fn without_advice(mut self) -> Error {
        self.0.cause = match self.0.cause {
            Cause::Answered(problem) if kind_of(&problem) == ErrorKind::Fenced => Cause::Plain(problem),
            cause => cause,
        };
        self
    }

    pub(crate) fn problem_kind(&self) -> Option<ProblemKind> {
        self.problem().and_then(ProblemDocument::kind)
    }

    /// The gateway's refusal of a token, or the unchanged error.
    pub(crate) fn into_refused(self) -> Result<ProblemDocument, Error> {
        let refused = self.kind() == ErrorKind::Fenced;
        match self.0.cause {
            Cause::Answered(problem) if refused => Ok(problem),
            cause => Err(Error(Box::new(Inner { cause, ..*self.0 }))),
        }
    }

    /// True if the same request may be sent again, given an idempotency key where it writes.
    pub(crate) fn is_repeatable(&self) -> bool {
        match &self.0.cause {
            Cause::Unknown(_) | Cause::Unreachable { .. } => true,
            Cause::Answered(problem) => is_rejected(problem),
            _ => false,
        }
    }

    /// True if the gateway or the lock service could not be asked, so that an acquisition may be tried again.
    pub(crate) fn is_transient(&self) -> bool {
        matches!(self.kind(), ErrorKind::Unavailable | ErrorKind::UnknownOutcome)
    }

    /// True if a read got no answer, or none that can be understood.
    pub(crate) fn is_failed_read(&self) -> bool {
        self.kind() == ErrorKind::Unavailable && !self.is_repeatable()
    }
}

/// Maps "not found" (a value, or the holder of a lock) to `None`.
pub(crate) fn absent_is_none<T>(answered: Result<T, Missed>) -> Result<Option<T>, Missed> {
    match answered {
        Ok(answer) => Ok(Some(answer)),
        Err(missed) if matches!(missed.error.problem_kind(), Some(ProblemKind::Absent | ProblemKind::NotHeld)) => {
            Ok(None)
        }
        Err(missed) => Err(missed),
    }
}

fn kind_of(problem: &ProblemDocument) -> ErrorKind {
    match problem.status {
        409 | 428 => ErrorKind::Fenced,
        412 => ErrorKind::Conflict,
        422 if problem.kind() == Some(ProblemKind::AddImpossible) => ErrorKind::Conflict,
        410 => ErrorKind::Lost,
        423 => ErrorKind::Busy,
        408 | 429 | 500.. => ErrorKind::Unavailable,
        _ => ErrorKind::Invalid,
    }
}

/// True if the request was rejected before it was judged, so that it was surely not applied.
fn is_rejected(problem: &ProblemDocument) -> bool {
    matches!(problem.status, 408 | 429 | 503 | 507)
}

impl From<Cause> for Error {
    fn from(cause: Cause) -> Error {
        Error(Box::new(Inner { cause, retry_after: None, source: None }))
    }
}

impl From<LockError> for Error {
    fn from(error: LockError) -> Error {
        Error::from(Cause::Service(error.clone())).with_source(error)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0.cause, f)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error").field("kind", &self.kind()).field("cause", &self.0.cause).finish_non_exhaustive()
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_deref().map(|source| source as &(dyn StdError + 'static))
    }
}

#[cfg(test)]
mod tests {
    use fencepost_core::Token;

    use super::*;

    /// Every problem maps to one kind; a new problem must be added here explicitly.
    #[test]
    fn every_problem_has_its_kind() {
        use ProblemKind as Kind;
        for kind in Kind::ALL {
            let expected = match kind {
                Kind::Stale | Kind::Spent | Kind::Collision | Kind::ForeignIssuer | Kind::RetiredGeneration => {
                    ErrorKind::Fenced
                }
                Kind::UnknownGeneration | Kind::Implausible | Kind::Exhausted => ErrorKind::Fenced,
                Kind::MissingToken | Kind::MissingIssuer | Kind::Unclaimed => ErrorKind::Fenced,
                Kind::ConditionFailed | Kind::AddImpossible => ErrorKind::Conflict,
                Kind::LeaseLost => ErrorKind::Lost,
                Kind::LockHeld => ErrorKind::Busy,
                Kind::Timeout | Kind::Overloaded | Kind::Unavailable | Kind::Poisoned => ErrorKind::Unavailable,
                Kind::Draining | Kind::MappingChanged | Kind::NoSpace => ErrorKind::Unavailable,
                // Without its `outcome` field it is a failed read.
                Kind::ReadFailed | Kind::OutcomeUnknown => ErrorKind::Unavailable,
                _ => ErrorKind::Invalid,
            };
            let error = Error::answered(ProblemDocument::new(*kind, "why"));
            assert_eq!(error.kind(), expected, "{kind:?}");
            assert_eq!(error.refusal().is_some(), expected == ErrorKind::Fenced, "{kind:?}");
        }
    }

    #[test]
    fn c02_an_unknown_outcome_is_never_taken_for_not_applied() {
        let mut problem = ProblemDocument::new(ProblemKind::OutcomeUnknown, "fsync failed");
        problem.outcome = Some("unknown".into());
        let key = IdempotencyKey::new("k").unwrap();
        let error = Error::answered(problem).with_key(Some(&key));
        assert_eq!(error.kind(), ErrorKind::UnknownOutcome);
        assert_eq!(error.unknown_outcome().unwrap().key, Some(key));
        assert!(error.to_string().contains("may or may not have been applied"), "{error}");
    }

    #[test]
    fn a_refusal_has_both_sides() {
        let mut problem = ProblemDocument::new(ProblemKind::Stale, "token 33 is stale");
        (problem.presented, problem.fence) = (Token::new(0, 33), Token::new(0, 34));
        problem.advice = Some("Stop.".into());
        let error = Error::answered(problem);
        let refusal = error.refusal().unwrap();
        assert_eq!((refusal.presented, refusal.fence), (Token::new(0, 33), Token::new(0, 34)));
        assert_eq!(refusal.reason, Some(ProblemKind::Stale));
        assert_eq!(error.to_string(), "token 33 is stale. Stop.");
        assert_eq!(error.without_advice().to_string(), "token 33 is stale");
    }

    #[test]
    fn the_error_of_the_lock_service_is_the_source() {
        let error = Error::from(LockError::Unreachable { service: "redis".into(), why: "refused".into() });
        assert_eq!(
            (error.kind(), error.to_string().as_str()),
            (ErrorKind::Unavailable, "redis cannot be reached: refused")
        );
        assert!(error.source().is_some_and(|source| source.is::<LockError>()));
    }
}
