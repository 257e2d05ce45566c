//! New generations: numbers that are no longer comparable are retired; a fence is never lowered (G1).

use std::sync::Arc;

use crate::testbed::requests::{transacted, txn};
use crate::testbed::{
    Ended, Outcome, applied, claim, claimed, ended, everywhere, fence, guard, held, issued, memory_store,
    memory_store_of, put, queue, read, reason, resource, text, token, within,
};
use fencepost_core::{Equal, FenceState, Guards, Issuer, Policy, Reason};
use fencepost_store::engine::{Change, Engine, Ownership};
use fencepost_store::engines::memory::{Fault, Memory};
use fencepost_store::record::{Meta, RecordKey, encode_fence};
use fencepost_store::{Failure, PrefixRotated, RotatePrefix, Store, StoreOptions, WrongResource};

async fn rotate(store: &Store, name: &str, from: u32) -> Ended {
    ended(store.rotate(&resource(name), from, None).await)
}

async fn rotate_all(store: &Store, from: u32) -> Ended {
    ended(store.rotate_all(from).await)
}

fn rotated(generation: u32) -> Ended {
    Ok(Outcome::Rotated { generation })
}

async fn state(store: &Store, name: &str) -> FenceState {
    store.fence(&resource(name)).await.unwrap()
}

async fn meta(memory: &Memory) -> Meta {
    let loaded = memory.load(&[RecordKey::meta()]).await.unwrap();
    Meta::decode(&loaded.records[0].as_ref().unwrap().bytes).unwrap()
}

#[tokio::test]
async fn rotating_clears_everything_in_the_next_generation_and_keeps_the_data() {
    let (store, _) = memory_store().await;
    applied(put(&store, "a", issued("34", "A#1", "etcd:1"), "kept").await);
    assert!(state(&store, "a").await.spent);
    assert_eq!(rotate(&store, "a", 0).await, rotated(1));
    assert_eq!(state(&store, "a").await, FenceState::unseen(1), "no number, holder, issuer, nor a spent token");
    assert_eq!(text(&store, "a").await.as_deref(), Some("kept"));
    for old in ["34", "99999"] {
        assert_eq!(reason(put(&store, "a", token(old), "a zombie").await), Reason::RetiredGeneration);
        assert_eq!(reason(claim(&store, "a", token(old)).await), Reason::RetiredGeneration);
    }
    assert_eq!(reason(put(&store, "a", token("2:1"), "too early").await), Reason::UnknownGeneration);
    applied(put(&store, "a", issued("1:1", "B#1", "redis:1"), "another service").await);
    assert_eq!(fence(&store, "a").await.as_deref(), Some("1:1"));
    applied(put(&store, "b", token("1"), "others are not touched").await);
}

#[tokio::test]
async fn a_spent_token_is_forgotten_with_its_generation() {
    let policy = Policy { equal: Equal::Reject, ..Policy::default() };
    let (store, _) = memory_store_of(Ownership::Exclusive, everywhere(policy)).await;
    applied(put(&store, "a", token("1"), "one").await);
    rotate(&store, "a", 0).await.unwrap();
    applied(put(&store, "a", token("1:1"), "two").await);
    assert_eq!(reason(put(&store, "a", token("1:1"), "three").await), Reason::Spent);
}

/// A retry does not rotate twice.
#[tokio::test]
async fn rotating_compares_the_generation_first() {
    let (store, memory) = memory_store().await;
    applied(put(&store, "a", token("34"), "x").await);
    assert_eq!(rotate(&store, "a", 1).await, Ok(Outcome::OtherGeneration { found: 0 }));
    assert_eq!(fence(&store, "a").await.as_deref(), Some("34"));
    assert_eq!(rotate(&store, "a", 0).await, rotated(1));
    applied(put(&store, "a", token("1:5"), "the new holder").await);
    let commits = memory.commits().len();
    assert_eq!(rotate(&store, "a", 0).await, Ok(Outcome::OtherGeneration { found: 1 }));
    assert_eq!((memory.commits().len(), fence(&store, "a").await.as_deref()), (commits, Some("1:5")));
    assert_eq!(rotate_all(&store, 1).await, Ok(Outcome::OtherGeneration { found: 0 }), "the base is still 0");
    assert_eq!(rotate_all(&store, 0).await, rotated(2));
    assert_eq!(rotate_all(&store, 0).await, Ok(Outcome::OtherGeneration { found: 2 }));
}

#[tokio::test]
async fn a_resource_never_seen_may_be_rotated_and_names_are_checked() {
    let (store, _) =
        memory_store_of(Ownership::Exclusive, guard("orders/*/**", Some("orders/*"), Policy::default())).await;
    assert_eq!(rotate(&store, "orders/1", 0).await, rotated(1));
    assert_eq!(reason(put(&store, "orders/1/lines", token("5"), "x").await), Reason::RetiredGeneration);
    let expected = WrongResource::Belongs { name: "orders/1/lines".into(), resource: resource("orders/1") };
    assert_eq!(store.rotate(&resource("orders/1/lines"), 0, None).await, Err(expected.into()));
}

#[tokio::test]
async fn a_rotation_may_name_the_next_issuer() {
    let (store, _) = memory_store().await;
    applied(put(&store, "a", issued("34", "A#1", "etcd:1"), "x").await);
    let redis = Issuer::new("redis:1").unwrap();
    assert_eq!(ended(store.rotate(&resource("a"), 0, Some(redis.clone())).await), rotated(1));
    assert_eq!(state(&store, "a").await, FenceState { issuer: Some(redis), ..FenceState::unseen(1) });
    assert_eq!(reason(put(&store, "a", issued("1:35", "A#1", "etcd:1"), "x").await), Reason::ForeignIssuer);
    applied(put(&store, "a", issued("1:1", "B#1", "redis:1"), "x").await);
}

#[tokio::test]
async fn rotating_all_goes_above_every_generation_there_ever_was() {
    let (store, memory) = memory_store().await;
    applied(put(&store, "a", token("34"), "x").await);
    applied(put(&store, "b", token("34"), "x").await);
    for from in 0..3 {
        assert_eq!(rotate(&store, "a", from).await, rotated(from + 1));
    }
    assert_eq!(meta(&memory).await.highest_generation, 3);
    assert_eq!(rotate_all(&store, 0).await, rotated(4), "not 1: a has been in 3");
    let Meta { base_generation, highest_generation, .. } = meta(&memory).await;
    assert_eq!((base_generation, highest_generation), (4, 4));
    for name in ["a", "b", "never/seen"] {
        assert_eq!(state(&store, name).await, FenceState::unseen(4), "{name}");
        for old in ["99", "1:99", "3:99"] {
            assert_eq!(reason(put(&store, name, token(old), "a zombie").await), Reason::RetiredGeneration);
        }
        assert_eq!(reason(put(&store, name, token("5:1"), "too early").await), Reason::UnknownGeneration);
        applied(put(&store, name, token("4:1"), "new").await);
    }
    assert_eq!(rotate(&store, "b", 4).await, rotated(5));
    assert_eq!(rotate_all(&store, 4).await, rotated(6));
    assert_eq!(reason(put(&store, "b", token("5:1"), "a zombie").await), Reason::RetiredGeneration);
}

#[tokio::test]
async fn rotations_outlast_a_restart() {
    let (store, memory) = memory_store().await;
    rotate(&store, "a", 0).await.unwrap();
    rotate(&store, "a", 1).await.unwrap();
    store.close().await;
    let store = crate::testbed::open(Arc::new(memory.clone()), Guards::default()).await;
    assert_eq!(state(&store, "a").await.generation, 2);
    assert_eq!(rotate_all(&store, 0).await, rotated(3));
    store.close().await;
    let store = crate::testbed::open(Arc::new(memory.clone()), Guards::default()).await;
    assert_eq!(reason(put(&store, "new", token("1"), "x").await), Reason::RetiredGeneration);
    applied(put(&store, "new", token("3:1"), "x").await);
}

/// Within one batch, each write is judged by the state at its turn.
#[tokio::test]
async fn writes_before_and_after_a_rotation_may_share_its_batch() {
    let (store, memory) = memory_store().await;
    applied(put(&store, "a", token("5"), "first").await);
    memory.inject(Fault::Hold);
    let busy = queue(put(&store, "busy", token("1"), "busy")).await;
    within(memory.wait_held()).await;
    let before = queue(put(&store, "a", token("6"), "before")).await;
    let one = queue(rotate(&store, "a", 0)).await;
    let between = queue(put(&store, "a", token("1:1"), "between")).await;
    let all = queue(rotate_all(&store, 0)).await;
    let old = queue(put(&store, "a", token("7"), "old")).await;
    let between_again = queue(put(&store, "a", token("1:2"), "old too")).await;
    let fresh = queue(put(&store, "fresh", token("1"), "of before")).await;
    let after = queue(put(&store, "a", held("2:1", "A#1"), "after")).await;
    let both = queue(
        txn().token("a", held("2:1", "A#1")).token("c", token("2:9")).put("a", "both").put("c", "both").send(&store),
    )
    .await;
    let commits = memory.commits().len();
    memory.release();
    applied(busy.answer().await);
    applied(before.answer().await);
    assert_eq!(one.answer().await, rotated(1));
    applied(between.answer().await);
    assert_eq!(all.answer().await, rotated(2));
    assert_eq!(reason(old.answer().await), Reason::RetiredGeneration);
    assert_eq!(reason(between_again.answer().await), Reason::RetiredGeneration);
    assert_eq!(reason(fresh.answer().await), Reason::RetiredGeneration);
    applied(after.answer().await);
    transacted(both.answer().await);
    assert_eq!(memory.commits().len() - commits, 2, "all in one commit");
    assert_eq!(text(&store, "a").await.as_deref(), Some("both"));
    assert_eq!((fence(&store, "a").await.unwrap(), fence(&store, "c").await.unwrap()), ("2:1".into(), "2:9".into()));
}

/// A refusal caused by a rotation must not be answered if the rotation does not commit (G4).
#[tokio::test]
async fn t10_a_rotation_that_did_not_commit_retires_nothing() {
    let (store, memory) = memory_store().await;
    applied(put(&store, "a", token("5"), "first").await);
    memory.inject(Fault::Hold);
    memory.inject(Fault::NoSpace);
    let busy = queue(put(&store, "busy", token("1"), "busy")).await;
    within(memory.wait_held()).await;
    let all = queue(rotate_all(&store, 0)).await;
    let old = queue(put(&store, "a", token("6"), "old")).await;
    memory.release();
    applied(busy.answer().await);
    for ended in [all.answer().await, old.answer().await] {
        assert!(matches!(ended, Err(Failure::Rejected(_))), "{ended:?}");
    }
    applied(put(&store, "a", token("6"), "still of generation 0").await);
    assert_eq!(rotate_all(&store, 0).await, rotated(1));
}

/// A cached fence may only refuse, and only tokens that stay refused.
#[tokio::test]
async fn t29_cached_fences_give_no_wrong_answers_after_rotations() {
    for cached_fences in [1, 65_536] {
        let options = StoreOptions { cached_fences, ..StoreOptions::default() };
        let (store, memory, _) = crate::testbed::requests::reported(Guards::default(), options).await;
        for generation in 0..4u32 {
            let of = |number: u64| match generation {
                0 => token(&number.to_string()),
                generation => token(&format!("{generation}:{number}")),
            };
            for name in ["a", "b"] {
                applied(put(&store, name, of(50), "fills the cache").await);
                assert_eq!(reason(put(&store, name, of(49), "stale").await), Reason::Stale);
                applied(put(&store, name, of(51), "newer").await);
            }
            match generation % 2 {
                0 => {
                    assert_eq!(rotate(&store, "a", generation).await, rotated(generation + 1));
                    applied(put(&store, "b", of(51), "fills the cache again").await);
                    assert_eq!(rotate(&store, "b", generation).await, rotated(generation + 1));
                }
                _ => assert_eq!(rotate_all(&store, meta(&memory).await.base_generation).await, rotated(generation + 1)),
            }
            for name in ["a", "b"] {
                for old in [of(1), of(51), of(52)] {
                    let refused = crate::testbed::refused(put(&store, name, old, "retired").await);
                    assert_eq!(refused.reason, Reason::RetiredGeneration, "not by what was cached before");
                    assert_eq!(refused.found.generation, generation + 1);
                }
                // A number far below the old fence is the first in the new generation.
                let first = token(&format!("{}:1", generation + 1));
                applied(put(&store, name, first, "lower and newer").await);
            }
        }
    }
}

/// Another gateway rotated. The cache here is outdated, but admits nothing by itself.
#[tokio::test]
async fn a_rotation_through_another_gateway_is_noticed() {
    let memory = Memory::new(Ownership::Shared);
    let a = crate::testbed::open(Arc::new(memory.clone()), Guards::default()).await;
    let b = crate::testbed::open(Arc::new(memory.clone()), Guards::default()).await;
    applied(put(&a, "k", token("34"), "x").await);
    assert_eq!(rotate_all(&b, 0).await, rotated(1));
    assert_eq!(reason(put(&a, "k", token("34"), "a zombie").await), Reason::RetiredGeneration);
    applied(put(&a, "k", token("1:1"), "new").await);
    assert_eq!(rotate_all(&a, 0).await, Ok(Outcome::OtherGeneration { found: 1 }));
    assert_eq!(rotate_all(&a, 1).await, rotated(2));
    assert_eq!(reason(claim(&b, "k", token("1:2")).await), Reason::RetiredGeneration);
    claimed(claim(&b, "k", token("2:1")).await);
}

#[tokio::test]
async fn a_prefix_is_rotated_page_by_page() {
    let (store, _) = memory_store().await;
    let names: Vec<String> = (0..1_100).map(|n| format!("p/{n:04}")).collect();
    for chunk in names.chunks(200) {
        let puts = chunk.iter().map(|name| -> std::pin::Pin<Box<dyn Future<Output = Ended> + '_>> {
            Box::pin(put(&store, name, token("5"), "x"))
        });
        for ended in crate::testbed::together(puts.collect()).await {
            applied(ended);
        }
    }
    applied(put(&store, "q", token("5"), "x").await);
    for name in ["p/0003", "p/1050"] {
        rotate(&store, name, 0).await.unwrap();
    }
    let issuer = Issuer::new("redis:2").unwrap();
    let ask = |after| RotatePrefix { prefix: "p/".into(), from: 0, issuer: Some(issuer.clone()), after };
    let first = store.rotate_prefix(ask(None)).await.unwrap();
    assert_eq!(first, PrefixRotated { rotated: 999, left: 1, next: Some("p/0999".into()) });
    let second = store.rotate_prefix(ask(first.next)).await.unwrap();
    assert_eq!(second, PrefixRotated { rotated: 99, left: 1, next: None });
    for name in ["p/0000", "p/0999", "p/1099"] {
        assert_eq!(state(&store, name).await, FenceState { issuer: Some(issuer.clone()), ..FenceState::unseen(1) });
        assert_eq!(reason(put(&store, name, token("6"), "a zombie").await), Reason::RetiredGeneration);
    }
    assert_eq!(state(&store, "p/0003").await, FenceState::unseen(1), "it was rotated before, and is left as it is");
    assert_eq!(fence(&store, "q").await.as_deref(), Some("5"), "not below the prefix");
    applied(put(&store, "p/new", token("1"), "never seen, so not covered").await);
    let again = store.rotate_prefix(ask(None)).await.unwrap();
    assert_eq!((again.rotated, again.left), (0, 1_000), "a retry rotates nothing twice");
    assert_eq!(read(&store, "p/0000").await.value.unwrap().1.body, "x");
}

#[tokio::test]
async fn there_is_no_generation_above_the_last() {
    let (store, memory) = memory_store().await;
    applied(put(&store, "a", token("5"), "x").await);
    let last = FenceState { high: std::num::NonZeroU64::new(7), ..FenceState::unseen(u32::MAX) };
    let highest = Meta { highest_generation: u32::MAX, ..meta(&memory).await };
    store.close().await;
    memory.inject(Fault::Interleave(vec![
        (RecordKey::fence(&resource("a")), Change::Put(encode_fence(&last))),
        (RecordKey::meta(), Change::Put(highest.encode())),
    ]));
    let store = crate::testbed::open(Arc::new(memory.clone()), Guards::default()).await;
    // The first commit triggers the interleaved writer.
    applied(put(&store, "other", token("1"), "x").await);
    let top = format!("{}:7", u32::MAX);
    assert_eq!(fence(&store, "a").await, Some(top.clone()));
    // No fence is returned: generations are exhausted, not numbers.
    let exhausted = Ok(Outcome::Exhausted { fence: None, generation: u32::MAX });
    assert_eq!(rotate(&store, "a", u32::MAX).await, exhausted);
    assert_eq!(rotate_all(&store, 0).await, Ok(Outcome::Exhausted { fence: None, generation: 0 }));
    assert_eq!(fence(&store, "a").await, Some(top), "nothing wrapped around");
    assert_eq!(rotate(&store, "other", 0).await, rotated(1), "others are not stuck");
}
