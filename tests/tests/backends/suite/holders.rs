//! Holding, renewing, losing and releasing: contracts 1, 6, 8 and 9.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fencepost_client::locks::{Kept, Lease, LockBackend, LockError};
use fencepost_conformance::proxy::{Direction, Proxy, Rule};

use super::{
    Keeping, SLACK, Service, connect, connect_through, copy, eventually, is_busy, keep, start, take, take_within,
    try_ask,
};

/// Contract 1.
pub(crate) async fn exclusive_while_held<S: Service>() {
    let service = start::<S>();
    let (a, b) = (connect(&service.url()).await, connect(&service.url()).await);
    let kept = keep(&a, take(a.as_ref(), "orders/1", "a#1", S::TTL).await);
    assert!(is_busy(b.as_ref(), "orders/1", "b#1", S::TTL).await);
    assert!(is_busy(a.as_ref(), "orders/1", "a#2", S::TTL).await, "not for the same client either (T13)");
    let other = take(b.as_ref(), "orders/2", "b#2", S::TTL).await;
    a.release(kept.stop().await).await.unwrap();
    let next = take(b.as_ref(), "orders/1", "b#3", S::TTL).await;
    b.release(next).await.unwrap();
    b.release(other).await.unwrap();
}

/// Contract 1, for far longer than the ttl.
pub(crate) async fn renewal_keeps_a_lease<S: Service>() {
    let service = start::<S>();
    let (a, b) = (connect(&service.url()).await, connect(&service.url()).await);
    let lease = take(a.as_ref(), "orders/1", "a#1", S::TTL).await;
    let number = lease.number;
    let kept = keep(&a, lease);
    let end = Instant::now() + S::TTL * 5;
    let mut round = 0;
    while Instant::now() < end {
        round += 1;
        assert!(is_busy(b.as_ref(), "orders/1", &format!("b#{round}"), S::TTL).await);
        tokio::time::sleep(S::TTL / 4).await;
    }
    let lease = kept.stop().await;
    assert_eq!(a.verify(&lease).await, Ok(Kept::Kept));
    assert_eq!(lease.number, number, "the number is captured once (T12)");
    a.release(lease).await.unwrap();
}

/// Contract 11: a caller may abandon a renewal that hangs and renew again; the first one does not delay the second.
pub(crate) async fn a_renewal_may_be_given_up<S: Service>() {
    let service = start::<S>();
    let (proxy, a) = connect_through(&service).await;
    let b = connect(&service.url()).await;
    // The client's own timeout for an answer would be far too long.
    let ttl = S::TTL * 4;
    let lease = take(a.as_ref(), "orders/1", "a#1", ttl).await;
    // A held message arrives later; after a dropped one, the connection is of no further use.
    let faults: &[Rule] = if S::OUTLIVES_CONNECTION { &[Rule::Hold, Rule::Drop] } else { &[Rule::Hold] };
    for fault in faults {
        for patience in [Duration::ZERO, ttl / 8] {
            assert_eq!(a.renew(&lease).await, Ok(Kept::Kept), "before {fault:?}");
            for direction in [Direction::Up, Direction::Down] {
                proxy.set(direction, *fault);
            }
            let said = tokio::time::timeout(patience, a.renew(&lease)).await;
            assert!(said.is_err(), "{fault:?}: nobody could be asked, and yet {said:?}");
            proxy.pass();
            let again = eventually("renewing", async || a.renew(&lease).await);
            let again = tokio::time::timeout(ttl / 2, again).await;
            assert_eq!(again, Ok(Kept::Kept), "{fault:?}, given up after {patience:?}");
        }
    }
    assert!(is_busy(b.as_ref(), "orders/1", "b#1", ttl).await);
    a.release(lease).await.unwrap();
    let next = take_within(b.as_ref(), "orders/1", "b#2", ttl, SLACK).await;
    b.release(next).await.unwrap();
}

/// A was cut off, and B has held the lock since A's ttl was over.
struct TakenOver {
    proxy: Proxy,
    a: Arc<dyn LockBackend>,
    old: Lease,
    b: Arc<dyn LockBackend>,
    new: Keeping,
}

async fn taken_over<S: Service>(service: &S) -> TakenOver {
    let (proxy, a) = connect_through(service).await;
    let b = connect(&service.url()).await;
    let old = take(a.as_ref(), "orders/1", "a#1", S::TTL).await;
    let renewed = Instant::now();
    assert_eq!(a.renew(&old).await, Ok(Kept::Kept));
    proxy.hold();
    let new = take_within(b.as_ref(), "orders/1", "b#1", S::TTL, S::TTL * 3 + SLACK).await;
    let after = renewed.elapsed();
    assert!(after >= S::TTL - S::TTL / 20, "taken over after {after:?} although the ttl is {:?}", S::TTL);
    assert!(after <= S::TTL * 2 + SLACK, "taken over only after {after:?} although the ttl is {:?}", S::TTL);
    assert!(new.number > old.number, "{} after {}", new.number, old.number);
    let new = keep(&b, new);
    TakenOver { proxy, a, old, b, new }
}

/// Contract 2 and 6.
pub(crate) async fn a_missed_renewal_loses_the_lease<S: Service>() {
    let service = start::<S>();
    let TakenOver { proxy, a, old, b, new } = taken_over(&service).await;
    proxy.pass();
    assert_eq!(eventually("renewing", async || a.renew(&old).await).await, Kept::Lost);
    assert_eq!(eventually("renewing", async || a.renew(&old).await).await, Kept::Lost, "lost is final");
    b.release(new.stop().await).await.unwrap();
    assert_eq!(eventually("renewing", async || a.renew(&old).await).await, Kept::Lost, "also when it is free again");
}

/// Contract 6.
pub(crate) async fn verify_tells_the_truth<S: Service>() {
    let service = start::<S>();
    let TakenOver { proxy, a, old, b, new } = taken_over(&service).await;
    proxy.shut();
    let cut_off = tokio::time::timeout(S::TTL + SLACK * 3, a.verify(&old)).await;
    let said = cut_off.expect("no answer is an error, not a wait without end");
    assert!(said.is_err(), "whoever cannot ask does not know, and yet: {said:?}");
    proxy.pass();
    assert_eq!(eventually("verifying", async || a.verify(&old).await).await, Kept::Lost);
    let new = new.stop().await;
    assert_eq!(b.verify(&new).await, Ok(Kept::Kept));
    if b.capabilities().detachable {
        let handle = copy(&new);
        assert_eq!(a.verify(&handle).await, Ok(Kept::Kept), "its handle is enough");
        b.release(new).await.unwrap();
        assert_eq!(b.verify(&handle).await, Ok(Kept::Lost), "given back");
        assert_eq!(b.renew(&handle).await, Ok(Kept::Lost), "given back");
    }
}

/// Contract 8.
pub(crate) async fn a_late_release_changes_nothing<S: Service>() {
    let service = start::<S>();
    let TakenOver { proxy, a, old, b, new } = taken_over(&service).await;
    proxy.pass();
    assert_eq!(eventually("verifying", async || a.verify(&old).await).await, Kept::Lost);
    if a.capabilities().detachable {
        a.release(copy(&old)).await.unwrap();
    }
    a.release(old).await.unwrap();
    assert!(is_busy(a.as_ref(), "orders/1", "c#1", S::TTL).await, "the successor has it");
    let new = new.stop().await;
    assert_eq!(b.verify(&new).await, Ok(Kept::Kept));
    b.release(new).await.unwrap();
}

/// Contract 9.
pub(crate) async fn a_short_ttl_is_refused<S: Service>() {
    let service = start::<S>();
    let a = connect(&service.url()).await;
    let least = a.capabilities().min_ttl;
    assert!(least > Duration::from_millis(1) && least <= S::TTL, "{least:?}");
    let error = try_ask(a.as_ref(), "orders/1", "a#1", least - Duration::from_millis(1), Duration::ZERO).await;
    let error = error.expect_err("a ttl below the least one is an error");
    assert!(matches!(error, LockError::Invalid(_)), "{error:?}");
    let lease = take(a.as_ref(), "orders/1", "a#2", least).await;
    assert_eq!(lease.ttl, least);
    a.release(lease).await.unwrap();
}
