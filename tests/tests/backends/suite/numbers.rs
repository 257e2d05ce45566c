//! The numbers: contract 2, 3 and 7.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use fencepost_client::locks::{Acquired, Kept, Lifted, Wanted};

use super::{
    RECOVERY, SLACK, Service, ask, connect, connect_through, eventually, holder, keep, resource, start, take,
    take_within, try_ask,
};
use parking_lot::Mutex;

const CONTENDERS: usize = 8;

/// The number of acquisitions of all contenders together.
const ROUNDS: usize = 1000;

/// What the contenders saw, in the order of their turns.
#[derive(Default)]
struct Seen {
    last: u64,
    all: BTreeSet<u64>,
    /// How many were compared while their lease was certainly alive.
    in_time: usize,
}

/// Contract 1 and 2: eight contenders over four connections.
pub(crate) async fn numbers_strictly_increase<S: Service>() {
    let service = start::<S>();
    let (begun, seen) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(Seen::default())));
    let mut contenders = Vec::new();
    let mut backend = connect(&service.url()).await;
    for contender in 0..CONTENDERS {
        if contender % 2 == 0 {
            backend = connect(&service.url()).await;
        }
        let (backend, begun, seen) = (backend.clone(), begun.clone(), seen.clone());
        contenders.push(tokio::spawn(async move {
            loop {
                let round = begun.fetch_add(1, Ordering::Relaxed);
                if round >= ROUNDS {
                    return;
                }
                let who = format!("c{contender}#{round}");
                let lease = take_within(backend.as_ref(), "orders/1", &who, S::TTL, RECOVERY).await;
                {
                    let mut seen = seen.lock();
                    let number = lease.number.get();
                    assert!(seen.all.insert(number), "{number} was given twice");
                    // The lease of a holder that was asleep for longer than its ttl is over, so its order is not
                    // meaningful.
                    if lease.since.elapsed() < lease.ttl {
                        assert!(number > seen.last, "{number} after {}", seen.last);
                        seen.last = number;
                        seen.in_time += 1;
                    }
                }
                backend.release(lease).await.unwrap_or_else(|error| panic!("{who}: {error}"));
            }
        }));
    }
    for contender in contenders {
        contender.await.unwrap();
    }
    let seen = seen.lock();
    assert_eq!(seen.all.len(), ROUNDS);
    // Otherwise too little was compared; the number of late holders depends on the machine.
    assert!(seen.in_time * 2 >= ROUNDS, "only {} of {ROUNDS} were in time", seen.in_time);
}

/// Contract 2, for services that claim it.
pub(crate) async fn numbers_are_above_the_floor<S: Service>() {
    let service = start::<S>();
    let backend = connect(&service.url()).await;
    let first = take(backend.as_ref(), "orders/1", "a#1", S::TTL).await;
    let floor = first.number.get() + 1_000_000;
    if backend.capabilities().floor {
        let name = resource("orders/1");
        tokio::task::block_in_place(|| service.raise_fence(&name, floor, &first));
    }
    backend.release(first).await.unwrap();
    let (name, who) = (resource("orders/1"), holder("a#2"));
    let wanted = Wanted { name: &name, holder: &who, ttl: S::TTL, wait: SLACK, floor, generation: 0 };
    let Acquired::Held(lease) = backend.acquire(&wanted).await.unwrap() else { panic!("a free lock was busy") };
    let above = lease.number;
    assert_eq!(above.get() > floor, backend.capabilities().floor, "{above} with floor {floor}");
    backend.release(lease).await.unwrap();
    let next = take(backend.as_ref(), "orders/1", "a#3", S::TTL).await;
    assert!(next.number > above, "{} after {above}", next.number);
}

/// Contract 7 (T31).
pub(crate) async fn only_the_holder_can_lift<S: Service>() {
    let service = start::<S>();
    let (proxy, a) = connect_through(&service).await;
    let b = connect(&service.url()).await;
    let mut lease = take(a.as_ref(), "orders/1", "a#1", S::TTL).await;
    let (number, floor) = (lease.number, lease.number.get() + 1000);
    if !a.capabilities().lift {
        assert_eq!(a.lift(&mut lease, floor).await, Ok(Lifted::Unsupported));
        assert_eq!(lease.number, number, "nothing was changed");
        return;
    }
    assert_eq!(a.lift(&mut lease, floor).await, Ok(Lifted::Lifted));
    let lifted = lease.number;
    assert!(lifted.get() > floor, "{lifted} with floor {floor}");
    assert_eq!(a.verify(&lease).await, Ok(Kept::Kept));
    assert_eq!(a.renew(&lease).await, Ok(Kept::Kept));
    proxy.hold();
    let next = take_within(b.as_ref(), "orders/1", "b#1", S::TTL, S::TTL * 3 + SLACK).await;
    assert!(next.number > lifted, "{} after {lifted}", next.number);
    let (far, next) = (next.number.get() + 1_000_000, keep(&b, next));
    proxy.pass();
    assert_eq!(eventually("verifying", async || a.verify(&lease).await).await, Kept::Lost);
    assert_eq!(a.lift(&mut lease, far).await, Ok(Lifted::Lost));
    assert_eq!(lease.number, lifted, "nothing was changed");
    b.release(next.stop().await).await.unwrap();
    assert_eq!(a.lift(&mut lease, far).await, Ok(Lifted::Lost), "also when it is free again");
    let last = take(b.as_ref(), "orders/1", "b#2", S::TTL).await;
    assert!(last.number.get() < far, "a lease that is lost has lifted the counter to {}", last.number);
    b.release(last).await.unwrap();
}

/// Contract 3; the issuer is what the fence is bound to.
pub(crate) async fn holder_and_issuer_are_stable<S: Service>() {
    let mut service = start::<S>();
    let a = connect(&service.url()).await;
    let (name, who) = (resource("orders/1"), holder("worker-a#9f2c"));
    let wanted = Wanted { name: &name, holder: &who, ttl: S::TTL, wait: Duration::ZERO, floor: 0, generation: 0 };
    let Acquired::Held(first) = a.acquire(&wanted).await.unwrap() else { panic!("a free lock was busy") };
    let issuer = first.issuer.clone();
    assert_eq!((&first.holder, &first.name), (&who, &name));
    let (kind, incarnation) = issuer.as_str().split_once(':').expect("kind:incarnation");
    assert!(!kind.is_empty() && incarnation.len() >= 8, "{issuer}");
    a.release(first).await.unwrap();
    let b = connect(&service.url()).await;
    let second = take(b.as_ref(), "orders/1", "b#1", S::TTL).await;
    assert_eq!(second.issuer, issuer, "the same over another connection");
    let number = second.number;
    b.release(second).await.unwrap();
    tokio::task::block_in_place(|| service.restart());
    for backend in [connect(&service.url()).await, a] {
        let again = eventually("asking after the restart", async || {
            try_ask(backend.as_ref(), "orders/1", "c#1", S::TTL, S::TTL * 3 + SLACK).await
        });
        let Acquired::Held(again) = again.await else { panic!("the lock was not free after the restart") };
        assert_eq!(again.issuer, issuer, "the same after a restart");
        assert!(again.number > number, "{} after {number}", again.number);
        backend.release(again).await.unwrap();
    }
    assert!(matches!(ask(b.as_ref(), "orders/1", "b#2", S::TTL, SLACK).await, Acquired::Held(_)));
}
