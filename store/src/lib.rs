//! Fencepost's durable store: fences and data in one commit.
//!
//! [`Store`] is the only door. A write goes through the sequencer, which judges it against loaded records and commits
//! it with its fence; a read sees committed records only. [`engine::Engine`] is what stands below; [`engines`] lists
//! what there is.

mod command;
pub mod engine;
pub mod engines;
mod fence_cache;
mod opening;
mod overlay;
mod poison;
mod reads;
pub mod record;
mod remap;
mod sequencer;
mod store;

pub use command::{Applied, Claimed, Condition, Failure, Outcome, Rejected};
pub use opening::OpenError;
pub use reads::{KeyInfo, Page, Read, ReadError};
pub use remap::{RemapError, Remapped, remap};
pub use sequencer::{BatchReport, Observer};
pub use store::{ClaimKeys, Delete, Health, NoObserver, Put, Store, StoreOptions, WrongResource};
