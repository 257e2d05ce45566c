//! Commands without a known outcome: certainly not applied, or unknown.

use std::fmt;

use fencepost_core::NameError;

use crate::store::WrongResource;

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

impl From<WrongResource> for Failure {
    fn from(wrong: WrongResource) -> Failure {
        Rejected::from(wrong).into()
    }
}

impl From<NameError> for Failure {
    fn from(error: NameError) -> Failure {
        WrongResource::from(error).into()
    }
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
    #[error("the gateway is shutting down, so waiting for locks has ended")]
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
    /// It needs more than one commit can hold.
    #[error("the request is too large for the store: {0}")]
    TooLarge(String),
    /// The engine could not be read or written; nothing was written.
    #[error("the store is unavailable: {0}")]
    Unavailable(String),
    /// Another process changed the stored mapping.
    #[error("the stored guard mapping was changed by another process")]
    MappingChanged,
    /// A name cannot be used where a resource is expected.
    #[error(transparent)]
    WrongResource(#[from] WrongResource),
}
