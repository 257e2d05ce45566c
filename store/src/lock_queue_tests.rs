//! Places, limits per caller, and leases that expire or are overtaken.

use super::*;
use crate::record::LeaseId;
use fencepost_core::{Holder, Issuer, Token};

const TTL_MS: u64 = 20;

fn lock() -> Resource {
    Resource::new("lock").unwrap()
}

fn holder() -> Holder {
    Holder::new("a#1").unwrap()
}

fn caller() -> CallerId {
    CallerId::new("192.0.2.1")
}

fn held(version: u64) -> Held {
    Held { holder: holder(), token: Token::new(0, 1).unwrap(), ttl_ms: TTL_MS, version: Version(version) }
}

fn granted(version: u64) -> Sighting {
    let Held { holder, token, ttl_ms, version } = held(version);
    let issuer = Issuer::new("fencepost:1").unwrap();
    let lease = LeaseId([0; 16]);
    Sighting::of(&Grant { lease, token, holder, issuer, ttl_ms, observed: None, version })
}

fn in_the_way(version: u64) -> Sighting {
    let Held { token, ttl_ms, version, .. } = held(version);
    Sighting::Lease { version, token, ttl_ms }
}

#[tokio::test]
async fn a_lease_runs_out_when_one_version_was_seen_for_its_ttl() {
    let locks = Locks::new(Duration::from_millis(5), Ownership::Exclusive);
    let before = Instant::now();
    locks.note(&lock(), granted(1));
    let runs_out = locks.runs_out(&lock(), &held(1));
    assert!(runs_out >= before + Duration::from_millis(TTL_MS + 5), "ttl and delay");
    locks.note(&lock(), in_the_way(1));
    assert_eq!(locks.runs_out(&lock(), &held(1)), runs_out, "counted from the first sight");
    tokio::time::sleep_until(runs_out).await;
    assert_eq!(locks.run_out(&lock()), Some(Version(1)));
    let renewed = Instant::now();
    locks.note(&lock(), granted(2));
    assert!(locks.runs_out(&lock(), &held(2)) > renewed, "a renewal starts anew");
}

#[tokio::test]
async fn a_look_at_an_older_record_does_not_lengthen_a_lease() {
    let locks = Locks::new(Duration::ZERO, Ownership::Exclusive);
    locks.note(&lock(), granted(2));
    let runs_out = locks.runs_out(&lock(), &held(2));
    let _ = locks.runs_out(&lock(), &held(1));
    assert_eq!(locks.runs_out(&lock(), &held(2)), runs_out);
}

#[tokio::test]
async fn whoever_leaves_lets_the_next_one_try_and_leaves_nothing_behind() {
    let locks = Locks::new(Duration::ZERO, Ownership::Exclusive);
    let (first, second) = (locks.enter(&lock(), &caller()).unwrap(), locks.enter(&lock(), &caller()).unwrap());
    assert!(first.is_head() && !second.is_head());
    assert_eq!((locks.waiting(&lock()), locks.waiters()), (2, 2));
    drop(first);
    assert!(second.is_head());
    second.turn().await;
    locks.note(&lock(), Sighting::Free);
    second.turn().await;
    drop(second);
    assert_eq!(locks.waiters(), 0);
    assert!(locks.table().locks.is_empty(), "a lock that nobody holds or wants takes no memory");
}

#[tokio::test]
async fn only_so_many_leases_are_watched_and_those_with_waiters_stay() {
    let locks = Locks::new(Duration::ZERO, Ownership::Exclusive);
    let name = |number: usize| Resource::new(&format!("lock/{number}")).unwrap();
    let place = locks.enter(&name(0), &caller()).unwrap();
    for number in 0..=MAX_WATCHED {
        locks.note(&name(number), granted(1));
    }
    assert_eq!(locks.table().locks.len(), MAX_WATCHED);
    assert!(place.is_head());
}

#[tokio::test]
async fn a_lease_that_is_renewed_for_less_time_wakes_whoever_waits_for_it() {
    let locks = Locks::new(Duration::ZERO, Ownership::Exclusive);
    let place = locks.enter(&lock(), &caller()).unwrap();
    let with_ttl = |version, ttl_ms| match granted(version) {
        Sighting::Lease { version, token, .. } => Sighting::Lease { version, token, ttl_ms },
        Sighting::Free => Sighting::Free,
    };
    locks.note(&lock(), with_ttl(1, 3_600_000));
    locks.note(&lock(), with_ttl(2, 1_000));
    place.turn().await;
}

#[tokio::test]
async fn no_time_is_too_long() {
    let locks = Locks::new(Duration::MAX, Ownership::Exclusive);
    locks.note(&lock(), granted(1));
    assert!(locks.run_out(&lock()).is_none());
}

#[tokio::test]
async fn s08_neither_a_lock_nor_a_caller_takes_every_place() {
    let locks = Locks::new(Duration::ZERO, Ownership::Exclusive);
    let name = |number: usize| Resource::new(&format!("lock/{number}")).unwrap();
    let caller = |number: usize| CallerId::new(number);
    let bound = |lock: usize, by: usize| match locks.enter(&name(lock), &caller(by)) {
        Err(Rejected::TooManyWaiters { bound, limit }) => Some((bound, limit)),
        Err(other) => panic!("{other}"),
        Ok(_) => None,
    };
    let mut places = Vec::new();
    for at in 0..MAX_WAITERS {
        // A lock is full after `MAX_WAITERS_PER_LOCK` waiters, a caller after four locks.
        let (lock, by) = (at / MAX_WAITERS_PER_LOCK, at / MAX_WAITERS_PER_CALLER);
        places.push(locks.enter(&name(lock), &caller(by)).unwrap());
        match at + 1 {
            MAX_WAITERS_PER_LOCK => {
                assert_eq!(bound(0, 9), Some((WaiterBound::Lock, MAX_WAITERS_PER_LOCK)), "whoever asks");
                assert_eq!(bound(1, 0), None, "another lock");
            }
            MAX_WAITERS_PER_CALLER => {
                assert_eq!(bound(100, 0), Some((WaiterBound::Caller, MAX_WAITERS_PER_CALLER)), "whatever lock");
                assert_eq!(bound(100, 1), None, "another caller");
            }
            _ => {}
        }
    }
    assert_eq!(bound(100, 9), Some((WaiterBound::All, MAX_WAITERS)));
    drop(places);
    assert_eq!(bound(0, 0), None);
    assert!(locks.table().callers.is_empty(), "a caller that does not wait takes no memory");
}

#[tokio::test]
async fn p03_a_fence_above_the_lease_wakes_the_first_waiter_and_its_own_token_does_not() {
    let locks = Locks::new(Duration::ZERO, Ownership::Exclusive);
    let place = locks.enter(&lock(), &caller()).unwrap();
    locks.note(&lock(), granted(1));
    let state = |token: Token| FenceState { high: Some(token.number()), ..FenceState::unseen(token.generation()) };
    let wakes = async |state: &FenceState| {
        locks.fences_changed([(&lock(), state)].into_iter());
        tokio::time::timeout(Duration::ZERO, place.turn()).await.is_ok()
    };
    assert!(!wakes(&state(Token::new(0, 1).unwrap())).await);
    assert!(wakes(&state(Token::new(0, 2).unwrap())).await);
    assert!(wakes(&FenceState::unseen(1)).await, "a rotation");
    locks.base_changed(0);
    assert!(tokio::time::timeout(Duration::ZERO, place.turn()).await.is_err());
    locks.base_changed(1);
    place.turn().await;
}
