//! How each command can end, where that is known. A refusal is one of the ends, not an error.
//!
//! While a batch is judged, `V` is a version that its commit may still have to give.

use fencepost_core::{FenceState, Holder, Issuer, Key, Reason, Refusal, Resource, Token};

use crate::engine::Version;
use crate::record::{LeaseId, Value};

/// How a put or a delete ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteOutcome<V = Version> {
    /// It is durable.
    Applied(Applied<V>),
    /// The fence refused, and what caused it is durable (G4).
    Refused(Box<Refusal>),
    /// The token was admitted, but the condition did not hold. Nothing but the fence changed.
    ConditionFailed(FailedCondition<V>),
    /// The recorded outcome of an earlier request with the same key, and the fence now.
    Replayed(RecordedWrite<V>, Option<Token>),
    /// The idempotency key belongs to another request. Nothing changed.
    KeyReused,
    /// The idempotency key was abandoned: it can never apply.
    Abandoned,
}

/// What is recorded of a put or a delete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordedWrite<V = Version> {
    /// It was applied.
    Applied(Applied<V>),
    /// Its condition did not hold.
    ConditionFailed(FailedCondition<V>),
}

/// How a transaction ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TransactOutcome<V = Version> {
    /// It is durable.
    Transacted(Box<Transacted<V>>),
    /// Fences refused, and what caused it is durable (G4). Never empty: every resource that refused.
    Refused(Vec<Refusal>),
    /// The tokens were admitted, but a condition did not hold. Nothing but fences changed.
    ConditionFailed(FailedCondition<V>),
    /// The tokens were admitted, but an addition is impossible. Nothing but fences changed.
    Impossible(ImpossibleAddition),
    /// The requested values are too large for one answer. Nothing changed.
    TooLarge(TooLarge),
    /// The recorded outcome of an earlier request with the same key, and the current fences of its resources.
    Replayed(RecordedTransaction<V>, Vec<(Resource, Option<Token>)>),
    /// The idempotency key belongs to another request. Nothing changed.
    KeyReused,
    /// The idempotency key was abandoned: it can never apply.
    Abandoned,
}

/// What is recorded of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordedTransaction<V = Version> {
    /// It was done.
    Transacted(Box<Transacted<V>>),
    /// A condition did not hold.
    ConditionFailed(FailedCondition<V>),
    /// An addition could not be done.
    Impossible(ImpossibleAddition),
}

/// How a claim ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClaimOutcome<V = Version> {
    /// The fence is durable; contains the values of the keys at that instant.
    Claimed(Box<Claimed<V>>),
    /// The fence refused, and what caused it is durable (G4).
    Refused(Box<Refusal>),
    /// The requested values are too large for one answer. Nothing changed.
    TooLarge(TooLarge),
}

/// How an attempt to acquire a lock ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AcquireOutcome<V = Version> {
    /// The lock is granted.
    Granted(Box<Grant<V>>),
    /// Another holder has it, or others wait for it.
    Held(Box<Holding<V>>),
    /// The fence refused the grant, and what caused it is durable (G4).
    Refused(Box<Refusal>),
    /// There is no number above the fence.
    Exhausted(Exhausted),
    /// What became of the recorded grant of an earlier request with the same key, and the fence now.
    Replayed(RecordedGrant<V>, Option<Token>),
    /// The idempotency key belongs to another request. Nothing changed.
    KeyReused,
    /// The idempotency key was abandoned: it can never apply.
    Abandoned,
}

/// What became of a recorded grant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordedGrant<V = Version> {
    /// The lease is still current.
    Granted(Box<Grant<V>>),
    /// It is not.
    Lost(LeaseLost),
}

/// How a renewal ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RenewOutcome<V = Version> {
    /// The lease lasts for its new time from now on.
    Renewed(Box<Grant<V>>),
    /// The lease is no longer current. Nothing changed.
    Lost(LeaseLost),
}

/// How a release ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReleaseOutcome {
    /// The lock is free.
    Released,
    /// The lease is no longer current. Nothing changed.
    Lost(LeaseLost),
}

/// How a forced release ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ForceReleaseOutcome {
    /// The lock was taken from its holder, whose token is refused from now on.
    Released {
        /// The previous holder.
        holder: Holder,
        /// The holder's token.
        token: Token,
        /// The current fence.
        fence: Option<Token>,
    },
    /// The lock is not held.
    NotHeld,
    /// The fence cannot be raised for the lock service, and what caused it is durable (G4).
    Refused(Box<Refusal>),
    /// There is no number above the fence.
    Exhausted(Exhausted),
}

/// How a rotation ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RotateOutcome {
    /// A new generation has begun.
    Rotated {
        /// The new one.
        generation: u32,
    },
    /// The generation to end is not the current one. Nothing changed.
    OtherGeneration {
        /// The current generation.
        found: u32,
    },
    /// There is no generation above the one in use.
    Exhausted(Exhausted),
}

/// How a change of what is kept about objects ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ChangeOutcome {
    /// It is durable.
    Changed(Changed),
    /// Fences refused, and what caused it is durable (G4). Never empty: every resource that refused.
    Refused(Vec<Refusal>),
    /// The tokens were admitted, but this requirement, counted from 0, is not met. Nothing but fences changed.
    Unmet { at: usize, fence: Option<Token> },
}

/// A recorded outcome of a request with an idempotency key. It is final.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FinalOutcome<V = Version> {
    /// A transaction, put or delete was done.
    Transacted(Box<Transacted<V>>),
    /// A condition did not hold.
    ConditionFailed(FailedCondition<V>),
    /// An addition could not be done.
    Impossible(ImpossibleAddition),
    /// A lock was granted.
    Granted(Box<Grant<V>>),
    /// The key was abandoned: it can never apply.
    Abandoned,
}

/// A condition that did not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedCondition<V = Version> {
    /// Index of the condition, counted from 0.
    pub at: usize,
    /// The condition's key.
    pub key: Key,
    /// The key's current version.
    pub current: Option<V>,
    /// The current fence, if exactly one resource was judged.
    pub fence: Option<Token>,
}

/// An addition that cannot be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImpossibleAddition {
    /// Index of the operation, counted from 0.
    pub at: usize,
    /// The operation's key.
    pub key: Key,
    /// Why the addition is impossible.
    pub why: Impossible,
}

/// Values that are too large to be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLarge {
    /// Their size in bytes. It includes record overhead for values that were not loaded, so it may be slightly too
    /// high.
    pub bytes: usize,
    /// The limit in bytes.
    pub limit: usize,
}

/// There is no higher number, or no higher generation, left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exhausted {
    /// The fence now, if it is the numbers that are used up.
    pub fence: Option<Token>,
    /// The current generation.
    pub generation: u32,
}

/// A lease that is no longer current.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseLost {
    /// The current holder of the lock.
    pub holder: Option<Holder>,
    /// The current fence.
    pub fence: Option<Token>,
}

/// A put or delete that is durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied<V = Version> {
    /// The new version; `None` for a delete.
    pub version: Option<V>,
    /// The current fence.
    pub fence: Option<Token>,
    /// Why it would have been refused if the guard did not merely observe.
    pub observed: Option<Reason>,
}

/// A transaction that is durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transacted<V = Version> {
    /// One result per operation, in order.
    pub results: Vec<(Key, Done<V>)>,
    /// The fence of the first resource that was judged.
    pub fence: Option<Token>,
    /// Resources that would have refused if their guards did not merely observe.
    pub observed: Vec<(Resource, Reason)>,
}

/// A change to objects that is durable.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changed {
    /// The fence of the first resource that was judged.
    pub fence: Option<Token>,
    /// Resources that would have refused if their guards did not merely observe.
    pub observed: Vec<(Resource, Reason)>,
}

/// The result of one operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Done<V = Version> {
    /// The key now has this version.
    Put(V),
    /// The key now has no value.
    Absent,
    /// The key now holds this sum.
    Sum(V, i64),
    /// The key was read.
    Read(V, Value),
}

/// Why a number cannot be added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Impossible {
    /// The value is not a whole number.
    NotANumber,
    /// The sum is outside the bounds of the request, or of the number type.
    OutOfBounds {
        /// The key's value.
        value: i64,
        /// The amount to add.
        by: i64,
        /// The lowest allowed sum.
        min: i64,
        /// The highest allowed sum.
        max: i64,
    },
}

/// A claim that is durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claimed<V = Version> {
    /// The resource's state.
    pub state: FenceState,
    /// The values of the keys, in request order.
    pub values: Vec<(Key, Option<(V, Value)>)>,
    /// Why it would have been refused if the guard did not merely observe.
    pub observed: Option<Reason>,
}

/// A lease that is durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant<V = Version> {
    /// Names the lease; known to its holder only.
    pub lease: LeaseId,
    /// The fencing token.
    pub token: Token,
    /// The holder of the lease.
    pub holder: Holder,
    /// The lock service that numbered the token.
    pub issuer: Issuer,
    /// How long the lease lasts unless it is renewed.
    pub ttl_ms: u64,
    /// Why it would have been refused if the guard did not merely observe.
    pub observed: Option<Reason>,
    pub(crate) version: V,
}

/// Why a lock cannot be taken now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holding<V = Version> {
    /// The lease that blocks it; `None` if the lock is free but others wait in front.
    pub by: Option<Held<V>>,
    /// How long the lease lasts at most, unless it is renewed.
    pub remaining_ms: u64,
    /// Number of waiters for the lock on this gateway.
    pub waiting: usize,
}

/// The lease that blocks an acquirer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held<V = Version> {
    /// The holder of the lease.
    pub holder: Holder,
    /// The holder's token.
    pub token: Token,
    /// How long the lease lasts unless it is renewed.
    pub ttl_ms: u64,
    pub(crate) version: V,
}

/// The verdicts of the judge behind an outcome, for metrics.
pub trait Verdicts {
    /// The refusals, if it was refused.
    fn refusals(&self) -> &[Refusal];

    /// Why resources would have refused, had their guards not merely observed.
    fn observed(&self) -> Vec<Reason>;
}

impl Verdicts for WriteOutcome {
    fn refusals(&self) -> &[Refusal] {
        match self {
            WriteOutcome::Refused(refusal) => std::slice::from_ref(refusal),
            _ => &[],
        }
    }

    fn observed(&self) -> Vec<Reason> {
        match self {
            WriteOutcome::Applied(applied) => applied.observed.into_iter().collect(),
            _ => Vec::new(),
        }
    }
}

impl Verdicts for TransactOutcome {
    fn refusals(&self) -> &[Refusal] {
        match self {
            TransactOutcome::Refused(refusals) => refusals,
            _ => &[],
        }
    }

    fn observed(&self) -> Vec<Reason> {
        match self {
            TransactOutcome::Transacted(transacted) => transacted.observed.iter().map(|(_, reason)| *reason).collect(),
            _ => Vec::new(),
        }
    }
}

impl Verdicts for ClaimOutcome {
    fn refusals(&self) -> &[Refusal] {
        match self {
            ClaimOutcome::Refused(refusal) => std::slice::from_ref(refusal),
            _ => &[],
        }
    }

    fn observed(&self) -> Vec<Reason> {
        match self {
            ClaimOutcome::Claimed(claimed) => claimed.observed.into_iter().collect(),
            _ => Vec::new(),
        }
    }
}

impl Verdicts for AcquireOutcome {
    fn refusals(&self) -> &[Refusal] {
        match self {
            AcquireOutcome::Refused(refusal) => std::slice::from_ref(refusal),
            _ => &[],
        }
    }

    fn observed(&self) -> Vec<Reason> {
        match self {
            AcquireOutcome::Granted(grant) => grant.observed.into_iter().collect(),
            _ => Vec::new(),
        }
    }
}

impl Verdicts for RenewOutcome {
    fn refusals(&self) -> &[Refusal] {
        &[]
    }

    fn observed(&self) -> Vec<Reason> {
        match self {
            RenewOutcome::Renewed(grant) => grant.observed.into_iter().collect(),
            RenewOutcome::Lost(_) => Vec::new(),
        }
    }
}

impl Verdicts for ReleaseOutcome {
    fn refusals(&self) -> &[Refusal] {
        &[]
    }

    fn observed(&self) -> Vec<Reason> {
        Vec::new()
    }
}
