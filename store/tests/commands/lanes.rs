//! Several gateways: lost answers are settled, lost histories are noticed, and one contended record holds up no other.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::testbed::requests::{
    LONG, Txn, acquire, awaited, grant, granted, once, release, renew, replayed, transacted, txn,
};
use crate::testbed::{
    Ended, Outcome, applied, claim, claimed, ended, memory_store_of, open, put, put_of, queue, read, reason, text,
    token, version, within,
};
use fencepost_core::{Guards, Reason};
use fencepost_store::engine::{Change, Engine, Ownership};
use fencepost_store::engines::memory::{Fault, Memory};
use fencepost_store::record::RecordKey;
use fencepost_store::{Condition, Failure, Health, NoObserver, Put, Rejected, Store, StoreOptions};

/// The first byte of the key of a lane.
const LANE: u8 = b'c';

async fn shared() -> (Store, Memory) {
    memory_store_of(Ownership::Shared, Guards::default()).await
}

fn is_lane(key: &RecordKey) -> bool {
    key.as_bytes().first() == Some(&LANE)
}

/// The keys of the changes of the last commit.
fn last_changes(memory: &Memory) -> Vec<RecordKey> {
    let commits = memory.commits();
    commits.last().unwrap().changes.iter().map(|(key, _)| key.clone()).collect()
}

fn add_one(name: &str) -> Txn {
    txn().token(name, token("1")).add_within(name, 1, 0, 1_000_000)
}

#[tokio::test]
async fn a_commit_whose_answer_was_lost_is_settled() {
    for fault in [Fault::UnknownApplied, Fault::UnknownLost] {
        let (store, memory) = shared().await;
        applied(put(&store, "n", token("1"), "5").await);
        memory.inject(fault.clone());
        transacted(add_one("n").send(&store).await);
        assert_eq!(text(&store, "n").await.as_deref(), Some("6"), "{fault:?}: once, not twice");
        assert_eq!(store.health(), Health::Ready);
    }
}

/// The version in the answer is that of the record, although the answer of the engine was lost.
#[tokio::test]
async fn a_settled_commit_has_the_version_of_its_record() {
    let (store, memory) = shared().await;
    memory.inject(Fault::UnknownApplied);
    let written = version(put(&store, "a", token("1"), "x").await);
    assert_eq!(read(&store, "a").await.value.unwrap().0, written);
}

/// A commit that is late finds that its lane has moved on, however late it comes.
#[tokio::test]
async fn a_commit_that_was_settled_never_applies_later() {
    let (store, memory) = shared().await;
    applied(put(&store, "n", token("1"), "5").await);
    memory.inject(Fault::UnknownLate);
    transacted(add_one("n").send(&store).await);
    assert_eq!(text(&store, "n").await.as_deref(), Some("6"));
    memory.release();
    within(memory.wait_held()).await;
    assert_eq!(text(&store, "n").await.as_deref(), Some("6"));
}

/// Nor does it when its gateway is gone, and has taken the record of its lane along.
#[tokio::test]
async fn a_commit_that_was_settled_never_applies_after_its_gateway_stopped() {
    let memory = Memory::new(Ownership::Shared);
    let a = open(Arc::new(memory.clone()), Guards::default()).await;
    applied(put(&a, "n", token("1"), "5").await);
    let b = open(Arc::new(memory.clone()), Guards::default()).await;
    memory.inject(Fault::UnknownLate);
    applied(put(&b, "n", token("1"), "6").await);
    applied(put(&b, "n", token("1"), "7").await);
    b.close().await;
    memory.release();
    within(memory.wait_held()).await;
    assert_eq!(text(&a, "n").await.as_deref(), Some("7"));
}

/// Settling takes commits, too, and their answers may be lost as well.
#[tokio::test]
async fn answers_are_lost_while_settling() {
    let faults = [Fault::UnknownApplied, Fault::UnknownLost];
    for (first, second) in faults.iter().flat_map(|first| faults.iter().map(move |second| (first, second))) {
        for memory in [Memory::new(Ownership::Shared), Memory::unproven()] {
            let store = open(Arc::new(memory.clone()), Guards::default()).await;
            applied(put(&store, "n", token("1"), "5").await);
            for fault in [first, second, second] {
                memory.inject(fault.clone());
            }
            transacted(within(add_one("n").send(&store)).await);
            assert_eq!(text(&store, "n").await.as_deref(), Some("6"), "{first:?}, {second:?}");
        }
    }
}

/// A promoted standby that lagged, or a restored copy: the lane is older than what was confirmed.
#[tokio::test]
async fn t46_a_lost_history_stops_writes() {
    let (store, memory) = shared().await;
    applied(put(&store, "a", token("5"), "five").await);
    let commits = memory.commits();
    let (lane, before) = commits.last().unwrap().changes.iter().find(|(key, _)| is_lane(key)).cloned().unwrap();
    applied(put(&store, "a", token("6"), "six").await);
    memory.inject(Fault::Interleave(vec![(lane, before)]));
    let ended = put(&store, "a", token("7"), "seven").await;
    let poisoned =
        |ended: &Ended| matches!(ended, Err(Failure::Rejected(Rejected::Poisoned(why))) if why.contains("restored"));
    assert!(poisoned(&ended), "{ended:?}");
    assert!(matches!(store.health(), Health::Poisoned(why) if why.contains("lost writes")));
    assert!(poisoned(&put(&store, "b", token("1"), "x").await));
}

/// A server that was replaced answers reads, but cannot commit: an answer that rests on a load alone is proved.
#[tokio::test]
async fn what_changes_nothing_commits_the_lane_where_loads_prove_nothing() {
    let memory = Memory::unproven();
    let store = open(Arc::new(memory.clone()), Guards::default()).await;
    applied(put(&store, "a", token("5"), "five").await);
    let commits = memory.commits().len();
    claimed(claim(&store, "a", token("5")).await);
    assert_eq!(memory.commits().len(), commits + 1);
    assert!(last_changes(&memory).iter().all(is_lane) && last_changes(&memory).len() == 1);
    // Fences only rise, so a token below an old one needs no proof.
    assert_eq!(reason(put(&store, "a", token("4"), "x").await), Reason::Stale);
    assert_eq!(memory.commits().len(), commits + 1);
    // Any other refusal may be out of date.
    assert_eq!(reason(put(&store, "a", token("1:1"), "x").await), Reason::UnknownGeneration);
    assert_eq!(memory.commits().len(), commits + 2);
}

/// Batches with the contended record conflict. After the second time they are divided.
#[tokio::test]
async fn t45_one_contended_record_holds_up_no_other() {
    let (store, memory) = shared().await;
    memory.inject(Fault::Hold);
    let first = queue(put(&store, "first", token("1"), "x")).await;
    within(memory.wait_held()).await;
    let names: Vec<String> = (0..16).map(|n| format!("n{n}")).collect();
    let mut others = Vec::new();
    for (n, name) in names.iter().enumerate() {
        others.push((n, queue(put(&store, name, token("1"), "x")).await));
    }
    for _ in 0..3 {
        memory.inject(Fault::Conflict);
    }
    memory.release();
    applied(first.answer().await);
    for (_, other) in others {
        applied(other.answer().await);
    }
    // Each put changes a value and a fence, and each batch the lane.
    let puts: Vec<usize> = memory.commits().iter().skip(2).map(|batch| (batch.changes.len() - 1) / 2).collect();
    assert_eq!(puts, [4, 12], "judged whole twice, and then halved twice");
}

/// A gateway that stops takes its record along; one that is killed leaves it.
#[tokio::test]
async fn the_record_of_a_lane_goes_with_its_gateway() {
    let (store, memory) = shared().await;
    applied(put(&store, "a", token("5"), "five").await);
    let lane = last_changes(&memory).into_iter().find(is_lane).unwrap();
    assert!(memory.load(std::slice::from_ref(&lane)).await.unwrap().records[0].is_some());
    store.close().await;
    assert_eq!(memory.load(std::slice::from_ref(&lane)).await.unwrap().records[0], None);
    let commits = memory.commits();
    assert_eq!(commits.last().unwrap().changes, [(lane, Change::Delete)]);
}

/// Two gateways over the same records.
async fn two() -> (Arc<Store>, Arc<Store>) {
    let memory = Memory::new(Ownership::Shared);
    let a = open(Arc::new(memory.clone()), Guards::default()).await;
    let b = open(Arc::new(memory), Guards::default()).await;
    (Arc::new(a), Arc::new(b))
}

/// Waits for the lock on a task of its own; returns when it waits.
async fn waiter(store: &Arc<Store>, holder: &str) -> tokio::task::JoinHandle<(Ended, Instant)> {
    let (store, waiting, holder) = (store.clone(), store.waiters(), holder.to_owned());
    let task = tokio::spawn({
        let store = store.clone();
        async move { (acquire(&store, awaited("lock", &holder, LONG)).await, Instant::now()) }
    });
    within(async {
        while store.waiters() == waiting {
            tokio::task::yield_now().await;
        }
    })
    .await;
    task
}

/// Long enough for what is waited for to have been looked at more than once.
const A_FEW_LOOKS: Duration = Duration::from_millis(300);

/// Far less than the lease lasts, and enough for a machine that is busy.
const SOON: Duration = Duration::from_secs(5);

#[tokio::test]
async fn a_release_at_one_gateway_wakes_a_waiter_at_another() {
    let (a, b) = two().await;
    let held = grant(&a, "lock", "a#1").await;
    let waiting = waiter(&b, "b#1").await;
    tokio::time::sleep(A_FEW_LOOKS).await;
    release(&a, "lock", &held).await.unwrap();
    let released = Instant::now();
    let (ended, at) = within(waiting).await.unwrap();
    assert!(granted(ended).token > held.token);
    assert!(at < released + SOON, "{:?}", at - released);
}

/// A renewal is seen soon, so the lease is over soon after the time it gave.
#[tokio::test]
async fn a_dead_holder_at_one_gateway_is_taken_over_at_another() {
    const TTL: Duration = Duration::from_secs(6);
    let (a, b) = two().await;
    let held = grant(&a, "lock", "a#1").await;
    let waiting = waiter(&b, "b#1").await;
    tokio::time::sleep(A_FEW_LOOKS).await;
    let before = Instant::now();
    renew(&a, "lock", &held, 6_000).await.unwrap();
    let renewed = Instant::now();
    let (ended, at) = within(waiting).await.unwrap();
    assert!(granted(ended).token > held.token);
    assert!(at >= before + TTL && at < renewed + TTL + SOON, "{:?}", at - renewed);
}

/// A fence that another gateway raised above the lease ends it.
#[tokio::test]
async fn a_fence_raised_at_one_gateway_wakes_a_waiter_at_another() {
    let (a, b) = two().await;
    grant(&a, "lock", "a#1").await;
    let waiting = waiter(&b, "b#1").await;
    tokio::time::sleep(A_FEW_LOOKS).await;
    applied(put(&a, "lock", token("1000"), "x").await);
    let raised = Instant::now();
    let (ended, at) = within(waiting).await.unwrap();
    granted(ended);
    assert!(at < raised + SOON, "{:?}", at - raised);
}

/// Waiters at the gateway of the holder learn of a release first. They must not win every time.
#[tokio::test]
async fn waiters_at_two_gateways_all_get_their_turn() {
    const EACH: usize = 200;
    let (a, b) = two().await;
    let order = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    for (name, store) in [("a", &a), ("b", &b)] {
        for n in 0..EACH {
            let (store, order) = (store.clone(), order.clone());
            tasks.push(tokio::spawn(async move {
                let held = granted(acquire(&store, awaited("lock", &format!("{name}#{n}"), LONG)).await);
                order.lock().push(name);
                tokio::time::sleep(Duration::from_millis(1)).await;
                release(&store, "lock", &held).await.unwrap();
            }));
        }
    }
    for task in tasks {
        within(task).await.unwrap();
    }
    let order = order.lock().clone();
    let first = |name| order.iter().position(|found| *found == name).unwrap();
    assert!(first("a").max(first("b")) < EACH, "one gateway served all of its own waiters first: {order:?}");
}

#[tokio::test]
async fn outcomes_are_found_at_the_other_gateway() {
    let (a, b) = two().await;
    let wanted = || Put { once: Some(once("k", 1)), ..put_of("a", Some(token("5")), Condition::Always, "x") };
    let first = applied(ended(a.put(wanted()).await));
    assert_eq!(replayed(ended(b.put(wanted()).await)), Outcome::Applied(first));
}

/// Two gateways are started for the first time, at once.
#[tokio::test]
async fn two_gateways_make_one_store() {
    let memory = Memory::new(Ownership::Shared);
    memory.inject(Fault::Hold);
    let opening = tokio::spawn({
        let engine = Arc::new(memory.clone());
        Store::open(engine, Guards::default(), StoreOptions::default(), Arc::new(NoObserver))
    });
    within(memory.wait_held()).await;
    let b = open(Arc::new(memory.clone()), Guards::default()).await;
    memory.release();
    let a = within(opening).await.unwrap().unwrap();
    assert_eq!(a.store_id(), b.store_id());
}
