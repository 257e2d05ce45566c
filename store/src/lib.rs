//! Fencepost's durable store: fences and data in one commit.
//!
//! Every write goes through [`Store`]. The sequencer judges it against loaded records and commits it together with its
//! fence; a read sees committed records only. An [`Engine`](engine::Engine) keeps the records; [`engines`] lists the
//! available ones.
//!
//! ```
//! use std::sync::Arc;
//! use fencepost_core::{Guards, Resource};
//! use fencepost_store::engine::Ownership;
//! use fencepost_store::engines::memory::Memory;
//! use fencepost_store::{NoObserver, Store, StoreOptions};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let engine = Arc::new(Memory::new(Ownership::Exclusive));
//! let store = Store::open(engine, Guards::default(), StoreOptions::default(), Arc::new(NoObserver)).await?;
//! let page = store.fences("", None, 10).await?;
//! assert!(page.entries.is_empty());
//! store.close().await;
//! # Ok(()) }
//! ```
//!
//! # Types
//!
//! | type | for |
//! | --- | --- |
//! | [`Store`], [`StoreOptions`], [`OpenError`] | a store over an engine, and the bounds of its memory and work |
//! | [`Stores`] | the stores of several engines, and which of them keeps a resource |
//! | [`Put`], [`Delete`], [`Transaction`], [`ClaimKeys`], [`AcquireLock`], [`PutObject`] | requests to the store |
//! | [`Condition`], [`Operation`], [`Once`] | parts of a request: conditions, steps, and what makes a retry safe |
//! | [`Page`], [`KeyInfo`], [`LockInfo`], [`RecordedOutcome`] | results of reads |
//! | [`Observer`], [`BatchReport`] | metrics of commits |
//! | [`engine::Engine`], [`engines`] | where records are kept, with the contract E1–E6 |
//! | [`engine_check`] | whether an engine keeps that contract |
//! | [`record`] | the bytes on disk |
//! | [`remap()`], [`restored()`], [`position()`] | work on a stopped store |
//!
//! # Read on
//!
//! `docs/request-life.md` follows a write; `docs/bytes-on-disk.md` has the format; CONTRIBUTING describes how to add an
//! engine.

mod admin;
mod batch_size;
mod command;
mod dispatcher;
pub mod engine;
pub mod engine_check;
pub mod engines;
mod entry;
mod failure;
mod fence_cache;
mod forgetter;
mod known_base;
mod known_records;
mod lane;
mod lock_queue;
mod lock_watch;
mod locks;
mod objects;
mod outcome;
mod overlay;
mod own_record;
mod pending;
mod poison;
mod position;
mod reads;
pub mod record;
mod remap;
mod reply;
mod restored;
mod retention;
mod sequencer;
mod store;
mod stores;
mod unsettled;
mod views;
mod waiting;

pub use admin::{PrefixRotated, RotatePrefix};
pub use command::{Condition, ObjectCondition, Once, Operation};
pub use failure::{Failure, Rejected, WaiterBound};
pub use lock_queue::{CallerId, MAX_WAITERS, MAX_WAITERS_PER_CALLER, MAX_WAITERS_PER_LOCK};
pub use locks::AcquireLock;
pub use objects::{Complete, DeleteObjects, Listed, ObjectOutcome, PutObject, Upload};
pub use outcome::{
    AcquireOutcome, Applied, Changed, ClaimOutcome, Claimed, Done, Exhausted, FailedCondition, FinalOutcome,
    ForceReleaseOutcome, Grant, Held, Holding, Impossible, ImpossibleAddition, LeaseLost, RecordedGrant,
    RecordedTransaction, RecordedWrite, ReleaseOutcome, RenewOutcome, RotateOutcome, TooLarge, TransactOutcome,
    Transacted, Verdicts, WriteOutcome,
};
pub use own_record::{OpenError, has_fences, has_store};
pub use position::{Position, position};
pub use reads::{KeyInfo, LockInfo, Page, Read, ReadError, RecordedOutcome};
pub use remap::{RemapError, Remapped, remap, remap_all};
pub use restored::{Restored, generation_by_clock, restored};
pub use sequencer::{BatchReport, Observer};
pub use store::{
    ClaimKeys, Delete, Health, MAX_RECORDED_BYTES, MappingDiffers, NoObserver, Put, Store, StoreOptions, Transaction,
    WrongResource,
};
pub use stores::{EngineRotated, SameStore, SeveralEngines, Stores};
