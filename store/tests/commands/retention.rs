//! Outcomes are kept for the retention, then removed, and nothing else with them (G1, trap 8).

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::testbed::directory::roomy;
use crate::testbed::requests::{acquire, granted, idempotency_key, once, replayed, transacted, txn, wanted};
use crate::testbed::{
    Outcome, applied, claim, claimed, ended, held, put, put_of, reason, refused, resource, token, within,
};
use bytes::Bytes;
use fencepost_core::{Guards, Reason};
use fencepost_store::engine::{Change, Engine, Scan};
use fencepost_store::engines::EngineOpenError;
use fencepost_store::engines::memory::Memory;
use fencepost_store::engines::rocksdb::RocksDb;
use fencepost_store::{Condition, NoObserver, Put, Store, StoreOptions};
use tempfile::TempDir;

fn retaining(retention: Duration) -> StoreOptions {
    StoreOptions { outcome_retention: retention, ..StoreOptions::default() }
}

const SHORT: Duration = Duration::from_millis(200);
const LONG: Duration = Duration::from_secs(3600);

async fn open(engine: Arc<dyn Engine>, retention: Duration) -> Store {
    Store::open(engine, Guards::default(), retaining(retention), Arc::new(NoObserver)).await.unwrap()
}

/// Every record by its key.
async fn records(engine: &dyn Engine) -> BTreeMap<Vec<u8>, (u64, Bytes)> {
    let everything = Scan { from: vec![], inclusive: true, prefix: vec![], limit: usize::MAX, max_bytes: usize::MAX };
    let scanned = engine.scan(everything).await.unwrap().records;
    scanned.into_iter().map(|(key, record)| (key, (record.version.0, record.bytes))).collect()
}

fn is_outcome(key: &[u8]) -> bool {
    matches!(key[0], b'o' | b'x')
}

async fn put_once(store: &Store, name: &str, key: &str) {
    let put = Put { once: Some(once(key, 1)), ..put_of(name, Some(held("5", "A#1")), Condition::Always, "kept") };
    applied(ended(store.put(put).await));
}

/// Fences, values, a lock, a rotated resource, and outcomes of every kind.
async fn fill(store: &Store) {
    for n in 0..30 {
        put_once(store, &format!("k{n}"), &format!("put {n}")).await;
    }
    let many = txn().token("a", token("3")).token("b", token("4")).put("a", "x").put("b", "y");
    transacted(many.once(once("transaction", 1)).send(store).await);
    let failed = txn().token("c", token("3")).when("c", Condition::Exists).delete("c").once(once("failed", 1));
    assert!(matches!(failed.send(store).await, Ok(Outcome::ConditionFailed { .. })));
    store.abandon("anonymous", &idempotency_key("abandoned")).await.unwrap();
    let lock = fencepost_store::AcquireLock { once: Some(once("lock", 1)), ..wanted("lock", "A#1", 60_000) };
    granted(acquire(store, lock).await);
    claimed(claim(store, "claimed", token("34")).await);
    applied(put(store, "rotated", token("34"), "x").await);
    store.rotate(&resource("rotated"), 0, None).await.unwrap();
}

async fn until_forgotten(engine: &dyn Engine) {
    within(async {
        while records(engine).await.keys().any(|key| is_outcome(key)) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn t08_forgetting_outcomes_touches_nothing_else() {
    let memory = Memory::default();
    let store = open(Arc::new(memory.clone()), LONG).await;
    fill(&store).await;
    store.close().await;
    let (before, commits) = (records(&memory).await, memory.commits().len());
    assert_eq!(before.keys().filter(|key| key[0] == b'o').count(), 34);
    assert!(before.keys().any(|key| key[0] == b'x'));

    let store = open(Arc::new(memory.clone()), SHORT).await;
    until_forgotten(&memory).await;
    let forgetting = memory.commits().split_off(commits);
    assert!(!forgetting.is_empty());
    for (key, change) in forgetting.iter().flat_map(|batch| &batch.changes) {
        assert!(is_outcome(key.as_bytes()), "{key:?} was changed by forgetting");
        assert_eq!(*change, Change::Delete);
    }
    let mut expected = before;
    expected.retain(|key, _| !is_outcome(key));
    assert_eq!(records(&memory).await, expected, "fences, values, locks and versions are what they were");

    let refusal = refused(put(&store, "k0", token("4"), "a zombie").await);
    assert_eq!((refusal.reason, refusal.found.holder.unwrap().as_str()), (Reason::Stale, "A#1"));
    assert_eq!(reason(put(&store, "claimed", token("33"), "a zombie").await), Reason::Stale);
    assert_eq!(reason(put(&store, "rotated", token("99"), "a zombie").await), Reason::RetiredGeneration);
    assert_eq!(store.outcome("anonymous", &idempotency_key("put 3")).await.unwrap(), None);
    // A key whose outcome was removed may be used again, for any request.
    put_once(&store, "anew", "put 3").await;
    assert!(store.outcome("anonymous", &idempotency_key("put 3")).await.unwrap().is_some());
}

/// An outcome recorded later is kept for its own retention.
#[tokio::test]
async fn only_what_is_old_enough_is_forgotten() {
    let retention = Duration::from_secs(1);
    let memory = Memory::default();
    let store = open(Arc::new(memory.clone()), retention).await;
    let is_known =
        |name: &'static str| async { store.outcome("anonymous", &idempotency_key(name)).await.unwrap().is_some() };
    let older = Instant::now();
    put_once(&store, "a", "older").await;
    tokio::time::sleep(retention / 2).await;
    let newer = Instant::now();
    put_once(&store, "a", "newer").await;
    within(async {
        while is_known("older").await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    assert!(older.elapsed() > retention * 9 / 10, "it was forgotten after {:?}", older.elapsed());
    let found = is_known("newer").await;
    // If this thread was paused for too long, nothing can be concluded.
    assert!(found || newer.elapsed() > retention * 9 / 10);
}

#[tokio::test]
async fn a_long_retention_forgets_nothing() {
    let memory = Memory::default();
    let store = open(Arc::new(memory.clone()), LONG).await;
    fill(&store).await;
    store.close().await;
    let (before, commits) = (records(&memory).await, memory.commits().len());
    // Waits longer than one pass takes; a pass starts when the store opens.
    let store = open(Arc::new(memory.clone()), LONG).await;
    for _ in 0..20 {
        tokio::time::sleep(Duration::from_millis(10)).await;
        let again = Put { once: Some(once("put 0", 1)), ..put_of("k0", Some(token("1")), Condition::Always, "kept") };
        replayed(ended(store.put(again).await));
    }
    store.close().await;
    assert_eq!((records(&memory).await, memory.commits().len()), (before, commits));
}

/// A writer that records outcomes while old ones are being removed finds its own for as long as they are kept.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writers_and_forgetting_go_on_side_by_side() {
    let memory = Memory::default();
    let store = Arc::new(open(Arc::new(memory.clone()), SHORT).await);
    let began = Instant::now();
    let mut sent = 0;
    while began.elapsed() < 5 * SHORT {
        let key = format!("r{sent}");
        let add = || txn().token("n", token("1")).add("n", 1).once(once(&key, 1));
        let sending = Instant::now();
        transacted(add().send(&store).await);
        let again = add().send(&store).await;
        sent += 1;
        if sending.elapsed() < SHORT {
            replayed(again);
        } else if !matches!(again, Ok(Outcome::Replayed(..))) {
            // This thread was paused for longer than the retention: the outcome was removed, so the retry was applied
            // again.
            transacted(again);
            sent += 1;
        }
    }
    assert_eq!(crate::testbed::text(&store, "n").await, Some(sent.to_string()));
    until_forgotten(&memory).await;
}

async fn open_directory(dir: &Path) -> Result<Store, EngineOpenError> {
    Ok(open(Arc::new(RocksDb::open(dir, &roomy())?), SHORT).await)
}

/// Closing releases the directory at once, even while the store looks for old outcomes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_closed_store_leaves_its_directory_to_the_next() {
    let dir = TempDir::new().unwrap();
    for round in 0..40 {
        let store = match open_directory(dir.path()).await {
            Ok(store) => store,
            Err(error) => panic!("round {round}: {error}"),
        };
        if round % 4 == 0 {
            put_once(&store, "a", &format!("round {round}")).await;
        }
        within(store.close()).await;
    }
    let store = open_directory(dir.path()).await.unwrap();
    within(async {
        while store.outcome("anonymous", &idempotency_key("round 36")).await.unwrap().is_some() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    assert_eq!(crate::testbed::fence(&store, "a").await.as_deref(), Some("5"));
}
