//! The built-in lock service: which holder has a lock, and for how long.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::testbed::directory::roomy;
use crate::testbed::requests::{
    LONG, SHORT, acquire, awaited, grant, granted, in_the_way, lost, number, once, release, renew, replayed, reported,
    wanted,
};
use crate::testbed::{Outcome, applied, fence, memory_store, put, queue, resource, token, within};
use fencepost_core::{Guards, Holder, Issuer};
use fencepost_store::engine::Ownership;
use fencepost_store::engines::memory::{Fault, Memory};
use fencepost_store::record::LeaseId;
use fencepost_store::{AcquireLock, Store, StoreOptions};
use tempfile::TempDir;

#[tokio::test]
async fn who_has_it_and_for_how_long_is_told() {
    let (store, _) = memory_store().await;
    let first = granted(acquire(&store, wanted("a", "A#1", 50_000)).await);
    let (by, remaining) = in_the_way(acquire(&store, wanted("a", "B#1", LONG)).await);
    assert_eq!((by.holder.as_str(), by.token, by.ttl_ms), ("A#1", first.token, 50_000));
    assert!((1..=50_000).contains(&remaining), "{remaining}");
    assert_eq!(fence(&store, "a").await.as_deref(), Some("1"), "asking raises nothing");
    let shown = store.lock(&resource("a")).await.unwrap().unwrap();
    assert_eq!((shown.holder.as_str(), shown.token, shown.waiting), ("A#1", first.token, 0));
    assert!((1..=50_000).contains(&shown.remaining_ms));
    granted(acquire(&store, wanted("b", "B#1", LONG)).await);
    let listed = store.locks("", None, 10).await.unwrap().entries;
    assert_eq!(listed.iter().map(|lock| lock.resource.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    release(&store, "a", &first).await.unwrap();
    assert_eq!(store.lock(&resource("a")).await.unwrap(), None);
    assert_eq!(store.locks("", None, 10).await.unwrap().entries.len(), 1);
}

#[tokio::test]
async fn the_wrong_lease_changes_nothing() {
    let (store, memory) = memory_store().await;
    let first = grant(&store, "a", "A#1").await;
    let commits = memory.commits().len();
    let mut forged = first.clone();
    for lease in [LeaseId([0; 16]), LeaseId([7; 16])] {
        forged.lease = lease;
        assert_eq!(lost(release(&store, "a", &forged).await).as_deref(), Some("A#1"));
        assert_eq!(lost(renew(&store, "a", &forged, LONG).await).as_deref(), Some("A#1"));
    }
    assert_eq!(lost(release(&store, "other", &first).await), None, "a lease is of one lock only");
    assert_eq!(memory.commits().len(), commits);
    in_the_way(acquire(&store, wanted("a", "B#1", LONG)).await);
    assert_eq!(release(&store, "a", &first).await, Ok(Outcome::Released));
    assert_eq!(lost(release(&store, "a", &first).await), None, "it is nobody's now");
    assert_eq!(lost(renew(&store, "a", &first, LONG).await), None);
}

#[tokio::test]
async fn a_late_renewal_works_if_nobody_took_it() {
    let (store, _) = memory_store().await;
    let first = granted(acquire(&store, wanted("a", "A#1", 1)).await);
    tokio::time::sleep(Duration::from_millis(20)).await;
    let renewed = granted(renew(&store, "a", &first, LONG).await);
    assert_eq!(renewed.ttl_ms, LONG);
    in_the_way(acquire(&store, wanted("a", "B#1", LONG)).await);

    let expired = granted(acquire(&store, wanted("b", "A#1", 1)).await);
    let taken = granted(within(acquire(&store, awaited("b", "B#1", LONG))).await);
    assert_eq!(lost(renew(&store, "b", &expired, LONG).await).as_deref(), Some("B#1"));
    assert_eq!(lost(release(&store, "b", &expired).await).as_deref(), Some("B#1"));
    granted(renew(&store, "b", &taken, LONG).await);
}

/// A lease's time is counted from when this observer first saw the lease, not earlier (trap 24).
#[tokio::test]
async fn t24_a_lease_is_respected_for_its_whole_ttl() {
    let (store, _) = memory_store().await;
    let began = Instant::now();
    granted(acquire(&store, wanted("a", "A#1", SHORT)).await);
    granted(within(acquire(&store, awaited("a", "B#1", LONG))).await);
    assert!(began.elapsed() >= Duration::from_millis(SHORT), "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_lock_delay_is_added_to_every_ttl() {
    let options = StoreOptions { lock_delay: Duration::from_millis(200), ..StoreOptions::default() };
    let (store, _, _) = reported(Guards::default(), options).await;
    let began = Instant::now();
    granted(acquire(&store, wanted("a", "A#1", 50)).await);
    granted(within(acquire(&store, awaited("a", "B#1", LONG))).await);
    assert!(began.elapsed() >= Duration::from_millis(250), "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_renewed_lease_is_not_taken_over() {
    let (store, _) = memory_store().await;
    let first = granted(acquire(&store, wanted("a", "A#1", 400)).await);
    let waits = AcquireLock { wait: Duration::from_millis(1_600), ..wanted("a", "B#1", LONG) };
    let mut waiting = Box::pin(acquire(&store, waits));
    let mut late = false;
    let ended = loop {
        let renewed = Instant::now();
        tokio::select! {
            ended = &mut waiting => break ended,
            () = tokio::time::sleep(Duration::from_millis(50)) => {}
        }
        let kept = renew(&store, "a", &first, 400).await;
        // If the machine paused for the whole TTL, the lease was not renewed in time, and losing it is correct.
        late |= renewed.elapsed() > Duration::from_millis(350);
        if !late {
            granted(kept);
        }
    };
    if !late {
        assert_eq!(in_the_way(ended).0.holder.as_str(), "A#1");
    }
}

/// A lease that a renewal shortened expires by the new TTL.
#[tokio::test]
async fn a_renewal_may_shorten_a_lease() {
    let (store, _) = memory_store().await;
    let first = grant(&store, "a", "A#1").await;
    granted(renew(&store, "a", &first, 50).await);
    let second = granted(within(acquire(&store, awaited("a", "B#1", LONG))).await);
    assert_eq!(number(&second), 2);
}

async fn open(dir: &TempDir) -> Store {
    crate::testbed::directory::open(dir.path(), &roomy()).await
}

/// No time is stored: a lease starts over with every observer, while tokens continue.
#[tokio::test]
async fn t24_after_a_restart_a_lease_lasts_its_whole_ttl_again_and_tokens_go_on() {
    let dir = TempDir::new().unwrap();
    let store = open(&dir).await;
    let issuer = store.issuer();
    for _ in 0..3 {
        let granted = grant(&store, "counted", "A#1").await;
        release(&store, "counted", &granted).await.unwrap();
    }
    let first = granted(acquire(&store, wanted("a", "A#1", SHORT)).await);
    tokio::time::sleep(Duration::from_millis(SHORT)).await;
    store.close().await;
    let store = open(&dir).await;
    assert_eq!(store.issuer(), issuer);
    let (began, (by, remaining)) = (Instant::now(), in_the_way(acquire(&store, wanted("a", "B#1", LONG)).await));
    assert_eq!((by.holder.as_str(), by.token), ("A#1", first.token));
    assert!(remaining > 0, "it has run out by any clock, but nobody here has seen it");
    let second = granted(within(acquire(&store, awaited("a", "B#1", LONG))).await);
    assert!(began.elapsed() >= Duration::from_millis(SHORT), "{:?}", began.elapsed());
    assert_eq!((number(&second), second.issuer.clone()), (2, issuer));
    assert_eq!(number(&grant(&store, "counted", "B#1").await), 4);
    let other = granted(acquire(&store, wanted("held", "A#1", LONG)).await);
    store.close().await;
    let store = open(&dir).await;
    granted(renew(&store, "held", &other, LONG).await);
}

#[tokio::test]
async fn the_same_request_finds_its_lease_while_it_is_current() {
    let (store, _) = memory_store().await;
    let asked = || AcquireLock { once: Some(once("k", 1)), ..wanted("a", "A#1", LONG) };
    let first = granted(acquire(&store, asked()).await);
    for _ in 0..2 {
        let Outcome::Granted(again) = replayed(acquire(&store, asked()).await) else { panic!("not granted") };
        assert_eq!((again.lease, again.token, again.holder), (first.lease, first.token, first.holder.clone()));
    }
    granted(renew(&store, "a", &first, LONG).await);
    assert!(matches!(replayed(acquire(&store, asked()).await), Outcome::Granted(_)), "renewed is current");
    let other = AcquireLock { once: Some(once("k", 2)), ..wanted("a", "A#1", LONG) };
    assert_eq!(acquire(&store, other).await, Ok(Outcome::KeyReused));
    release(&store, "a", &first).await.unwrap();
    assert_eq!(lost(Ok(replayed(acquire(&store, asked()).await))), None);
    assert_eq!(store.lock(&resource("a")).await.unwrap(), None, "a replay grants nothing");
    grant(&store, "a", "B#1").await;
    assert_eq!(lost(Ok(replayed(acquire(&store, asked()).await))).as_deref(), Some("B#1"));
}

#[tokio::test]
async fn two_gateways_share_locks() {
    let memory = Memory::new(Ownership::Shared);
    let a = crate::testbed::open(Arc::new(memory.clone()), Guards::default()).await;
    let b = crate::testbed::open(Arc::new(memory.clone()), Guards::default()).await;
    assert_eq!(a.issuer(), b.issuer());
    let first = granted(acquire(&a, wanted("l", "A#1", SHORT)).await);
    let began = Instant::now();
    assert_eq!(in_the_way(acquire(&b, wanted("l", "B#1", LONG)).await).0.holder.as_str(), "A#1");
    let second = granted(within(acquire(&b, awaited("l", "B#1", LONG))).await);
    assert!(began.elapsed() >= Duration::from_millis(SHORT), "counted from its first sight here");
    assert_eq!(lost(renew(&a, "l", &first, LONG).await).as_deref(), Some("B#1"));
    assert_eq!(number(&second), 2);
    let issuer = Issuer::new(first.issuer.as_str()).unwrap();
    assert_eq!((issuer, Holder::new("B#1").unwrap()), (second.issuer, second.holder));
}

/// Reading a lease does not renew it: a caller that keeps trying gets the lock when the lease has expired.
#[tokio::test]
async fn looking_at_a_lease_does_not_prolong_it() {
    let (store, _) = memory_store().await;
    granted(acquire(&store, wanted("a", "A#1", SHORT)).await);
    let asking = async {
        loop {
            match acquire(&store, wanted("a", "B#1", LONG)).await {
                Ok(Outcome::Held(_)) => tokio::time::sleep(Duration::from_millis(20)).await,
                ended => break granted(ended),
            }
            store.lock(&resource("a")).await.unwrap();
        }
    };
    let second = tokio::time::timeout(Duration::from_secs(20), asking).await.unwrap();
    assert_eq!(number(&second), 2);
}

/// The lease had expired and another caller was about to take the lock, but the renewal was first, in the same batch or
/// the one before.
#[tokio::test]
async fn a_renewal_that_comes_just_before_a_take_over_wins() {
    for same_batch in [true, false] {
        let (store, memory) = memory_store().await;
        let first = granted(acquire(&store, wanted("a", "A#1", 20)).await);
        tokio::time::sleep(Duration::from_millis(40)).await;
        memory.inject(Fault::Hold);
        let busy = match same_batch {
            true => Some(queue(put(&store, "busy", token("1"), "busy")).await),
            false => None,
        };
        let renewing = queue(renew(&store, "a", &first, LONG)).await;
        within(memory.wait_held()).await;
        let queued = store.queue_depth();
        let taking = queue(acquire(&store, wanted("a", "B#1", LONG))).await;
        within(async {
            while store.queue_depth() == queued {
                tokio::task::yield_now().await;
            }
        })
        .await;
        memory.release();
        if let Some(busy) = busy {
            applied(busy.answer().await);
        }
        granted(renewing.answer().await);
        assert_eq!(in_the_way(taking.answer().await).0.holder.as_str(), "A#1");
    }
}

/// Trap 33: the fence did not change, so only the lock's own record shows that the lock was released.
#[tokio::test]
async fn t33_a_lock_given_back_through_another_gateway_is_not_renewed() {
    let memory = Memory::new(Ownership::Shared);
    let a = crate::testbed::open(Arc::new(memory.clone()), Guards::default()).await;
    let b = crate::testbed::open(Arc::new(memory.clone()), Guards::default()).await;
    let first = grant(&a, "l", "A#1").await;
    memory.inject(Fault::Hold);
    let renewing = queue(renew(&a, "l", &first, LONG)).await;
    within(memory.wait_held()).await;
    assert_eq!(within(release(&b, "l", &first)).await, Ok(Outcome::Released));
    memory.release();
    assert_eq!(lost(renewing.answer().await), None);
    assert_eq!(a.lock(&resource("l")).await.unwrap(), None);
}
