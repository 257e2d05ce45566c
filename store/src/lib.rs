//! Fencepost's durable store: fences and data in one commit.
//!
//! [`Store`] is the only door. A write goes through the sequencer, which judges it against loaded records and commits
//! it with its fence; a read sees committed records only. [`engine::Engine`] is what stands below; [`engines`] lists
//! what there is.

mod admin;
mod command;
mod door;
pub mod engine;
pub mod engines;
mod fence_cache;
mod forgetting;
mod lock_queue;
mod locks;
mod objects;
mod opening;
mod outcome;
mod overlay;
mod poison;
mod position;
mod reads;
pub mod record;
mod remap;
mod restored;
mod retention;
mod sequencer;
mod store;

pub use admin::{PrefixRotated, RotatePrefix};
pub use command::{Condition, ObjectCondition, Once, Operation};
pub use lock_queue::{CallerId, MAX_WAITERS, MAX_WAITERS_PER_CALLER, MAX_WAITERS_PER_LOCK};
pub use locks::AcquireLock;
pub use objects::{Complete, DeleteObjects, Listed, ObjectOutcome, PutObject, Upload};
pub use opening::OpenError;
pub use outcome::{
    Applied, Changed, Claimed, Done, Failure, Grant, Held, Holding, Impossible, Outcome, Rejected, Transacted,
    WaiterBound,
};
pub use position::{Position, position};
pub use reads::{KeyInfo, LockInfo, Page, Read, ReadError, RecordedOutcome};
pub use remap::{RemapError, Remapped, remap};
pub use restored::{Restored, generation_by_clock, restored};
pub use sequencer::{BatchReport, Observer};
pub use store::{
    ClaimKeys, Delete, Health, MAX_RECORDED_BYTES, MappingDiffers, NoObserver, Put, Store, StoreOptions, Transaction,
    WrongResource,
};
