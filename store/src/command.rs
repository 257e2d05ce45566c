//! What is asked of the store, and how it can end.

use bytes::Bytes;
use fencepost_core::{Access, FenceState, Guarded, Key, Presented, Reason, Refusal, Token};
use tokio::sync::oneshot;

use crate::engine::Version;
use crate::record::Value;

/// A condition on the current version of a key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Condition {
    /// None.
    #[default]
    Always,
    /// The key has no value (`If-None-Match: *`).
    Absent,
    /// The key has a value (`If-Match: *`).
    Exists,
    /// The key has one of these versions (`If-Match`).
    AnyOf(Vec<Version>),
}

/// A fenced request: judged on one resource, then done or refused.
#[derive(Clone, Debug)]
pub(crate) struct Command {
    pub(crate) guarded: Guarded,
    pub(crate) presented: Option<Presented>,
    pub(crate) action: Action,
}

#[derive(Clone, Debug)]
pub(crate) enum Action {
    Put { key: Key, condition: Condition, content_type: Option<String>, body: Bytes },
    Delete { key: Key, condition: Condition },
    Claim { keys: Vec<Key>, max_bytes: usize },
}

impl Command {
    pub(crate) fn access(&self) -> Access {
        match self.action {
            Action::Put { .. } | Action::Delete { .. } => Access::Write,
            Action::Claim { .. } => Access::Claim,
        }
    }

    /// The keys whose values take part in the outcome.
    pub(crate) fn reads(&self) -> &[Key] {
        match &self.action {
            Action::Put { condition: Condition::Always, .. } | Action::Delete { condition: Condition::Always, .. } => {
                &[]
            }
            Action::Put { key, .. } | Action::Delete { key, .. } => std::slice::from_ref(key),
            Action::Claim { keys, .. } => keys,
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        match &self.action {
            Action::Put { body, .. } => body.len(),
            Action::Delete { .. } | Action::Claim { .. } => 0,
        }
    }
}

/// A known outcome. A refusal is one of them, not an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Durable.
    Applied(Applied),
    /// The fence is durable, and this is what the keys held at that instant.
    Claimed(Box<Claimed>),
    /// The fence refused; the fact that caused it is durable (G4).
    Refused(Box<Refusal>),
    /// The token was admitted, but the condition did not hold. Nothing but the fence changed.
    ConditionFailed {
        /// The key's version now.
        current: Option<Version>,
        /// The fence now.
        fence: Option<Token>,
    },
    /// The values asked for are too large to be answered. Nothing changed.
    TooLarge {
        /// Their bytes.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
}

/// A write that is durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// The new version; `None` for a delete.
    pub version: Option<Version>,
    /// The fence now.
    pub fence: Option<Token>,
    /// Why it would have been refused, had the guard not merely observed.
    pub observed: Option<Reason>,
}

/// A claim that is durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claimed {
    /// The resource's state.
    pub state: FenceState,
    /// What the keys hold, in the order they were asked for.
    pub values: Vec<(Key, Option<(Version, Value)>)>,
    /// Why it would have been refused, had the guard not merely observed.
    pub observed: Option<Reason>,
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

/// Why a command was surely not applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejected {
    /// The queue is full.
    #[error("the queue of {limit} writes is full")]
    Overloaded {
        /// How many may wait.
        limit: usize,
    },
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

pub(crate) type Reply = oneshot::Sender<Result<Outcome, Failure>>;
