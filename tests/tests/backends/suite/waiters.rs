//! Waiting for a lock, and giving up: contracts 4 and 10.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fencepost_client::locks::Acquired;
use fencepost_conformance::proxy::{Direction, Proxy};

use super::{
    RECOVERY, SLACK, Service, ask, connect, connect_through, in_line, keep, start, take, take_within, try_ask,
};
use parking_lot::Mutex;

/// A limit that a polled service would not meet.
const SOON: Duration = Duration::from_millis(250);

/// Contract 10.
pub(crate) async fn a_waiter_gets_the_lock_soon<S: Service>() {
    let service = start::<S>();
    let a = connect(&service.url()).await;
    let (proxy, b) = connect_through(&service).await;
    let (mut took, mut alone) = (Vec::new(), Vec::new());
    for round in 0..7 {
        // The time without a holder to wait for, on this machine, now.
        let since = Instant::now();
        let lease = take_within(b.as_ref(), "orders/1", &format!("b#alone{round}"), S::TTL, SLACK).await;
        alone.push(since.elapsed());
        b.release(lease).await.unwrap();
        let kept = keep(&a, take_within(a.as_ref(), "orders/1", &format!("a#{round}"), S::TTL, SLACK).await);
        let (before, waiter) = (proxy.count(Direction::Up).bytes, b.clone());
        let waiting = tokio::spawn(async move {
            let lease = take_within(waiter.as_ref(), "orders/1", &format!("b#{round}"), S::TTL, RECOVERY).await;
            (Instant::now(), lease)
        });
        in_line(&service, "orders/1", 1, &proxy, before).await;
        let lease = kept.stop().await;
        let released = Instant::now();
        a.release(lease).await.unwrap();
        let (held, lease) = waiting.await.unwrap();
        took.push(held.saturating_duration_since(released));
        b.release(lease).await.unwrap();
    }
    took.sort();
    alone.sort();
    let middle = took.len() / 2;
    let limit = if a.capabilities().watch { SOON + alone[middle] * 2 } else { S::TTL };
    assert!(took[middle] <= limit, "from release to grant: {took:?}, without a wait: {alone:?}");
}

/// Contract 10: order for services that claim it; every waiter gets the lock in any case.
pub(crate) async fn waiters_come_in_order<S: Service>() {
    const WAITERS: usize = 5;
    let service = start::<S>();
    let a = connect(&service.url()).await;
    let kept = keep(&a, take(a.as_ref(), "orders/1", "a#1", S::TTL).await);
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut waiting = Vec::new();
    let mut proxies = Vec::new();
    for waiter in 0..WAITERS {
        let (proxy, backend) = connect_through(&service).await;
        let (before, order) = (proxy.count(Direction::Up).bytes, order.clone());
        waiting.push(tokio::spawn(async move {
            let lease = take_within(backend.as_ref(), "orders/1", &format!("w{waiter}#1"), S::TTL, RECOVERY).await;
            order.lock().push(waiter);
            backend.release(lease).await.unwrap();
        }));
        in_line(&service, "orders/1", waiter + 1, &proxy, before).await;
        proxies.push(proxy);
    }
    assert!(order.lock().is_empty(), "nobody overtakes the holder");
    a.release(kept.stop().await).await.unwrap();
    for waiter in waiting {
        waiter.await.unwrap();
    }
    let mut order = order.lock().clone();
    if !a.capabilities().fair {
        order.sort_unstable();
    }
    assert_eq!(order, (0..WAITERS).collect::<Vec<_>>());
}

/// Contract 10: a hand-over wakes the next waiter, not all of them.
pub(crate) async fn a_hand_over_wakes_no_herd<S: Service>() {
    const WAITERS: usize = 32;
    const WHILE: Duration = Duration::from_millis(500);
    let service = start::<S>();
    let a = connect(&service.url()).await;
    let mut proxy = Proxy::start(service.address());
    let url = service.url_through(&mut proxy);
    // Long enough that waiters have little to renew meanwhile.
    let ttl = S::TTL * 4;
    let kept = keep(&a, take(a.as_ref(), "orders/1", "a#1", ttl).await);
    let (granted, mut grants) = tokio::sync::mpsc::channel(WAITERS);
    let mut waiting = Vec::new();
    let mut backend = connect(&url).await;
    for waiter in 0..WAITERS {
        // In a fair service each waiter waits for its predecessor, with a client of its own. Otherwise one waiter per
        // process is notified.
        if a.capabilities().fair {
            backend = connect(&url).await;
        }
        let (before, waiter_of, granted) = (proxy.count(Direction::Up).bytes, backend.clone(), granted.clone());
        waiting.push(tokio::spawn(async move {
            let who = format!("w{waiter}#1");
            let lease = take_within(waiter_of.as_ref(), "orders/1", &who, ttl, RECOVERY).await;
            granted.send(lease.number).await.unwrap();
            // Hold until the test has counted.
            std::future::pending::<()>().await;
            drop(lease);
        }));
        if a.capabilities().fair || waiter == 0 {
            in_line(&service, "orders/1", waiter + 1, &proxy, before).await;
        }
    }
    // Waiters of an unfair service were not awaited one by one; make sure that all of them are in the queue.
    if !a.capabilities().fair {
        in_line(&service, "orders/1", WAITERS, &proxy, 0).await;
    }
    let sent = || proxy.count(Direction::Up).chunks;
    // Waiters send keep-alives now and then, at irregular intervals.
    let mut usual = 0;
    for _ in 0..4 {
        let before = sent();
        tokio::time::sleep(WHILE).await;
        usual = usual.max(sent() - before);
    }
    let lease = kept.stop().await;
    let before = sent();
    let since = Instant::now();
    a.release(lease).await.unwrap();
    let first = tokio::time::timeout(RECOVERY, grants.recv()).await.expect("somebody is next");
    tokio::time::sleep(WHILE.saturating_sub(since.elapsed())).await;
    let sent = sent() - before;
    // On a busy machine the interval was longer than planned.
    let usual = usual * since.elapsed().as_millis().div_ceil(WHILE.as_millis()) as u64;
    println!("{usual} messages while nothing happened, {sent} for a hand-over among {WAITERS}");
    assert!(first.is_some() && grants.try_recv().is_err(), "one at a time");
    // Without notifications all waiters poll all the time: that does not count as waking them all.
    let woken = a.capabilities().watch && sent >= usual + WAITERS as u64 * 3 / 4;
    assert!(!woken, "{sent} messages instead of {usual}: everybody was woken");
    waiting.iter().for_each(|waiter| waiter.abort());
}

/// Not earlier, and not much later.
pub(crate) async fn busy_when_the_wait_is_over<S: Service>() {
    let service = start::<S>();
    let (a, b) = (connect(&service.url()).await, connect(&service.url()).await);
    let kept = keep(&a, take(a.as_ref(), "orders/1", "a#1", S::TTL).await);
    for (round, wait) in [Duration::ZERO, S::TTL / 2, S::TTL * 2].into_iter().enumerate() {
        let since = Instant::now();
        let answer = ask(b.as_ref(), "orders/1", &format!("b#{round}"), S::TTL, wait).await;
        let waited = since.elapsed();
        assert!(matches!(answer, Acquired::Busy), "{answer:?}");
        assert!(waited + Duration::from_millis(5) >= wait, "busy after {waited:?} instead of {wait:?}");
        assert!(waited <= wait + SLACK, "busy after {waited:?} instead of {wait:?}");
    }
    // A waiter that gave up does not block the queue.
    a.release(kept.stop().await).await.unwrap();
    let next = take_within(a.as_ref(), "orders/1", "a#2", S::TTL, SLACK).await;
    a.release(next).await.unwrap();
}

/// Contract 4: a waiter that leaves the queue does not block it.
pub(crate) async fn a_dropped_waiter_leaves_nothing<S: Service>() {
    let service = start::<S>();
    let a = connect(&service.url()).await;
    let (proxy, b) = connect_through(&service).await;
    let c = connect(&service.url()).await;
    let kept = keep(&a, take(a.as_ref(), "orders/1", "a#1", S::TTL).await);
    let (before, waiter) = (proxy.count(Direction::Up).bytes, b.clone());
    let waiting =
        tokio::spawn(async move { try_ask(waiter.as_ref(), "orders/1", "b#1", S::TTL, RECOVERY).await.is_ok() });
    in_line(&service, "orders/1", 1, &proxy, before).await;
    waiting.abort();
    assert!(waiting.await.is_err_and(|error| error.is_cancelled()), "it was still waiting");
    a.release(kept.stop().await).await.unwrap();
    let since = Instant::now();
    let next = take_within(c.as_ref(), "orders/1", "c#1", S::TTL, S::TTL * 2 + SLACK).await;
    c.release(next).await.unwrap();
    println!("free {:?} after its waiter was dropped", since.elapsed());
    // The connection of the dropped waiter still works.
    let again = take_within(b.as_ref(), "orders/1", "b#2", S::TTL, SLACK).await;
    b.release(again).await.unwrap();
}

/// Contract 4: dropped at any point of an acquisition of a free lock.
pub(crate) async fn a_dropped_acquisition_leaves_nothing<S: Service>() {
    let service = start::<S>();
    let (a, b) = (connect(&service.url()).await, connect(&service.url()).await);
    let since = Instant::now();
    let mut last = take(a.as_ref(), "orders/1", "a#1", S::TTL).await;
    let usual = since.elapsed();
    for round in 0..10_u32 {
        let number = last.number;
        a.release(last).await.unwrap();
        let who = format!("a#d{round}");
        let begun = try_ask(a.as_ref(), "orders/1", &who, S::TTL, SLACK);
        // A lease that was granted in time is dropped all the same, as if the process had forgotten it.
        let granted = tokio::time::timeout(usual * round / 8, begun).await;
        let granted = granted.ok().and_then(Result::ok).and_then(|acquired| match acquired {
            Acquired::Held(lease) => Some(lease),
            Acquired::Busy => None,
        });
        let since = Instant::now();
        let number = granted.as_ref().map_or(number, |lease| lease.number.max(number));
        drop(granted);
        last = take_within(b.as_ref(), "orders/1", &format!("b#{round}"), S::TTL, S::TTL * 2 + SLACK).await;
        assert!(last.number > number, "{} after {number}", last.number);
        assert!(since.elapsed() <= S::TTL * 2 + SLACK);
    }
    b.release(last).await.unwrap();
}
