//! The queue of waiters.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fencepost_client::locks::{Acquired, Lease, LockBackend};
use fencepost_conformance::wait;
use fencepost_harness::servers::redis::RedisServer;
use tokio::task::JoinHandle;

use super::{LONG, ask, held, take};
use crate::suite::{Service, connect};

/// Waits until the queue has this many waiters.
pub(super) fn waiters(server: &RedisServer, name: &str, count: usize) {
    wait::until(&format!("{count} to wait for {name}"), Duration::from_secs(20), || {
        (server.cli(&["LLEN", &format!("fencepost:{{{name}}}:queue")]) == count.to_string()).then_some(())
    });
}

/// Waits until this many clients are blocked, waiting for a turn.
fn listening(server: &RedisServer, count: usize) {
    wait::until(&format!("{count} to listen"), Duration::from_secs(20), || {
        server.cli(&["INFO", "clients"]).lines().any(|line| line == format!("blocked_clients:{count}")).then_some(())
    });
}

fn wait_for(backend: &Arc<dyn LockBackend>, who: String, ttl: Duration) -> JoinHandle<Lease> {
    let backend = backend.clone();
    tokio::spawn(async move { held(ask(backend.as_ref(), "r", &who, ttl, LONG).await) })
}

/// How many scripts have run so far.
fn scripts(server: &RedisServer) -> u64 {
    let stats = server.cli(&["INFO", "commandstats"]);
    let line = stats.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls=")).unwrap().to_owned();
    line.split(',').next().unwrap().parse().unwrap()
}

/// Contract 10.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_wakes_one_waiter_the_first() {
    let server = RedisServer::start(&[]);
    let backend = connect(&server.url()).await;
    let mut current = take(backend.as_ref(), "r", "a#0", LONG).await;
    let mut waiting = Vec::new();
    for number in 1..=8 {
        waiting.push(wait_for(&backend, format!("a#{number}"), LONG));
        waiters(&server, "r", number);
    }
    listening(&server, 8);
    let asked = Instant::now();
    let before = scripts(&server);
    for next in waiting {
        backend.release(current).await.unwrap();
        current = next.await.unwrap();
    }
    assert_eq!(current.holder.as_str(), "a#8");
    assert_eq!(current.number.get(), 9);
    // One release and one acquisition each, and occasional keep-alives: every waiter sends one each 3.3 s.
    let signs = 8 * (1 + asked.elapsed().as_secs() / 3);
    assert!(scripts(&server) - before <= 16 + signs, "{} scripts", scripts(&server) - before);
    backend.release(current).await.unwrap();
    assert_eq!(server.cli(&["KEYS", "*"]), "fencepost:{r}");
}

/// A newcomer does not overtake, not even at the moment at which the lock becomes free.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_overtakes_the_first_in_the_queue() {
    let server = RedisServer::start(&[]);
    let backend = connect(&server.url()).await;
    // A live waiter that is slow to take its turn.
    server.cli(&["RPUSH", "fencepost:{r}:queue", "slow#1"]);
    server.cli(&["SET", "fencepost:{r}:waiter:slow#1", "", "PX", "60000"]);
    assert!(matches!(ask(backend.as_ref(), "r", "b#1", LONG, Duration::ZERO).await, Acquired::Busy));
    let waiting = wait_for(&backend, "b#2".into(), LONG);
    waiters(&server, "r", 2);
    assert_eq!(server.cli(&["LLEN", "fencepost:{r}:turn:slow#1"]), "1", "it was called, once");
    let slow = take(backend.as_ref(), "r", "slow#1", LONG).await;
    backend.release(slow).await.unwrap();
    let next = waiting.await.unwrap();
    assert_eq!((next.holder.as_str(), next.number.get()), ("b#2", 2));
}

/// The waiter of `a_waiter_that_is_killed_does_not_block_the_queue`, which runs it as a separate process.
#[tokio::test]
#[ignore = "it waits until it is killed; another test starts it"]
async fn waits_until_killed() {
    let backend = connect(&std::env::var("FENCEPOST_TEST_REDIS").unwrap()).await;
    let ended = ask(backend.as_ref(), "r", "doomed#1", Duration::from_secs(3), LONG).await;
    panic!("it was not killed: {ended:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_that_is_killed_does_not_block_the_queue() {
    let server = RedisServer::start(&[]);
    let backend = connect(&server.url()).await;
    let current = take(backend.as_ref(), "r", "a#1", LONG).await;
    let mut doomed = Command::new(std::env::current_exe().unwrap());
    doomed.args(["--ignored", "--exact", "redis::queue::waits_until_killed"]).env("FENCEPOST_TEST_REDIS", server.url());
    let mut doomed = doomed.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    waiters(&server, "r", 1);
    listening(&server, 1);
    let waiting = wait_for(&backend, "b#1".into(), LONG);
    waiters(&server, "r", 2);
    doomed.kill().unwrap();
    doomed.wait().unwrap();
    assert_eq!(server.cli(&["LRANGE", "fencepost:{r}:queue", "0", "0"]), "doomed#1", "it could not say goodbye");
    let released = Instant::now();
    backend.release(current).await.unwrap();
    let next = waiting.await.unwrap();
    assert_eq!(next.number.get(), 2);
    // Its keep-alive lasts 3 s, like its ttl; the next waiter looks every 3.3 s.
    assert!(released.elapsed() < Duration::from_secs(20), "{:?}", released.elapsed());
    backend.release(next).await.unwrap();
    assert_eq!(server.cli(&["KEYS", "*"]), "fencepost:{r}");
}

/// Contract 4.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_that_gives_up_leaves_the_queue_at_once() {
    let server = RedisServer::start(&[]);
    let backend = connect(&server.url()).await;
    let current = take(backend.as_ref(), "r", "a#1", LONG).await;
    let dropped = wait_for(&backend, "b#1".into(), LONG);
    waiters(&server, "r", 1);
    let patient = wait_for(&backend, "c#1".into(), LONG);
    waiters(&server, "r", 2);
    dropped.abort();
    waiters(&server, "r", 1);
    assert!(matches!(ask(backend.as_ref(), "r", "d#1", LONG, Duration::from_millis(50)).await, Acquired::Busy));
    waiters(&server, "r", 1);
    backend.release(current).await.unwrap();
    let next = patient.await.unwrap();
    assert_eq!(next.holder.as_str(), "c#1");
    backend.release(next).await.unwrap();
    assert_eq!(server.cli(&["KEYS", "*"]), "fencepost:{r}");
}

/// The lock of a dead holder is never released; the first waiter knows when its lease ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_lock_of_a_dead_holder_goes_to_the_first() {
    let server = RedisServer::start(&[]);
    let backend = connect(&server.url()).await;
    // Time for two waiters to join the queue, also on a slow machine.
    let ttl = Duration::from_secs(6);
    let dead = take(backend.as_ref(), "r", "dead#1", ttl).await;
    let first = wait_for(&backend, "a#1".into(), LONG);
    waiters(&server, "r", 1);
    let second = wait_for(&backend, "a#2".into(), LONG);
    waiters(&server, "r", 2);
    let first = first.await.unwrap();
    assert!(dead.since.elapsed() >= ttl * 9 / 10, "{:?}", dead.since.elapsed());
    assert_eq!(first.number.get(), 2);
    assert!(!second.is_finished());
    backend.release(first).await.unwrap();
    assert_eq!(second.await.unwrap().number.get(), 3);
}
