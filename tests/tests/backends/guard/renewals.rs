//! Keeping a lock, and giving it back.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use fencepost_client::{Admin, Clock, Error, ErrorKind, LockOptions, Loss, Moment};
use fencepost_conformance::proxy::{Direction, Rule};
use fencepost_harness::fresh::Fresh;

use super::diary::Diary;
use super::{LONG, TTL, address, locks, locks_at, options, proxied};
use crate::suite::{SLACK, kind_of, patiently, resource, until};
use parking_lot::Mutex;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_guard_is_kept_far_beyond_its_ttl() {
    patiently(TTL / 4, kept_far_beyond_its_ttl).await;
}

async fn kept_far_beyond_its_ttl() {
    let gateway = Fresh::memory(&[]);
    let locks = locks(&gateway, options("a", TTL)).await;
    let guard = locks.acquire("orders/1").await.unwrap();
    let end = Instant::now() + TTL * 5;
    let lost = tokio::time::timeout_at(end.into(), guard.lost()).await;
    assert!(lost.is_err(), "{lost:?}");
    assert!(guard.validity() > Duration::ZERO);
    guard.put("orders/1", "still mine").await.unwrap();
    guard.release().await.unwrap();
}

/// A clock that a test advances, as if the machine had been suspended.
fn suspendable() -> (Clock, Arc<AtomicU64>) {
    let slept = Arc::new(AtomicU64::new(0));
    let seconds = slept.clone();
    (Clock::new(move || Moment::now() + Duration::from_secs(seconds.load(Ordering::SeqCst))), slept)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c12_a_lease_is_not_called_valid_after_its_machine_was_suspended() {
    let gateway = Fresh::memory(&[]);
    let (clock, slept) = suspendable();
    // The test is over before any timer or renewal would notice.
    let locks = locks(&gateway, options("a", LONG * 10).clock(clock)).await;
    let guard = locks.acquire("orders/1").await.unwrap();
    assert!(guard.validity() > LONG && guard.loss().is_none());
    slept.store(3600, Ordering::SeqCst);
    assert_eq!(guard.validity(), Duration::ZERO);
    assert_eq!(tokio::time::timeout(LONG, guard.lost()).await.unwrap(), Loss::Expired);
    // Before the suspension, the maximum hold time was far away as well.
    let (clock, slept) = suspendable();
    let hold = options("b", LONG * 1000).clock(clock).max_hold(LONG * 5);
    let guard = locks.with_lock_options(hold).acquire("orders/1").await.unwrap();
    slept.store(3600, Ordering::SeqCst);
    assert_eq!(tokio::time::timeout(LONG, guard.lost()).await.unwrap(), Loss::MaxHold);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_guard_is_released_soon() {
    let gateway = Fresh::memory(&[]);
    let locks = locks(&gateway, options("a", LONG)).await;
    for _ in 0..5 {
        let guard = locks.acquire("orders/1").await.unwrap();
        let dropped = Instant::now();
        drop(guard);
        locks.acquire("orders/1").await.unwrap().release().await.unwrap();
        assert!(dropped.elapsed() < LONG / 6, "{:?} after it was dropped", dropped.elapsed());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_release_is_harmless() {
    let gateway = Fresh::memory(&[]);
    let proxy = proxied(&gateway);
    let old = locks_at(proxy.address(), proxy.address(), options("a", TTL)).await.acquire("orders/1").await.unwrap();
    proxy.hold();
    // This lease does not expire, however slow the machine is.
    let others = locks(&gateway, options("b", LONG)).await;
    let new = others.acquire("orders/1").await.unwrap();
    assert_eq!(old.lost().await, Loss::Expired);
    proxy.pass();
    old.release().await.unwrap();
    new.put("orders/1", "mine").await.unwrap();
    let impatient = others.with_lock_options(options("c", LONG).wait(Duration::ZERO));
    let third = impatient.acquire("orders/1").await;
    assert_eq!(kind_of(&third), Some(ErrorKind::Busy), "{third:?}");
    assert_eq!(new.loss(), None);
    new.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn min_hold_keeps_a_lock_beyond_the_work() {
    patiently(TTL / 4, kept_beyond_the_work).await;
}

async fn kept_beyond_the_work() {
    let gateway = Fresh::memory(&[]);
    let least = TTL * 3;
    let short = locks(&gateway, options("a", TTL).min_hold(least)).await;
    let since = Instant::now();
    drop(short.acquire("orders/1").await.unwrap());
    let next = locks(&gateway, options("b", TTL)).await.acquire("orders/1").await.unwrap();
    assert!(since.elapsed() >= least, "given back after {:?}, although its ttl is shorter", since.elapsed());
    next.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn max_hold_ends_a_lock() {
    let gateway = Fresh::memory(&[]);
    let most = TTL * 2;
    let long = locks(&gateway, options("a", LONG).max_hold(most)).await;
    let guard = long.acquire("orders/1").await.unwrap();
    let since = Instant::now();
    assert_eq!(guard.lost().await, Loss::MaxHold);
    assert!(since.elapsed() >= most - TTL / 4 && since.elapsed() < LONG / 4, "{:?}", since.elapsed());
    // It was released, not left to expire.
    let _ = long.acquire("orders/1").await.unwrap();
    assert!(since.elapsed() < LONG / 4, "{:?}", since.elapsed());
    assert!(guard.put("orders/1", "late").await.is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn danger_comes_before_the_loss() {
    patiently(TTL / 4, in_danger_before_it_is_lost).await;
}

async fn in_danger_before_it_is_lost() {
    let gateway = Fresh::memory(&[]);
    let proxy = proxied(&gateway);
    let (warnings, diary) = (Arc::new(AtomicUsize::new(0)), Arc::new(Diary::default()));
    let (counter, seen) = (warnings.clone(), Arc::new(Mutex::new(Duration::MAX)));
    let left = seen.clone();
    let warned = move |time| {
        counter.fetch_add(1, Ordering::SeqCst);
        *left.lock() = time;
    };
    let options = options("a", TTL * 3).on_danger(warned).observer(diary.clone());
    let locks = locks_at(address(&gateway), proxy.address(), options).await;
    let guard = locks.acquire("orders/1").await.unwrap();
    proxy.shut();
    until("the warning", || warnings.load(Ordering::SeqCst) == 1).await;
    assert!(guard.loss().is_none(), "not lost yet");
    assert!(*seen.lock() <= TTL, "{seen:?} of {:?} left", TTL * 3);
    // A short outage: the lease is renewed again, and the next danger is reported again.
    proxy.pass();
    until("a renewal", || guard.validity() > TTL * 2).await;
    assert_eq!((diary.lines("acquired"), diary.lines("lost")), (1, 0));
    assert!(diary.lines("renew failed") > 0);
    proxy.shut();
    assert_eq!(guard.lost().await, Loss::Expired);
    assert_eq!(warnings.load(Ordering::SeqCst), 2, "once each time");
    until("the loss to be told", || diary.lines("orders/1 lost") == 1).await;
    assert_eq!(diary.lines("released"), 0);
}

/// The connection is neither reset nor refused: nothing comes back, without any error.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewal_that_hangs_is_told_of_and_tried_again() {
    patiently(TTL * 15 / 4, told_of_and_tried_again).await;
}

async fn told_of_and_tried_again() {
    // With `Hold`, the first renewal arrives in the end; with `Drop`, only a second one over another connection does.
    for fault in [Rule::Hold, Rule::Drop] {
        let gateway = Fresh::memory(&[]);
        let proxy = proxied(&gateway);
        let (warnings, diary, ttl) = (Arc::new(AtomicUsize::new(0)), Arc::new(Diary::default()), TTL * 15);
        let counter = warnings.clone();
        let warned = move |_| {
            counter.fetch_add(1, Ordering::SeqCst);
        };
        // The danger threshold is reached while the first renewal is in progress.
        let options = options("a", ttl).danger(ttl * 6 / 10).on_danger(warned).observer(diary.clone());
        let guard = locks_at(address(&gateway), proxy.address(), options).await.acquire("orders/1").await.unwrap();
        for direction in [Direction::Up, Direction::Down] {
            proxy.set(direction, fault);
        }
        until("the warning", || warnings.load(Ordering::SeqCst) == 1).await;
        until("the failure to be told", || diary.lines("renew failed") > 0).await;
        assert_eq!(guard.loss(), None, "{fault:?}: not lost yet");
        proxy.pass();
        until("a renewal", || guard.validity() > ttl * 7 / 10).await;
        assert_eq!((guard.loss(), diary.lines("lost")), (None, 0));
        assert_eq!(warnings.load(Ordering::SeqCst), 1, "once each time");
        guard.put("orders/1", "still mine").await.unwrap();
        guard.release().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn max_hold_ends_a_lock_whose_renewal_hangs() {
    let gateway = Fresh::memory(&[]);
    let proxy = proxied(&gateway);
    let ttl = TTL * 12;
    // The first renewal begins after 3.6 s to 4.4 s, and its timeout is 3 s.
    let options = options("a", ttl).max_hold(TTL * 5);
    let guard = locks_at(address(&gateway), proxy.address(), options).await.acquire("orders/1").await.unwrap();
    proxy.hold();
    assert_eq!(guard.lost().await, Loss::MaxHold, "its lease would last {ttl:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_that_fails_is_no_error_of_the_work() {
    let gateway = Fresh::memory(&[]);
    let proxy = proxied(&gateway);
    // Once with connections refused, once with no answer.
    for hangs in [false, true] {
        let break_down = || if hangs { proxy.hold() } else { proxy.shut() };
        let ttl = TTL * 5;
        let locks = locks_at(address(&gateway), proxy.address(), options("a", ttl)).await;
        let name = format!("orders/{hangs}");
        let since = Instant::now();
        let done = locks.with_lock(&name, async |guard| {
            guard.put(&name, "paid").await.unwrap();
            break_down();
            "done"
        });
        assert_eq!(done.await.unwrap(), "done");
        assert!(since.elapsed() < ttl + SLACK * 2, "{:?}", since.elapsed());
        proxy.pass();
        let name = format!("leader/{hangs}");
        let led = locks.lead(&name, async |_| {
            break_down();
            "led"
        });
        assert_eq!(led.await.unwrap(), "led");
        proxy.pass();
    }
    // An explicit release reports the failure.
    let locks = locks_at(address(&gateway), proxy.address(), options("a", LONG)).await;
    let guard = locks.acquire("orders/told").await.unwrap();
    proxy.shut();
    assert!(guard.release().await.is_err());
}

#[tokio::test]
async fn dropping_a_guard_never_blocks() {
    let gateway = Fresh::memory(&[]);
    let proxy = proxied(&gateway);
    let guard =
        locks_at(address(&gateway), proxy.address(), options("a", LONG)).await.acquire("orders/1").await.unwrap();
    proxy.hold();
    let before = proxy.count(Direction::Up).bytes;
    let since = Instant::now();
    drop(guard);
    assert!(since.elapsed() < SLACK, "{:?}", since.elapsed());
    // Everything runs on this thread: the release is sent in the background and blocks no caller.
    until("the release to be on its way", || proxy.count(Direction::Up).bytes > before).await;
    assert!(since.elapsed() < LONG / 2, "{:?}", since.elapsed());
    proxy.pass();
    let _ = locks(&gateway, options("b", LONG)).await.acquire("orders/1").await.unwrap();
    assert!(since.elapsed() < LONG / 2, "given back in the end, not left to its ttl: {:?}", since.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_danger_zone_goes_with_the_ttl() {
    patiently(TTL / 4, in_no_danger).await;
}

async fn in_no_danger() {
    let gateway = Fresh::memory(&[]);
    let warnings = Arc::new(AtomicUsize::new(0));
    let counter = warnings.clone();
    let warned = move |_| {
        counter.fetch_add(1, Ordering::SeqCst);
    };
    // A third of this ttl is far shorter than a third of the default ttl.
    let short = LockOptions::new().ttl(TTL * 5).on_danger(warned);
    let guard = locks(&gateway, short).await.acquire("orders/1").await.unwrap();
    let mut least = guard.validity();
    until("a renewal", || {
        let now = guard.validity();
        let renewed = now > least + TTL / 2;
        least = least.min(now);
        renewed
    })
    .await;
    assert_eq!(warnings.load(Ordering::SeqCst), 0, "a lease that is renewed in time is in no danger");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_lock_gives_back_and_cancels_on_loss() {
    patiently(TTL / 4, given_back_and_cancelled_on_loss).await;
}

async fn given_back_and_cancelled_on_loss() {
    struct Cancelled(Arc<AtomicUsize>);
    impl Drop for Cancelled {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    let gateway = Fresh::memory(&[]);
    let locks = locks(&gateway, options("a", TTL)).await;
    let done = locks.with_lock("orders/1", async |guard| guard.put("orders/1", "paid").await.is_ok()).await;
    assert!(matches!(done, Ok(true)), "{done:?}");
    let (cancelled, admin) = (Arc::new(AtomicUsize::new(0)), Admin::new(&gateway.data().join("admin.sock"), LONG));
    let mark = cancelled.clone();
    let ended = locks.with_lock("orders/1", async move |_| {
        let _mark = Cancelled(mark);
        admin.force_release(&resource("orders/1")).await.unwrap();
        pending::<()>().await;
    });
    let ended = tokio::time::timeout(LONG, ended).await.expect("a loss ends the work");
    assert_eq!(ended.as_ref().err().and_then(Error::loss), Some(Loss::TakenOver), "{ended:?}");
    assert_eq!(cancelled.load(Ordering::SeqCst), 1, "the work was dropped");
}
