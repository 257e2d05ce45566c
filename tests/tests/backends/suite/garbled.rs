//! Messages that are duplicated or reordered: contracts 1 and 2 hold whatever a network device does.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use fencepost_client::locks::Acquired;
use fencepost_conformance::proxy::{Direction, Rule};

use super::{RECOVERY, SLACK, Service, connect, connect_through, is_busy, start, take, take_within, try_ask, until};

/// Each message arrives twice.
pub(crate) async fn a_message_that_comes_twice_makes_no_two_holders<S: Service>() {
    garbled::<S>(Rule::Duplicate).await;
}

/// Each pair of messages is swapped; a single one waits for the next.
pub(crate) async fn messages_that_change_places_make_no_two_holders<S: Service>() {
    garbled::<S>(Rule::Reorder).await;
}

/// An acquisition under the rule ends in an error or in a consistent answer, and the next one works.
async fn garbled<S: Service>(rule: Rule) {
    let service = start::<S>();
    let b = connect(&service.url()).await;
    for direction in [Direction::Up, Direction::Down] {
        let (proxy, a) = connect_through(&service).await;
        let name = format!("orders/{direction:?}");
        let first = take(a.as_ref(), &name, "a#1", S::TTL).await;
        let mut given = BTreeSet::from([first.number]);
        a.release(first).await.unwrap();
        let before = proxy.count(direction).chunks;
        proxy.set(direction, rule);
        let (asking, asked) = (a.clone(), name.clone());
        let acquiring =
            tokio::spawn(async move { try_ask(asking.as_ref(), &asked, "a#2", S::TTL, Duration::ZERO).await });
        until("a message under the rule", || proxy.count(direction).chunks > before).await;
        // A message that waits for its partner in vain is lost with the connection.
        let patience = Instant::now() + Duration::from_millis(500);
        while !acquiring.is_finished() && Instant::now() < patience {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        proxy.pass();
        proxy.cut();
        let ended = tokio::time::timeout(RECOVERY, acquiring).await.expect("an acquisition ends").unwrap();
        println!("{rule:?} {direction:?}: {ended:?}");
        if let Ok(Acquired::Held(lease)) = ended {
            assert!(given.insert(lease.number), "{} was given twice", lease.number);
            if S::OUTLIVES_CONNECTION && lease.since.elapsed() < lease.ttl / 2 {
                let busy = is_busy(b.as_ref(), &name, "b#1", S::TTL).await;
                assert!(busy || lease.since.elapsed() >= lease.ttl, "two holders of {name}");
            }
            // The release may be lost together with the connection; then the next holder gets the lock when the ttl is
            // over.
            let _ = a.release(lease).await;
        }
        for (backend, who) in [(&b, "b#2"), (&a, "a#3")] {
            let next = take_within(backend.as_ref(), &name, who, S::TTL, S::TTL * 2 + SLACK).await;
            let last = given.last().copied();
            assert!(Some(next.number) > last, "{} after {last:?}", next.number);
            given.insert(next.number);
            backend.release(next).await.unwrap();
        }
    }
}
