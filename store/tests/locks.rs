//! The built-in lock service: what a grant is, and who keeps it for how long.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot be set up must stop")]

mod testbed;

use std::sync::Arc;
use std::time::{Duration, Instant};

use fencepost_core::{Claim, Guards, Holder, Issuer, Mode, Policy, Reason};
use fencepost_store::engine::{Engine, Ownership};
use fencepost_store::engines::memory::Memory;
use fencepost_store::engines::rocksdb::RocksDb;
use fencepost_store::record::{LeaseId, RecordKey};
use fencepost_store::{AcquireLock, Grant, NoObserver, Outcome, Store, StoreOptions, WrongResource};
use tempfile::TempDir;
use testbed::directory::roomy;
use testbed::requests::{
    acquire, awaited, force_release, granted, in_the_way, once, release, renew, replayed, reported, wanted,
};
use testbed::{
    Ended, applied, claim, claimed, everywhere, fence, fence_change, guard, held, issued, memory_store,
    memory_store_of, put, reason, refused, resource, token, within,
};

/// Long enough to outlast a test.
const LONG: u64 = 600_000;

/// Short enough to wait for.
const SHORT: u64 = 150;

fn number(grant: &Grant) -> u64 {
    grant.token.number().get()
}

async fn grant(store: &Store, name: &str, holder: &str) -> Grant {
    granted(acquire(store, wanted(name, holder, LONG)).await)
}

#[track_caller]
fn lost(ended: Ended) -> Option<String> {
    match ended {
        Ok(Outcome::LeaseLost { holder, .. }) => holder.map(|holder| holder.to_string()),
        other => panic!("expected the lease to be lost: {other:?}"),
    }
}

#[tokio::test]
async fn a_grant_raises_the_fence_in_the_same_commit() {
    let (store, memory) = memory_store().await;
    applied(put(&store, "a", token("33"), "by another service").await);
    let commits = memory.commits().len();
    let granted = grant(&store, "a", "A#1").await;
    let made = memory.commits().split_off(commits);
    assert_eq!(made.len(), 1);
    assert_eq!(fence_change("a", &made[0].changes).as_deref(), Some("34"));
    assert!(made[0].changes.iter().any(|(key, _)| *key == RecordKey::lock(&resource("a"))));
    assert_eq!((granted.token.to_string(), granted.holder.as_str(), granted.ttl_ms), ("34".into(), "A#1", LONG));
    assert_eq!(granted.issuer, store.issuer());
    assert!(granted.issuer.as_str().starts_with("fencepost:"));
    let state = store.fence(&resource("a")).await.unwrap().unwrap();
    assert_eq!((state.holder, state.issuer), (Some(granted.holder.clone()), Some(store.issuer())));
    assert_eq!(reason(put(&store, "a", token("33"), "the former holder").await), Reason::Stale);
    applied(put(&store, "a", issued("34", "A#1", store.issuer().as_str()), "the holder").await);
}

#[tokio::test]
async fn t05_tokens_only_ever_grow() {
    let (store, _) = memory_store().await;
    let mut last = 0;
    let mut next = |grant: &Grant, why: &str| {
        assert!(number(grant) > last, "{why}: {} after {last}", number(grant));
        last = number(grant);
    };
    let first = grant(&store, "a", "A#1").await;
    assert_eq!(number(&first), 1);
    next(&first, "the first");
    assert_eq!(release(&store, "a", &first).await, Ok(Outcome::Released));
    let second = grant(&store, "a", "B#1").await;
    next(&second, "after a release");
    claimed(claim(&store, "a", token("1000")).await);
    let third = granted(
        within(acquire(&store, {
            release(&store, "a", &second).await.unwrap();
            wanted("a", "C#1", SHORT)
        }))
        .await,
    );
    assert_eq!(number(&third), 1001, "one above whatever was seen");
    next(&third, "above a token of somebody else");
    let fourth = granted(within(acquire(&store, awaited("a", "D#1", LONG))).await);
    next(&fourth, "after it ran out");
    let renewed = granted(renew(&store, "a", &fourth, LONG).await);
    assert_eq!((renewed.token, renewed.lease), (fourth.token, fourth.lease), "renewing changes neither");
    force_release(&store, "a").await.unwrap();
    next(&grant(&store, "a", "E#1").await, "after it was taken away");
}

#[tokio::test]
async fn who_has_it_and_for_how_long_is_told() {
    let (store, _) = memory_store().await;
    let first = granted(acquire(&store, wanted("a", "A#1", 50_000)).await);
    let (by, remaining) = in_the_way(acquire(&store, wanted("a", "B#1", LONG)).await);
    assert_eq!((by.holder.as_str(), by.token, by.ttl_ms), ("A#1", first.token, 50_000));
    assert!((1..=50_000).contains(&remaining), "{remaining}");
    assert_eq!(fence(&store, "a").await.as_deref(), Some("1"), "asking raises nothing");
    let shown = store.lock(&resource("a")).await.unwrap().unwrap().unwrap();
    assert_eq!((shown.holder.as_str(), shown.token, shown.waiting), ("A#1", first.token, 0));
    assert!((1..=50_000).contains(&shown.remaining_ms));
    granted(acquire(&store, wanted("b", "B#1", LONG)).await);
    let listed = store.locks("", None, 10).await.unwrap().entries;
    assert_eq!(listed.iter().map(|lock| lock.resource.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    release(&store, "a", &first).await.unwrap();
    assert_eq!(store.lock(&resource("a")).await.unwrap().unwrap(), None);
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

/// Expiry is counted from when this observer first saw the lease, and not a moment earlier (trap 24).
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
        // A machine that paused for the whole ttl has not renewed in time, and loses it rightly.
        late |= renewed.elapsed() > Duration::from_millis(350);
        if !late {
            granted(kept);
        }
    };
    if !late {
        assert_eq!(in_the_way(ended).0.holder.as_str(), "A#1");
    }
}

/// Leases that are shortened by a renewal run out by the new ttl.
#[tokio::test]
async fn a_renewal_may_shorten_a_lease() {
    let (store, _) = memory_store().await;
    let first = grant(&store, "a", "A#1").await;
    granted(renew(&store, "a", &first, 50).await);
    let second = granted(within(acquire(&store, awaited("a", "B#1", LONG))).await);
    assert_eq!(number(&second), 2);
}

async fn open(dir: &TempDir) -> Store {
    let engine: Arc<dyn Engine> = loop {
        // A closed store may hold its directory for a moment longer.
        match RocksDb::open(dir.path(), &roomy()) {
            Ok(engine) => break Arc::new(engine),
            Err(fencepost_store::engines::EngineOpenError::InUse { .. }) => tokio::task::yield_now().await,
            Err(error) => panic!("{error}"),
        }
    };
    Store::open(engine, Guards::default(), StoreOptions::default(), Arc::new(NoObserver)).await.unwrap()
}

/// Nothing stored is a time: a lease begins anew with every observer, and tokens go on.
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
    assert_eq!(store.lock(&resource("a")).await.unwrap().unwrap(), None, "a replay grants nothing");
    grant(&store, "a", "B#1").await;
    assert_eq!(lost(Ok(replayed(acquire(&store, asked()).await))).as_deref(), Some("B#1"));
}

/// Trap 6: numbers of two services are not comparable.
#[tokio::test]
async fn t06_a_resource_of_another_lock_service_is_not_granted() {
    let (store, memory) = memory_store().await;
    applied(put(&store, "a", issued("5", "A#1", "etcd:1"), "x").await);
    let commits = memory.commits().len();
    let refusal = refused(acquire(&store, wanted("a", "B#1", LONG)).await);
    assert_eq!(refusal.reason, Reason::ForeignIssuer);
    assert_eq!((memory.commits().len(), fence(&store, "a").await.as_deref()), (commits, Some("5")));
    assert_eq!(store.lock(&resource("a")).await.unwrap().unwrap(), None);
    store.rotate(&resource("a"), 0, None).await.unwrap().unwrap();
    assert_eq!(grant(&store, "a", "B#1").await.token.to_string(), "1:1");
    let foreign = put(&store, "a", issued("1:9", "A#1", "etcd:1"), "x").await;
    assert_eq!(reason(foreign), Reason::ForeignIssuer, "now it is bound to this store");
}

#[tokio::test]
async fn t06_observing_grants_without_touching_the_fence_and_tokens_still_grow() {
    let policy = Policy { mode: Mode::Observe, ..Policy::default() };
    let (store, _) = memory_store_of(Ownership::Exclusive, everywhere(policy)).await;
    applied(put(&store, "a", issued("5", "A#1", "etcd:1"), "x").await);
    let before = store.fence(&resource("a")).await.unwrap().unwrap();
    let mut last = 5;
    for round in 0..4 {
        let granted = granted(acquire(&store, wanted("a", "B#1", SHORT)).await);
        assert_eq!(granted.observed, Some(Reason::ForeignIssuer));
        assert!(number(&granted) > last, "{} after {last}", number(&granted));
        last = number(&granted);
        match round {
            0 | 3 => drop(release(&store, "a", &granted).await.unwrap()),
            1 => drop(force_release(&store, "a").await.unwrap()),
            _ => {
                let next = testbed::requests::granted(within(acquire(&store, awaited("a", "C#1", LONG))).await);
                assert!(number(&next) > last);
                last = number(&next);
                release(&store, "a", &next).await.unwrap();
            }
        }
        assert_eq!(store.fence(&resource("a")).await.unwrap().unwrap(), before);
    }
}

/// Trap 7: somebody sent the largest number. Nothing is above it, until the numbers are ended.
#[tokio::test]
async fn t07_an_exhausted_number_is_said_and_rotate_recovers() {
    let (store, _) = memory_store().await;
    claimed(claim(&store, "a", token("18446744073709551614")).await);
    let last = grant(&store, "a", "A#1").await;
    assert_eq!(number(&last), u64::MAX);
    let exhausted = Ok(Outcome::Exhausted { fence: Some(last.token), generation: 0 });
    assert_eq!(force_release(&store, "a").await, exhausted);
    granted(renew(&store, "a", &last, LONG).await);
    release(&store, "a", &last).await.unwrap();
    assert_eq!(acquire(&store, wanted("a", "B#1", LONG)).await, exhausted);
    assert_eq!(within(acquire(&store, awaited("a", "B#1", LONG))).await, exhausted, "waiting would not help");
    store.rotate(&resource("a"), 0, None).await.unwrap().unwrap();
    assert_eq!(grant(&store, "a", "B#1").await.token.to_string(), "1:1");
}

#[tokio::test]
async fn a_lock_taken_away_fences_its_holder() {
    let (store, memory) = memory_store().await;
    assert_eq!(force_release(&store, "a").await, Ok(Outcome::NotHeld));
    let first = grant(&store, "a", "A#1").await;
    applied(put(&store, "a", held("1", "A#1"), "before").await);
    let commits = memory.commits().len();
    match force_release(&store, "a").await {
        Ok(Outcome::ForceReleased { holder, token, fence }) => {
            assert_eq!((holder.as_str(), token, fence.unwrap().to_string()), ("A#1", first.token, "2".into()));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(memory.commits().len(), commits + 1);
    assert_eq!(reason(put(&store, "a", held("1", "A#1"), "a zombie").await), Reason::Stale);
    assert_eq!(lost(renew(&store, "a", &first, LONG).await), None);
    assert_eq!(lost(release(&store, "a", &first).await), None);
    assert_eq!(force_release(&store, "a").await, Ok(Outcome::NotHeld));
    assert_eq!(number(&grant(&store, "a", "B#1").await), 3, "2 was used up to fence");
}

#[tokio::test]
async fn a_lease_whose_token_was_fenced_is_lost() {
    let (store, memory) = memory_store().await;
    let first = grant(&store, "a", "A#1").await;
    claimed(claim(&store, "a", token("9")).await);
    let commits = memory.commits().len();
    assert_eq!(lost(renew(&store, "a", &first, LONG).await).as_deref(), Some("A#1"));
    assert_eq!(memory.commits().len(), commits);
    assert_eq!(release(&store, "a", &first).await, Ok(Outcome::Released), "giving it back is still possible");
    assert_eq!(number(&grant(&store, "a", "B#1").await), 10);
}

#[tokio::test]
async fn after_a_rotation_the_next_grant_is_in_the_new_generation() {
    let (store, _) = memory_store().await;
    let first = grant(&store, "a", "A#1").await;
    store.rotate(&resource("a"), 0, None).await.unwrap().unwrap();
    assert_eq!(lost(renew(&store, "a", &first, LONG).await).as_deref(), Some("A#1"));
    release(&store, "a", &first).await.unwrap();
    let second = grant(&store, "a", "B#1").await;
    assert_eq!(second.token.to_string(), "1:1");
    let other = grant(&store, "b", "A#1").await;
    store.rotate_all(0).await.unwrap();
    assert_eq!(lost(renew(&store, "b", &other, LONG).await).as_deref(), Some("A#1"));
    assert!(matches!(force_release(&store, "b").await, Ok(Outcome::ForceReleased { fence: Some(_), .. })));
    assert_eq!(grant(&store, "b", "B#1").await.token.to_string(), "2:2");
    assert_eq!(lost(renew(&store, "a", &second, LONG).await).as_deref(), Some("B#1"));
}

#[tokio::test]
async fn a_lock_is_a_resource_under_its_guards() {
    let policy = Policy { claim: Claim::Required, max_jump: std::num::NonZeroU64::new(1), ..Policy::default() };
    let (store, _) = memory_store_of(Ownership::Exclusive, guard("orders/*/**", Some("orders/*"), policy)).await;
    let expected = WrongResource::Belongs { name: "orders/1/lines".into(), resource: resource("orders/1") };
    let name = resource("orders/1/lines");
    assert_eq!(store.acquire(wanted("orders/1/lines", "A#1", LONG)).await, Ok(Err(expected.clone())));
    assert_eq!(store.release(&name, LeaseId([1; 16])).await, Ok(Err(expected.clone())));
    assert_eq!(store.renew(&name, LeaseId([1; 16]), Duration::from_secs(1)).await, Ok(Err(expected.clone())));
    assert_eq!(store.force_release(&name).await, Ok(Err(expected.clone())));
    assert_eq!(store.lock(&name).await.unwrap(), Err(expected));
    // A grant counts as a claim.
    let granted = grant(&store, "orders/1", "A#1").await;
    applied(put(&store, "orders/1/lines", held(&granted.token.to_string(), "A#1"), "lines").await);
}

#[tokio::test]
async fn two_gateways_share_locks() {
    let memory = Memory::new(Ownership::Shared);
    let a = testbed::open(Arc::new(memory.clone()), Guards::default()).await;
    let b = testbed::open(Arc::new(memory.clone()), Guards::default()).await;
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
