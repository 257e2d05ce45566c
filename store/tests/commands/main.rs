//! The store's behaviour for each command, over the memory engine unless a test needs another one.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot be set up must stop")]

mod answers;
mod batches;
mod conditions;
mod conflicts;
mod held_body;
mod lanes;
mod lock_fences;
mod lock_queues;
mod locks;
mod objects;
mod outcomes;
mod poison;
mod reads;
mod remap;
mod retention;
mod rotate;
mod semantics;
mod side_by_side;
mod stores;
#[path = "../testbed/mod.rs"]
mod testbed;
mod transactions;
