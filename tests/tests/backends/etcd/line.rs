//! The queue of waiters: their numbers, their order, and what happens to a waiter that loses its place.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fencepost_client::locks::{Acquired, Kept, Lease, LockBackend, Wanted};
use fencepost_harness::servers::etcd::Etcd;
use rustix::process::Signal;
use tokio::task::JoinHandle;

use super::{LONG, TTL, contenders};
use crate::suite::{Service, ask, connect, holder, patiently, resource, take};

/// A task that waits for a lock.
fn waiter(backend: &Arc<dyn LockBackend>, lock: &'static str, who: &'static str) -> JoinHandle<Lease> {
    let backend = backend.clone();
    tokio::spawn(async move {
        match ask(backend.as_ref(), lock, who, TTL, LONG).await {
            Acquired::Held(lease) => lease,
            Acquired::Busy => panic!("{who} did not get {lock}"),
        }
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t11_the_number_is_the_create_revision_of_the_own_key() {
    patiently(TTL / 4, the_number_is_the_create_revision_of_the_own_key).await;
}

async fn the_number_is_the_create_revision_of_the_own_key() {
    let etcd = Etcd::start();
    let (a, b) = (connect(&etcd.url()).await, connect(&etcd.url()).await);
    let held = take(a.as_ref(), "job", "a#1", TTL * 30).await;
    let keys = contenders(etcd.address(), "job", 1);
    assert_eq!(keys[0].key, format!("fencepost/lock:job/{}", held.holder));
    assert_eq!(keys[0].value, held.holder.as_str());
    assert_eq!(keys[0].create_revision, held.number.get());

    let waiting = waiter(&b, "job", "b#1");
    let in_line = contenders(etcd.address(), "job", 2)[1].create_revision;
    // The header's revision runs ahead, and the waiter's lease is renewed repeatedly. It can be lost only if the
    // machine stalls for longer than its ttl.
    let begun = Instant::now();
    let mut writes = 0;
    while begun.elapsed() < TTL * 2 {
        etcd.etcdctl(&["put", "unrelated", "x"]);
        writes += 1;
        assert_eq!(a.renew(&held).await.unwrap(), Kept::Kept);
    }
    assert!(writes > 2, "{writes}");
    assert_eq!(contenders(etcd.address(), "job", 2)[1].create_revision, in_line);
    a.release(held).await.unwrap();
    let lease = waiting.await.unwrap();
    assert_eq!(lease.number.get(), in_line);
    // The lease was renewed just before it was granted.
    assert!(lease.since.elapsed() < TTL, "{:?}", lease.since.elapsed());
    assert_eq!(b.verify(&lease).await.unwrap(), Kept::Kept);
    etcd.etcdctl(&["put", "unrelated", "x"]);
    let next = waiter(&a, "job", "a#2");
    let number = contenders(etcd.address(), "job", 2)[1].create_revision;
    assert!(number > in_line + writes, "{number} {in_line}");
    b.release(lease).await.unwrap();
    assert_eq!(next.await.unwrap().number.get(), number);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_come_in_order_and_each_watches_only_the_one_before() {
    patiently(TTL / 4, in_order_and_only_the_one_before).await;
}

async fn in_order_and_only_the_one_before() {
    const WAITERS: usize = 8;
    const NAMES: [&str; WAITERS] = ["w#0", "w#1", "w#2", "w#3", "w#4", "w#5", "w#6", "w#7"];
    let etcd = Etcd::start();
    let backend = connect(&etcd.url()).await;
    let mut lease = take(backend.as_ref(), "job", "first", TTL * 30).await;
    let mut waiting = Vec::new();
    for (before, name) in NAMES.into_iter().enumerate() {
        waiting.push(waiter(&backend, "job", name));
        contenders(etcd.address(), "job", before + 2);
    }
    let told = etcd.metric("etcd_debugging_mvcc_events_total");
    for (name, waiting) in NAMES.into_iter().zip(waiting) {
        backend.release(lease).await.unwrap();
        let next = waiting.await.unwrap();
        assert!(next.holder.as_str().starts_with(name), "{} instead of {name}", next.holder);
        lease = next;
    }
    // One event per release. Waking all waiters would cause 8 + 7 + … + 1.
    let told = etcd.metric("etcd_debugging_mvcc_events_total") - told;
    assert!(told <= WAITERS as f64, "{told} events");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_loses_its_lease_while_waiting_gets_in_line_again() {
    patiently(TTL / 4, in_line_again).await;
}

async fn in_line_again() {
    let etcd = Etcd::start();
    let backend = connect(&etcd.url()).await;
    let held = take(backend.as_ref(), "job", "a#1", TTL * 30).await;
    let waiting = waiter(&backend, "job", "b#1");
    let place = contenders(etcd.address(), "job", 2)[1].clone();
    etcd.etcdctl(&["lease", "revoke", &format!("{:x}", place.lease)]);
    let again = contenders(etcd.address(), "job", 2)[1].clone();
    assert!(again.create_revision > place.create_revision && again.lease != place.lease, "{again:?} {place:?}");
    backend.release(held).await.unwrap();
    let lease = waiting.await.unwrap();
    assert_eq!(lease.number.get(), again.create_revision);
    assert_eq!(backend.verify(&lease).await.unwrap(), Kept::Kept);
}

/// All leases run out while etcd is stopped. The waiter that is served afterwards has a live lease (T23).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t23_a_lease_that_ran_out_while_waiting_is_never_returned() {
    patiently(TTL / 4, never_a_lease_that_ran_out).await;
}

async fn never_a_lease_that_ran_out() {
    let etcd = Etcd::start();
    let backend = connect(&etcd.url()).await;
    let held = take(backend.as_ref(), "job", "a#1", TTL).await;
    let waiting = waiter(&backend, "job", "b#1");
    let place = contenders(etcd.address(), "job", 2)[1].clone();
    etcd.process().signal(Signal::STOP);
    tokio::time::sleep(TTL * 2).await;
    etcd.process().signal(Signal::CONT);
    let lease = waiting.await.unwrap();
    assert!(lease.number.get() >= place.create_revision && lease.number > held.number);
    assert!(lease.since.elapsed() < TTL, "{:?}", lease.since.elapsed());
    assert_eq!(backend.verify(&lease).await.unwrap(), Kept::Kept);
    assert_eq!(backend.renew(&lease).await.unwrap(), Kept::Kept);
    assert_eq!(backend.verify(&held).await.unwrap(), Kept::Lost);
    assert_eq!(backend.renew(&held).await.unwrap(), Kept::Lost);
    backend.release(held).await.unwrap();
    assert_eq!(backend.verify(&lease).await.unwrap(), Kept::Kept);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_stops_waiting_leaves_the_line_at_once() {
    let etcd = Etcd::start();
    let backend = connect(&etcd.url()).await;
    // Long enough that nothing here expires.
    let ttl = Duration::from_secs(600);
    let held = take(backend.as_ref(), "job", "a#1", ttl).await;
    let asking = backend.clone();
    let waiting = tokio::spawn(async move { ask(asking.as_ref(), "job", "b#1", ttl, LONG).await });
    contenders(etcd.address(), "job", 2);
    waiting.abort();
    contenders(etcd.address(), "job", 1);
    assert!(matches!(ask(backend.as_ref(), "job", "c#1", ttl, Duration::ZERO).await, Acquired::Busy));
    let left = contenders(etcd.address(), "job", 1);
    assert_eq!(left[0].create_revision, held.number.get());
    assert_eq!(etcd.etcdctl(&["lease", "list"]).lines().count(), 2, "one lease below its heading");
    backend.release(held).await.unwrap();
    contenders(etcd.address(), "job", 0);
    assert_eq!(etcd.etcdctl(&["lease", "list"]).lines().count(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_with_slashes_are_locks_of_their_own() {
    let etcd = Etcd::start();
    let backend = connect(&etcd.url()).await;
    let names = ["a", "a/b", "a0", "a/b/c", "a%2Fb", "a:b"];
    let mut leases = Vec::new();
    for name in names {
        leases.push(take(backend.as_ref(), name, "w/1:2#1", TTL * 30).await);
    }
    for (name, lease) in names.into_iter().zip(leases) {
        assert!(matches!(ask(backend.as_ref(), name, "v#1", TTL, Duration::ZERO).await, Acquired::Busy), "{name}");
        backend.release(lease).await.unwrap();
        let next = take(backend.as_ref(), name, "v#2", TTL * 30).await;
        assert_eq!(backend.verify(&next).await.unwrap(), Kept::Kept, "{name}");
    }
    // Keys of a longer prefix do not collide with those of a lock below a shorter one.
    let (short, long) = (format!("{}/x", etcd.url()), format!("{}/x/lock", etcd.url()));
    let (short, long) = (connect(&short).await, connect(&long).await);
    let first = take(short.as_ref(), "a", "s#1", TTL).await;
    let second = take(long.as_ref(), "a", "l#1", TTL).await;
    assert_ne!(first.issuer, second.issuer);
}

/// Another process renews and releases with what it was given: name, holder, number, issuer, ttl and handle.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_can_be_handed_to_another_process() {
    let etcd = Etcd::start();
    let here = connect(&etcd.url()).await;
    let lease = take(here.as_ref(), "job", "a#1", TTL * 30).await;
    let told = |ttl| Lease {
        name: lease.name.clone(),
        holder: lease.holder.clone(),
        number: lease.number,
        generation: lease.generation,
        issuer: lease.issuer.clone(),
        ttl,
        since: fencepost_client::Moment::now(),
        handle: lease.handle.clone(),
        session: None,
    };
    drop(here);
    let there = connect(&etcd.url()).await;
    assert!(there.capabilities().detachable);
    assert_eq!(there.renew(&told(lease.ttl)).await.unwrap(), Kept::Kept);
    // A different ttl would not be kept.
    let error = there.renew(&told(TTL * 10)).await.unwrap_err().to_string();
    assert!(error.contains("60 s") && error.contains("20 s"), "{error}");
    assert_eq!(there.verify(&told(lease.ttl)).await.unwrap(), Kept::Kept);
    there.release(told(lease.ttl)).await.unwrap();
    assert_eq!(there.verify(&told(lease.ttl)).await.unwrap(), Kept::Lost);
}

/// Contract 5: the requesting process never received its grant, and asks again as the same holder.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_holder_finds_its_grant_again() {
    let etcd = Etcd::start();
    let backend = connect(&etcd.url()).await;
    let (name, who) = (resource("job"), holder("a#1"));
    let wanted = Wanted { name: &name, holder: &who, ttl: TTL * 30, wait: Duration::ZERO, floor: 0, generation: 0 };
    let Acquired::Held(unheard) = backend.acquire(&wanted).await.unwrap() else { panic!("a free lock was busy") };
    let Acquired::Held(found) = backend.acquire(&wanted).await.unwrap() else { panic!("it was not found again") };
    assert_eq!((found.number, &found.handle), (unheard.number, &unheard.handle));
    assert!(found.since > unheard.since);
    contenders(etcd.address(), "job", 1);
    backend.release(found).await.unwrap();
    assert_eq!(backend.verify(&unheard).await.unwrap(), Kept::Lost);
}
