//! Events that make Redis' numbers go backwards, and their effect at a real gateway.

use std::time::Duration;

use fencepost_client::locks::{Kept, Lifted};
use fencepost_client::{Error, ErrorKind, Gateway, Guard, LockOptions, Loss, WriteOptions};
use fencepost_core::{Key, Presented, ProblemKind, Token};
use fencepost_harness::fresh::Fresh;
use fencepost_harness::http::Client;
use fencepost_harness::servers::redis::RedisServer;
use serde_json::json;

use super::{LONG, take};
use crate::suite::{Service, connect, holder, kind_of, reason};

const TTL: Duration = Duration::from_secs(10);

/// A client of this Redis, for this gateway.
async fn locks(gateway: &Fresh, server: &RedisServer) -> fencepost_client::Client {
    let to_gateway = Gateway::new(gateway.url()).unwrap();
    let options = LockOptions::new().ttl(TTL).wait(LONG);
    fencepost_client::Client::new(to_gateway, connect(&server.url()).await).with_lock_options(options)
}

async fn value(gateway: &Fresh, key: &str) -> String {
    let gateway = Gateway::new(gateway.url()).unwrap();
    let read = gateway.get(&Key::new(key).unwrap(), None).await.unwrap().unwrap();
    String::from_utf8(read.body.to_vec()).unwrap()
}

/// A write with these credentials that bypasses every guard.
async fn write(gateway: &Fresh, key: &str, text: &'static str, credentials: Presented) -> Result<(), Error> {
    let gateway = Gateway::new(gateway.url()).unwrap();
    let options = WriteOptions::new().credentials(credentials);
    gateway.put(&Key::new(key).unwrap(), text.into(), None, &options).await.map(drop)
}

fn number(guard: &Guard) -> u64 {
    guard.token().number().get()
}

/// T5, T6: the incarnation is lost together with the counter.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_flushall_nothing_is_accepted_until_the_fence_is_rotated() {
    let (gateway, server) = (Fresh::rocksdb(&[]), RedisServer::start(&[]));
    let locks = locks(&gateway, &server).await;
    for _ in 0..3 {
        locks.acquire("orders/1").await.unwrap().release().await.unwrap();
    }
    let old = locks.acquire("orders/1").await.unwrap();
    old.put("orders/1", "before").await.unwrap();
    assert_eq!(number(&old), 4);
    assert_eq!(server.cli(&["FLUSHALL"]), "OK");
    assert_eq!(old.lost().await, Loss::TakenOver);

    let error = locks.acquire("orders/1").await.unwrap_err();
    let said = error.to_string();
    assert_eq!(reason(&error), Some(ProblemKind::ForeignIssuer), "{said}");
    let refusal = error.refusal().unwrap();
    assert_eq!(refusal.issuer.as_ref(), old.issuer(), "{said}");
    let ours = refusal.presented_issuer.unwrap();
    assert!(ours.as_str().starts_with("redis:") && Some(&ours) != old.issuer(), "{said}");
    assert!(said.contains("fencepost fence rotate orders/1"), "{said}");

    // Whatever number the new incarnation grants, low or high, it is refused.
    let backend = connect(&server.url()).await;
    let lease = take(backend.as_ref(), "orders/1", "new#1", LONG).await;
    for number in [lease.number.get(), 1000] {
        let token = Token::from_parts(old.token().generation(), number.try_into().unwrap());
        let presented = Presented { token, holder: Some(lease.holder.clone()), issuer: Some(lease.issuer.clone()) };
        let refused = write(&gateway, "orders/1", "stale", presented).await;
        assert_eq!(kind_of(&refused), Some(ErrorKind::Fenced), "{refused:?}");
    }
    assert_eq!(value(&gateway, "orders/1").await, "before");
    backend.release(lease).await.unwrap();

    let mut admin = Client::connect_unix(&gateway.data().join("admin.sock"));
    let rotation = json!({"from": old.token().generation(), "reason": "Redis was flushed"});
    assert_eq!(admin.post("/v1/admin/fences/orders%2F1/rotate", &rotation).status, 200);
    let new = locks.acquire("orders/1").await.unwrap();
    new.put("orders/1", "after").await.unwrap();
    let zombie = write(&gateway, "orders/1", "zombie", old.credentials().clone()).await;
    assert_eq!(kind_of(&zombie), Some(ErrorKind::Fenced), "{zombie:?}");
    assert_eq!(value(&gateway, "orders/1").await, "after");
}

/// An evicted counter takes its incarnation along: the next counter has another issuer, it did not go backwards.
#[tokio::test]
async fn a_counter_that_is_evicted_is_another_issuer() {
    let server = RedisServer::start(&[]);
    let backend = connect(&server.url()).await;
    let before = take(backend.as_ref(), "r", "a#1", LONG).await;
    assert_eq!(server.cli(&["DEL", "fencepost:{r}"]), "1");
    let mut held = take(backend.as_ref(), "other", "a#2", LONG).await;
    assert_eq!(server.cli(&["DEL", "fencepost:{other}"]), "1");
    let lifted = backend.lift(&mut held, 7).await.unwrap();
    assert_eq!(lifted, Lifted::Lost, "its number would belong to another issuer");
    let issuer = before.issuer.clone();
    backend.release(before).await.unwrap();
    let after = take(backend.as_ref(), "r", "a#3", LONG).await;
    assert_eq!(after.number.get(), 1);
    assert_ne!(after.issuer, issuer);
}

/// T5: the counter fell; the fence is read before acquiring.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_missed_writes_counts_on_above_the_fence() {
    let (gateway, primary) = (Fresh::memory(&[]), RedisServer::start(&[]));
    let locks = locks(&gateway, &primary).await;
    locks.acquire("orders/1").await.unwrap().release().await.unwrap();
    let mut replica = RedisServer::replica_of(&primary);
    replica.cut_off();
    let mut last = 1;
    for _ in 0..3 {
        let guard = locks.acquire("orders/1").await.unwrap();
        assert!(number(&guard) > last);
        last = number(&guard);
        guard.release().await.unwrap();
    }
    let zombie = locks.acquire("orders/1").await.unwrap();
    zombie.put("orders/1", "before").await.unwrap();
    let before = number(&zombie);
    assert_eq!(replica.cli(&["HGET", "fencepost:{orders/1}", "number"]), "1", "the replica missed them");
    replica.take_over(primary);

    // The replica does not know that the lock is held: there are two holders, and only the fence protects the data.
    let next = locks.acquire("orders/1").await.unwrap();
    assert!(number(&next) > before, "{} after {before}", number(&next));
    assert_eq!(next.issuer(), zombie.issuer(), "a replica is the same incarnation");
    next.put("orders/1", "after").await.unwrap();
    let refused = zombie.put("orders/1", "zombie").await;
    assert!(matches!(kind_of(&refused), Some(ErrorKind::Fenced | ErrorKind::Lost)), "{refused:?}");
    let refused = write(&gateway, "orders/1", "zombie", zombie.credentials().clone()).await;
    assert_eq!(kind_of(&refused), Some(ErrorKind::Fenced), "{refused:?}");
    assert_eq!(value(&gateway, "orders/1").await, "after");
    assert_eq!(replica.cli(&["HGET", "fencepost:{orders/1}", "number"]), number(&next).to_string());
}

/// T5, T31: the counter fell during a wait whose floor was read before. Only lifting helps.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_whose_floor_is_old_lifts_the_counter() {
    let (gateway, primary) = (Fresh::memory(&[]), RedisServer::start(&[]));
    let first = locks(&gateway, &primary).await;
    let guard = first.acquire("orders/1").await.unwrap();
    let mut replica = RedisServer::replica_of(&primary);
    replica.cut_off();
    // The waiter reads the fence, 1, and waits while the numbers rise.
    let second = locks(&gateway, &primary).await;
    let waiting = tokio::spawn(async move { second.acquire("orders/1").await });
    super::queue::waiters(&primary, "orders/1", 1);
    // The fence rises to 5, as if raised by holders whose locks the replica does not know.
    let mut credentials = guard.credentials().clone();
    credentials.token = Token::from_parts(credentials.token.generation(), 5.try_into().unwrap());
    credentials.holder = Some(holder("other#1"));
    write(&gateway, "orders/1", "before", credentials.clone()).await.unwrap();
    let before = guard.token();
    replica.take_over(primary);
    // The replica knows the first holder, but neither the waiter nor any later number. If the call is lost because the
    // primary died, the lease ends by itself.
    let _ = guard.release().await;
    let new = waiting.await.unwrap().unwrap();
    assert_eq!((before.number().get(), number(&new)), (1, 6), "lifted above the fence");
    new.put("orders/1", "after").await.unwrap();
    let refused = write(&gateway, "orders/1", "zombie", credentials).await;
    assert_eq!(kind_of(&refused), Some(ErrorKind::Fenced), "{refused:?}");
    assert_eq!(value(&gateway, "orders/1").await, "after");
    new.release().await.unwrap();
    let next = first.acquire("orders/1").await.unwrap();
    assert_eq!(number(&next), 7, "and counts on from there");
    assert_eq!(replica.cli(&["HGET", "fencepost:{orders/1}", "number"]), "7");
}

/// T31: a holder that was taken over cannot lift.
#[tokio::test]
async fn lifting_without_the_lock_changes_nothing() {
    let server = RedisServer::start(&[]);
    let backend = connect(&server.url()).await;
    let mut old = take(backend.as_ref(), "r", "a#1", LONG).await;
    assert_eq!(server.cli(&["DEL", "fencepost:{r}:lock"]), "1");
    let new = take(backend.as_ref(), "r", "b#1", LONG).await;
    assert_eq!(backend.lift(&mut old, 100).await.unwrap(), Lifted::Lost);
    assert_eq!((old.number.get(), new.number.get()), (1, 2));
    assert_eq!(server.cli(&["HGET", "fencepost:{r}", "number"]), "2");
    backend.release(old).await.unwrap();
    assert_eq!(server.cli(&["GET", "fencepost:{r}:lock"]), "2 b#1");
}

/// The old primary still runs and is still connected, but accepts no writes.
#[tokio::test]
async fn a_planned_failover_behind_one_address_loses_nothing() {
    let mut primary = RedisServer::start(&[]);
    let backend = connect(&primary.url()).await;
    let lease = take(backend.as_ref(), "r", "a#1", LONG).await;
    let mut replica = RedisServer::replica_of(&primary);
    primary.hand_over(&mut replica);
    let error = backend.renew(&lease).await.unwrap_err();
    assert!(error.is_transient() && error.to_string().contains("replica"), "{error}");
    assert_eq!(backend.renew(&lease).await.unwrap(), Kept::Kept, "connected anew, it is at the new primary");
    backend.release(lease).await.unwrap();
    assert_eq!(take(backend.as_ref(), "r", "a#2", LONG).await.number.get(), 2);
}
