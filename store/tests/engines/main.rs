//! One suite for every engine: a named test per case and engine, from the list of engines.
//!
//! A new engine is tested by being in that list. Cases are named after the rule of the trait (E1–E6) they prove.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot be set up must stop")]

mod bench;
mod cases;
mod commits;
mod concurrency;
mod durability;
mod etcd_members;
mod etcd_own;
mod mutants;
mod postgres_own;
mod races;
mod scans;
mod servers;
mod shared;
mod versions;
mod wants;

use std::sync::Arc;

use fencepost_store::engine::Engine;
use fencepost_store::engines::rocksdb::RocksDb;
use fencepost_store::engines::{ENGINES, EngineKind, EngineOpenError, EngineOptions, Place};
use libtest_mimic::{Arguments, Trial};

use crate::bench::Bench;
use crate::cases::CASES;

/// Memory so small that hardly anything stays in it: records are saved to tables after nearly every commit.
static SMALL: EngineKind = EngineKind {
    name: "rocksdb_with_little_memory",
    summary: "",
    durable: true,
    written: "",
    schemes: &[],
    open: |place, options| {
        Box::pin(async move {
            let Place::Directory(path) = place else { return Err(EngineOpenError::Place("in a directory")) };
            let options = EngineOptions { cache_bytes: 64 << 10, write_buffer_bytes: 2 << 10, ..options.clone() };
            let engine: Arc<dyn Engine> = Arc::new(RocksDb::open(path, &options)?);
            Ok::<_, EngineOpenError>(engine)
        })
    },
};

fn main() {
    let trials = ENGINES
        .iter()
        .chain([&SMALL])
        .flat_map(|kind| {
            let applicable = CASES.iter().filter(move |case| case.needs.are_met_by(kind));
            applicable.map(move |case| {
                Trial::test(format!("{}::{}", kind.name, case.name), move || {
                    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build()?;
                    runtime.block_on((case.run)(Bench::of(kind)));
                    Ok(())
                })
            })
        })
        .collect();
    let conclusion = libtest_mimic::run(&Arguments::from_args(), trials);
    // `exit` drops nothing.
    servers::stop();
    conclusion.exit();
}
