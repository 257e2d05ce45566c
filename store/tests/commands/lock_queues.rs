//! Waiting for locks: first come, first served, at a cost that does not grow with the number of waiters.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::testbed::requests::{
    Reports, acquire, awaited, force_release, granted, in_the_way, once, release, replayed, reported, wanted,
};
use crate::testbed::{
    Ended, Outcome, applied, ended, memory_store, put, queue, queue_when_free, reason, resource, token, within,
};
use fencepost_core::{Guards, Issuer, Reason};
use fencepost_store::engines::memory::{Fault, Memory};
use fencepost_store::{AcquireLock, Failure, Grant, Rejected, Store, StoreOptions};
use tokio::task::JoinHandle;

const LONG: u64 = 600_000;

async fn watched() -> (Arc<Store>, Memory, Arc<Reports>) {
    let (store, memory, reports) = reported(Guards::default(), StoreOptions::default()).await;
    (Arc::new(store), memory, reports)
}

/// Starts to wait, and returns once the waiter is in the queue behind `before` others.
async fn waiter(store: &Arc<Store>, wanted: AcquireLock, before: usize) -> JoinHandle<Ended> {
    let (ours, name) = (store.clone(), wanted.resource.clone());
    let task = tokio::spawn(async move { acquire(&ours, wanted).await });
    within(async {
        while waiting(store, name.as_str()).await <= before {
            tokio::task::yield_now().await;
        }
    })
    .await;
    task
}

async fn waiting(store: &Store, name: &str) -> usize {
    store.lock(&resource(name)).await.unwrap().map_or(0, |lock| lock.waiting)
}

async fn until_free(store: &Store, name: &str) {
    within(async {
        while store.lock(&resource(name)).await.unwrap().is_some() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

async fn answered(task: JoinHandle<Ended>) -> Ended {
    within(task).await.unwrap()
}

#[tokio::test]
async fn waiters_are_served_in_the_order_they_came() {
    let (store, _, _) = watched().await;
    let mut holder = granted(acquire(&store, wanted("a", "first#0", LONG)).await);
    let mut tasks = Vec::new();
    for n in 0..50 {
        tasks.push(waiter(&store, awaited("a", &format!("w#{n}"), LONG), n).await);
    }
    for (n, task) in tasks.into_iter().enumerate() {
        assert_eq!(release(&store, "a", &holder).await, Ok(Outcome::Released));
        let next = granted(answered(task).await);
        assert_eq!(next.holder.as_str(), format!("w#{n}"));
        assert!(next.token > holder.token);
        holder = next;
    }
    assert_eq!(waiting(&store, "a").await, 0);
}

/// A thousand waiters and as many hand-overs: the number of commands and commits grows linearly, not quadratically.
#[tokio::test]
async fn a_crowd_costs_no_more_per_hand_over_than_a_pair() {
    const CROWD: usize = 1_000;
    let (store, memory, reports) = watched().await;
    let mut holder = granted(acquire(&store, wanted("a", "first#0", LONG)).await);
    let (mut tasks, before) = (Vec::new(), reports.commands());
    for n in 0..CROWD {
        let (store, wanted) = (store.clone(), awaited("a", &format!("w#{n}"), LONG));
        tasks.push(tokio::spawn(async move { acquire(&store, wanted).await }));
    }
    within(async {
        while waiting(&store, "a").await < CROWD {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert!(reports.commands() - before <= 2, "only the first of a queue asks: {}", reports.commands() - before);
    let (before, commits) = (reports.commands(), memory.commits().len());
    for task in tasks {
        release(&store, "a", &holder).await.unwrap();
        holder = granted(answered(task).await);
    }
    // A release, a grant, and one attempt by the new head of the queue.
    assert!(reports.commands() - before <= 3 * CROWD + 2, "{} commands", reports.commands() - before);
    assert_eq!(memory.commits().len() - commits, 2 * CROWD, "a release and a grant each");
}

#[tokio::test]
async fn whoever_stops_waiting_leaves_the_queue() {
    let (store, _, _) = watched().await;
    let holder = granted(acquire(&store, wanted("a", "A#1", LONG)).await);
    let first = waiter(&store, awaited("a", "B#1", LONG), 0).await;
    let second = waiter(&store, awaited("a", "C#1", LONG), 1).await;
    let third = waiter(&store, awaited("a", "D#1", LONG), 2).await;
    for gone in [second, first] {
        gone.abort();
        assert!(within(gone).await.unwrap_err().is_cancelled());
    }
    within(async {
        while waiting(&store, "a").await != 1 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    release(&store, "a", &holder).await.unwrap();
    assert_eq!(granted(answered(third).await).holder.as_str(), "D#1");
}

/// The head leaves after the lock was freed and before it made its attempt: its turn goes to the next waiter.
#[tokio::test]
async fn a_turn_is_passed_on_by_whoever_leaves() {
    let (store, memory, _) = watched().await;
    let holder = granted(acquire(&store, wanted("a", "A#1", LONG)).await);
    let first = waiter(&store, awaited("a", "B#1", LONG), 0).await;
    let second = waiter(&store, awaited("a", "C#1", LONG), 1).await;
    memory.inject(Fault::Hold);
    let releasing = queue(release(&store, "a", &holder)).await;
    within(memory.wait_held()).await;
    first.abort();
    memory.release();
    releasing.answer().await.unwrap();
    assert_eq!(granted(answered(second).await).holder.as_str(), "C#1");
}

/// The waiter is dropped while its grant is being committed. No client knows the lease, so it is released.
#[tokio::test]
async fn a_grant_that_nobody_hears_of_is_given_back() {
    let (store, memory, _) = watched().await;
    memory.inject(Fault::Hold);
    let gone = tokio::spawn({
        let store = store.clone();
        async move { acquire(&store, awaited("a", "A#1", LONG)).await }
    });
    within(memory.wait_held()).await;
    gone.abort();
    assert!(within(gone).await.unwrap_err().is_cancelled());
    let next = tokio::spawn({
        let store = store.clone();
        async move { acquire(&store, awaited("a", "B#1", LONG)).await }
    });
    memory.release();
    let next = granted(answered(next).await);
    assert_eq!((next.holder.as_str(), next.token.to_string()), ("B#1", "2".into()), "1 was used up");
    release(&store, "a", &next).await.unwrap();
    until_free(&store, "a").await;
}

/// With an idempotency key the caller may retry and collect its lease.
#[tokio::test]
async fn a_grant_with_a_key_is_kept_for_the_retry() {
    let (store, memory, _) = watched().await;
    let asked = || AcquireLock { once: Some(once("k", 1)), ..awaited("a", "A#1", LONG) };
    memory.inject(Fault::Hold);
    let gone = tokio::spawn({
        let (store, asked) = (store.clone(), asked());
        async move { acquire(&store, asked).await }
    });
    within(memory.wait_held()).await;
    gone.abort();
    assert!(within(gone).await.unwrap_err().is_cancelled());
    memory.release();
    // Others may be in front; the retry still finds its lease.
    within(async {
        while store.lock(&resource("a")).await.unwrap().is_none() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let other = waiter(&store, awaited("a", "B#1", LONG), 0).await;
    let Outcome::Granted(found) = replayed(within(acquire(&store, asked())).await) else { panic!("not granted") };
    assert_eq!((found.holder.as_str(), found.token.to_string()), ("A#1", "1".into()));
    release(&store, "a", &found).await.unwrap();
    assert_eq!(granted(answered(other).await).holder.as_str(), "B#1");
}

/// The same request waits twice: the second finds the grant of the first.
#[tokio::test]
async fn a_retry_that_waits_behind_its_own_first_attempt_is_answered_with_it() {
    let (store, _, _) = watched().await;
    let holder = granted(acquire(&store, wanted("a", "A#1", LONG)).await);
    let asked = || AcquireLock { once: Some(once("k", 1)), ..awaited("a", "B#1", LONG) };
    let first = waiter(&store, asked(), 0).await;
    let again = waiter(&store, asked(), 1).await;
    release(&store, "a", &holder).await.unwrap();
    let first = granted(answered(first).await);
    let Outcome::Granted(again) = replayed(answered(again).await) else { panic!("not granted") };
    assert_eq!((again.lease, again.token), (first.lease, first.token));
}

#[tokio::test]
async fn who_waited_long_enough_hears_what_is_in_the_way() {
    let (store, _, _) = watched().await;
    granted(acquire(&store, wanted("a", "A#1", LONG)).await);
    let patient = |name: &str| AcquireLock { wait: Duration::from_millis(100), ..wanted("a", name, LONG) };
    let began = Instant::now();
    let head = waiter(&store, awaited("a", "head#1", LONG), 0).await;
    let behind = within(acquire(&store, patient("B#1"))).await;
    assert!(began.elapsed() >= Duration::from_millis(100));
    assert_eq!(in_the_way(behind).0.holder.as_str(), "A#1", "also from behind another");
    head.abort();
    assert_eq!(in_the_way(within(acquire(&store, patient("C#1"))).await).0.holder.as_str(), "A#1");
    assert!(began.elapsed() < Duration::from_secs(20));
}

/// A caller that does not wait cannot overtake those that do, and its answer contains the number of waiters.
#[tokio::test]
async fn who_does_not_wait_does_not_overtake() {
    let (store, _, _) = watched().await;
    let holder = granted(acquire(&store, wanted("a", "A#1", LONG)).await);
    let waiting = waiter(&store, awaited("a", "B#1", LONG), 0).await;
    match acquire(&store, wanted("a", "C#1", LONG)).await {
        Ok(Outcome::Held(holding)) => assert_eq!(holding.waiting, 1, "{holding:?}"),
        other => panic!("{other:?}"),
    }
    // Released and requested at once: the waiter gets it, whichever task runs first.
    release(&store, "a", &holder).await.unwrap();
    let hurried = acquire(&store, wanted("a", "C#1", LONG)).await;
    assert!(matches!(hurried, Ok(Outcome::Held(_))), "{hurried:?}");
    assert_eq!(granted(answered(waiting).await).holder.as_str(), "B#1");
}

#[tokio::test]
async fn taking_a_lock_away_lets_the_next_in() {
    let (store, _, _) = watched().await;
    granted(acquire(&store, wanted("a", "A#1", LONG)).await);
    let next = waiter(&store, awaited("a", "B#1", LONG), 0).await;
    assert!(matches!(force_release(&store, "a").await, Ok(Outcome::ForceReleased { .. })));
    assert_eq!(granted(answered(next).await).token.to_string(), "3");
}

/// Many waiters behind a holder that died: each gets the lock when the lease before it has expired.
#[tokio::test]
async fn leases_that_run_out_are_handed_on_in_order() {
    let (store, _, reports) = watched().await;
    // Long enough for all waiters to enter the queue.
    granted(acquire(&store, wanted("a", "dead#0", 3_000)).await);
    let before = reports.commands();
    let mut tasks = Vec::new();
    for n in 0..6 {
        tasks.push(waiter(&store, awaited("a", &format!("w#{n}"), 60), n).await);
    }
    let mut tokens = Vec::new();
    for (n, task) in tasks.into_iter().enumerate() {
        let grant: Grant = granted(answered(task).await);
        assert_eq!(grant.holder.as_str(), format!("w#{n}"));
        tokens.push(grant.token.number().get());
    }
    assert_eq!(tokens, [2, 3, 4, 5, 6, 7]);
    assert!(reports.commands() - before <= 6 * 3, "nobody polls: {}", reports.commands() - before);
}

#[tokio::test]
async fn locks_do_not_wait_for_each_other() {
    let (store, _, _) = watched().await;
    granted(acquire(&store, wanted("a", "A#1", LONG)).await);
    let stuck = waiter(&store, awaited("a", "B#1", LONG), 0).await;
    for n in 0..20 {
        granted(within(acquire(&store, awaited(&format!("other/{n}"), "B#1", LONG))).await);
    }
    assert!(!stuck.is_finished());
    stuck.abort();
}

#[tokio::test]
async fn closing_sends_everybody_home() {
    let (store, _, _) = watched().await;
    granted(acquire(&store, wanted("a", "A#1", LONG)).await);
    let mut tasks = Vec::new();
    for n in 0..20 {
        tasks.push(waiter(&store, awaited("a", &format!("w#{n}"), LONG), n).await);
    }
    store.stop_waiting();
    for task in tasks {
        assert_eq!(answered(task).await, Err(Failure::Rejected(Rejected::Closing)));
    }
    let late = within(acquire(&store, awaited("a", "late#1", LONG))).await;
    assert_eq!(late, Err(Failure::Rejected(Rejected::Closing)));
    assert_eq!(waiting(&store, "a").await, 0);
    within(Arc::try_unwrap(store).ok().unwrap().close()).await;
}

/// A commit that fails during a grant results in an answer, not a hang, and the next waiter is served.
#[tokio::test]
async fn a_failed_commit_is_told_and_the_queue_goes_on() {
    let (store, memory) = memory_store().await;
    memory.inject(Fault::NoSpace);
    let ended = within(acquire(&store, awaited("a", "A#1", LONG))).await;
    assert!(matches!(ended, Err(Failure::Rejected(Rejected::NoSpace { .. }))), "{ended:?}");
    granted(within(acquire(&store, awaited("a", "B#1", LONG))).await);
}

/// The head of the queue tries when the lease has expired, and the command queue is full: it tries again.
#[tokio::test]
async fn c12_a_waiter_that_meets_a_full_queue_of_commands_keeps_its_place() {
    let (store, memory, _) = reported(Guards::default(), StoreOptions { queue: 1, ..StoreOptions::default() }).await;
    let store = Arc::new(store);
    granted(acquire(&store, wanted("a", "A#1", 1_000)).await);
    let mut head = waiter(&store, awaited("a", "B#1", LONG), 0).await;
    memory.inject(Fault::Hold);
    // The waiter's first attempt may still be in the queue.
    let committing = queue_when_free(|| put(&store, "x", token("1"), "v")).await;
    within(memory.wait_held()).await;
    let queued = queue(put(&store, "y", token("1"), "v")).await;
    within(async {
        while store.lock(&resource("a")).await.unwrap().is_some_and(|lock| lock.remaining_ms > 0) {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let gave_up = tokio::time::timeout(Duration::from_millis(300), &mut head).await;
    assert!(gave_up.is_err(), "{gave_up:?}");
    memory.release();
    assert_eq!(granted(answered(head).await).holder.as_str(), "B#1");
    applied(committing.answer().await);
    applied(queued.answer().await);
}

/// The lock is free and there are no waiters: of several concurrent callers one gets it, and the others receive its
/// holder.
#[tokio::test]
async fn p02_who_does_not_wait_is_not_counted() {
    let (store, memory, _) = watched().await;
    memory.inject(Fault::Hold);
    let blocked = queue(put(&store, "x", token("1"), "v")).await;
    within(memory.wait_held()).await;
    let ask = |n: usize| {
        let store = store.clone();
        tokio::spawn(async move { acquire(&store, wanted("a", &format!("w#{n}"), LONG)).await })
    };
    let tasks: Vec<_> = (0..8).map(ask).collect();
    for _ in 0..100 {
        tokio::task::yield_now().await;
        assert_eq!(store.waiters(), 0);
    }
    memory.release();
    applied(blocked.answer().await);
    let mut holders = Vec::new();
    for task in tasks {
        match answered(task).await {
            Ok(Outcome::Granted(grant)) => holders.insert(0, grant.holder),
            Ok(Outcome::Held(holding)) => {
                assert_eq!(holding.waiting, 0);
                holders.push(holding.by.expect("it is held").holder);
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(holders.iter().all(|holder| *holder == holders[0]), "{holders:?}");
}

/// A refusal by the fence is reported even while the lock is promised to a waiter.
#[tokio::test]
async fn p02_a_refusal_by_the_fence_is_not_hidden_behind_a_promise() {
    let (store, memory, _) = watched().await;
    let holder = granted(acquire(&store, wanted("a", "A#1", LONG)).await);
    let next = waiter(&store, awaited("a", "B#1", LONG), 0).await;
    memory.inject(Fault::Hold);
    let releasing = queue(release(&store, "a", &holder)).await;
    within(memory.wait_held()).await;
    // All in the batch after the release: the resource is bound to another lock service, then the lock is requested.
    let rotate = async { ended(store.rotate(&resource("a"), 0, Some(Issuer::new("etcd:1").unwrap())).await) };
    let rotated = queue(rotate).await;
    let hurried = queue(acquire(&store, wanted("a", "C#1", LONG))).await;
    // The attempt is submitted by a separate task.
    tokio::task::yield_now().await;
    memory.release();
    releasing.answer().await.unwrap();
    rotated.answer().await.unwrap();
    assert_eq!(reason(hurried.answer().await), Reason::ForeignIssuer);
    assert_eq!(reason(answered(next).await), Reason::ForeignIssuer);
}

#[tokio::test]
async fn p03_a_waiter_gets_a_lock_whose_lease_was_overtaken() {
    let (store, _, _) = watched().await;
    for name in ["foreign", "rotated", "all"] {
        let held = granted(acquire(&store, wanted(name, "A#1", LONG)).await);
        let next = waiter(&store, awaited(name, "B#1", LONG), 0).await;
        applied(put(&store, name, token(&held.token.to_string()), "its own write").await);
        assert!(!next.is_finished());
        match name {
            "foreign" => {
                applied(put(&store, name, token("99"), "from elsewhere").await);
            }
            "rotated" => {
                store.rotate(&resource(name), 0, None).await.unwrap();
            }
            _ => {
                store.rotate_all(0).await.unwrap();
            }
        }
        let granted = granted(answered(next).await);
        assert_eq!(granted.holder.as_str(), "B#1");
        assert!(granted.token > held.token);
        assert!(matches!(release(&store, name, &held).await, Ok(Outcome::LeaseLost { .. })));
    }
}
