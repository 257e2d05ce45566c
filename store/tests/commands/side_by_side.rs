//! Several batches under way on a shared engine: what they read and write does not overlap, and order per key is kept.

use std::pin::Pin;
use std::sync::Arc;

use crate::testbed::requests::{Txn, transacted, txn};
use crate::testbed::{Ended, Outcome, applied, open, put, queue, reason, resource, text, together, token, within};
use fencepost_core::{Guards, Reason};
use fencepost_store::engine::{Change, Limits};
use fencepost_store::engines::memory::{Fault, Memory};
use fencepost_store::record::RecordKey;
use fencepost_store::{Failure, Health, NoObserver, Rejected, Store, StoreOptions};

/// A store that may have so many commits under way.
async fn lanes(lanes: usize) -> (Store, Memory) {
    let memory = Memory::limited(Limits { lanes, ..Limits::NONE });
    (open(Arc::new(memory.clone()), Guards::default()).await, memory)
}

/// A transaction that writes both.
fn both(one: &str, other: &str) -> Txn {
    [one, other].into_iter().fold(txn(), |txn, name| txn.token(name, token("1")).put(name, "both"))
}

#[tokio::test]
async fn a_slow_commit_does_not_hold_up_what_is_about_other_keys() {
    let (store, memory) = lanes(2).await;
    memory.inject(Fault::Hold);
    let mut slow = queue(put(&store, "slow", token("1"), "x")).await;
    within(memory.wait_held()).await;
    for n in 0..4 {
        applied(within(put(&store, &format!("k{n}"), token("1"), "x")).await);
    }
    assert!(slow.now().await.is_none());
    memory.release();
    applied(slow.answer().await);
}

/// Each lane has one commit under way, and no more.
#[tokio::test]
async fn what_finds_no_lane_waits() {
    let (store, memory) = lanes(2).await;
    memory.inject(Fault::Hold);
    memory.inject(Fault::Hold);
    let a = queue(put(&store, "a", token("1"), "x")).await;
    within(memory.wait_held()).await;
    let b = queue(put(&store, "b", token("1"), "x")).await;
    within(memory.wait_held()).await;
    let mut c = queue(put(&store, "c", token("1"), "x")).await;
    assert!(c.now().await.is_none());
    assert_eq!(store.queue_depth(), 1);
    memory.release();
    applied(c.answer().await);
    memory.release();
    applied(a.answer().await);
    applied(b.answer().await);
}

#[tokio::test]
async fn what_is_about_one_resource_keeps_its_order() {
    let (store, memory) = lanes(4).await;
    memory.inject(Fault::Hold);
    let first = queue(put(&store, "a", token("1"), "first")).await;
    within(memory.wait_held()).await;
    let mut second = queue(put(&store, "a", token("1"), "second")).await;
    let mut third = queue(put(&store, "a", token("2"), "third")).await;
    // It is taken after them, and answered before.
    applied(within(put(&store, "b", token("1"), "x")).await);
    assert!(second.now().await.is_none() && third.now().await.is_none());
    memory.release();
    applied(first.answer().await);
    applied(second.answer().await);
    applied(third.answer().await);
    assert_eq!(text(&store, "a").await.as_deref(), Some("third"));
}

/// The transaction waits for `a`, and keeps its place before the write of `b`.
#[tokio::test]
async fn what_touches_a_key_of_what_waits_waits_behind_it() {
    let (store, memory) = lanes(4).await;
    memory.inject(Fault::Hold);
    let first = queue(put(&store, "a", token("1"), "first")).await;
    within(memory.wait_held()).await;
    let mut both = queue(both("a", "b").send(&store)).await;
    let mut last = queue(put(&store, "b", token("1"), "last")).await;
    applied(within(put(&store, "c", token("1"), "x")).await);
    assert!(both.now().await.is_none() && last.now().await.is_none());
    memory.release();
    applied(first.answer().await);
    transacted(both.answer().await);
    applied(last.answer().await);
    assert_eq!(text(&store, "b").await.as_deref(), Some("last"));
}

/// A read in a transaction sees what was written before it, although no fence is theirs together.
#[tokio::test]
async fn a_read_waits_for_a_write_of_its_key() {
    let (store, memory) = lanes(4).await;
    applied(put(&store, "a", token("1"), "old").await);
    memory.inject(Fault::Hold);
    let write = queue(put(&store, "a", token("1"), "new")).await;
    within(memory.wait_held()).await;
    let mut sum = queue(txn().get("a").token("b", token("1")).put("b", "x").send(&store)).await;
    applied(within(put(&store, "c", token("1"), "x")).await);
    assert!(sum.now().await.is_none());
    memory.release();
    applied(write.answer().await);
    assert!(format!("{:?}", transacted(sum.answer().await)).contains("new"));
}

/// T10: a refusal falls with the commit that would have justified it, and other lanes know nothing of it before.
#[tokio::test]
async fn t10_a_refusal_waits_for_the_commit_of_another_lane() {
    let (store, memory) = lanes(4).await;
    applied(put(&store, "a", token("5"), "five").await);
    memory.inject(Fault::Hold);
    let raise = queue(put(&store, "a", token("7"), "seven")).await;
    within(memory.wait_held()).await;
    let mut stale = queue(put(&store, "a", token("6"), "six")).await;
    applied(within(put(&store, "b", token("1"), "x")).await);
    assert!(stale.now().await.is_none());
    memory.release();
    applied(raise.answer().await);
    assert_eq!(reason(stale.answer().await), Reason::Stale);
    assert_eq!(text(&store, "a").await.as_deref(), Some("seven"));
}

/// Every batch reads the store's own record. A rotation of everything changes it, so nothing else is under way.
#[tokio::test]
async fn a_rotation_of_everything_waits_for_all_lanes_and_all_wait_for_it() {
    let (store, memory) = lanes(4).await;
    memory.inject(Fault::Hold);
    let first = queue(put(&store, "a", token("1"), "x")).await;
    within(memory.wait_held()).await;
    let rotate = queue(store.rotate_all(0)).await;
    let mut later = queue(put(&store, "b", token("1"), "x")).await;
    within(async {
        while store.queue_depth() != 2 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert!(later.now().await.is_none());
    memory.release();
    applied(first.answer().await);
    assert!(matches!(rotate.answer().await, Ok(Outcome::Rotated { .. })));
    assert_eq!(reason(later.answer().await), Reason::RetiredGeneration);
}

/// What one lane does not know, others need not wait for. The lane is used again once its server has answered.
#[tokio::test]
async fn commits_whose_answers_are_lost_are_settled_in_each_lane() {
    let (store, memory) = lanes(3).await;
    let names: Vec<String> = (0..3).map(|n| format!("k{n}")).collect();
    for round in 0..4 {
        for fault in [Fault::UnknownApplied, Fault::UnknownLost, Fault::UnknownApplied] {
            memory.inject(fault);
        }
        let add = |name| txn().token(name, token("1")).add_within(name, 1, 0, 100).send(&store);
        let adding: Vec<Pin<Box<dyn Future<Output = Ended>>>> =
            names.iter().map(|name| -> Pin<Box<dyn Future<Output = Ended>>> { Box::pin(add(name)) }).collect();
        for ended in within(together(adding)).await {
            transacted(ended);
        }
        for name in &names {
            assert_eq!(text(&store, name).await, Some(format!("{}", round + 1)), "once, and not twice");
        }
    }
    assert_eq!(store.health(), Health::Ready);
}

/// Each lane has a record of its own, and all go with the gateway.
#[tokio::test]
async fn the_records_of_all_lanes_go_with_their_gateway() {
    let (store, memory) = lanes(2).await;
    memory.inject(Fault::Hold);
    let a = queue(put(&store, "a", token("1"), "x")).await;
    within(memory.wait_held()).await;
    applied(within(put(&store, "b", token("1"), "x")).await);
    memory.release();
    applied(a.answer().await);
    let written = |change: &(RecordKey, Change)| change.0.as_bytes()[0] == b'c' && matches!(change.1, Change::Put(_));
    let removed = |change: &(RecordKey, Change)| change.0.as_bytes()[0] == b'c' && matches!(change.1, Change::Delete);
    store.close().await;
    let changes: Vec<_> = memory.commits().into_iter().flat_map(|batch| batch.changes).collect();
    assert_eq!(changes.iter().filter(|change| written(change)).count(), 2);
    assert_eq!(changes.iter().filter(|change| removed(change)).count(), 2);
}

/// One key whose commit is slow does not fill what waits.
#[tokio::test]
async fn t42_commands_about_one_key_leave_room_for_others() {
    let memory = Memory::limited(Limits { lanes: 2, ..Limits::NONE });
    let options = StoreOptions { batch_commands: 4, ..StoreOptions::default() };
    let engine = Arc::new(memory.clone());
    let store = Store::open(engine, Guards::default(), options, Arc::new(NoObserver)).await.unwrap();
    memory.inject(Fault::Hold);
    let first = queue(put(&store, "a", token("1"), "x")).await;
    within(memory.wait_held()).await;
    let mut waiting = Vec::new();
    for _ in 0..8 {
        waiting.push(queue(put(&store, "a", token("1"), "x")).await);
    }
    let surplus = within(put(&store, "a", token("1"), "x")).await;
    assert!(matches!(&surplus, Err(Failure::Rejected(Rejected::Overloaded { limit: 8 }))), "{surplus:?}");
    applied(within(put(&store, "b", token("1"), "x")).await);
    memory.release();
    applied(first.answer().await);
    for one in waiting {
        applied(one.answer().await);
    }
    applied(within(put(&store, "a", token("1"), "x")).await);
}

/// Nothing else is under way meanwhile, so many of them should not take as many commits.
#[tokio::test]
async fn rotations_that_wait_together_share_a_commit() {
    let (store, memory) = lanes(4).await;
    memory.inject(Fault::Hold);
    let first = queue(put(&store, "a", token("1"), "x")).await;
    within(memory.wait_held()).await;
    let (x, y) = (resource("x"), resource("y"));
    let rotations = [queue(store.rotate(&x, 0, None)).await, queue(store.rotate(&y, 0, None)).await];
    let later = queue(put(&store, "b", token("1"), "x")).await;
    let before = memory.commits().len();
    memory.release();
    applied(first.answer().await);
    for rotation in rotations {
        assert!(matches!(rotation.answer().await, Ok(Outcome::Rotated { .. })));
    }
    applied(later.answer().await);
    assert_eq!(memory.commits().len() - before, 3, "one for the first, one for both rotations, one for the last");
}

/// Nobody waits for the answers any more, the server answers nothing, and the last command is in no batch yet.
#[tokio::test]
async fn a_store_closes_although_every_lane_is_in_doubt() {
    let (store, memory) = lanes(2).await;
    // Their fences are known, so what follows is sent without a load, which would fail.
    for name in ["a", "b"] {
        applied(put(&store, name, token("1"), "x").await);
    }
    memory.inject(Fault::Cut);
    memory.inject(Fault::Cut);
    let a = queue(put(&store, "a", token("1"), "x")).await;
    within(async {
        while store.queue_depth() > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let b = queue(put(&store, "b", token("1"), "x")).await;
    let last = queue(both("a", "b").send(&store)).await;
    drop((a, b, last));
    within(store.close()).await;
}
