//! Group commit: which commands share a commit, what it writes, and what happens when the queue is full.

use std::sync::Arc;

use crate::testbed::counted::{Counted, Loads};
use crate::testbed::requests::{done, failed_at, impossible, transacted, txn};
use crate::testbed::{
    Ended, Outcome, applied, claim, claimed, ended, fence, fence_change, guard, key, memory_store, memory_store_of,
    open, put, put_of, queue, read, resource, text, token, version, within,
};
use bytes::Bytes;
use fencepost_core::{Guards, Policy};
use fencepost_store::engine::{Change, Limits, Ownership};
use fencepost_store::engines::memory::{Fault, Memory};
use fencepost_store::record::RecordKey;
use fencepost_store::{
    BatchReport, ClaimKeys, Condition, Delete, Done, Failure, Impossible, NoObserver, Observer, Rejected, Store,
    StoreOptions,
};
use parking_lot::Mutex;

#[derive(Default)]
struct Reports(Mutex<Vec<BatchReport>>);

impl Observer for Reports {
    fn batch(&self, report: BatchReport) {
        self.0.lock().push(report);
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
    let reports = reports.0.lock();
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

/// The sequencer estimates how much fits; here keys are longer than it thinks.
#[tokio::test]
async fn a_batch_that_is_too_large_for_the_engine_is_divided() {
    const BYTES: usize = 6_000;
    let memory = Memory::limited(Limits { lanes: 1, records: 1_000, bytes: BYTES });
    let store = open(Arc::new(memory.clone()), Guards::default()).await;
    memory.inject(Fault::Hold);
    let first = queue(put(&store, "first", token("1"), "1")).await;
    within(memory.wait_held()).await;
    let names: Vec<String> = (0..16).map(|n| format!("{n:0>1000}")).collect();
    let mut queued = Vec::new();
    for name in &names {
        queued.push(queue(put(&store, name, token("1"), "x")).await);
    }
    memory.release();
    applied(first.answer().await);
    for one in queued {
        applied(one.answer().await);
    }
    for name in &names {
        assert_eq!(text(&store, name).await.as_deref(), Some("x"));
    }
    assert!(memory.commits().len() > 4, "they do not fit into fewer");
}

/// What was queued with it is done.
#[tokio::test]
async fn a_command_that_is_too_large_for_the_engine_is_rejected() {
    let memory = Memory::limited(Limits { lanes: 1, records: 8, bytes: 1 << 20 });
    let store = open(Arc::new(memory.clone()), Guards::default()).await;
    memory.inject(Fault::Hold);
    let first = queue(put(&store, "first", token("1"), "1")).await;
    within(memory.wait_held()).await;
    let large = (0..10).map(|n| format!("t{n}")).fold(txn(), |txn, name| txn.token(&name, token("1")).put(&name, "x"));
    let before = queue(put(&store, "before", token("1"), "x")).await;
    let large = queue(large.send(&store)).await;
    let after = queue(put(&store, "after", token("1"), "x")).await;
    memory.release();
    applied(first.answer().await);
    applied(before.answer().await);
    let ended = large.answer().await;
    assert!(
        matches!(&ended, Err(Failure::Rejected(Rejected::TooLarge(why))) if why.contains("records: 8")),
        "{ended:?}"
    );
    applied(after.answer().await);
    assert_eq!((text(&store, "t0").await, fence(&store, "t0").await), (None, None), "nothing of it was applied");
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
    assert_eq!(crate::testbed::fence(&store, "d").await, None);
    applied(put(&store, "d", token("1"), "now").await);
}

/// The fence is written only when it changes, once per batch, and always compared.
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
            assert!(batch.compared().any(|(key, _)| key == needed), "{batch:?}");
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

/// If there is nothing to write, there is no commit: a refusal and a repeated claim cost no fsync.
#[tokio::test]
async fn what_changes_nothing_is_not_committed() {
    let (store, memory) = memory_store().await;
    applied(put(&store, "a", token("5"), "one").await);
    let commits = memory.commits().len();
    crate::testbed::refused(put(&store, "a", token("4"), "stale").await);
    crate::testbed::refused(put(&store, "a", token("1:4"), "from nowhere").await);
    let again = claimed(claim(&store, "a", token("5")).await);
    assert_eq!(again.state.token().map(|token| token.to_string()).as_deref(), Some("5"));
    assert_eq!(memory.commits().len(), commits);
}

#[tokio::test]
async fn a_delete_leaves_the_fence_record() {
    let (store, memory) = memory_store().await;
    applied(put(&store, "a", token("5"), "one").await);
    applied(crate::testbed::delete(&store, "a", token("5")).await);
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

/// Far larger than everything else that a command loads.
const LARGE: usize = 1 << 20;

/// A store with large values `large/0` to `large/7` of this many bytes, and a record of the loads from its engine.
async fn with_large_values(bytes: usize) -> (Store, Memory, Arc<Loads>) {
    let counted = Counted::default();
    let (memory, loads) = (counted.memory.clone(), counted.loads.clone());
    let store = Store::open(Arc::new(counted), Guards::default(), StoreOptions::default(), Arc::new(NoObserver)).await;
    let store = store.unwrap();
    for n in 0..8 {
        applied(put(&store, &format!("large/{n}"), token("1"), &"x".repeat(bytes)).await);
    }
    let (most, _) = loads.committer();
    assert!(most < bytes, "a write loads no value");
    (store, memory, loads)
}

/// A condition on a version or a length costs no more for a large value than for a small one.
#[tokio::test]
async fn c06_conditions_on_large_values_load_no_large_value() {
    let (store, _, loads) = with_large_values(LARGE).await;
    let now = read(&store, "large/0").await.value.unwrap().0;
    let guarded = |condition: Condition| txn().token("a", token("5")).when("large/0", condition).put("a", "small");
    let digits = Bytes::from("1");
    for condition in [Condition::Exists, Condition::AnyOf(vec![now])] {
        transacted(guarded(condition).send(&store).await);
    }
    for condition in [Condition::Absent, Condition::Equals(digits), Condition::AtLeast(1), Condition::AtMost(1)] {
        assert_eq!(failed_at(guarded(condition).send(&store).await), 0);
    }
    let added = txn().token("large/0", token("5")).add("large/0", 1).send(&store).await;
    assert_eq!(impossible(added), (0, Impossible::NotANumber));
    let all = (0..8).fold(txn().token("a", token("5")).put("a", "small"), |all, n| {
        all.when(&format!("large/{n}"), Condition::Exists)
    });
    transacted(all.send(&store).await);
    let replaced = put_of("large/1", Some(token("2")), Condition::Exists, "small now");
    applied(ended(store.put(replaced).await));
    let delete = Delete { key: key("large/2"), presented: Some(token("2")), condition: Condition::Exists, once: None };
    applied(ended(store.delete(delete).await));
    let (most, count) = loads.committer();
    assert!(most < LARGE / 10 && count >= 10, "{most} bytes in one of {count} loads");
    // The lengths are equal, so the bytes have to be compared.
    let same = Condition::Equals(Bytes::from("x".repeat(LARGE)));
    transacted(guarded(same).send(&store).await);
    let other = Condition::Equals(Bytes::from("y".repeat(LARGE)));
    assert_eq!(failed_at(guarded(other).send(&store).await), 0);
    assert_eq!((text(&store, "large/1").await.as_deref(), text(&store, "large/2").await), (Some("small now"), None));
}

/// A transaction without tokens or writes needs no place in the order, so the committer is not involved.
#[tokio::test]
async fn c06_transactions_that_only_read_pass_the_committer_by() {
    let (store, memory, loads) = with_large_values(LARGE).await;
    let before = version(put(&store, "small", token("1"), "before").await);
    loads.committer();
    memory.inject(Fault::Hold);
    let held = queue(put(&store, "small", token("2"), "after")).await;
    within(memory.wait_held()).await;
    loads.committer();
    loads.readers();
    let looks = (0..8).fold(txn().when("small", Condition::AnyOf(vec![before])), |looks, n| {
        looks.when(&format!("large/{n}"), Condition::Exists)
    });
    assert!(done(within(looks.clone().send(&store)).await).is_empty(), "answered while a commit is under way");
    let read = done(within(looks.clone().get("small").get("none").send(&store)).await);
    assert!(
        matches!(&read[..], [Done::Read(found, value), Done::Absent] if *found == before && value.body == "before")
    );
    assert_eq!(failed_at(within(looks.when("large/3", Condition::Absent).send(&store)).await), 9);
    let (most, count) = loads.readers();
    assert!(most < LARGE / 10 && count == 3, "{most} bytes in one of {count} loads");
    assert_eq!(loads.committer(), (0, 0));
    assert_eq!(store.queue_depth(), 0);
    memory.release();
    applied(held.answer().await);
    let one = txn().get("large/0").max_bytes(LARGE);
    assert!(matches!(&done(one.send(&store).await)[..], [Done::Read(_, value)] if value.body.len() == LARGE));
    let all = (0..8).fold(txn(), |all, n| all.get(&format!("large/{n}")));
    loads.readers();
    let too_large = all.max_bytes(2 * LARGE).send(&store).await;
    assert!(matches!(too_large, Ok(Outcome::TooLarge { bytes, .. }) if bytes >= 8 * LARGE), "{too_large:?}");
    let (most, _) = loads.readers();
    assert!(most < 3 * LARGE, "{most} bytes were loaded to find out that it is too large");
}

/// G8: reads continue.
#[tokio::test]
async fn c06_transactions_that_only_read_go_on_after_poison() {
    let (store, memory) = memory_store().await;
    applied(put(&store, "a", token("5"), "before").await);
    memory.inject(Fault::UnknownLost);
    assert!(matches!(put(&store, "a", token("6"), "lost?").await, Err(Failure::Unknown(_))));
    let read = done(txn().when("a", Condition::Exists).get("a").send(&store).await);
    assert!(matches!(&read[..], [Done::Read(_, value)] if value.body == "before"));
    let judged = txn().token("a", token("7")).get("a").send(&store).await;
    assert!(matches!(judged, Err(Failure::Rejected(Rejected::Poisoned(_)))), "a token would raise the fence");
}

async fn claim_large(store: &Store, resource_name: &str, number: &str, max_bytes: usize) -> Ended {
    let claim = ClaimKeys {
        resource: resource(resource_name),
        presented: Some(token(number)),
        keys: vec![key(resource_name)],
        max_bytes,
    };
    ended(store.claim(claim).await)
}

/// Commands share a load only as long as their values fit into it, in order.
#[tokio::test]
async fn c06_a_batch_reads_a_bounded_number_of_bytes() {
    const BYTES: usize = 3 << 20;
    let (store, memory, loads) = with_large_values(BYTES).await;
    memory.inject(Fault::Hold);
    let held = queue(put(&store, "busy", token("1"), "busy")).await;
    within(memory.wait_held()).await;
    loads.committer();
    let names: Vec<String> = (0..8).map(|n| format!("large/{n}")).collect();
    let (mut claims, mut writes) = (Vec::new(), Vec::new());
    for name in &names {
        claims.push(queue(claim_large(&store, name, "7", BYTES)).await);
        // A write to the same resource, after its claim.
        writes.push(queue(put(&store, name, token("6"), "stale by then")).await);
    }
    let everything = names.iter().fold(txn().token("a", token("1")).put("a", "x"), |all, name| all.get(name));
    let too_large = queue(everything.max_bytes(BYTES).send(&store)).await;
    memory.release();
    applied(held.answer().await);
    for claim in claims {
        let claimed = claimed(claim.answer().await);
        let [(_, Some((_, value)))] = &claimed.values[..] else { panic!("it has a value") };
        assert_eq!((value.body.len(), claimed.state.token().unwrap().to_string()), (BYTES, "7".to_owned()));
    }
    for write in writes {
        assert_eq!(crate::testbed::reason(write.answer().await), fencepost_core::Reason::Stale);
    }
    assert!(matches!(too_large.answer().await, Ok(Outcome::TooLarge { .. })));
    assert_eq!(fence(&store, "a").await, None, "nothing of it happened");
    let limit = StoreOptions::default().batch_read_bytes;
    let (most, count) = loads.committer();
    assert!(most < limit + (1 << 16), "{most} bytes in one load");
    assert!(count <= 8, "{count} loads for eight values of which two fit into one");
}

/// A single command may need more bytes than the limit of a batch.
#[tokio::test]
async fn c06_a_command_that_needs_more_than_a_batch_is_done_alone() {
    let counted = Counted::default();
    let (memory, loads) = (counted.memory.clone(), counted.loads.clone());
    let options = StoreOptions { batch_read_bytes: 1000, ..StoreOptions::default() };
    let store = Store::open(Arc::new(counted), Guards::default(), options, Arc::new(NoObserver)).await.unwrap();
    for name in ["a", "b", "c"] {
        applied(put(&store, name, token("1"), &name.repeat(5000)).await);
    }
    memory.inject(Fault::Hold);
    let held = queue(put(&store, "busy", token("1"), "busy")).await;
    within(memory.wait_held()).await;
    loads.committer();
    let of_two = || txn().token("x", token("1")).put("x", "done").get("a").get("b").max_bytes(10_000);
    let of_none = txn().token("y", token("1")).put("y", "1").when("a", Condition::Exists).max_bytes(0);
    let first = queue(of_none.send(&store)).await;
    let second = queue(of_two().send(&store)).await;
    let third = queue(claim_large(&store, "c", "2", 5000)).await;
    let fourth = queue(put(&store, "z", token("1"), "last")).await;
    memory.release();
    applied(held.answer().await);
    transacted(first.answer().await);
    let read = done(second.answer().await);
    assert!(matches!(&read[1..], [Done::Read(_, a), Done::Read(_, b)] if a.body.len() == 5000 && b.body.len() == 5000));
    claimed(third.answer().await);
    applied(fourth.answer().await);
    let (most, count) = loads.committer();
    assert!((10_000..14_000).contains(&most) && count <= 5, "{most} bytes in one of {count} loads");
}
