//! Redis: the suite, its URLs and its numbers.

mod breaks;
mod queue;

use std::net::SocketAddr;
use std::time::Duration;

use fencepost_client::locks::{self, Acquired, Kept, Lease, Lifted, LockBackend, LockError, Wanted};
use fencepost_harness::servers::certificates::{Certificates, Clients};
use fencepost_harness::servers::free_port;
use fencepost_harness::servers::redis::RedisServer;

use crate::suite::{Service, connect, copy, holder, resource};
use crate::tls::Encrypted;

impl Service for RedisServer {
    const TTL: Duration = Duration::from_secs(1);

    fn start() -> RedisServer {
        RedisServer::start(&[])
    }

    fn address(&self) -> SocketAddr {
        RedisServer::address(self)
    }

    fn url_at(&self, address: SocketAddr) -> String {
        format!("redis://{address}")
    }

    fn restart(&mut self) {
        RedisServer::restart(self);
    }

    fn waiting(&self, name: &str) -> Option<usize> {
        Some(self.cli(&["LLEN", &format!("fencepost:{{{name}}}:queue")]).parse().unwrap())
    }
}

suite!(fencepost_harness::servers::redis::RedisServer);

impl Encrypted for RedisServer {
    fn start_encrypted(certificates: &Certificates, clients: Clients) -> RedisServer {
        RedisServer::with_certificates(certificates, clients)
    }

    fn encrypted_url(&self, _clients: Clients) -> String {
        format!("rediss://{}?", self.encrypted_address())
    }
}

over_tls!(fencepost_harness::servers::redis::RedisServer);

/// Long enough that nothing expires in a test.
const LONG: Duration = Duration::from_secs(60);

/// Acquires as exactly this holder.
async fn ask(backend: &dyn LockBackend, name: &str, who: &str, ttl: Duration, wait: Duration) -> Acquired {
    let (name, holder) = (resource(name), holder(who));
    let wanted = Wanted { name: &name, holder: &holder, ttl, wait, floor: 0, generation: 0 };
    backend.acquire(&wanted).await.unwrap_or_else(|error| panic!("{who}: {error}"))
}

fn held(acquired: Acquired) -> Lease {
    match acquired {
        Acquired::Held(lease) => lease,
        Acquired::Busy => panic!("somebody else has the lock"),
    }
}

/// Takes a lock that is free.
async fn take(backend: &dyn LockBackend, name: &str, who: &str, ttl: Duration) -> Lease {
    held(ask(backend, name, who, ttl, Duration::ZERO).await)
}

async fn take_above(backend: &dyn LockBackend, name: &str, who: &str, floor: u64) -> Result<Lease, LockError> {
    let (name, holder) = (resource(name), holder(who));
    let wanted = Wanted { name: &name, holder: &holder, ttl: LONG, wait: Duration::ZERO, floor, generation: 0 };
    backend.acquire(&wanted).await.map(held)
}

/// The remaining time of a key.
fn milliseconds_left(server: &RedisServer, key: &str) -> u64 {
    server.cli(&["PTTL", key]).parse().unwrap()
}

async fn refused(url: &str) -> String {
    match locks::connect(url).await {
        Ok(_) => panic!("{url} was not refused"),
        Err(error) => error.to_string(),
    }
}

#[tokio::test]
async fn only_the_counter_stays() {
    let server = RedisServer::start(&[]);
    let backend = connect(&server.url()).await;
    let first = take(backend.as_ref(), "a}b{c", "a#1", LONG).await;
    let left = milliseconds_left(&server, "fencepost:{a%7Db%7Bc}:lock");
    assert!((30_001..=60_000).contains(&left), "{left} ms left");
    let issuer = first.issuer.clone();
    backend.release(first).await.unwrap();
    assert_eq!(server.cli(&["KEYS", "*"]), "fencepost:{a%7Db%7Bc}");
    assert_eq!(server.cli(&["TTL", "fencepost:{a%7Db%7Bc}"]), "-1", "counter and incarnation never expire");
    let incarnation = server.cli(&["HGET", "fencepost:{a%7Db%7Bc}", "incarnation"]);
    assert_eq!(issuer.as_str(), format!("redis:{incarnation}"));
    let second = take(backend.as_ref(), "a}b{c", "a#2", LONG).await;
    assert_eq!((second.number.get(), second.issuer), (2, issuer));
}

#[tokio::test]
async fn numbers_above_two_to_the_53rd_are_exact() {
    let server = RedisServer::start(&[]);
    let backend = connect(&server.url()).await;
    for (floor, who) in ((1 << 53) - 1..).zip(["a#1", "a#2", "a#3"]) {
        let lease = take_above(backend.as_ref(), "r", who, floor).await.unwrap();
        assert_eq!(lease.number.get(), floor + 1);
        backend.release(lease).await.unwrap();
    }
    // An `f64` cannot distinguish these two numbers.
    let mut lease = take_above(backend.as_ref(), "r", "a#4", 0).await.unwrap();
    assert_eq!(lease.number.get(), (1 << 53) + 3);
    assert_eq!(backend.lift(&mut lease, (1 << 53) + 4).await.unwrap(), Lifted::Lifted);
    assert_eq!(lease.number.get(), (1 << 53) + 5);
    // Compared as numbers, not as text: 99 is smaller although it starts with a larger digit.
    assert_eq!(backend.lift(&mut lease, 99).await.unwrap(), Lifted::Lifted);
    assert_eq!(lease.number.get(), (1 << 53) + 6);
    assert_eq!(backend.verify(&lease).await.unwrap(), Kept::Kept);
}

#[tokio::test]
async fn the_last_number_is_an_error_and_nothing_is_left_behind() {
    let server = RedisServer::start(&[]);
    let backend = connect(&server.url()).await;
    let most = i64::MAX as u64;
    let mut last = take_above(backend.as_ref(), "r", "a#1", most - 1).await.unwrap();
    assert_eq!(last.number.get(), most);
    let error = backend.lift(&mut last, most).await.unwrap_err();
    assert!(!error.is_transient() && error.to_string().contains("Rotate"), "{error}");
    assert_eq!(last.number.get(), most);
    backend.release(last).await.unwrap();
    for (name, floor) in [("r", 0), ("other", most), ("other", u64::MAX)] {
        let error = take_above(backend.as_ref(), name, "b#1", floor).await.unwrap_err();
        assert!(!error.is_transient() && error.to_string().contains("Rotate"), "{error}");
    }
    assert_eq!(server.cli(&["KEYS", "*"]), "fencepost:{r}");
}

#[tokio::test]
async fn another_process_renews_and_releases_by_the_handle() {
    let server = RedisServer::start(&[]);
    let (a, b) = (connect(&server.url()).await, connect(&server.url()).await);
    let lease = take(a.as_ref(), "r", "a#1", LONG).await;
    let detached = Lease { session: None, name: lease.name.clone(), handle: lease.handle.clone(), ..lease };
    server.cli(&["PEXPIRE", "fencepost:{r}:lock", "30000"]);
    assert_eq!(b.renew(&detached).await.unwrap(), Kept::Kept);
    let left = milliseconds_left(&server, "fencepost:{r}:lock");
    assert!((30_001..=60_000).contains(&left), "{left} ms left");
    b.release(detached).await.unwrap();
    take(b.as_ref(), "r", "b#1", LONG).await;
}

#[tokio::test]
async fn a_wrong_password_is_a_clear_error_that_does_not_show_it() {
    let server = RedisServer::start(&["--requirepass", "right-one"]);
    let bob = ["ACL", "SETUSER", "bob", "on", ">bobs-own", "~fencepost:*", "+@read", "+@write", "+@scripting", "+ping"];
    assert_eq!(server.cli(&[&["-a", "right-one"], &bob[..]].concat()), "OK");
    let address = server.address();
    for url in [format!("redis://:wr0ng@{address}"), format!("redis://bob:wr0ng@{address}")] {
        let error = refused(&url).await;
        assert!(error.contains("password") && error.contains(&address.to_string()), "{error}");
        assert!(!error.contains("wr0ng"), "{error}");
    }
    let error = refused(&format!("redis://{address}")).await;
    assert!(error.contains("wants a password"), "{error}");
    for url in [format!("redis://:right-one@{address}"), format!("redis://bob:bobs-own@{address}/0")] {
        let backend = connect(&url).await;
        let lease = take(backend.as_ref(), "r", "a#1", LONG).await;
        assert_eq!(backend.renew(&lease).await.unwrap(), Kept::Kept);
        assert!(matches!(ask(backend.as_ref(), "r", "b#1", LONG, Duration::from_millis(50)).await, Acquired::Busy));
        backend.release(lease).await.unwrap();
    }
    // Those rights are enough to wait for a turn.
    let listened = ["--user", "bob", "--pass", "bobs-own", "BLPOP", "fencepost:{r}:turn:b#1", "0.01"];
    assert_eq!(server.cli(&listened), "");
}

#[tokio::test]
async fn what_cannot_be_used_says_so() {
    let server = RedisServer::start(&[]);
    assert_eq!(server.cli(&["ACL", "SETUSER", "eve", "on", "nopass", "~fencepost:*", "+ping", "+get"]), "OK");
    let eve = connect(&format!("redis://eve:x@{}", server.address())).await;
    let error = take_above(eve.as_ref(), "r", "e#1", 0).await.unwrap_err();
    assert!(!error.is_transient() && error.to_string().contains("may not"), "{error}");
    let nobody = format!("127.0.0.1:{}", free_port());
    let error = refused(&format!("redis://{nobody}")).await;
    assert!(error.contains(&nobody) && error.contains("cannot be reached"), "{error}");
    let replica = RedisServer::replica_of(&server);
    let backend = connect(&replica.url()).await;
    let error = take_above(backend.as_ref(), "r", "e#2", 0).await.unwrap_err();
    assert!(error.is_transient() && error.to_string().contains("replica"), "{error}");
    let error = refused(&format!("redis://{}?timeout=1", server.address())).await;
    assert!(error.contains("`timeout`"), "{error}");
}

/// T23: a replica may be behind its primary, and a demoted primary does not know later events.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_says_nothing_about_a_lock() {
    let primary = RedisServer::start(&[]);
    let backend = connect(&primary.url()).await;
    let mut held = take(backend.as_ref(), "r", "a#1", LONG).await;
    let mut gone = take(backend.as_ref(), "s", "a#2", LONG).await;
    backend.release(copy(&gone)).await.unwrap();
    let replica = RedisServer::replica_of(&primary);
    assert_eq!(
        replica.cli(&["EXISTS", "fencepost:{r}:lock", "fencepost:{s}:lock"]),
        "1",
        "it has what its primary has"
    );
    let there = connect(&replica.url()).await;
    for lease in [&mut held, &mut gone] {
        let said = [there.verify(lease).await, there.renew(lease).await];
        for said in said {
            assert!(said.as_ref().is_err_and(LockError::is_transient), "{}: {said:?}", lease.name);
        }
        let said = there.lift(lease, 7).await;
        assert!(said.as_ref().is_err_and(LockError::is_transient), "{}: {said:?}", lease.name);
    }
    assert_eq!(backend.verify(&held).await, Ok(Kept::Kept));
    assert_eq!(backend.verify(&gone).await, Ok(Kept::Lost));
    // Verifying changes nothing, least of all the end of the lease.
    primary.cli(&["PEXPIRE", "fencepost:{r}:lock", "30000"]);
    assert_eq!(backend.verify(&held).await, Ok(Kept::Kept));
    let left = milliseconds_left(&primary, "fencepost:{r}:lock");
    assert!(left <= 30_000, "{left} ms left");
}
