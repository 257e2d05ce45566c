//! The store against a sequential model: groups of commands are queued at once, in order. Every outcome and the whole
//! state must match the model for that order, however the commands were batched.
//!
//! Budget: CI 1,000 histories in memory, 600 in shared memory and 40 on RocksDB, full 20,000, 10,000 and 1,000.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot be set up must stop")]

mod command;
mod expected;
mod gateways;
mod generate;
mod known;
mod locks;
mod reference;
#[path = "../testbed/mod.rs"]
mod testbed;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;

use fencepost_store::engine::{Engine, Ownership};
use fencepost_store::engines::EngineOptions;
use fencepost_store::engines::memory::Memory;
use fencepost_store::engines::rocksdb::RocksDb;
use fencepost_store::{NoObserver, Store, StoreOptions};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use tempfile::TempDir;

use crate::command::{Command, guards};
use crate::expected::KINDS;
use crate::generate::any_history;
use crate::known::Known;
use crate::reference::Model;
use crate::testbed::directory::{budget, small};
use crate::testbed::{Ended, together};

/// Few cached fences and small batches, so that evictions and several batches per group happen too.
fn options() -> StoreOptions {
    StoreOptions { batch_commands: 5, cached_fences: 2, known_bytes: 2 << 10, ..StoreOptions::default() }
}

/// How often each kind of outcome was seen.
type Kinds = BTreeMap<&'static str, usize>;

async fn play(engine: Arc<dyn Engine>, history: &[Vec<Command>], kinds: &mut Kinds) -> Result<(), TestCaseError> {
    let store = Store::open(engine, guards(), options(), Arc::new(NoObserver)).await.unwrap();
    let (mut model, mut known) = (Model::new(guards(), store.issuer()), Known::default());
    for group in history {
        let group: Vec<Command> = group.iter().map(|command| model.placed(command)).collect();
        let commands = group
            .iter()
            .map(|command| -> Pin<Box<dyn Future<Output = Ended> + '_>> { Box::pin(command.send(&store, &known)) });
        let ended = together(commands.collect()).await;
        let expected: Vec<_> = group.iter().map(|command| model.apply(command, &known)).collect();
        let fail = |at: usize, why| TestCaseError::fail(format!("{:?}: {why}", group[at]));
        for (at, (ended, expected)) in ended.iter().zip(&expected).enumerate() {
            known.learn(ended, expected).map_err(|why| fail(at, why))?;
        }
        for (at, (ended, expected)) in ended.iter().zip(&expected).enumerate() {
            expected.matches(ended, &known).map_err(|why| fail(at, why))?;
            *kinds.entry(expected.kind()).or_default() += 1;
        }
        model.matches(&store, &mut known).await.map_err(TestCaseError::fail)?;
    }
    store.close().await;
    Ok(())
}

fn run(cases: usize, engine: impl Fn() -> (Arc<dyn Engine>, Option<TempDir>)) -> Kinds {
    let config = Config { cases: cases as u32, failure_persistence: None, ..Config::default() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let kinds = RefCell::new(Kinds::new());
    let result = TestRunner::new(config).run(&any_history(), |history| {
        let (engine, _dir) = engine();
        runtime.block_on(play(engine, &history, &mut kinds.borrow_mut()))
    });
    if let Err(failure) = result {
        panic!("{failure}");
    }
    kinds.into_inner()
}

#[test]
fn memory_agrees_with_the_model() {
    let kinds = run(budget(1_000, 20_000), || (Arc::new(Memory::default()), None));
    let missing: Vec<_> = KINDS.iter().filter(|kind| !kinds.contains_key(*kind)).collect();
    assert!(missing.is_empty(), "no history got to {missing:?}, so nothing is said about them: {kinds:?}");
}

/// Judged on records as they were last known, with a lane; loads prove what is committed now, or do not.
#[test]
fn shared_memory_agrees_with_the_model() {
    for memory in [|| Memory::new(Ownership::Shared), Memory::unproven] {
        run(budget(300, 5_000), || (Arc::new(memory()), None));
    }
}

/// As a gateway opens it, with small caches and buffers; in the second run nearly every commit is saved to tables at once.
#[test]
fn rocksdb_agrees_with_the_model() {
    for write_buffer_bytes in [small().write_buffer_bytes, 2 << 10] {
        run(budget(40, 1_000) / 2, || {
            let dir = TempDir::new().unwrap();
            let options = EngineOptions { write_buffer_bytes, ..small() };
            let engine: Arc<dyn Engine> = Arc::new(RocksDb::open(dir.path(), &options).unwrap());
            (engine, Some(dir))
        });
    }
}
