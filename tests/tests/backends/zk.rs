//! ZooKeeper.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use fencepost_client::locks::{Acquired, Kept, LockBackend, LockError};
use fencepost_client::{Error, ErrorKind, Gateway, LockOptions, WriteOptions};
use fencepost_conformance::proxy::Proxy;
use fencepost_core::{Key, Presented, ProblemKind, Token};
use fencepost_harness::fresh::Fresh;
use fencepost_harness::servers::certificates::{Certificates, Clients};
use fencepost_harness::servers::zk::ZooKeeper;
use zookeeper_client::Client;

use crate::suite::{
    RECOVERY, SLACK, Service, ask, connect, connect_through, eventually, is_busy, keep, kind_of, patiently, reason,
    start, take, take_within, try_ask, until,
};
use crate::tls::Encrypted;

const TTL: Duration = Duration::from_secs(2);

impl Service for ZooKeeper {
    const TTL: Duration = TTL;

    fn start() -> ZooKeeper {
        ZooKeeper::start()
    }

    fn address(&self) -> SocketAddr {
        ZooKeeper::address(self)
    }

    fn url_at(&self, address: SocketAddr) -> String {
        format!("zk://{address}/apps/fencepost")
    }

    fn restart(&mut self) {
        ZooKeeper::restart(self);
    }

    fn waiting(&self, _name: &str) -> Option<usize> {
        // Each waiter watches its predecessor; a test has one lock.
        let said = self.ask("wchs");
        let watches = said.lines().find_map(|line| line.strip_prefix("Total watches:"));
        Some(watches.unwrap_or_else(|| panic!("{said}")).trim().parse().unwrap())
    }
}

suite!(super::ZooKeeper);

impl Encrypted for ZooKeeper {
    fn start_encrypted(certificates: &Certificates, clients: Clients) -> ZooKeeper {
        ZooKeeper::with_certificates(certificates, clients)
    }

    fn encrypted_url(&self, _clients: Clients) -> String {
        format!("zks://{}/apps/fencepost?", self.encrypted_address())
    }
}

over_tls!(super::ZooKeeper);

/// A direct connection, to look behind the backend.
async fn raw(service: &ZooKeeper) -> Client {
    Client::connect(&service.address().to_string()).await.unwrap()
}

fn gateway(at: &Fresh) -> Gateway {
    Gateway::new(at.url()).unwrap()
}

async fn locks(at: &Fresh, url: &str, wait: Duration) -> fencepost_client::Client {
    let options = LockOptions::new().ttl(TTL).wait(wait);
    fencepost_client::Client::new(gateway(at), connect(url).await).with_lock_options(options)
}

/// A write with these credentials, whatever the state of the lock.
async fn write(at: &Fresh, value: &'static str, credentials: &Presented) -> Result<(), Error> {
    let options = WriteOptions::new().credentials(credentials.clone());
    gateway(at).put(&Key::new("orders/1").unwrap(), value.into(), None, &options).await.map(|_| ())
}

async fn stored(at: &Fresh) -> String {
    let read = gateway(at).get(&Key::new("orders/1").unwrap(), None).await.unwrap().unwrap();
    String::from_utf8(read.body.to_vec()).unwrap()
}

fn queue(handle: &str) -> (&str, &str) {
    let (queue, znode) = handle.rsplit_once('/').unwrap();
    (queue, znode.split_once('-').unwrap().1)
}

/// The sequence suffix starts again at 0 with a new parent; the czxid does not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t11_the_number_is_the_czxid_and_not_the_suffix() {
    let service = start::<ZooKeeper>();
    let (backend, raw) = (connect(&service.url()).await, raw(&service).await);
    let mut last = 0;
    for round in 0..3 {
        let lease = take(backend.as_ref(), "orders/1", &format!("a#{round}"), TTL).await;
        let (parent, suffix) = queue(&lease.handle);
        let parent = parent.to_owned();
        assert_eq!(suffix, "0000000000", "a new parent counts anew");
        let stat = raw.check_stat(&lease.handle).await.unwrap().expect("the handle is the znode");
        assert_eq!(stat.czxid.cast_unsigned(), lease.number.get());
        assert!(lease.number.get() > last, "{} after {last}", lease.number);
        last = lease.number.get();
        backend.release(lease).await.unwrap();
        raw.delete(&parent, None).await.unwrap();
    }
    // The whole path is deleted by mistake: another incarnation, and the number rises nevertheless.
    let before = take(backend.as_ref(), "orders/1", "b#1", TTL).await;
    let (issuer, number) = (before.issuer.clone(), before.number);
    backend.release(before).await.unwrap();
    for path in ["locks/orders%2F1", "locks", "incarnation"] {
        raw.delete(&format!("/apps/fencepost/{path}"), None).await.unwrap();
    }
    let after = take(backend.as_ref(), "orders/1", "b#2", TTL).await;
    assert!(after.number > number && after.issuer != issuer, "{after:?} after {number} of {issuer}");
}

/// T6: numbers of a re-created ensemble are compared with nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t06_a_wiped_ensemble_is_another_issuer() {
    let mut service = start::<ZooKeeper>();
    let at = tokio::task::block_in_place(|| Fresh::memory(&[]));
    let locks = locks(&at, &service.url(), Duration::ZERO).await;
    let guard = locks.acquire("orders/1").await.unwrap();
    let before = guard.credentials().clone();
    guard.put("orders/1", "before").await.unwrap();
    guard.release().await.unwrap();
    tokio::task::block_in_place(|| service.wipe());
    let error = locks.acquire("orders/1").await.expect_err("another incarnation");
    assert_eq!(reason(&error), Some(ProblemKind::ForeignIssuer), "{error:?}");
    let said = error.to_string();
    assert!(said.contains("fencepost fence rotate orders/1 --from 0"), "{said}");
    assert!(said.contains(before.issuer.as_ref().unwrap().as_str()), "{said}");
    // Even a number that happens to be higher is refused until an administrator rotates.
    let backend = connect(&service.url()).await;
    let lease = take_within(backend.as_ref(), "orders/1", "z#1", TTL, SLACK).await;
    for number in [lease.number.get(), before.token.number().get() + 1000] {
        let token = Token::from_parts(0, number.try_into().unwrap());
        let new = Presented { token, holder: Some(lease.holder.clone()), issuer: Some(lease.issuer.clone()) };
        match write(&at, "after", &new).await {
            Err(error) => assert_eq!(reason(&error), Some(ProblemKind::ForeignIssuer)),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(stored(&at).await, "before");
    backend.release(lease).await.unwrap();
}

/// T23: nothing passes between the holder and the ensemble until its session is over; then the holder writes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_whose_session_expired_is_fenced() {
    let service = start::<ZooKeeper>();
    let at = tokio::task::block_in_place(|| Fresh::memory(&[]));
    let proxy = Proxy::start(service.address());
    let paused = locks(&at, &service.url_at(proxy.address()), Duration::ZERO).await;
    let guard = paused.acquire("orders/1").await.unwrap();
    guard.put("orders/1", "first").await.unwrap();
    proxy.hold();
    let next = locks(&at, &service.url(), TTL * 2 + SLACK).await;
    let successor = next.acquire("orders/1").await.unwrap();
    assert!(successor.token() > guard.token(), "{} after {}", successor.token(), guard.token());
    successor.put("orders/1", "second").await.unwrap();
    // The lock service has no part in this: the fence decides.
    match write(&at, "zombie", guard.credentials()).await {
        Err(error) => assert_eq!(reason(&error), Some(ProblemKind::Stale)),
        other => panic!("{other:?}"),
    }
    assert_eq!(stored(&at).await, "second");
    guard.lost().await;
    proxy.pass();
    guard.release().await.unwrap();
    assert_eq!(successor.loss(), None);
    successor.put("orders/1", "third").await.unwrap();
    successor.release().await.unwrap();
}

/// Everything is paused: no heartbeat, no renewal, no timer. Then the process continues as if nothing had happened.
#[test]
fn a_holder_that_was_paused_is_fenced() {
    let (service, at) = (ZooKeeper::start(), Fresh::memory(&[]));
    let alone = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (pausing, paused) = sync_channel(1);
    let (wake, woken) = sync_channel(1);
    std::thread::scope(|scope| {
        let (service, at) = (&service, &at);
        let holder = scope.spawn(move || {
            alone().block_on(async {
                let guard = locks(at, &service.url(), Duration::ZERO).await.acquire("orders/1").await.unwrap();
                guard.put("orders/1", "first").await.unwrap();
                pausing.send(guard.token()).unwrap();
                // The client runs on this thread only.
                woken.recv().unwrap();
                let late = guard.put("orders/1", "late").await;
                assert!(matches!(kind_of(&late), Some(ErrorKind::Fenced | ErrorKind::Lost)), "{late:?}");
                match write(at, "zombie", guard.credentials()).await {
                    Err(error) => assert_eq!(reason(&error), Some(ProblemKind::Stale)),
                    other => panic!("{other:?}"),
                }
            });
        });
        alone().block_on(async move {
            let token = paused.recv().unwrap();
            let next = locks(at, &service.url(), TTL * 2 + SLACK).await;
            let successor = next.acquire("orders/1").await.unwrap();
            assert!(successor.token() > token, "{} after {token}", successor.token());
            successor.put("orders/1", "second").await.unwrap();
            wake.send(()).unwrap();
            until("the old holder to be refused", || holder.is_finished()).await;
            holder.join().unwrap();
            assert_eq!(stored(at).await, "second");
            successor.release().await.unwrap();
        });
    });
}

/// Contract 9: both limits of the ttl that the server grants.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ttl_that_is_not_granted_is_an_error() {
    let service = tokio::task::block_in_place(|| ZooKeeper::with("minSessionTimeout=3000\nmaxSessionTimeout=7000\n"));
    let backend = connect(&service.url()).await;
    assert_eq!(backend.capabilities().min_ttl, Duration::from_secs(3));
    for (ttl, asked, granted) in [(2500, "2.5 s", "3 s"), (60_000, "60 s", "7 s"), (7001, "7.001 s", "7 s")] {
        let ttl = Duration::from_millis(ttl);
        let error = try_ask(backend.as_ref(), "orders/1", "a#1", ttl, Duration::ZERO).await.unwrap_err();
        assert!(matches!(error, LockError::Invalid(_)), "{error:?}");
        let said = error.to_string();
        assert!(said.contains(asked) && said.contains(granted), "{said}");
    }
    for ttl in [3000, 4567, 7000] {
        let lease = take(backend.as_ref(), "orders/1", &format!("a#{ttl}"), Duration::from_millis(ttl)).await;
        backend.release(lease).await.unwrap();
    }
}

/// A lock is one znode, whatever its name, and never the parent of another one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_name_is_a_lock_of_its_own() {
    let service = start::<ZooKeeper>();
    let backend = connect(&service.url()).await;
    let long = "ß/".repeat(341) + "z";
    let names =
        ["orders", "orders/1", "orders%2F1", "incarnation", "locks", "zookeeper", "日本/ä b", "...", "*", &long];
    let mut leases = Vec::new();
    for name in names {
        leases.push(keep(&backend, take(backend.as_ref(), name, "a#1", TTL * 4).await));
    }
    for name in names {
        assert!(is_busy(backend.as_ref(), name, "b#1", TTL).await, "{name}");
    }
    for lease in leases {
        let lease = lease.stop().await;
        assert_eq!(backend.verify(&lease).await, Ok(Kept::Kept), "{}", lease.name);
        backend.release(lease).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_password_keeps_others_out_and_is_never_shown() {
    let service = start::<ZooKeeper>();
    let at = |user: &str| format!("zk://{user}{}/private", service.address());
    let bob = connect(&at("bob:s%40cret@")).await;
    let lease = take(bob.as_ref(), "orders/1", "a#1", TTL).await;
    for user in ["", "bob:wr0ng@", "eve:s%40cret@"] {
        let other = connect(&at(user)).await;
        let error = try_ask(other.as_ref(), "orders/1", "b#1", TTL, Duration::ZERO).await.unwrap_err();
        assert!(matches!(error, LockError::Failed { .. }), "{error:?}");
        let said = format!("{error} {error:?}");
        assert!(said.contains("not authorized") && said.contains("/private"), "{said}");
        assert!(!said.contains("cret") && !said.contains("wr0ng"), "{said}");
    }
    bob.release(lease).await.unwrap();
    let Err(error) = fencepost_client::locks::connect(&at("bob@")).await else { panic!("a user without a password") };
    assert!(error.to_string().contains("no password"), "{error}");
}

/// The client's own heartbeat must not keep a lease that its owner no longer renews.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_nobody_renews_ends() {
    let service = start::<ZooKeeper>();
    let backend = connect(&service.url()).await;
    let forgotten = take(backend.as_ref(), "orders/1", "a#1", TTL).await;
    let next = take_within(backend.as_ref(), "orders/1", "b#1", TTL, TTL + SLACK).await;
    assert!(forgotten.since.elapsed() >= TTL, "not earlier than its ttl");
    assert!(next.number > forgotten.number);
    let next = keep(&backend, next);
    assert_eq!(eventually("renewing", async || backend.renew(&forgotten).await).await, Kept::Lost);
    backend.release(forgotten).await.unwrap();
    assert!(is_busy(backend.as_ref(), "orders/1", "c#1", TTL).await);
    backend.release(next.stop().await).await.unwrap();
}

/// Contract 10: three waiters watch three znodes, and a waiter whose znode is deleted rejoins at the end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_waiter_watches_its_predecessor_only() {
    patiently(TTL / 4, watching_the_predecessor_only).await;
}

async fn watching_the_predecessor_only() {
    let service = start::<ZooKeeper>();
    let backend = connect(&service.url()).await;
    let first = keep(&backend, take(backend.as_ref(), "orders/1", "a#1", TTL).await);
    let mut waiting = Vec::new();
    for waiter in 1..=3 {
        let waiting_for: Arc<dyn LockBackend> = backend.clone();
        waiting.push(tokio::spawn(async move {
            try_ask(waiting_for.as_ref(), "orders/1", &format!("w#{waiter}"), TTL, SLACK * 4).await
        }));
        let watching = format!("Total watches:{waiter}");
        until("the waiter to watch", || service.ask("wchs").contains(&watching)).await;
    }
    let said = service.ask("wchs");
    assert!(said.contains("3 connections watching 3 paths"), "{said}");
    let raw = raw(&service).await;
    let parent = "/apps/fencepost/locks/orders%2F1";
    let mut znodes = raw.list_children(parent).await.unwrap();
    znodes.sort_by_key(|znode| znode.split_once('-').unwrap().1.to_owned());
    assert_eq!(znodes.len(), 4);
    // Delete the znode of the last waiter but one by hand: the last one must not get the lock because of that.
    raw.delete(&format!("{parent}/{}", znodes[2]), None).await.unwrap();
    let asked = Instant::now();
    backend.release(first.stop().await).await.unwrap();
    let mut ends = Vec::new();
    for waiter in waiting {
        match waiter.await.unwrap() {
            Ok(Acquired::Held(lease)) => {
                ends.push(lease.number.get());
                backend.release(lease).await.unwrap();
            }
            other => panic!("{other:?} after {:?}", asked.elapsed()),
        }
    }
    assert!(ends[0] < ends[2] && ends[2] < ends[1], "{ends:?}");
}

/// A session that expires while its waiter waits costs only the place in the queue.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_whose_session_expires_stands_in_the_queue_again() {
    patiently(TTL / 4, standing_in_the_queue_again).await;
}

async fn standing_in_the_queue_again() {
    let service = start::<ZooKeeper>();
    let (proxy, b) = connect_through(&service).await;
    let a = connect(&service.url()).await;
    let first = keep(&a, take(a.as_ref(), "orders/1", "a#1", TTL).await);
    let waiting = tokio::spawn(async move {
        let lease = take_within(b.as_ref(), "orders/1", "b#1", TTL, RECOVERY).await;
        (b, lease)
    });
    let watching = |count: usize| service.waiting("orders/1") == Some(count);
    until("the waiter to watch", || watching(1)).await;
    let raw = raw(&service).await;
    let parent = "/apps/fencepost/locks/orders%2F1";
    let place = |znodes: &[String], held: &str| znodes.iter().find(|znode| !held.ends_with(*znode)).cloned();
    let znodes = raw.list_children(parent).await.unwrap();
    assert_eq!(znodes.len(), 2);
    proxy.hold();
    until("the session to expire", || watching(0)).await;
    proxy.pass();
    until("the waiter to watch again", || watching(1)).await;
    let lease = first.stop().await;
    let (before, after) = (place(&znodes, &lease.handle), raw.list_children(parent).await.unwrap());
    assert!(before.is_some() && before != place(&after, &lease.handle), "{before:?} and then {after:?}");
    let number = lease.number;
    a.release(lease).await.unwrap();
    let (b, lease) = waiting.await.unwrap();
    assert!(lease.number > number, "{} after {number}", lease.number);
    b.release(lease).await.unwrap();
}

/// Contract 6: the service reports what its data contains.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_whose_znode_is_deleted_is_lost() {
    let service = start::<ZooKeeper>();
    let (backend, raw) = (connect(&service.url()).await, raw(&service).await);
    let lease = take(backend.as_ref(), "orders/1", "a#1", TTL).await;
    raw.delete(&lease.handle, None).await.unwrap();
    assert_eq!(backend.verify(&lease).await, Ok(Kept::Lost));
    assert_eq!(backend.renew(&lease).await, Ok(Kept::Lost));
    let Acquired::Held(next) = ask(backend.as_ref(), "orders/1", "b#1", TTL, Duration::ZERO).await else {
        panic!("the lock is free")
    };
    backend.release(lease).await.unwrap();
    assert_eq!(backend.verify(&next).await, Ok(Kept::Kept));
    backend.release(next).await.unwrap();
}
