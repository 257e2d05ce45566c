//! Group commit: what shares a commit, what is written in it, and what happens when too much waits.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot be set up must stop")]

mod testbed;

use std::sync::{Arc, Mutex};

use fencepost_core::{Guards, Policy};
use fencepost_store::engine::{Change, Ownership};
use fencepost_store::engines::memory::{Fault, Memory};
use fencepost_store::record::RecordKey;
use fencepost_store::{BatchReport, Failure, Observer, Rejected, Store, StoreOptions};
use testbed::{
    applied, claim, claimed, fence_change, guard, key, memory_store, memory_store_of, put, queue, read, resource, text,
    token, within,
};

#[derive(Default)]
struct Reports(Mutex<Vec<BatchReport>>);

impl Observer for Reports {
    fn batch(&self, report: BatchReport) {
        self.0.lock().unwrap().push(report);
    }
}

async fn limited(options: StoreOptions) -> (Store, Memory, Arc<Reports>) {
    let (memory, reports) = (Memory::default(), Arc::new(Reports::default()));
    let engine = Arc::new(memory.clone());
    let store = Store::open(engine, Guards::default(), options, reports.clone()).await.unwrap();
    (store, memory, reports)
}

#[tokio::test]
async fn what_is_queued_during_a_commit_shares_the_next() {
    let (store, memory, reports) = limited(StoreOptions::default()).await;
    memory.inject(Fault::Hold);
    let first = queue(put(&store, "first", token("1"), "1")).await;
    within(memory.wait_held()).await;
    let names: Vec<String> = (0..64).map(|n| format!("k{n}")).collect();
    let mut queued = Vec::new();
    for name in &names {
        queued.push(queue(put(&store, name, token("1"), "shared")).await);
    }
    assert_eq!(store.queue_depth(), 64);
    let before = memory.commits().len();
    memory.release();
    applied(first.answer().await);
    for one in queued {
        applied(one.answer().await);
    }
    assert_eq!(memory.commits().len() - before, 2, "one for the first, one for all the others");
    store.close().await;
    let reports = reports.0.lock().unwrap();
    assert_eq!(reports.iter().map(|report| report.commands).collect::<Vec<_>>(), [1, 64]);
    assert!(reports.iter().all(|report| report.commit.is_some_and(|commit| commit <= report.total)));
}

#[tokio::test]
async fn a_batch_has_bounds() {
    for (options, batches) in [
        (StoreOptions { batch_commands: 4, ..StoreOptions::default() }, 3),
        (StoreOptions { batch_bytes: 10, ..StoreOptions::default() }, 10),
        (StoreOptions { batch_bytes: 40, ..StoreOptions::default() }, 5),
    ] {
        let (store, memory, _) = limited(options.clone()).await;
        memory.inject(Fault::Hold);
        let first = queue(put(&store, "first", token("1"), "1")).await;
        within(memory.wait_held()).await;
        let names: Vec<String> = (0..10).map(|n| format!("k{n}")).collect();
        let mut queued = Vec::new();
        for name in &names {
            queued.push(queue(put(&store, name, token("1"), "twenty bytes of body")).await);
        }
        let before = memory.commits().len();
        memory.release();
        applied(first.answer().await);
        for one in queued {
            applied(one.answer().await);
        }
        assert_eq!(memory.commits().len() - before - 1, batches, "{options:?}");
    }
}

#[tokio::test]
async fn a_full_queue_rejects_and_what_was_queued_is_done() {
    let (store, memory, _) = limited(StoreOptions { queue: 3, ..StoreOptions::default() }).await;
    memory.inject(Fault::Hold);
    let first = queue(put(&store, "first", token("1"), "1")).await;
    within(memory.wait_held()).await;
    let mut queued = Vec::new();
    for name in ["a", "b", "c"] {
        queued.push(queue(put(&store, name, token("1"), "queued")).await);
    }
    for _ in 0..3 {
        let ended = put(&store, "d", token("9"), "one too many").await;
        assert_eq!(ended, Err(Failure::Rejected(Rejected::Overloaded { limit: 3 })));
    }
    memory.release();
    applied(first.answer().await);
    for one in queued {
        applied(one.answer().await);
    }
    assert_eq!(text(&store, "d").await, None);
    assert_eq!(testbed::fence(&store, "d").await, None);
    applied(put(&store, "d", token("1"), "now").await);
}

/// The fence is written when it changes, once per batch, and compared always.
#[tokio::test]
async fn an_unchanged_fence_is_compared_but_not_rewritten() {
    let (store, memory) = memory_store().await;
    applied(put(&store, "a", token("5"), "one").await);
    applied(put(&store, "a", token("5"), "two").await);
    applied(put(&store, "a", token("6"), "three").await);
    let commits = memory.commits();
    let fences: Vec<_> = commits[1..].iter().map(|batch| fence_change("a", &batch.changes)).collect();
    assert_eq!(fences, [Some("5".into()), None, Some("6".into())]);
    let (fence_key, value_key) = (RecordKey::fence(&resource("a")), RecordKey::value(&key("a")));
    for batch in &commits[1..] {
        for needed in [&RecordKey::meta(), &fence_key] {
            assert!(batch.compare.iter().any(|(key, _)| key == needed), "{batch:?}");
        }
        assert_eq!(batch.changes.iter().filter(|(key, _)| *key == value_key).count(), 1);
    }
    assert_eq!(commits[2].changes.len(), 1, "only the value");
}

#[tokio::test]
async fn a_fence_raised_several_times_in_a_batch_is_written_once() {
    let (store, memory) = memory_store_of(Ownership::Exclusive, guard("a/**", Some("a"), Policy::default())).await;
    memory.inject(Fault::Hold);
    let first = queue(put(&store, "busy", token("1"), "busy")).await;
    within(memory.wait_held()).await;
    let (mut queued, names) = (Vec::new(), ["a/1", "a/2", "a/3"]);
    for (name, number) in names.iter().zip(["5", "6", "7"]) {
        queued.push(queue(put(&store, name, token(number), number)).await);
    }
    memory.release();
    applied(first.answer().await);
    for one in queued {
        applied(one.answer().await);
    }
    let batch = memory.commits().pop().unwrap();
    let fences = batch.changes.iter().filter(|(key, _)| *key == RecordKey::fence(&resource("a")));
    assert_eq!(fences.count(), 1);
    assert_eq!(fence_change("a", &batch.changes).as_deref(), Some("7"));
    assert_eq!(batch.changes.len(), 4);
}

/// Nothing to write, nothing to wait for: a refusal and a repeated claim cost no fsync.
#[tokio::test]
async fn what_changes_nothing_is_not_committed() {
    let (store, memory) = memory_store().await;
    applied(put(&store, "a", token("5"), "one").await);
    let commits = memory.commits().len();
    testbed::refused(put(&store, "a", token("4"), "stale").await);
    testbed::refused(put(&store, "a", token("1:4"), "from nowhere").await);
    let again = claimed(claim(&store, "a", token("5")).await);
    assert_eq!(again.state.token().map(|token| token.to_string()).as_deref(), Some("5"));
    assert_eq!(memory.commits().len(), commits);
}

#[tokio::test]
async fn a_delete_leaves_the_fence_record() {
    let (store, memory) = memory_store().await;
    applied(put(&store, "a", token("5"), "one").await);
    applied(testbed::delete(&store, "a", token("5")).await);
    let batch = memory.commits().pop().unwrap();
    assert_eq!(batch.changes, [(RecordKey::value(&key("a")), Change::Delete)]);
    assert!(read(&store, "a").await.state.high.is_some());
}

#[tokio::test]
async fn closing_finishes_what_is_queued() {
    let (store, memory) = memory_store().await;
    let names: Vec<String> = (0..20).map(|n| format!("k{n}")).collect();
    memory.inject(Fault::Hold);
    for name in &names {
        drop(queue(put(&store, name, token("1"), "left behind")).await);
    }
    within(memory.wait_held()).await;
    tokio::join!(within(store.close()), async { memory.release() });
    let written: usize = memory.commits().iter().map(|batch| batch.changes.len()).sum();
    assert_eq!(written, 1 + 2 * 20, "the store's own record, and a value and a fence each");
}

#[tokio::test]
async fn reads_that_fail_are_errors_and_writes_are_surely_not_applied() {
    let (store, memory) = memory_store().await;
    applied(put(&store, "a", token("5"), "one").await);
    let commits = memory.commits().len();
    memory.break_reads(Some("the disk is on fire"));
    let ended = put(&store, "a", token("6"), "two").await;
    assert_eq!(ended, Err(Failure::Rejected(Rejected::Unavailable("the disk is on fire".into()))));
    assert!(store.read(&key("a"), None).await.is_err_and(|error| error.to_string().contains("on fire")));
    assert!(store.fence(&resource("a")).await.is_err());
    assert!(store.keys("", None, 5).await.is_err());
    assert!(store.fences("", None, 5).await.is_err());
    memory.break_reads(None);
    assert_eq!(memory.commits().len(), commits);
    assert_eq!(text(&store, "a").await.as_deref(), Some("one"));
    applied(put(&store, "a", token("6"), "two").await);
}
