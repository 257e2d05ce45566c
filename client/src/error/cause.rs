//! The causes of errors, and the sentences that report them.

use fencepost_core::{Issuer, ProblemDocument, Resource, Token};

use super::{Refusal, UnknownOutcome};
use crate::Loss;
use crate::locks::LockError;

/// The cause of an error; its `Display` is that of the error.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Cause {
    /// The gateway answered with a problem.
    #[error("{}", sentence(.0))]
    Answered(ProblemDocument),
    /// The same without its advice: guards and acquisitions act on a refusal themselves, and a failed read has no
    /// advice for the caller.
    #[error("{}", .0.detail)]
    Plain(ProblemDocument),
    #[error("{0}")]
    Unknown(UnknownOutcome),
    /// No connection, so nothing was sent.
    #[error("cannot reach the gateway at {url}: {why}. Is it running? Start one with `fencepost serve`")]
    Unreachable { url: String, why: String },
    /// A read without an answer, or an answer that no Fencepost gateway sends.
    #[error("{0}")]
    Failed(String),
    /// An argument found invalid before anything was sent.
    #[error("{0}")]
    Invalid(String),
    #[error("{0}; nothing was sent")]
    LeaseLost(Loss),
    #[error("{0}; the work under it was cancelled")]
    Cancelled(Loss),
    #[error("the lock `{0}` is held by another holder")]
    Busy(Resource),
    #[error("the lock `{0}` was lost before its token was claimed; acquire it again")]
    LostBeforeClaim(Resource),
    /// The lock service handed out a number that is not above the fence, and its counter cannot be raised.
    #[error(
        "the lock service went backwards: it handed out {number} for `{resource}`, whose fence is {fence}. Was it \
         restored from a backup, or did it fail over to a replica that missed writes? Nothing was written. When you are \
         sure that no holder of an older token is still at work, run: fencepost fence rotate {resource} --from {} \
         --reason '…'", .fence.generation()
    )]
    WentBackwards { resource: Resource, number: u64, fence: Token, refusal: Refusal },
    /// The resource is bound to another lock service, or to another incarnation of this one.
    #[error(
        "`{resource}` is bound to the lock service `{bound}`, and this is `{ours}`: another service, or the same one \
         wiped or replaced. Their numbers cannot be compared. Nothing was written. When you are sure that no holder of an \
         older token is still at work, run: fencepost fence rotate {resource} --from {generation} --reason '…'"
    )]
    ForeignIssuer { resource: Resource, bound: String, ours: Issuer, generation: u32, refusal: Refusal },
    /// The token was given with its generation, and the resource is in another one.
    #[error(
        "token {token} is of generation {}, and `{resource}` is in generation {generation}. Nothing was written. A number \
         without a generation means generation 0. Tokens from before a rotation stay refused: acquire the lock again; a \
         number that was handed out after it is written {generation}:{}", .token.generation(), .token.number()
    )]
    OtherGeneration { resource: Resource, token: Token, generation: u32, refusal: Refusal },
    #[error("{0}")]
    Service(LockError),
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
