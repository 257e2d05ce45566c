//! Locks and fences: a grant counts as a claim, and its numbers are tokens like any other.

use std::time::Duration;

use crate::testbed::requests::{
    LONG, SHORT, acquire, awaited, force_release, grant, granted, lost, number, once, release, renew, replayed, wanted,
};
use crate::testbed::{
    Outcome, applied, claim, claimed, everywhere, fence, fence_change, guard, held, issued, memory_store,
    memory_store_of, put, queue, reason, refused, resource, token, within,
};
use fencepost_core::{Claim, Mode, Policy, Reason};
use fencepost_store::engine::Ownership;
use fencepost_store::engines::memory::Fault;
use fencepost_store::record::{LeaseId, RecordKey};
use fencepost_store::{AcquireLock, Grant, RotateOutcome, WrongResource};

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
    let state = store.fence(&resource("a")).await.unwrap();
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

/// Trap 6: numbers of two lock services are not comparable.
#[tokio::test]
async fn t06_a_resource_of_another_lock_service_is_not_granted() {
    let (store, memory) = memory_store().await;
    applied(put(&store, "a", issued("5", "A#1", "etcd:1"), "x").await);
    let commits = memory.commits().len();
    let refusal = refused(acquire(&store, wanted("a", "B#1", LONG)).await);
    assert_eq!(refusal.reason, Reason::ForeignIssuer);
    assert_eq!((memory.commits().len(), fence(&store, "a").await.as_deref()), (commits, Some("5")));
    assert_eq!(store.lock(&resource("a")).await.unwrap(), None);
    store.rotate(&resource("a"), 0, None).await.unwrap();
    assert_eq!(grant(&store, "a", "B#1").await.token.to_string(), "1:1");
    let foreign = put(&store, "a", issued("1:9", "A#1", "etcd:1"), "x").await;
    assert_eq!(reason(foreign), Reason::ForeignIssuer, "now it is bound to this store");
}

#[tokio::test]
async fn t06_observing_grants_without_touching_the_fence_and_tokens_still_grow() {
    let policy = Policy { mode: Mode::Observe, ..Policy::default() };
    let (store, _) = memory_store_of(Ownership::Exclusive, everywhere(policy)).await;
    applied(put(&store, "a", issued("5", "A#1", "etcd:1"), "x").await);
    let before = store.fence(&resource("a")).await.unwrap();
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
                let next = crate::testbed::requests::granted(within(acquire(&store, awaited("a", "C#1", LONG))).await);
                assert!(number(&next) > last);
                last = number(&next);
                release(&store, "a", &next).await.unwrap();
            }
        }
        assert_eq!(store.fence(&resource("a")).await.unwrap(), before);
    }
}

/// Trap 7: a client sent the largest number. No number is above it until the generation is ended.
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
    store.rotate(&resource("a"), 0, None).await.unwrap();
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
    assert_eq!(lost(renew(&store, "a", &first, LONG).await), None, "nobody has the lock");
    assert_eq!(memory.commits().len(), commits);
    assert_eq!(release(&store, "a", &first).await, Ok(Outcome::Released), "giving it back is still possible");
    assert_eq!(number(&grant(&store, "a", "B#1").await), 10);
}

/// The holder can neither write nor renew, so blocking others for the rest of the TTL would protect nothing.
#[tokio::test]
async fn p03_a_lease_that_was_overtaken_is_over_for_the_next_acquirer() {
    let (store, memory) = memory_store().await;
    let first = grant(&store, "a", "A#1").await;
    let asked = || AcquireLock { once: Some(once("k", 1)), ..wanted("b", "A#1", LONG) };
    granted(acquire(&store, asked()).await);
    applied(put(&store, "b", token("50"), "from elsewhere").await);
    assert_eq!(lost(Ok(replayed(acquire(&store, asked()).await))), None, "a recorded grant is over as well");
    assert_eq!(store.lock(&resource("b")).await.unwrap().unwrap().remaining_ms, 0);
    // This also holds if both are judged in one batch.
    memory.inject(Fault::Hold);
    let blocked = queue(put(&store, "x", token("1"), "v")).await;
    within(memory.wait_held()).await;
    let overtaking = queue(put(&store, "a", token("99"), "from elsewhere")).await;
    let taking = queue(acquire(&store, wanted("a", "B#1", LONG))).await;
    // The attempt is submitted by a separate task.
    tokio::task::yield_now().await;
    let commits = memory.commits().len();
    memory.release();
    applied(blocked.answer().await);
    applied(overtaking.answer().await);
    let second = granted(taking.answer().await);
    assert_eq!((second.token.to_string(), memory.commits().len() - commits), ("100".into(), 2));
    assert_eq!(lost(renew(&store, "a", &first, LONG).await).as_deref(), Some("B#1"));
    assert_eq!(reason(put(&store, "a", token("99"), "the one in between").await), Reason::Stale);
}

#[tokio::test]
async fn p03_where_the_guard_observes_an_overtaken_lease_lasts() {
    let observe = everywhere(Policy { mode: Mode::Observe, ..Policy::default() });
    let (store, _) = memory_store_of(Ownership::Exclusive, observe).await;
    let first = grant(&store, "a", "A#1").await;
    applied(put(&store, "a", token("99"), "from elsewhere").await);
    applied(put(&store, "a", held("1", "A#1"), "not refused").await);
    assert!(matches!(acquire(&store, wanted("a", "B#1", LONG)).await, Ok(Outcome::Held(_))));
    granted(renew(&store, "a", &first, LONG).await);
}

#[tokio::test]
async fn after_a_rotation_the_next_grant_is_in_the_new_generation() {
    let (store, _) = memory_store().await;
    let first = grant(&store, "a", "A#1").await;
    store.rotate(&resource("a"), 0, None).await.unwrap();
    assert_eq!(lost(renew(&store, "a", &first, LONG).await), None);
    release(&store, "a", &first).await.unwrap();
    let second = grant(&store, "a", "B#1").await;
    assert_eq!(second.token.to_string(), "1:1");
    let other = grant(&store, "b", "A#1").await;
    store.rotate_all(0).await.unwrap();
    assert_eq!(lost(renew(&store, "b", &other, LONG).await), None);
    assert!(matches!(force_release(&store, "b").await, Ok(Outcome::ForceReleased { fence: None, .. })));
    assert_eq!(grant(&store, "b", "B#1").await.token.to_string(), "2:1");
    assert_eq!(lost(renew(&store, "a", &second, LONG).await), None);
}

#[tokio::test]
async fn a_lock_is_a_resource_under_its_guards() {
    let policy = Policy { claim: Claim::Required, max_jump: std::num::NonZeroU64::new(1), ..Policy::default() };
    let (store, _) = memory_store_of(Ownership::Exclusive, guard("orders/*/**", Some("orders/*"), policy)).await;
    let expected = WrongResource::Belongs { name: "orders/1/lines".into(), resource: resource("orders/1") };
    let name = resource("orders/1/lines");
    assert_eq!(store.acquire(wanted("orders/1/lines", "A#1", LONG)).await, Err(expected.clone().into()));
    assert_eq!(store.release(&name, LeaseId([1; 16])).await, Err(expected.clone().into()));
    assert_eq!(store.renew(&name, LeaseId([1; 16]), Duration::from_secs(1)).await, Err(expected.clone().into()));
    assert_eq!(store.force_release(&name).await, Err(expected.clone().into()));
    assert_eq!(store.lock(&name).await, Err(expected.into()));
    // A grant counts as a claim.
    let granted = grant(&store, "orders/1", "A#1").await;
    applied(put(&store, "orders/1/lines", held(&granted.token.to_string(), "A#1"), "lines").await);
}

#[tokio::test]
async fn a_lock_is_taken_also_after_a_rotation_to_another_issuer() {
    let (store, _) = memory_store().await;
    let first = grant(&store, "a", "A#1").await;
    let issuer = Some(fencepost_core::Issuer::new("etcd:1").unwrap());
    assert_eq!(store.rotate(&resource("a"), 0, issuer).await, Ok(RotateOutcome::Rotated { generation: 1 }));
    let Ok(Outcome::ForceReleased { holder, token, fence }) = force_release(&store, "a").await else {
        panic!("the rotation retired its token, so nothing has to be raised, and the lock is free");
    };
    assert_eq!((holder.as_str(), token, fence), ("A#1", first.token, None));
    assert_eq!(store.lock(&resource("a")).await, Ok(None));
}
