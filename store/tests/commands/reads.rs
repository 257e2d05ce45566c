//! Reads and lists: they return committed records only, check a token if one is given, and never raise a fence.

use crate::testbed::{
    applied, body, claim, claimed, delete, everywhere, fence, guard, held, issued, key, memory_store, memory_store_of,
    put, queue, read, refused, resource, token, within,
};
use fencepost_core::{Mode, Policy, Presented, Reason, Refusal};
use fencepost_store::engine::Ownership;
use fencepost_store::engines::memory::Fault;
use fencepost_store::{Failure, Read, Store};
use std::num::NonZeroU64;

async fn checked(store: &Store, name: &str, presented: Presented) -> Result<Read, Refusal> {
    store.read(&key(name), Some(&presented)).await.unwrap().map_err(|refusal| *refusal)
}

#[tokio::test]
async fn a_read_shows_value_fence_and_the_token_of_the_write() {
    let (store, _) = memory_store().await;
    applied(put(&store, "a", held("5", "A#1"), "one").await);
    claimed(claim(&store, "a", held("7", "B#1")).await);
    let read = read(&store, "a").await;
    let (_, value) = read.value.unwrap();
    assert_eq!((body(&value), value.content_type.as_deref()), ("one".into(), Some("text/plain")));
    assert_eq!(value.token.unwrap().to_string(), "5");
    assert_eq!(read.state.token().unwrap().to_string(), "7");
    assert_eq!(read.state.holder.unwrap().as_str(), "B#1");
    assert!(!read.unclaimed);
}

#[tokio::test]
async fn a_checked_read_is_judged_and_raises_nothing() {
    let (store, memory) = memory_store().await;
    applied(put(&store, "a", issued("5", "A#1", "etcd:1"), "one").await);
    let commits = memory.commits().len();
    assert!(!checked(&store, "a", token("5")).await.unwrap().unclaimed);
    assert!(checked(&store, "a", token("6")).await.unwrap().unclaimed);
    assert!(checked(&store, "never", token("1")).await.unwrap().unclaimed);
    for (presented, why) in [
        (token("4"), Reason::Stale),
        (token("1:5"), Reason::UnknownGeneration),
        (held("5", "B#1"), Reason::Collision),
        (issued("9", "A#1", "redis:1"), Reason::ForeignIssuer),
    ] {
        let refusal = checked(&store, "a", presented.clone()).await.unwrap_err();
        assert_eq!(refusal.reason, why);
        assert_eq!(refusal.presented, Some(presented));
        assert_eq!(refusal.found.token().unwrap().to_string(), "5");
    }
    assert_eq!(memory.commits().len(), commits);
    assert_eq!(fence(&store, "a").await.as_deref(), Some("5"));
}

/// Only the first five rows of the table apply to reads.
#[tokio::test]
async fn a_checked_read_does_not_mind_jumps_and_claims() {
    let policy = Policy {
        max_jump: NonZeroU64::new(1),
        claim: fencepost_core::Claim::Required,
        equal: fencepost_core::Equal::Reject,
        ..Policy::default()
    };
    let (store, _) = memory_store_of(Ownership::Exclusive, everywhere(policy)).await;
    claimed(claim(&store, "a", token("5")).await);
    applied(put(&store, "a", token("5"), "spent").await);
    assert!(!checked(&store, "a", token("5")).await.unwrap().unclaimed);
    assert!(checked(&store, "a", token("1000")).await.unwrap().unclaimed);
}

#[tokio::test]
async fn observe_mode_serves_the_read_and_says_so() {
    let policy = Policy { mode: Mode::Observe, ..Policy::default() };
    let (store, _) = memory_store_of(Ownership::Exclusive, everywhere(policy)).await;
    applied(put(&store, "a", token("5"), "one").await);
    let read = checked(&store, "a", token("4")).await.unwrap();
    assert_eq!(read.observed, Some(Reason::Stale));
    assert!(read.value.is_some());
}

#[tokio::test]
async fn a_read_is_judged_by_the_resource_of_its_key() {
    let (store, _) =
        memory_store_of(Ownership::Exclusive, guard("orders/*/**", Some("orders/*"), Policy::default())).await;
    applied(put(&store, "orders/1/lines", token("5"), "lines").await);
    let read = checked(&store, "orders/1/other", token("5")).await.unwrap();
    assert_eq!((read.resource, read.value), (resource("orders/1"), None));
    assert_eq!(checked(&store, "orders/1/other", token("4")).await.unwrap_err().resource, resource("orders/1"));
}

/// A commit is visible before the sequencer knows that it is done. A refusal in between waits for it: it must not name
/// a fence below one that a read has returned.
#[tokio::test]
async fn p01_a_refusal_never_names_a_fence_below_one_already_shown() {
    let (store, memory) = memory_store().await;
    applied(put(&store, "a", held("6", "A#1"), "one").await);
    memory.inject(Fault::HoldWritten);
    let newer = queue(claim(&store, "a", held("9", "B#1"))).await;
    within(memory.wait_held()).await;
    let seen = checked(&store, "a", token("9")).await.unwrap();
    assert_eq!(seen.state.token().unwrap().to_string(), "9");
    let stale = queue(claim(&store, "a", token("3"))).await;
    memory.release();
    claimed(newer.answer().await);
    let refusal = refused(stale.answer().await);
    assert_eq!((refusal.reason, refusal.found), (Reason::Stale, seen.state));
    // From then on the cache has the new fence, and refuses at once.
    assert_eq!(refused(put(&store, "a", token("8"), "late").await).found.holder.unwrap().as_str(), "B#1");
}

/// The same for a new base generation.
#[tokio::test]
async fn p01_a_refusal_never_names_a_generation_below_one_already_stored() {
    let (store, memory) = memory_store().await;
    applied(put(&store, "a", held("6", "A#1"), "one").await);
    memory.inject(Fault::HoldWritten);
    let rotated = queue(store.rotate_all(0)).await;
    within(memory.wait_held()).await;
    assert_eq!(store.fence(&resource("a")).await.unwrap().generation, 1);
    let retired = queue(put(&store, "a", token("3"), "late")).await;
    memory.release();
    rotated.answer().await.unwrap();
    let refusal = refused(retired.answer().await);
    assert_eq!((refusal.reason, refusal.found.generation), (Reason::RetiredGeneration, 1));
}

/// The same for checked reads: once a new base generation is shown, a retired token is served nothing.
#[tokio::test]
async fn p01_a_checked_read_never_falls_behind_a_generation_already_shown() {
    let (store, memory) = memory_store().await;
    applied(put(&store, "a", held("6", "A#1"), "one").await);
    memory.inject(Fault::HoldWritten);
    let rotated = queue(store.rotate_all(0)).await;
    within(memory.wait_held()).await;
    assert_eq!(store.fence(&resource("a")).await.unwrap().generation, 1);
    assert_eq!(checked(&store, "a", token("6")).await.unwrap_err().reason, Reason::RetiredGeneration);
    memory.release();
    rotated.answer().await.unwrap();
    assert_eq!(checked(&store, "a", token("6")).await.unwrap_err().reason, Reason::RetiredGeneration);
}

/// A rotation whose outcome is unknown, but which was written: reads go on, and agree with each other.
#[tokio::test]
async fn p01_reads_agree_after_a_rotation_of_unknown_outcome() {
    let (store, memory) = memory_store().await;
    applied(put(&store, "a", held("6", "A#1"), "one").await);
    memory.inject(Fault::UnknownApplied);
    assert!(matches!(store.rotate_all(0).await, Err(Failure::Unknown(_))));
    assert_eq!(store.fence(&resource("a")).await.unwrap().generation, 1);
    assert_eq!(checked(&store, "a", token("6")).await.unwrap_err().reason, Reason::RetiredGeneration);
}

/// A rotation that was not written changes nothing for reads.
#[tokio::test]
async fn reads_go_on_after_a_rotation_that_failed() {
    let (store, memory) = memory_store().await;
    applied(put(&store, "a", held("6", "A#1"), "one").await);
    memory.inject(Fault::Unavailable);
    assert!(matches!(store.rotate_all(0).await, Err(Failure::Rejected(_))));
    assert!(checked(&store, "a", token("6")).await.is_ok());
}

async fn filled() -> Store {
    let (store, _) = memory_store().await;
    for n in 0..25 {
        applied(put(&store, &format!("b/{n:02}"), token("1"), &format!("value {n}")).await);
    }
    for name in ["a", "b", "b0", "c"] {
        applied(put(&store, name, token("2"), name).await);
    }
    applied(delete(&store, "b/03", token("3")).await);
    store
}

/// All names, page by page.
async fn pages(store: &Store, prefix: &str, limit: usize) -> (Vec<String>, usize) {
    let (mut names, mut count, mut after): (Vec<String>, usize, Option<String>) = (Vec::new(), 0, None);
    loop {
        let page = store.keys(prefix, after.as_deref(), limit).await.unwrap();
        assert!(page.entries.len() <= limit);
        names.extend(page.entries.iter().map(|entry| entry.key.to_string()));
        count += 1;
        match page.next {
            Some(next) => after = Some(next),
            None => return (names, count),
        }
    }
}

#[tokio::test]
async fn keys_are_listed_in_order_page_by_page() {
    let store = filled().await;
    let under_b: Vec<String> = (0..25).filter(|n| *n != 3).map(|n| format!("b/{n:02}")).collect();
    for limit in [1, 7, 24, 25, 1000] {
        let (names, count) = pages(&store, "b/", limit).await;
        assert_eq!(names, under_b, "limit {limit}");
        assert_eq!(count, 24usize.div_ceil(limit), "limit {limit}");
    }
    let (all, _) = pages(&store, "", 10).await;
    assert_eq!(all.len(), 28);
    assert!(all.is_sorted());
    assert_eq!(pages(&store, "b", 10).await.0.len(), 26, "a prefix is not a directory");
    assert_eq!(pages(&store, "zzz", 10).await, (vec![], 1));
    let entry = store.keys("c", None, 1).await.unwrap().entries.remove(0);
    assert_eq!((&entry.key, entry.size), (&key("c"), 1));
    assert_eq!(entry.version, read(&store, "c").await.value.unwrap().0);
}

#[tokio::test]
async fn fences_are_listed_also_of_deleted_keys() {
    let store = filled().await;
    let page = store.fences("b/", None, 100).await.unwrap();
    assert_eq!(page.entries.len(), 25);
    let (_, deleted) = page.entries.iter().find(|(resource, _)| resource.as_str() == "b/03").unwrap();
    assert_eq!(deleted.token().unwrap().to_string(), "3");
    let page = store.fences("b/", Some("b/03"), 2).await.unwrap();
    let names: Vec<_> = page.entries.iter().map(|(resource, _)| resource.to_string()).collect();
    assert_eq!((names, page.next.as_deref()), (vec!["b/04".into(), "b/05".into()], Some("b/05")));
}

/// A page is also limited in bytes, and the list still ends.
#[tokio::test]
async fn large_values_make_short_pages() {
    let (store, _) = memory_store().await;
    let large = "x".repeat(3 << 20);
    for n in 0..5 {
        applied(put(&store, &format!("large/{n}"), token("1"), &large).await);
    }
    let (names, count) = pages(&store, "large/", 100).await;
    assert_eq!((names.len(), count), (5, 2));
}

#[tokio::test]
async fn a_resource_never_seen_has_a_state() {
    let (store, _) = memory_store().await;
    let state = store.fence(&resource("never")).await.unwrap();
    assert_eq!((state.generation, state.token()), (0, None));
}
