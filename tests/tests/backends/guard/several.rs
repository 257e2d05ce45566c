//! Several locks at once, and leader election.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use fencepost_client::ErrorKind;
use fencepost_harness::budget;
use fencepost_harness::fresh::Fresh;
use tokio::sync::{Mutex, mpsc, oneshot};

use super::{LONG, TTL, locks, locks_at, options, proxied};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn opposite_orders_never_deadlock() {
    let gateway = Fresh::memory(&[]);
    let inside = Arc::new(AtomicUsize::new(0));
    let rounds = budget::pick(60, 500);
    let mut clients = Vec::new();
    for (name, order) in [("a", ["c", "a", "b", "a"]), ("b", ["b", "a", "c", "c"])] {
        // No ttl runs out: in a deadlock, each client would wait for longer than the test may take.
        let (locks, inside) = (locks(&gateway, options(name, LONG * 10)).await, inside.clone());
        clients.push(tokio::spawn(async move {
            for _ in 0..rounds {
                let guards = locks.acquire_all(&order).await.unwrap();
                let names: Vec<_> = guards.iter().map(|guard| guard.resource().to_string()).collect();
                assert_eq!(names, ["a", "b", "c"], "each once, in order");
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "alone");
                guards[1].put("b", name).await.unwrap();
                inside.fetch_sub(1, Ordering::SeqCst);
                for guard in guards {
                    guard.release().await.unwrap();
                }
            }
        }));
    }
    for client in clients {
        tokio::time::timeout(LONG * 2, client).await.expect("they waited for each other").unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_or_none() {
    let gateway = Fresh::memory(&[]);
    let other = locks(&gateway, options("b", LONG)).await;
    let taken = other.acquire("b").await.unwrap();
    let locks = locks(&gateway, options("a", LONG).wait(Duration::ZERO)).await;
    let error = locks.acquire_all(&["b", "a"]).await.unwrap_err();
    assert!(error.kind() == ErrorKind::Busy && error.to_string().contains("`b`"), "{error}");
    let _ = other.acquire("a").await.unwrap();
    taken.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_lead_is_passed_on_and_taken_up_again() {
    let gateway = Fresh::memory(&[]);
    let proxy = proxied(&gateway);
    // Long enough that no lease is lost unless its holder is cut off.
    let a = locks_at(proxy.address(), proxy.address(), options("a", TTL * 4)).await;
    let b = locks(&gateway, options("b", TTL * 4)).await;
    let (tell, mut leaders) = mpsc::channel(16);
    let (first, second) = (tell.clone(), tell);
    let (stop, stopped) = mpsc::channel::<()>(1);
    let (stand, told_to_stand) = oneshot::channel();
    let stopped = Arc::new(Mutex::new(stopped));
    let a_leads = a.lead("leader", async |guard| {
        first.send(("a", guard.token())).await.unwrap();
        pending::<()>().await;
    });
    let b_leads = b.lead("leader", |guard| {
        let (second, stopped) = (second.clone(), stopped.clone());
        async move {
            second.send(("b", guard.token())).await.unwrap();
            stopped.lock().await.recv().await;
            "done"
        }
    });
    let script = async {
        let (name, token) = leaders.recv().await.unwrap();
        assert_eq!(name, "a");
        stand.send(()).unwrap();
        // The leader is cut off, and the other candidate takes over.
        proxy.shut();
        let (name, next) = leaders.recv().await.unwrap();
        assert_eq!(name, "b");
        assert!(next > token);
        // The first one reconnects, becomes a candidate again, and leads when the other one is done.
        proxy.pass();
        stop.send(()).await.unwrap();
        let (name, last) = leaders.recv().await.unwrap();
        assert_eq!(name, "a");
        assert!(last > next);
    };
    let follower = async {
        // Only after the first candidate leads.
        told_to_stand.await.unwrap();
        assert_eq!(b_leads.await.unwrap(), "done");
        pending::<()>().await;
    };
    let ended = tokio::time::timeout(LONG, async {
        tokio::select! {
            ended = a_leads => panic!("it leads until its work ends, and yet: {:?}", ended.map(drop)),
            () = follower => {}
            () = script => {}
        }
    });
    ended.await.expect("the lead is passed on");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_does_not_wait_does_not_hammer() {
    let gateway = Fresh::memory(&[]);
    let proxy = proxied(&gateway);
    let leader = locks(&gateway, options("a", LONG)).await.acquire("leader").await.unwrap();
    let impatient = options("b", LONG).wait(Duration::ZERO);
    let b = locks_at(proxy.address(), proxy.address(), impatient).await;
    let standing = tokio::time::timeout(TTL * 2, b.lead("leader", async |_| ())).await;
    assert!(standing.is_err(), "{standing:?}");
    let asked = proxy.count(fencepost_conformance::proxy::Direction::Up).chunks;
    assert!((2..200).contains(&asked), "{asked} requests in {:?}", TTL * 2);
    leader.release().await.unwrap();
}
