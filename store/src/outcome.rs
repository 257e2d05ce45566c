//! Outcomes of commands.

use std::fmt;

use fencepost_core::{FenceState, Holder, Issuer, Key, Reason, Refusal, Resource, Token};

use crate::engine::Version;
use crate::record::{LeaseId, Value};

/// A known outcome. A refusal is one of them, not an error.
///
/// While a batch is judged, `V` may be a version that the commit has yet to assign.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome<V = Version> {
    /// A put or delete is durable.
    Applied(Applied<V>),
    /// A transaction is durable.
    Transacted(Box<Transacted<V>>),
    /// The fence is durable; contains the values of the keys at that instant.
    Claimed(Box<Claimed<V>>),
    /// Fences refused, and the state that caused it is durable (G4). Never empty; a transaction lists every resource
    /// that refused.
    Refused(Vec<Refusal>),
    /// The tokens were admitted, but a condition did not hold. Nothing but fences changed.
    ConditionFailed {
        /// Index of the condition, counted from 0.
        at: usize,
        /// The condition's key.
        key: Key,
        /// The key's current version.
        current: Option<V>,
        /// The current fence, if exactly one resource was judged.
        fence: Option<Token>,
    },
    /// The tokens were admitted, but an addition is impossible. Nothing but fences changed.
    Impossible {
        /// Index of the operation, counted from 0.
        at: usize,
        /// The operation's key.
        key: Key,
        /// Why the addition is impossible.
        why: Impossible,
    },
    /// The requested values are too large for one answer. Nothing changed.
    TooLarge {
        /// Their size in bytes. It includes record overhead for values that were not loaded, so it may be slightly too
        /// high.
        bytes: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// A change to objects is durable.
    Changed(Box<Changed>),
    /// The tokens were admitted, but a requirement of the change to objects is not met. Nothing but fences changed.
    Unmet {
        /// Index of the requirement, counted from 0.
        at: usize,
        /// The fence of the first resource that was judged.
        fence: Option<Token>,
    },
    /// The lock is granted or renewed.
    Granted(Box<Grant<V>>),
    /// Another holder has the lock, or others wait in front.
    Held(Box<Holding<V>>),
    /// The lease is no longer current. Nothing changed.
    LeaseLost {
        /// The current holder of the lock.
        holder: Option<Holder>,
        /// The current fence.
        fence: Option<Token>,
    },
    /// The lock is free.
    Released,
    /// The lock was taken from its holder, whose token is refused from now on.
    ForceReleased {
        /// The previous holder.
        holder: Holder,
        /// The holder's token.
        token: Token,
        /// The current fence.
        fence: Option<Token>,
    },
    /// The lock is not held.
    NotHeld,
    /// There is no higher number, or no higher generation, left.
    Exhausted {
        /// The current fence.
        fence: Option<Token>,
        /// The current generation.
        generation: u32,
    },
    /// A new generation has begun.
    Rotated {
        /// The new generation.
        generation: u32,
    },
    /// The generation to end is not the current one. Nothing changed.
    OtherGeneration {
        /// The current generation.
        found: u32,
    },
    /// The recorded outcome of an earlier request with the same key, and the current fences of its resources.
    Replayed(Box<Outcome<V>>, Vec<(Resource, Option<Token>)>),
    /// The idempotency key belongs to another request. Nothing changed.
    KeyReused,
    /// The idempotency key was abandoned: it can never apply.
    Abandoned,
    /// Outcomes whose retention has passed were removed.
    Forgotten,
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

impl<V> Outcome<V> {
    /// Converts every version in the outcome.
    pub(crate) fn map<W>(self, version: &impl Fn(V) -> W) -> Outcome<W> {
        match self {
            Outcome::Applied(Applied { version: v, fence, observed }) => {
                Outcome::Applied(Applied { version: v.map(version), fence, observed })
            }
            Outcome::Transacted(transacted) => {
                let Transacted { results, fence, observed } = *transacted;
                let results = results.into_iter().map(|(key, done)| (key, done.map(version))).collect();
                Outcome::Transacted(Box::new(Transacted { results, fence, observed }))
            }
            Outcome::Claimed(claimed) => {
                let Claimed { state, values, observed } = *claimed;
                let values = values.into_iter().map(|(key, slot)| (key, slot.map(|(v, value)| (version(v), value))));
                Outcome::Claimed(Box::new(Claimed { state, values: values.collect(), observed }))
            }
            Outcome::ConditionFailed { at, key, current, fence } => {
                Outcome::ConditionFailed { at, key, current: current.map(version), fence }
            }
            Outcome::Granted(grant) => {
                let Grant { lease, token, holder, issuer, ttl_ms, observed, version: v } = *grant;
                let version = version(v);
                Outcome::Granted(Box::new(Grant { lease, token, holder, issuer, ttl_ms, observed, version }))
            }
            Outcome::Held(holding) => {
                let Holding { by, remaining_ms, waiting } = *holding;
                let by = by.map(|Held { holder, token, ttl_ms, version: v }| Held {
                    holder,
                    token,
                    ttl_ms,
                    version: version(v),
                });
                Outcome::Held(Box::new(Holding { by, remaining_ms, waiting }))
            }
            Outcome::Replayed(outcome, fences) => Outcome::Replayed(Box::new(outcome.map(version)), fences),
            Outcome::Refused(refusals) => Outcome::Refused(refusals),
            Outcome::Impossible { at, key, why } => Outcome::Impossible { at, key, why },
            Outcome::TooLarge { bytes, limit } => Outcome::TooLarge { bytes, limit },
            Outcome::Changed(changed) => Outcome::Changed(changed),
            Outcome::Unmet { at, fence } => Outcome::Unmet { at, fence },
            Outcome::LeaseLost { holder, fence } => Outcome::LeaseLost { holder, fence },
            Outcome::Released => Outcome::Released,
            Outcome::ForceReleased { holder, token, fence } => Outcome::ForceReleased { holder, token, fence },
            Outcome::NotHeld => Outcome::NotHeld,
            Outcome::Exhausted { fence, generation } => Outcome::Exhausted { fence, generation },
            Outcome::Rotated { generation } => Outcome::Rotated { generation },
            Outcome::OtherGeneration { found } => Outcome::OtherGeneration { found },
            Outcome::KeyReused => Outcome::KeyReused,
            Outcome::Abandoned => Outcome::Abandoned,
            Outcome::Forgotten => Outcome::Forgotten,
        }
    }

    /// Converts the outcome of a transaction with one put or delete to that of a plain put or delete.
    pub(crate) fn of_one(self) -> Outcome<V> {
        match self {
            Outcome::Transacted(transacted) => {
                let Transacted { results, fence, observed } = *transacted;
                let version = results.into_iter().next().and_then(|(_, done)| match done {
                    Done::Put(version) | Done::Sum(version, _) | Done::Read(version, _) => Some(version),
                    Done::Absent => None,
                });
                let observed = observed.into_iter().next().map(|(_, reason)| reason);
                Outcome::Applied(Applied { version, fence, observed })
            }
            Outcome::Replayed(outcome, fences) => Outcome::Replayed(Box::new(outcome.of_one()), fences),
            other => other,
        }
    }

    /// Reasons for refusals that observe mode suppressed.
    pub fn observed(&self) -> Vec<Reason> {
        match self {
            Outcome::Applied(applied) => applied.observed.into_iter().collect(),
            Outcome::Transacted(transacted) => transacted.observed.iter().map(|(_, reason)| *reason).collect(),
            Outcome::Changed(changed) => changed.observed.iter().map(|(_, reason)| *reason).collect(),
            Outcome::Claimed(claimed) => claimed.observed.into_iter().collect(),
            Outcome::Granted(grant) => grant.observed.into_iter().collect(),
            _ => Vec::new(),
        }
    }
}

impl<V> Done<V> {
    fn map<W>(self, version: &impl Fn(V) -> W) -> Done<W> {
        match self {
            Done::Put(v) => Done::Put(version(v)),
            Done::Absent => Done::Absent,
            Done::Sum(v, sum) => Done::Sum(version(v), sum),
            Done::Read(v, value) => Done::Read(version(v), value),
        }
    }
}

/// The command has no known outcome.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// It was certainly not applied.
    #[error(transparent)]
    Rejected(#[from] Rejected),
    /// It may or may not have been applied.
    #[error("the outcome is unknown: {0}")]
    Unknown(String),
}

/// The limits on waiters for locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaiterBound {
    /// The limit over all locks and callers.
    All,
    /// The limit for one lock.
    Lock,
    /// The limit for one caller.
    Caller,
}

impl fmt::Display for WaiterBound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            WaiterBound::All => "the limit over all locks is",
            WaiterBound::Lock => "the limit for this lock is",
            WaiterBound::Caller => "the limit for your address is",
        })
    }
}

/// Why a command was certainly not applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejected {
    /// The queue of writes is full.
    #[error("the queue of {limit} writes is full")]
    Overloaded {
        /// The queue's capacity.
        limit: usize,
    },
    /// There are too many waiters for locks.
    #[error("too many wait for locks: {bound} {limit}")]
    TooManyWaiters {
        /// The limit that was reached.
        bound: WaiterBound,
        /// How many waiters that limit allows.
        limit: usize,
    },
    /// The process is about to stop, so waiting for locks has ended.
    #[error("the gateway is shutting down, so nobody waits for a lock any more")]
    Closing,
    /// Too many conflicts with other gateways.
    #[error("other gateways changed the same records {attempts} times in a row")]
    Contended {
        /// Number of attempts.
        attempts: usize,
    },
    /// Writes have stopped (G8).
    #[error("writes have stopped until restart: {0}")]
    Poisoned(String),
    /// Free space is below the floor.
    #[error("{free} bytes are free, and {floor} must stay free")]
    NoSpace {
        /// Bytes free now.
        free: u64,
        /// Bytes that must stay free.
        floor: u64,
    },
    /// The engine could not be read or written; nothing was written.
    #[error("the store is unavailable: {0}")]
    Unavailable(String),
    /// Another process changed the stored mapping.
    #[error("the stored guard mapping was changed by another process")]
    MappingChanged,
}
