//! Access to etcd: passwords, several members, and which ttls it keeps.

use std::time::Duration;

use fencepost_client::locks::{self, Acquired, Kept, LockError, Wanted};
use fencepost_conformance::wait;
use fencepost_harness::servers::certificates::{Certificates, Clients};
use fencepost_harness::servers::etcd::Etcd;
use fencepost_harness::servers::etcd_cluster::EtcdCluster;
use fencepost_harness::servers::free_port;

use super::{LONG, TTL, contenders};
use crate::suite::{RECOVERY, Service, ask, connect, copy, eventually, holder, resource, take, try_ask};

async fn refused(url: &str) -> LockError {
    match locks::connect(url).await {
        Ok(_) => panic!("connected"),
        Err(error) => error,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn passwords() {
    let mut etcd = Etcd::start();
    let at = etcd.address();
    // A password is accepted where none is required.
    let early = connect(&format!("etcd://app:right@{at}")).await;
    for line in [
        "user add root:top",
        "user grant-role root root",
        "role add locks",
        "role grant-permission --prefix=true locks readwrite fencepost/",
        "user add app:right",
        "user grant-role app locks",
        "user add nobody:right",
        "auth enable",
    ] {
        etcd.etcdctl(&line.split(' ').collect::<Vec<_>>());
    }
    let lease = take(early.as_ref(), "job", "early#1", TTL).await;
    early.release(lease).await.unwrap();

    let (a, b) = (connect(&format!("etcd://app:right@{at}")).await, connect(&format!("etcd://app:right@{at}")).await);
    let lease = take(a.as_ref(), "job", "a#1", TTL).await;
    assert_eq!(a.renew(&lease).await.unwrap(), Kept::Kept);
    assert_eq!(a.verify(&lease).await.unwrap(), Kept::Kept);
    let waiting = tokio::spawn(async move { ask(b.as_ref(), "job", "b#1", TTL, LONG).await });
    a.release(lease).await.unwrap();
    assert!(matches!(waiting.await.unwrap(), Acquired::Held(_)));

    // etcd's tokens may be forgotten at a restart, become outdated by a change of roles, and end when authentication is
    // disabled.
    let lease = take(a.as_ref(), "other", "a#2", TTL * 30).await;
    let c = connect(&format!("etcd://app:right@{at}")).await;
    let waiting = tokio::spawn(async move { ask(c.as_ref(), "other", "c#1", TTL * 30, LONG).await });
    tokio::task::block_in_place(|| {
        wait::until("a waiter", LONG, || {
            let line = ["--user", "root:top", "get", "--prefix", "--keys-only", "fencepost/lock:other/c"];
            etcd.etcdctl(&line).contains("lock:other").then_some(())
        });
        etcd.restart();
    });
    etcd.etcdctl(&["--user", "root:top", "role", "add", "another"]);
    assert_eq!(a.renew(&lease).await.unwrap(), Kept::Kept);
    etcd.etcdctl(&["--user", "root:top", "auth", "disable"]);
    etcd.etcdctl(&["auth", "enable"]);
    assert_eq!(a.renew(&lease).await.unwrap(), Kept::Kept);
    a.release(lease).await.unwrap();
    assert!(matches!(waiting.await.unwrap(), Acquired::Held(_)));

    let wrong = refused(&format!("etcd://app:secret-word@{at}")).await;
    let said = format!("{wrong} {wrong:?}");
    assert!(matches!(wrong, LockError::Failed { .. }) && said.contains("`app`"), "{said}");
    assert!(said.contains(&at.to_string()) && !said.contains("secret-word"), "{said}");
    let none = refused(&format!("etcd://{at}")).await.to_string();
    assert!(none.contains("etcd://user:password@"), "{none}");
    let denied = refused(&format!("etcd://nobody:right@{at}")).await.to_string();
    assert!(denied.contains("permission denied") && denied.contains("Grant"), "{denied}");
    let elsewhere = refused(&format!("etcd://app:right@{at}/elsewhere")).await.to_string();
    assert!(elsewhere.contains("permission denied"), "{elsewhere}");
}

/// etcd's JSON gateway does not know the owner of a certificate; a user is identified by a password only.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_and_passwords() {
    let certificates = Certificates::make("127.0.0.1");
    let etcd = tokio::task::block_in_place(|| Etcd::with_certificates(&certificates, Clients::Known));
    for line in ["user add root:top", "user grant-role root root", "auth enable"] {
        etcd.etcdctl(&line.split(' ').collect::<Vec<_>>());
    }
    let url = |user: &str, subject: &str| {
        let (root, client) = (certificates.root(), certificates.client(subject));
        let [root, certificate, key] = [&root, &client.certificate, &client.key].map(|file| file.display());
        format!("etcds://{user}{}?ca={root}&cert={certificate}&key={key}", etcd.address())
    };
    let backend = connect(&url("root:top@", "/O=workers")).await;
    let lease = take(backend.as_ref(), "job", "a#1", TTL).await;
    assert_eq!(backend.renew(&lease).await.unwrap(), Kept::Kept);
    backend.release(lease).await.unwrap();
    for user in ["root:top@", ""] {
        let error = refused(&url(user, "/CN=root")).await;
        assert!(matches!(error, LockError::Failed { .. }) && error.to_string().contains("common name"), "{error:?}");
    }
    let error = refused(&url("", "/O=workers")).await.to_string();
    assert!(error.contains("etcds://user:password@"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_next_member_is_asked_when_one_is_gone() {
    let mut etcd = Etcd::start();
    let (dead, other) = (free_port(), free_port());
    let url = format!("etcd://127.0.0.1:{dead},127.0.0.1:{other},{}", etcd.address());
    let backend = connect(&url).await;
    let lease = take(backend.as_ref(), "job", "a#1", TTL * 30).await;
    assert_eq!(backend.renew(&lease).await.unwrap(), Kept::Kept);
    etcd.kill();
    let error = backend.verify(&lease).await.unwrap_err();
    assert!(error.is_transient() && error.to_string().contains(&format!("127.0.0.1:{dead}")), "{error}");
    let error = refused(&url).await;
    assert!(error.is_transient(), "{error}");
    etcd.restart();
    assert_eq!(backend.renew(&lease).await.unwrap(), Kept::Kept);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_loses_its_leader_keeps_holder_and_waiter() {
    let mut cluster = tokio::task::block_in_place(EtcdCluster::start);
    let members = cluster.addresses();
    // The leader comes first, so that every connection is to the one that dies.
    let leader = cluster.leader();
    let [first, second, third] = [leader, (leader + 1) % 3, (leader + 2) % 3].map(|member| members[member]);
    let url = format!("etcd://{first},{second},{third}");
    // Members without a leader answer every request with that error. On a busy machine this may happen at any time.
    let connecting = async || locks::connect(&url).await;
    let (a, b) = (eventually("connecting", connecting).await, eventually("connecting", connecting).await);
    let ttl = Duration::from_secs(20);
    let taking = async || try_ask(a.as_ref(), "job", "a#1", ttl, LONG).await;
    let Acquired::Held(held) = eventually("taking", taking).await else { panic!("a free lock was busy") };
    let waiting = tokio::spawn(async move {
        loop {
            match try_ask(b.as_ref(), "job", "b#1", ttl, RECOVERY * 3).await {
                Err(error) if error.is_transient() => tokio::time::sleep(Duration::from_millis(20)).await,
                acquired => return (acquired.unwrap(), b),
            }
        }
    });
    contenders(second, "job", 2);
    cluster.kill(leader);
    assert_eq!(eventually("renewing", async || a.renew(&held).await).await, Kept::Kept);
    assert!(!waiting.is_finished());
    eventually("releasing", async || a.release(copy(&held)).await).await;
    let waiting = tokio::time::timeout(RECOVERY * 3, waiting).await.expect("the waiter is served").unwrap();
    let (Acquired::Held(next), b) = waiting else { panic!("the waiter did not get the lock") };
    assert!(next.number > held.number, "{} after {}", next.number, held.number);
    assert_eq!(eventually("verifying", async || b.verify(&next).await).await, Kept::Kept);
    eventually("releasing", async || b.release(copy(&next)).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ttl_is_kept_or_refused() {
    let etcd = Etcd::start();
    let backend = connect(&etcd.url()).await;
    assert_eq!(backend.capabilities().min_ttl, Duration::from_secs(2));
    let (name, who) = (resource("job"), holder("a#1"));
    let asked = |ttl| Wanted { name: &name, holder: &who, ttl, wait: Duration::ZERO, floor: 0, generation: 0 };
    for (millis, says) in [(1_000, "2 s"), (1_999, "2 s"), (2_500, "whole seconds"), (0, "2 s")] {
        let error = backend.acquire(&asked(Duration::from_millis(millis))).await.unwrap_err();
        assert!(matches!(error, LockError::Invalid(_)) && error.to_string().contains(says), "{error}");
    }
    assert_eq!(etcd.keys("fencepost/lock:"), []);
    // The shortest ttl follows from the election timeout.
    let slow = Etcd::with(&["--election-timeout=4000", "--heartbeat-interval=400"]);
    let backend = connect(&slow.url()).await;
    assert_eq!(backend.capabilities().min_ttl, Duration::from_secs(6));
    let error = backend.acquire(&asked(Duration::from_secs(5))).await.unwrap_err().to_string();
    assert!(error.contains("6 s"), "{error}");
    take(backend.as_ref(), "job", "a#2", Duration::from_secs(6)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn urls_that_cannot_be() {
    for (url, says) in [
        ("etcd://", "names one host"),
        ("etcd://127.0.0.1:1?tls=true", "etcds://"),
        ("etcd://127.0.0.1:1?ca=/etc/ca.pem", "etcds://"),
        ("etcds://127.0.0.1:1?timeout=3", "`timeout`"),
        ("etcd://127.0.0.1:1?timeout=3", "`timeout`"),
        ("etcd://127.0.0.1:1/lock:a", "path"),
    ] {
        let error = refused(url).await;
        assert!(matches!(error, LockError::Invalid(_)) && error.to_string().contains(says), "{url}: {error}");
    }
    // A server without TLS.
    let plain = Etcd::start();
    let certificates = Certificates::make("127.0.0.1");
    let error = refused(&format!("etcds://{}?ca={}", plain.address(), certificates.root().display())).await;
    assert!(error.to_string().contains("Does it speak TLS there"), "{error}");
    // A server that is not etcd.
    let gateway = fencepost_harness::fresh::Fresh::memory(&[]);
    let error = refused(&format!("etcd://{}", gateway.address())).await.to_string();
    assert!(error.contains("etcd 3.4"), "{error}");
}
