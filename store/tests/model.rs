//! The store against a sequential model: groups of commands are queued at once, in order, and every outcome and the
//! whole state must be what the model says for that order, however they were batched.
//!
//! Budget: CI 1,000 histories in memory and 40 on RocksDB, full 20,000 and 1,000.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot be set up must stop")]

mod model_parts;
mod testbed;

use std::pin::Pin;
use std::sync::Arc;

use fencepost_store::engine::Engine;
use fencepost_store::engines::memory::Memory;
use fencepost_store::engines::rocksdb::RocksDb;
use fencepost_store::{NoObserver, Store, StoreOptions};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use tempfile::TempDir;

use model_parts::command::{Command, any_history, guards};
use model_parts::reference::{Model, Versions};
use testbed::directory::{budget, small};
use testbed::{Ended, together};

/// Few cached fences and small batches, so that evictions and several batches per group happen too.
fn options() -> StoreOptions {
    StoreOptions { batch_commands: 5, cached_fences: 2, ..StoreOptions::default() }
}

async fn play(engine: Arc<dyn Engine>, history: &[Vec<Command>]) -> Result<(), TestCaseError> {
    let store = Store::open(engine, guards(), options(), Arc::new(NoObserver)).await.unwrap();
    let (mut model, mut versions) = (Model::new(guards()), Versions::default());
    for group in history {
        let commands = group
            .iter()
            .map(|command| -> Pin<Box<dyn Future<Output = Ended> + '_>> { Box::pin(command.send(&store, &versions)) });
        let ended = together(commands.collect()).await;
        let expected: Vec<_> = group.iter().map(|command| model.apply(command, &versions)).collect();
        for (at, (ended, expected)) in ended.iter().zip(&expected).enumerate() {
            versions.learn(ended, expected).map_err(|why| TestCaseError::fail(format!("{:?}: {why}", group[at])))?;
        }
        for (at, (ended, expected)) in ended.iter().zip(&expected).enumerate() {
            expected.matches(ended, &versions).map_err(|why| TestCaseError::fail(format!("{:?}: {why}", group[at])))?;
        }
        model.matches(&store, &mut versions).await.map_err(TestCaseError::fail)?;
    }
    store.close().await;
    Ok(())
}

fn run(cases: usize, engine: impl Fn() -> (Arc<dyn Engine>, Option<TempDir>)) {
    let config = Config { cases: cases as u32, failure_persistence: None, ..Config::default() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let result = TestRunner::new(config).run(&any_history(), |history| {
        let (engine, _dir) = engine();
        runtime.block_on(play(engine, &history))
    });
    if let Err(failure) = result {
        panic!("{failure}");
    }
}

#[test]
fn memory_agrees_with_the_model() {
    run(budget(1_000, 20_000), || (Arc::new(Memory::default()), None));
}

#[test]
fn rocksdb_agrees_with_the_model() {
    run(budget(40, 1_000), || {
        let dir = TempDir::new().unwrap();
        (Arc::new(RocksDb::open(dir.path(), &small()).unwrap()), Some(dir))
    });
}
