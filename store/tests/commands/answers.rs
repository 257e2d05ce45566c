//! When an answer is sent (G4, trap 10): not before the state that justifies it is durable.

use crate::testbed::requests::Reports;
use crate::testbed::{
    Outcome, Queued, applied, claim, claimed, delete, fence, held, memory_store, put, put_if, queue, reason, refused,
    text, token, version, within,
};
use fencepost_core::{Guards, Reason};
use fencepost_store::engine::Version;
use fencepost_store::engines::memory::{Fault, Memory};
use fencepost_store::{Condition, Failure, Rejected, Store, StoreOptions};
use std::sync::Arc;

/// Keeps the committer busy, so that the commands queued next share a batch.
async fn busy<'a>(store: &'a Store, memory: &Memory) -> Queued<'a> {
    memory.inject(Fault::Hold);
    let first = queue(put(store, "busy", token("1"), "busy")).await;
    within(memory.wait_held()).await;
    first
}

#[tokio::test]
async fn t10_a_success_waits_for_its_commit() {
    let (store, memory) = memory_store().await;
    memory.inject(Fault::Hold);
    let mut write = queue(put(&store, "a", token("1"), "one")).await;
    within(memory.wait_held()).await;
    assert_eq!(write.now().await, None);
    assert_eq!(text(&store, "a").await, None, "nothing uncommitted is visible");
    memory.release();
    applied(write.answer().await);
    assert_eq!(text(&store, "a").await.as_deref(), Some("one"));
}

#[tokio::test]
async fn t10_refusal_waits_for_the_commit_that_justifies_it() {
    let (store, memory) = memory_store().await;
    let first = busy(&store, &memory).await;
    memory.inject(Fault::Hold);
    let mut newer = queue(put(&store, "a", token("34"), "new")).await;
    let mut stale = queue(put(&store, "a", token("33"), "old")).await;
    let mut stale_claim = queue(claim(&store, "a", token("33"))).await;
    memory.release();
    applied(first.answer().await);
    // Once its commit is held, the second batch has been judged, and every answer that may precede the commit was sent.
    within(memory.wait_held()).await;
    assert_eq!(newer.now().await, None);
    assert_eq!(stale.now().await, None, "refused because of 34, which is not durable yet");
    assert_eq!(stale_claim.now().await, None);
    memory.release();
    applied(newer.answer().await);
    let refusal = refused(stale.answer().await);
    assert_eq!(refusal.reason, Reason::Stale);
    assert_eq!(refusal.found.token().unwrap().to_string(), "34");
    assert_eq!(reason(stale_claim.answer().await), Reason::Stale);
    assert_eq!(text(&store, "a").await.as_deref(), Some("new"));
}

#[tokio::test]
async fn t10_a_refusal_falls_with_the_commit_that_justified_it() {
    for (fault, surely_not) in [(Fault::UnknownLost, false), (Fault::NoSpace, true), (Fault::Unavailable, true)] {
        let (store, memory) = memory_store().await;
        let first = busy(&store, &memory).await;
        memory.inject(fault.clone());
        let newer = queue(put(&store, "a", token("34"), "new")).await;
        let stale = queue(put(&store, "a", token("33"), "old")).await;
        memory.release();
        applied(first.answer().await);
        for (name, ended) in [("newer", newer.answer().await), ("stale", stale.answer().await)] {
            match ended {
                Err(Failure::Rejected(_)) if surely_not => {}
                Err(Failure::Unknown(_)) if !surely_not => {}
                other => panic!("{name} after {fault:?}: {other:?}"),
            }
        }
        assert_eq!(fence(&store, "a").await, None, "34 never happened");
        if surely_not {
            applied(put(&store, "a", token("33"), "old").await);
        }
    }
}

#[tokio::test]
async fn a_refusal_justified_by_durable_records_does_not_wait() {
    let memory = Memory::default();
    let earlier = crate::testbed::open(std::sync::Arc::new(memory.clone()), Default::default()).await;
    applied(put(&earlier, "a", token("34"), "new").await);
    earlier.close().await;
    // The cache of a fresh store is empty, so its sequencer must decide.
    let store = crate::testbed::open(std::sync::Arc::new(memory.clone()), Default::default()).await;
    let first = busy(&store, &memory).await;
    memory.inject(Fault::Hold);
    let mut other = queue(put(&store, "b", token("1"), "held")).await;
    let stale = queue(put(&store, "a", token("33"), "old")).await;
    memory.release();
    applied(first.answer().await);
    within(memory.wait_held()).await;
    assert_eq!(other.now().await, None, "its commit is held");
    assert_eq!(reason(stale.answer().await), Reason::Stale);
    memory.release();
    applied(other.answer().await);
}

/// Trap 29: a stale token is refused from the cache at once, even while a commit is held; anything else goes to the
/// sequencer.
#[tokio::test]
async fn t29_a_cached_fence_refuses_only_what_is_below_it() {
    let (store, memory) = memory_store().await;
    applied(put(&store, "a", token("34"), "new").await);
    let first = busy(&store, &memory).await;
    assert_eq!(reason(within(put(&store, "a", token("33"), "old")).await), Reason::Stale);
    assert_eq!(reason(within(delete(&store, "a", token("33"))).await), Reason::Stale);
    assert_eq!(reason(within(claim(&store, "a", token("33"))).await), Reason::Stale);
    let equal = queue(put(&store, "a", token("34"), "equal")).await;
    let above = queue(put(&store, "a", token("35"), "above")).await;
    let unknown_generation = queue(put(&store, "a", token("1:1"), "elsewhere")).await;
    memory.release();
    applied(first.answer().await);
    applied(equal.answer().await);
    applied(above.answer().await);
    assert_eq!(reason(unknown_generation.answer().await), Reason::UnknownGeneration);
}

#[tokio::test]
async fn a_claim_sees_what_its_batch_wrote_before_it() {
    let (store, memory) = memory_store().await;
    let first = busy(&store, &memory).await;
    let write = queue(put(&store, "a", token("33"), "from 33")).await;
    let claim = queue(claim(&store, "a", token("34"))).await;
    let late = queue(put(&store, "a", token("33"), "too late")).await;
    memory.release();
    applied(first.answer().await);
    let written = version(write.answer().await);
    let claimed = claimed(claim.answer().await);
    assert_eq!(claimed.state.token().unwrap().to_string(), "34");
    let (found, value) = claimed.values[0].1.clone().unwrap();
    assert_eq!((found, crate::testbed::body(&value)), (written, "from 33".to_owned()));
    assert_eq!(reason(late.answer().await), Reason::Stale);
}

#[tokio::test]
async fn versions_within_a_batch_differ_and_the_first_no_longer_matches() {
    let (store, memory) = memory_store().await;
    let first = busy(&store, &memory).await;
    let one = queue(put(&store, "a", token("1"), "one")).await;
    let two = queue(put(&store, "a", token("1"), "two")).await;
    let absent = queue(put_if(&store, "a", token("1"), Condition::Absent, "three")).await;
    let exists = queue(put_if(&store, "a", token("1"), Condition::Exists, "four")).await;
    memory.release();
    applied(first.answer().await);
    let (one, two) = (version(one.answer().await), version(two.answer().await));
    assert_ne!(one, two);
    match absent.answer().await {
        Ok(Outcome::ConditionFailed { current, .. }) => assert_eq!(current, Some(two)),
        other => panic!("{other:?}"),
    }
    let four = version(exists.answer().await);
    assert_eq!(crate::testbed::read(&store, "a").await.value.unwrap().0, four);
    for outdated in [one, two] {
        let ended = put_if(&store, "a", token("1"), Condition::AnyOf(vec![outdated]), "five").await;
        assert!(matches!(ended, Ok(Outcome::ConditionFailed { current: Some(now), .. }) if now == four), "{ended:?}");
    }
    applied(put_if(&store, "a", token("1"), Condition::AnyOf(vec![Version(0), four]), "five").await);
}

#[tokio::test]
async fn no_space_is_surely_not_applied_raises_nothing_and_recovers() {
    let (store, memory) = memory_store().await;
    applied(put(&store, "a", token("5"), "before").await);
    for (fault, expected) in [
        (Fault::NoSpace, Rejected::NoSpace { free: 1, floor: 2 }),
        (Fault::Unavailable, Rejected::Unavailable("injected".into())),
    ] {
        memory.inject(fault);
        assert_eq!(put(&store, "a", token("9"), "full").await, Err(Failure::Rejected(expected)));
        assert_eq!(fence(&store, "a").await.as_deref(), Some("5"));
        assert_eq!(text(&store, "a").await.as_deref(), Some("before"));
    }
    applied(put(&store, "a", token("6"), "after").await);
    assert_eq!(text(&store, "a").await.as_deref(), Some("after"));
}

/// A claim under the token that is the fence already is a read, which overtakes nothing that was queued before it.
#[tokio::test]
async fn a_claim_that_changes_nothing_is_a_read_while_nothing_is_written() {
    let (memory, reports) = (Memory::default(), Arc::new(Reports::default()));
    let engine = Arc::new(memory.clone());
    let store = Store::open(engine, Guards::default(), StoreOptions::default(), reports.clone()).await.unwrap();
    applied(put(&store, "a", token("33"), "mine").await);
    // The committer lets go of a command shortly after it was answered.
    within(async {
        loop {
            let commands = reports.commands();
            let same = claimed(claim(&store, "a", token("33")).await);
            assert_eq!(same.state.token().unwrap().to_string(), "33");
            assert_eq!(crate::testbed::body(&same.values[0].1.as_ref().unwrap().1), "mine");
            if reports.commands() == commands {
                break;
            }
        }
    })
    .await;
    // What fills in the holder is a command, and so is what comes behind a command.
    let commits = memory.commits().len();
    claimed(claim(&store, "a", held("33", "A#1")).await);
    assert_eq!(memory.commits().len(), commits + 1);
    let first = busy(&store, &memory).await;
    let raising = queue(claim(&store, "a", token("34"))).await;
    let late = queue(claim(&store, "a", token("33"))).await;
    memory.release();
    applied(first.answer().await);
    claimed(raising.answer().await);
    assert_eq!(reason(late.answer().await), Reason::Stale);
}
