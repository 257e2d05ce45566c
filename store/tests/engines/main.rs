//! One suite for every engine: a named test per case and engine, from the list of engines.
//!
//! A new engine is tested by being in that list. Cases are named after the rule of the trait (E1–E6) they prove.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot be set up must stop")]

mod bench;
mod cases;
mod commits;
mod concurrency;
mod durability;
mod scans;
mod versions;
mod wants;

use std::sync::Arc;

use fencepost_store::engines::rocksdb::RocksDb;
use fencepost_store::engines::{ENGINES, EngineKind, EngineOptions};
use libtest_mimic::{Arguments, Trial};

use crate::bench::Bench;
use crate::cases::{CASES, Needs};

/// Memory so small that hardly anything stays in it: records are saved to tables after nearly every commit.
static SMALL: EngineKind = EngineKind {
    name: "rocksdb_with_little_memory",
    summary: "",
    durable: true,
    open: |path, _| {
        let options = EngineOptions { cache_bytes: 64 << 10, write_buffer_bytes: 2 << 10, free_space_floor: 0 };
        Ok(Arc::new(RocksDb::open(path, &options)?))
    },
};

fn main() {
    let trials = ENGINES
        .iter()
        .chain([&SMALL])
        .flat_map(|kind| {
            let applicable = CASES.iter().filter(|case| kind.durable || case.needs == Needs::AnyEngine);
            applicable.map(|case| {
                Trial::test(format!("{}::{}", kind.name, case.name), || {
                    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build()?;
                    runtime.block_on((case.run)(Bench::of(kind)));
                    Ok(())
                })
            })
        })
        .collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}
