//! Numbers that fall, tables that vanish, sessions that are terminated: in both modes, with a real gateway.

use std::time::Duration;

use fencepost_client::locks::{Acquired, Kept, Lease, LockBackend, LockError, Wanted};
use fencepost_client::{Client, Error, ErrorKind, Gateway, Guard, LockOptions, Loss, WriteOptions};
use fencepost_conformance::wait;
use fencepost_core::{Key, Presented, ProblemKind, Token};
use fencepost_harness::fresh::Fresh;
use fencepost_harness::servers::postgres::Postgres;

use crate::suite::{RECOVERY, connect, eventually, holder, reason, resource, take, until};

const TTL: Duration = Duration::from_secs(5);

const MODES: [&str; 2] = ["lease", "advisory"];

/// A table for each mode, so that one server serves both.
fn url(server: &Postgres, mode: &str) -> String {
    format!("postgres://postgres@{}/postgres?mode={mode}&table=locks_{mode}", server.address())
}

fn gateway(fresh: &Fresh) -> Gateway {
    Gateway::new(fresh.url()).unwrap()
}

async fn locks(fresh: &Fresh, url: &str) -> Client {
    let options = LockOptions::new().ttl(TTL).wait(RECOVERY);
    Client::new(gateway(fresh), connect(url).await).with_lock_options(options)
}

/// A write with the token of a guard that may have been lost long ago, as a paused process would send it.
async fn late_write(fresh: &Fresh, guard: &Presented, key: &str) -> Result<(), Error> {
    let options = WriteOptions::new().credentials(guard.clone());
    gateway(fresh).put(&Key::new(key).unwrap(), "late".into(), None, &options).await.map(drop)
}

async fn refused_as_stale(fresh: &Fresh, guard: &Presented, key: &str) {
    match late_write(fresh, guard, key).await {
        Err(error) if error.kind() == ErrorKind::Fenced => {}
        other => panic!("a write with {} was not refused: {other:?}", guard.token),
    }
}

async fn write(guard: &Guard, value: &'static str) -> u64 {
    guard.put(guard.resource().as_str(), value).await.unwrap();
    guard.token().number().get()
}

/// T05: asynchronous replication loses what the standby had not received.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t05_a_standby_that_missed_writes_is_promoted() {
    let fresh = Fresh::memory(&[]);
    let mut primary = tokio::task::block_in_place(Postgres::start);
    for mode in MODES {
        let guard = locks(&fresh, &url(&primary, mode)).await.acquire(&format!("orders/{mode}")).await.unwrap();
        write(&guard, "first").await;
        guard.release().await.unwrap();
    }
    let standby = tokio::task::block_in_place(|| primary.standby());
    standby.sql("alter system set primary_conninfo = ''");
    standby.sql("select pg_reload_conf()");
    wait::until("the standby to be cut off", RECOVERY, || {
        (standby.sql("select count(*) from pg_stat_wal_receiver") == "0").then_some(())
    });
    let mut held = Vec::new();
    for mode in MODES {
        // Whichever of the two is the primary.
        let (main, other) = (primary.address(), standby.address());
        let url = format!("postgres://postgres@{main},{other}/postgres?mode={mode}&table=locks_{mode}");
        let (locks, name) = (locks(&fresh, &url).await, format!("orders/{mode}"));
        for _ in 0..3 {
            let guard = locks.acquire(&name).await.unwrap();
            write(&guard, "missed").await;
            guard.release().await.unwrap();
        }
        let last = locks.acquire(&name).await.unwrap();
        write(&last, "missed").await;
        held.push((mode, locks, last));
    }
    tokio::task::block_in_place(|| primary.kill());
    assert_eq!(standby.sql("select pg_promote()"), "t");
    for (mode, locks, old) in held {
        let number = old.token().number().get();
        let known: u64 = standby.sql(&format!("select token from locks_{mode} where name <> ''")).parse().unwrap();
        assert!(known < number, "the number has fallen: {known} after {number}");
        let before = old.credentials().clone();
        let new = locks.acquire(&format!("orders/{mode}")).await.unwrap();
        assert!(write(&new, "newer").await > number, "healed by the floor");
        assert_eq!(new.issuer(), before.issuer.as_ref(), "the incarnation is replicated too (T36)");
        refused_as_stale(&fresh, &before, &format!("orders/{mode}")).await;
        new.release().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t05_a_deleted_row_is_healed_by_the_floor() {
    let (fresh, server) = (Fresh::memory(&[]), tokio::task::block_in_place(Postgres::start));
    for mode in MODES {
        let (locks, name) = (locks(&fresh, &url(&server, mode)).await, format!("orders/{mode}"));
        for _ in 0..3 {
            let guard = locks.acquire(&name).await.unwrap();
            write(&guard, "first").await;
            guard.release().await.unwrap();
        }
        let old = locks.acquire(&name).await.unwrap();
        let number = write(&old, "old").await;
        let before = old.credentials().clone();
        old.release().await.unwrap();
        server.sql(&format!("delete from locks_{mode} where name <> ''"));
        let new = locks.acquire(&name).await.unwrap();
        assert!(write(&new, "new").await > number);
        refused_as_stale(&fresh, &before, &name).await;
        new.release().await.unwrap();
    }
}

/// T31: the fence rose during the wait, so the floor read before is too low.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t31_a_number_below_the_fence_is_lifted() {
    let (fresh, server) = (Fresh::memory(&[]), tokio::task::block_in_place(Postgres::start));
    for mode in MODES {
        let name = format!("orders/{mode}");
        let a = connect(&url(&server, mode)).await;
        let first = take(a.as_ref(), &name, "a#1", Duration::from_secs(60)).await;
        let b = locks(&fresh, &format!("{}&application_name=b_{mode}", url(&server, mode))).await;
        let waiting = {
            let (b, name) = (b.clone(), name.clone());
            tokio::spawn(async move { b.acquire(&name).await })
        };
        // The waiter has looked at the lock, so it read the fence before that.
        let waits = format!(
            "select count(*) from pg_stat_activity where application_name = 'b_{mode}' \
             and (wait_event = 'advisory' or query like 'select service.holder%')"
        );
        until("the waiter to wait", || tokio::task::block_in_place(|| server.sql(&waits)) == "1").await;
        let fence = Presented {
            token: Token::new(0, 1000).unwrap(),
            holder: Some(holder("x#1")),
            issuer: Some(first.issuer.clone()),
        };
        gateway(&fresh).claim(&resource(&name), &fence, None).await.unwrap();
        a.release(first).await.unwrap();
        let guard = waiting.await.unwrap().unwrap();
        assert!(write(&guard, "lifted").await > 1000);
        refused_as_stale(&fresh, &fence, &name).await;
        guard.release().await.unwrap();
        let next = take(a.as_ref(), &name, "a#2", TTL).await;
        assert!(next.number.get() > 1001, "the counter itself was raised: {}", next.number);
        a.release(next).await.unwrap();
    }
}

/// T06: the incarnation is lost together with the table.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t06_a_dropped_table_is_another_issuer() {
    let (fresh, server) = (Fresh::memory(&[]), tokio::task::block_in_place(Postgres::start));
    for mode in MODES {
        let (locks, name) = (locks(&fresh, &url(&server, mode)).await, format!("orders/{mode}"));
        let guard = locks.acquire(&name).await.unwrap();
        let before = guard.credentials().clone();
        write(&guard, "first").await;
        guard.release().await.unwrap();
        server.sql(&format!("drop table locks_{mode}"));
        let error = locks.acquire(&name).await.expect_err("numbers of two tables are not comparable");
        assert_eq!(reason(&error), Some(ProblemKind::ForeignIssuer), "{error:?}");
        let said = error.to_string();
        assert!(said.contains("fencepost fence rotate") && said.contains(before.issuer.unwrap().as_str()), "{said}");
        let value = gateway(&fresh).get(&Key::new(&name).unwrap(), None).await.unwrap().unwrap();
        assert_eq!(value.body.as_ref(), b"first");
    }
}

/// A lease-mode holder notices at its next renewal; in advisory mode the session still has the lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_vanished_is_a_lost_lease() {
    let server = tokio::task::block_in_place(Postgres::start);
    let a = connect(&url(&server, "lease")).await;
    let lease = take(a.as_ref(), "orders/1", "a#1", TTL).await;
    server.sql("drop table locks_lease");
    assert_eq!(a.renew(&lease).await, Ok(Kept::Lost));
    assert_eq!(a.verify(&lease).await, Ok(Kept::Lost));
    a.release(lease).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_is_terminated_loses_its_lock() {
    let (fresh, server) = (Fresh::memory(&[]), tokio::task::block_in_place(Postgres::start));
    let url = url(&server, "advisory");
    let a = connect(&url).await;
    let lease = take(a.as_ref(), "orders/1", "a#1", TTL).await;
    assert_eq!(a.renew(&lease).await, Ok(Kept::Kept));
    assert_eq!(server.sql(&format!("select pg_terminate_backend({}, 10000)", lease.handle)), "t");
    assert_eq!(eventually("renewing", async || a.renew(&lease).await).await, Kept::Lost);
    let next = take(a.as_ref(), "orders/1", "a#2", TTL).await;
    assert!(next.number > lease.number);
    a.release(lease).await.unwrap();
    assert_eq!(a.verify(&next).await, Ok(Kept::Kept), "the release of a lost one changed nothing");

    let guard = locks(&fresh, &url).await.acquire("orders/2").await.unwrap();
    server.sql("select pg_terminate_backend(pid, 10000) from pg_locks where locktype = 'advisory'");
    let lost = tokio::time::timeout(RECOVERY, guard.lost()).await.expect("a renewal sees it");
    assert_eq!(lost, Loss::TakenOver);
}

/// The counter is a bigint.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_floor_at_the_limit_is_an_error() {
    let server = tokio::task::block_in_place(Postgres::start);
    for mode in MODES {
        let a = connect(&url(&server, mode)).await;
        let limit = u64::try_from(i64::MAX).unwrap();
        let error = above(a.as_ref(), "a#1", limit).await.expect_err("nothing is above");
        assert!(matches!(&error, LockError::Invalid(said) if said.contains("rotate")), "{error:?}");
        let last = above(a.as_ref(), "a#2", limit - 1).await.unwrap();
        assert_eq!(last.number.get(), limit);
        a.release(last).await.unwrap();
        let error = above(a.as_ref(), "a#3", 0).await.expect_err("the counter cannot go on");
        assert!(matches!(&error, LockError::Invalid(said) if said.contains("rotate")), "{error:?}");
    }
}

async fn above(backend: &dyn LockBackend, who: &str, floor: u64) -> Result<Lease, LockError> {
    let (name, holder) = (resource("orders/1"), holder(who));
    let wanted = Wanted { name: &name, holder: &holder, ttl: TTL, wait: Duration::ZERO, floor, generation: 0 };
    match backend.acquire(&wanted).await? {
        Acquired::Held(lease) => Ok(lease),
        Acquired::Busy => panic!("{who} did not get a free lock"),
    }
}
