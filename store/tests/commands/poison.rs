//! Fail closed (G8): after a commit that failed or whose outcome is unknown, writes stop and reads continue.

use crate::testbed::{
    applied, claim, delete, fence, memory_store, memory_store_of, put, queue, reason, text, token, within,
};
use fencepost_core::{Guards, Reason};
use fencepost_store::engine::Ownership;
use fencepost_store::engines::memory::Fault;
use fencepost_store::{Failure, Health, Rejected};

fn is_poisoned(ended: crate::testbed::Ended, because: &str) -> bool {
    matches!(ended, Err(Failure::Rejected(Rejected::Poisoned(why))) if why.contains(because))
}

fn is_unknown(ended: &crate::testbed::Ended) -> bool {
    matches!(ended, Err(Failure::Unknown(why)) if why.contains("unknown"))
}

#[tokio::test]
async fn t28_failed_commit_then_no_later_ok() {
    for fault in [Fault::UnknownApplied, Fault::UnknownLost] {
        let (store, memory) = memory_store().await;
        applied(put(&store, "a", token("5"), "before").await);
        memory.inject(fault.clone());
        assert!(is_unknown(&put(&store, "a", token("6"), "lost?").await), "{fault:?}");
        let commits = memory.commits().len();
        assert!(is_poisoned(put(&store, "a", token("6"), "again").await, "a commit failed"));
        assert!(is_poisoned(put(&store, "b", token("1"), "other").await, "a commit failed"));
        assert!(is_poisoned(delete(&store, "a", token("7")).await, "a commit failed"));
        assert!(is_poisoned(claim(&store, "a", token("7")).await, "a commit failed"));
        assert!(is_poisoned(put(&store, "a", token("1"), "stale").await, "a commit failed"));
        assert_eq!(memory.commits().len(), commits, "nothing reached the engine any more");
        assert!(matches!(store.health(), Health::Poisoned(why) if why.contains("a commit failed")));
    }
}

#[tokio::test]
async fn g8_reads_go_on_after_poison() {
    let (store, memory) = memory_store().await;
    applied(put(&store, "a", token("5"), "before").await);
    memory.inject(Fault::UnknownLost);
    assert!(is_unknown(&put(&store, "a", token("6"), "lost").await));
    assert_eq!(text(&store, "a").await.as_deref(), Some("before"));
    assert_eq!(fence(&store, "a").await.as_deref(), Some("5"));
    assert_eq!(store.keys("", None, 10).await.unwrap().entries.len(), 1);
    assert_eq!(store.fences("", None, 10).await.unwrap().entries.len(), 1);
}

/// Reads return what is in the engine, even if its writer never learned the outcome.
#[tokio::test]
async fn an_unknown_outcome_is_unknown_and_not_a_lie() {
    let (store, memory) = memory_store().await;
    memory.inject(Fault::UnknownApplied);
    assert!(is_unknown(&put(&store, "a", token("6"), "written").await));
    assert_eq!(text(&store, "a").await.as_deref(), Some("written"));
    assert_eq!(fence(&store, "a").await.as_deref(), Some("6"));
}

#[tokio::test]
async fn what_waits_behind_a_failed_commit_is_rejected() {
    let (store, memory) = memory_store().await;
    memory.inject(Fault::Hold);
    let first = queue(put(&store, "first", token("1"), "1")).await;
    within(memory.wait_held()).await;
    memory.inject(Fault::UnknownLost);
    let second = queue(put(&store, "second", token("1"), "2")).await;
    let third = queue(put(&store, "third", token("1"), "3")).await;
    memory.release();
    applied(first.answer().await);
    assert!(is_unknown(&second.answer().await));
    assert!(is_unknown(&third.answer().await), "it shared the commit");
    assert!(is_poisoned(put(&store, "fourth", token("1"), "4").await, "a commit failed"));
}

/// When several gateways share the records, one unknown outcome does not affect the next commit.
#[tokio::test]
async fn a_shared_engine_is_not_poisoned() {
    let (store, memory) = memory_store_of(Ownership::Shared, Guards::default()).await;
    memory.inject(Fault::Cut);
    assert!(is_unknown(&put(&store, "a", token("6"), "lost?").await));
    memory.break_reads(None);
    assert_eq!(store.health(), Health::Ready);
    applied(put(&store, "a", token("7"), "next").await);
    assert_eq!(text(&store, "a").await.as_deref(), Some("next"));
    // A write that may not have happened never justifies a refusal (G5); the records do.
    assert_eq!(reason(put(&store, "a", token("6"), "late").await), Reason::Stale);
}

/// A raise with an unknown outcome must not enter the fence cache.
#[tokio::test]
async fn g5_a_raise_that_was_lost_refuses_nobody() {
    let (store, memory) = memory_store_of(Ownership::Shared, Guards::default()).await;
    applied(put(&store, "a", token("5"), "five").await);
    memory.inject(Fault::Cut);
    assert!(is_unknown(&put(&store, "a", token("9"), "lost").await));
    memory.break_reads(None);
    applied(put(&store, "a", token("6"), "six").await);
    assert_eq!(fence(&store, "a").await.as_deref(), Some("6"));
}

#[tokio::test]
async fn a_background_fault_poisons() {
    let (store, memory) = memory_store().await;
    applied(put(&store, "a", token("5"), "before").await);
    memory.break_background("a table could not be written");
    assert!(is_poisoned(put(&store, "a", token("6"), "after").await, "a table could not be written"));
    assert!(matches!(store.health(), Health::Poisoned(why) if why.contains("a table")));
    assert_eq!(text(&store, "a").await.as_deref(), Some("before"));
    assert_eq!(memory.commits().len(), 2, "the store's own record and the first put");
}

#[tokio::test]
async fn health_notices_a_background_fault_by_itself() {
    let (store, memory) = memory_store().await;
    assert_eq!(store.health(), Health::Ready);
    memory.break_background("a table could not be written");
    assert!(matches!(store.health(), Health::Poisoned(why) if why.contains("a table")));
    assert!(is_poisoned(put(&store, "a", token("6"), "after").await, "a table"));
}
