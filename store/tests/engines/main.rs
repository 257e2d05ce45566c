//! One suite for every engine: a named test per case and engine, from the list of engines.
//!
//! A new engine is tested by being in that list. Cases are named after the rule of the trait (E1–E6) they prove. Those for any
//! engine are in the library, where `fencepost engine check` uses them, too; the others are here.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot be set up must stop")]

mod bench;
mod cases;
mod checks;
mod durability;
mod etcd_members;
mod etcd_own;
mod mutants;
mod postgres_own;
mod servers;
mod wrong;

use std::pin::Pin;
use std::sync::Arc;

use fencepost_store::engine::Engine;
use fencepost_store::engine_check;
use fencepost_store::engines::postgres::{Postgres, remove_scratch};
use fencepost_store::engines::rocksdb::RocksDb;
use fencepost_store::engines::{ENGINES, EngineKind, EngineOpenError, EngineOptions, Place, Scratch};
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
    scratch: None,
};

/// The dialect for CockroachDB and YugabyteDB, on PostgreSQL: it proves our side of it.
static SERIALIZABLE: EngineKind = EngineKind {
    name: "postgres_serializable",
    summary: "",
    durable: true,
    written: "",
    schemes: &["postgres"],
    open: |place, options| {
        Box::pin(async move {
            let Place::Server(url) = place else { return Err(EngineOpenError::Place("on a server")) };
            let engine = Postgres::open(&url.with_setting("dialect", "serializable"), options).await?;
            let engine: Arc<dyn Engine> = Arc::new(engine);
            Ok::<_, EngineOpenError>(engine)
        })
    },
    scratch: Some(Scratch {
        at: |url, name| url.with_setting("schema", name),
        remove: |url| Box::pin(remove_scratch(url)),
    }),
};

fn main() {
    let kinds = || ENGINES.iter().chain([&SMALL, &SERIALIZABLE]);
    let own = kinds().flat_map(|kind| {
        let applicable = CASES.iter().filter(move |case| case.needs.are_met_by(kind));
        applicable.map(move |case| trial(kind, case.name, move |bench| (case.run)(bench)))
    });
    let of_any_engine = kinds().flat_map(|kind| {
        let applicable = engine_check::all().filter(move |case| checks::is_for(case, kind));
        applicable.map(move |case| trial(kind, case.name, move |bench| Box::pin(checks::pass(bench, case))))
    });
    let trials = own.chain(of_any_engine).collect();
    let conclusion = libtest_mimic::run(&Arguments::from_args(), trials);
    // `exit` drops nothing.
    servers::stop();
    conclusion.exit();
}

type Running = Pin<Box<dyn Future<Output = ()>>>;

/// A case, run in a place of its own.
fn trial(kind: &'static EngineKind, name: &str, run: impl FnOnce(Bench) -> Running + Send + 'static) -> Trial {
    Trial::test(format!("{}::{name}", kind.name), move || {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build()?;
        runtime.block_on(run(Bench::of(kind)));
        Ok(())
    })
}
