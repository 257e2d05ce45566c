//! The facts of an error.

use std::fmt;

use fencepost_core::{Holder, IdempotencyKey, Issuer, ProblemDocument, ProblemKind, Resource, Token};

/// Both sides of a refusal by the fence.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Refusal {
    /// The rule that refused; `None` if the gateway is newer than this crate and names a rule that this crate does not
    /// know.
    pub reason: Option<ProblemKind>,
    /// The resource whose fence refused.
    pub resource: Option<Resource>,
    /// The token that was presented.
    pub presented: Option<Token>,
    /// The lock service that numbered the presented token, if an acquisition was refused.
    pub presented_issuer: Option<Issuer>,
    /// The fence of the resource.
    pub fence: Option<Token>,
    /// The generation of the resource.
    pub generation: Option<u32>,
    /// The holder that raised the fence.
    pub holder: Option<Holder>,
    /// The lock service that the resource is bound to.
    pub issuer: Option<Issuer>,
}

/// A write that may or may not have been applied.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnknownOutcome {
    /// Why the outcome could not be determined.
    pub why: String,
    /// The idempotency key of the write. Pass it to [`Gateway::outcome`](crate::Gateway::outcome) or
    /// [`Guard::outcome`](crate::Guard::outcome) to learn the outcome.
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

impl Refusal {
    pub(crate) fn of(problem: &ProblemDocument) -> Refusal {
        Refusal {
            reason: problem.kind(),
            resource: problem.resource.clone(),
            presented: problem.presented,
            presented_issuer: None,
            fence: problem.fence.or(problem.fence_at_least),
            generation: problem.generation,
            holder: problem.holder.clone(),
            issuer: problem.issuer.clone(),
        }
    }
}
