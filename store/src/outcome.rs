//! How a command can end.

use std::fmt;

use fencepost_core::{FenceState, Holder, Issuer, Key, Reason, Refusal, Resource, Token};

use crate::engine::Version;
use crate::record::{LeaseId, Value};

/// A known outcome. A refusal is one of them, not an error.
///
/// While a batch is judged, `V` is a version that its commit may still have to give.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome<V = Version> {
    /// A put or delete is durable.
    Applied(Applied<V>),
    /// A transaction is durable.
    Transacted(Box<Transacted<V>>),
    /// The fence is durable, and this is what the keys held at that instant.
    Claimed(Box<Claimed<V>>),
    /// Fences refused, and what caused it is durable (G4). Never empty; a transaction names every resource that refused.
    Refused(Vec<Refusal>),
    /// The tokens were admitted, but a condition did not hold. Nothing but fences changed.
    ConditionFailed {
        /// Which condition, counted from 0.
        at: usize,
        /// Its key.
        key: Key,
        /// The key's version now.
        current: Option<V>,
        /// The fence now, if one resource was judged.
        fence: Option<Token>,
    },
    /// The tokens were admitted, but an addition cannot be done. Nothing but fences changed.
    Impossible {
        /// Which operation, counted from 0.
        at: usize,
        /// Its key.
        key: Key,
        /// Why.
        why: Impossible,
    },
    /// The values asked for are too large to be answered. Nothing changed.
    TooLarge {
        /// Their bytes; a little more where values were not even read, with what is stored beside them.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// A change of objects is durable.
    Changed(Box<Changed>),
    /// The tokens were admitted, but something that the change of objects requires is not so. Nothing but fences changed.
    Unmet {
        /// Which requirement, counted from 0.
        at: usize,
        /// The fence of the first resource that was judged.
        fence: Option<Token>,
    },
    /// The lock is granted or renewed.
    Granted(Box<Grant<V>>),
    /// Somebody else has the lock, or was here before.
    Held(Box<Holding<V>>),
    /// The lease is not current any more. Nothing changed.
    LeaseLost {
        /// Who has the lock now.
        holder: Option<Holder>,
        /// The fence now.
        fence: Option<Token>,
    },
    /// The lock is free.
    Released,
    /// The lock was taken from its holder, whose token is refused from now on.
    ForceReleased {
        /// Who held it.
        holder: Holder,
        /// The holder's token.
        token: Token,
        /// The fence now.
        fence: Option<Token>,
    },
    /// Nobody has the lock.
    NotHeld,
    /// There is no number, or no generation, above the one in use.
    Exhausted {
        /// The fence now.
        fence: Option<Token>,
        /// The generation now.
        generation: u32,
    },
    /// A new generation has begun.
    Rotated {
        /// It.
        generation: u32,
    },
    /// The generation to end is not the current one. Nothing changed.
    OtherGeneration {
        /// The current one.
        found: u32,
    },
    /// The recorded outcome of an earlier request with the same key, and the fences of its resources now.
    Replayed(Box<Outcome<V>>, Vec<(Resource, Option<Token>)>),
    /// The idempotency key belongs to another request. Nothing changed.
    KeyReused,
    /// The idempotency key can never apply.
    Abandoned,
    /// Outcomes that were kept long enough are gone.
    Forgotten,
}

/// A put or delete that is durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied<V = Version> {
    /// The new version; `None` for a delete.
    pub version: Option<V>,
    /// The fence now.
    pub fence: Option<Token>,
    /// Why it would have been refused, had the guard not merely observed.
    pub observed: Option<Reason>,
}

/// A transaction that is durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transacted<V = Version> {
    /// One per operation, in their order.
    pub results: Vec<(Key, Done<V>)>,
    /// The fence of the first resource that was judged.
    pub fence: Option<Token>,
    /// Resources that would have refused, had their guards not merely observed.
    pub observed: Vec<(Resource, Reason)>,
}

/// A change of objects that is durable.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changed {
    /// The fence of the first resource that was judged.
    pub fence: Option<Token>,
    /// Resources that would have refused, had their guards not merely observed.
    pub observed: Vec<(Resource, Reason)>,
}

/// What an operation left behind, or found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Done<V = Version> {
    /// The key has this version now.
    Put(V),
    /// The key has no value now.
    Absent,
    /// The key holds this sum now.
    Sum(V, i64),
    /// The key was read.
    Read(V, Value),
}

/// Why a number cannot be added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Impossible {
    /// The value is no whole number.
    NotANumber,
    /// The sum is outside what the request allows, or what fits.
    OutOfBounds {
        /// What the key holds.
        value: i64,
        /// What was to be added.
        by: i64,
        /// The least allowed.
        min: i64,
        /// The most allowed.
        max: i64,
    },
}

/// A claim that is durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claimed<V = Version> {
    /// The resource's state.
    pub state: FenceState,
    /// What the keys hold, in the order they were asked for.
    pub values: Vec<(Key, Option<(V, Value)>)>,
    /// Why it would have been refused, had the guard not merely observed.
    pub observed: Option<Reason>,
}

/// A lease that is durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant<V = Version> {
    /// Names the lease; known to its holder only.
    pub lease: LeaseId,
    /// The fencing token.
    pub token: Token,
    /// Who holds it.
    pub holder: Holder,
    /// Who numbered the token.
    pub issuer: Issuer,
    /// How long it lasts unless it is renewed.
    pub ttl_ms: u64,
    /// Why it would have been refused, had the guard not merely observed.
    pub observed: Option<Reason>,
    pub(crate) version: V,
}

/// Why a lock cannot be had now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holding<V = Version> {
    /// Who has it; `None` if it is free but others were here before.
    pub by: Option<Held<V>>,
    /// How long the lease still lasts at the most, unless it is renewed.
    pub remaining_ms: u64,
    /// How many wait for it here.
    pub waiting: usize,
}

/// The lease that is in the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held<V = Version> {
    /// Who holds it.
    pub holder: Holder,
    /// The holder's token.
    pub token: Token,
    /// How long it lasts unless it is renewed.
    pub ttl_ms: u64,
    pub(crate) version: V,
}

impl<V> Outcome<V> {
    /// The outcome with every version replaced.
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

    /// A transaction of one put or delete, as the caller of put and delete knows it.
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

    /// Who would have been refused, had their guards not merely observed.
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

/// No known outcome.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// Surely not applied.
    #[error(transparent)]
    Rejected(#[from] Rejected),
    /// May or may not have been applied.
    #[error("the outcome is unknown: {0}")]
    Unknown(String),
}

/// What bounds how many may wait for locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaiterBound {
    /// Over all locks and callers.
    All,
    /// For one lock.
    Lock,
    /// Of one caller.
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

/// Why a command was surely not applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejected {
    /// The queue is full.
    #[error("the queue of {limit} writes is full")]
    Overloaded {
        /// How many may wait.
        limit: usize,
    },
    /// Too many wait for locks.
    #[error("too many wait for locks: {bound} {limit}")]
    TooManyWaiters {
        /// Which bound is reached.
        bound: WaiterBound,
        /// How many may wait.
        limit: usize,
    },
    /// The process is about to stop, so nobody waits for a lock any more.
    #[error("the gateway is shutting down, so nobody waits for a lock any more")]
    Closing,
    /// Too many conflicts with other gateways.
    #[error("other gateways changed the same records {attempts} times in a row")]
    Contended {
        /// How often it was tried.
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
