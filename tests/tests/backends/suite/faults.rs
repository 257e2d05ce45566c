//! Lost messages, cut connections, restarts: contract 4, 5 and 6.

use std::time::{Duration, Instant};

use fencepost_client::locks::{Acquired, Kept};
use fencepost_conformance::proxy::{Direction, Rule};

use super::{
    RECOVERY, SLACK, Service, connect, connect_through, eventually, is_busy, start, take, take_within, try_ask, until,
};

/// Contract 5: the answer to any step of an acquisition is lost, and the connection with it.
pub(crate) async fn a_lost_reply_is_no_loss<S: Service>() {
    lost_on_the_way::<S>(Direction::Down).await;
}

/// Contract 4: the same with lost requests.
pub(crate) async fn a_lost_request_is_no_loss<S: Service>() {
    lost_on_the_way::<S>(Direction::Up).await;
}

async fn lost_on_the_way<S: Service>(direction: Direction) {
    let service = start::<S>();
    let b = connect(&service.url()).await;
    // An acquisition may have several steps; each of them is lost once, until there are no more.
    for step in 0..6 {
        let (proxy, a) = connect_through(&service).await;
        let name = format!("orders/{step}");
        let first = take(a.as_ref(), &name, "a#1", S::TTL).await;
        let number = first.number;
        a.release(first).await.unwrap();
        let before = proxy.count(direction).dropped;
        proxy.set(direction, Rule::DropAfter(step));
        let (asking, asked) = (a.clone(), name.clone());
        let acquiring =
            tokio::spawn(async move { try_ask(asking.as_ref(), &asked, "a#2", S::TTL, Duration::ZERO).await });
        until("a message to be lost", || proxy.count(direction).dropped > before || acquiring.is_finished()).await;
        let complete = proxy.count(direction).dropped == before;
        // Messages already on their way arrive, and their answers are lost too.
        tokio::time::sleep(Duration::from_millis(50)).await;
        proxy.pass();
        proxy.cut();
        let ended = tokio::time::timeout(RECOVERY, acquiring).await.expect("an acquisition ends").unwrap();
        let since = Instant::now();
        match ended {
            // The holder finds its grant again.
            Ok(Acquired::Held(lease)) => {
                assert!(lease.number > number, "{} after {number}", lease.number);
                if lease.since.elapsed() < lease.ttl / 2 {
                    let busy = is_busy(b.as_ref(), &name, "b#1", S::TTL).await;
                    assert!(busy || lease.since.elapsed() >= lease.ttl, "two holders of {name}");
                }
                let late = lease.number;
                let _ = eventually("verifying", async || a.verify(&lease).await).await;
                a.release(lease).await.unwrap();
                let next = take_within(b.as_ref(), &name, "b#2", S::TTL, S::TTL * 2 + SLACK).await;
                assert!(next.number > late, "{} after {late}", next.number);
                b.release(next).await.unwrap();
            }
            // Unknown, or given up: the lock is free at the latest when the ttl is over.
            Ok(Acquired::Busy) | Err(_) => {
                let next = take_within(b.as_ref(), &name, "b#1", S::TTL, S::TTL * 2 + SLACK).await;
                assert!(next.number > number, "{} after {number}", next.number);
                println!("step {step}: free again after {:?}", since.elapsed());
                b.release(next).await.unwrap();
            }
        }
        if complete {
            assert!(step > 0, "nothing was lost at all");
            return;
        }
    }
}

/// Contracts 1 and 2 across a `kill -9` of the server.
pub(crate) async fn a_restart_never_makes_two_holders<S: Service>() {
    let mut service = start::<S>();
    let (a, b) = (connect(&service.url()).await, connect(&service.url()).await);
    let mut number = None;
    for round in 0..3 {
        let (mine, theirs) = (format!("a#{round}"), format!("b#{round}"));
        let asking = async || try_ask(a.as_ref(), "orders/1", &mine, S::TTL, S::TTL * 3 + SLACK).await;
        let Acquired::Held(lease) = eventually("acquiring", asking).await else { panic!("{mine} got no lock") };
        assert!(Some(lease.number) > number, "{} after {number:?}", lease.number);
        number = Some(lease.number);
        tokio::task::block_in_place(|| service.restart());
        let kept = eventually("renewing", async || a.renew(&lease).await).await;
        let renewed = Instant::now();
        let asking = async || try_ask(b.as_ref(), "orders/1", &theirs, S::TTL, Duration::ZERO).await;
        let other = eventually("asking", asking).await;
        let in_time = renewed.elapsed() < S::TTL * 9 / 10;
        let next = match (kept, other) {
            (Kept::Kept, Acquired::Held(next)) if in_time => panic!("{lease:?} was kept, and {next:?} was given"),
            (_, Acquired::Held(next)) => next,
            (_, Acquired::Busy) => {
                a.release(lease).await.unwrap();
                let asking = async || try_ask(b.as_ref(), "orders/1", &theirs, S::TTL, S::TTL * 3 + SLACK).await;
                match eventually("asking again", asking).await {
                    Acquired::Held(next) => next,
                    Acquired::Busy => panic!("{theirs} got no lock"),
                }
            }
        };
        assert!(Some(next.number) > number, "{} after {number:?}", next.number);
        number = Some(next.number);
        b.release(next).await.unwrap();
    }
}

/// Contract 6: an error is not a loss.
pub(crate) async fn a_cut_connection_is_no_loss<S: Service>() {
    let service = start::<S>();
    let (proxy, a) = connect_through(&service).await;
    let b = connect(&service.url()).await;
    let lease = take(a.as_ref(), "orders/1", "a#1", S::TTL).await;
    let renewed = Instant::now();
    assert_eq!(a.renew(&lease).await, Ok(Kept::Kept));
    proxy.shut();
    let said = tokio::time::timeout(S::TTL + SLACK * 3, a.renew(&lease)).await;
    let said = said.expect("no answer is an error, not a wait without end");
    assert!(said.is_err(), "whoever cannot ask does not know, and yet: {said:?}");
    proxy.pass();
    let kept = eventually("renewing", async || a.renew(&lease).await).await;
    let since = renewed.elapsed();
    match kept {
        Kept::Kept => {
            let again = Instant::now();
            assert_eq!(a.renew(&lease).await, Ok(Kept::Kept), "renewals go on");
            let busy = is_busy(b.as_ref(), "orders/1", "b#1", S::TTL).await;
            assert!(busy || again.elapsed() >= S::TTL * 9 / 10, "two holders");
            a.release(lease).await.unwrap();
        }
        Kept::Lost => {
            let expired = since >= S::TTL * 9 / 10;
            assert!(expired || !S::OUTLIVES_CONNECTION, "lost after {since:?} although the ttl is {:?}", S::TTL);
            let next = take_within(b.as_ref(), "orders/1", "b#1", S::TTL, S::TTL * 2 + SLACK).await;
            assert!(next.number > lease.number, "{} after {}", next.number, lease.number);
            a.release(lease).await.unwrap();
            b.release(next).await.unwrap();
        }
    }
}
