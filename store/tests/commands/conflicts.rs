//! Other writers of the same records: every loaded record is compared, and after a conflict commands are judged again
//! (trap 33).

use std::sync::Arc;

use crate::testbed::{
    Outcome, applied, body, claim, claimed, fence, guard, key, memory_store_of, put, put_if, read, reason, refused,
    resource, text, token,
};
use fencepost_core::{FenceState, Guards, Key, Policy, Presented, Reason, Timestamp};
use fencepost_store::engine::{Change, Ownership};
use fencepost_store::engines::memory::{Fault, Memory};
use fencepost_store::record::{RecordKey, Value, encode_fence};
use fencepost_store::{Condition, Failure, ReadError, Rejected, Store, remap};

async fn shared() -> (Store, Memory) {
    memory_store_of(Ownership::Shared, Guards::default()).await
}

/// A fence record as another gateway would write it.
fn fence_record(name: &str, by: &Presented, spent: bool) -> (RecordKey, Change) {
    let raised =
        FenceState::unseen(by.token.generation()).after(fencepost_core::Step::Raise, by, Timestamp(1)).unwrap();
    let state = FenceState { spent, ..raised };
    (RecordKey::fence(&resource(name)), Change::Put(encode_fence(&state)))
}

/// A value record as another gateway would write it.
fn value_record(name: &str, by: &str, text: &str) -> (RecordKey, Change) {
    let value = Value { token: Some(by.parse().unwrap()), content_type: None, body: text.as_bytes().to_vec().into() };
    (RecordKey::value(&key(name)), Change::Put(value.encode()))
}

#[tokio::test]
async fn a_conflict_is_judged_again_and_then_applied() {
    let (store, memory) = shared().await;
    for _ in 0..7 {
        memory.inject(Fault::Conflict);
    }
    applied(put(&store, "a", token("5"), "at last").await);
    assert_eq!(text(&store, "a").await.as_deref(), Some("at last"));
}

#[tokio::test]
async fn too_many_conflicts_are_given_up_and_nothing_is_written() {
    let (store, memory) = shared().await;
    applied(put(&store, "a", token("5"), "before").await);
    let commits = memory.commits().len();
    for _ in 0..8 {
        memory.inject(Fault::Conflict);
    }
    let ended = put(&store, "a", token("6"), "never").await;
    assert_eq!(ended, Err(Failure::Rejected(Rejected::Contended { attempts: 8 })));
    assert_eq!(memory.commits().len(), commits);
    assert_eq!(fence(&store, "a").await.as_deref(), Some("5"));
    applied(put(&store, "a", token("6"), "now").await);
}

#[tokio::test]
async fn a_fence_raised_in_between_refuses_what_was_admissible() {
    let (store, memory) = shared().await;
    applied(put(&store, "a", token("5"), "five").await);
    memory.inject(Fault::Interleave(vec![
        fence_record("a", &crate::testbed::held("34", "other#1"), true),
        value_record("a", "34", "theirs"),
    ]));
    let refusal = refused(put(&store, "a", token("33"), "ours").await);
    assert_eq!(refusal.reason, Reason::Stale);
    assert_eq!(refusal.found.holder.unwrap().as_str(), "other#1");
    assert_eq!(text(&store, "a").await.as_deref(), Some("theirs"));
    assert_eq!(fence(&store, "a").await.as_deref(), Some("34"));
}

/// A write under an equal token does not rewrite the fence. The fence must still be compared.
#[tokio::test]
async fn t33_a_fence_that_is_not_rewritten_is_compared() {
    let (store, memory) = shared().await;
    applied(put(&store, "a", token("33"), "first").await);
    memory.inject(Fault::Interleave(vec![fence_record("a", &token("34"), false)]));
    assert_eq!(reason(put(&store, "a", token("33"), "second").await), Reason::Stale);
    assert_eq!(text(&store, "a").await.as_deref(), Some("first"));
}

#[tokio::test]
async fn t33_a_fence_that_is_absent_is_compared() {
    let (store, memory) = shared().await;
    memory.inject(Fault::Interleave(vec![fence_record("a", &token("34"), false)]));
    assert_eq!(reason(put(&store, "a", token("33"), "ours").await), Reason::Stale);
    assert_eq!(text(&store, "a").await, None);
}

/// A claim returns the values of the keys at the instant of its raise, not from before it.
#[tokio::test]
async fn t33_a_value_that_a_claim_reads_is_compared() {
    let (store, memory) = shared().await;
    applied(put(&store, "a", token("33"), "first").await);
    memory.inject(Fault::Interleave(vec![value_record("a", "33", "second")]));
    let claimed = claimed(claim(&store, "a", token("34")).await);
    let (_, value) = claimed.values[0].1.clone().unwrap();
    assert_eq!(body(&value), "second");
}

#[tokio::test]
async fn t33_a_value_that_a_condition_reads_is_compared() {
    let (store, memory) = shared().await;
    memory.inject(Fault::Interleave(vec![value_record("a", "1", "theirs")]));
    let ended = put_if(&store, "a", token("2"), Condition::Absent, "ours").await;
    assert!(matches!(ended, Ok(Outcome::ConditionFailed { current: Some(_), .. })), "{ended:?}");
    assert_eq!(text(&store, "a").await.as_deref(), Some("theirs"));

    let version = read(&store, "a").await.value.unwrap().0;
    memory.inject(Fault::Interleave(vec![value_record("a", "2", "theirs again")]));
    let ended = put_if(&store, "a", token("2"), Condition::AnyOf(vec![version]), "ours").await;
    assert!(matches!(ended, Ok(Outcome::ConditionFailed { .. })), "{ended:?}");
    assert_eq!(text(&store, "a").await.as_deref(), Some("theirs again"));
}

/// The base generation is raised by rewriting only the store's own record.
#[tokio::test]
async fn t33_the_stores_own_record_is_compared() {
    let (store, memory) = shared().await;
    applied(put(&store, "a", token("33"), "first").await);
    let loaded = fencepost_store::engine::Engine::load(&memory, &[RecordKey::meta()]).await.unwrap();
    let record = loaded.records[0].clone().unwrap();
    let mut meta = fencepost_store::record::Meta::decode(&record.bytes).unwrap();
    meta.base_generation = 1;
    memory.inject(Fault::Interleave(vec![(RecordKey::meta(), Change::Put(meta.encode()))]));
    assert_eq!(reason(put(&store, "a", token("33"), "second").await), Reason::RetiredGeneration);
    assert_eq!(text(&store, "a").await.as_deref(), Some("first"));
    applied(put(&store, "a", token("1:1"), "third").await);
    assert_eq!(fence(&store, "a").await.as_deref(), Some("1:1"));
}

#[tokio::test]
async fn a_mapping_changed_by_another_process_stops_writes_and_reads() {
    let (store, memory) = shared().await;
    applied(put(&store, "a/1", token("33"), "first").await);
    remap(&memory, &guard("a/*", Some("a"), Policy::default()), 0).await.unwrap();
    let commits = memory.commits().len();
    for name in ["a/1", "other"] {
        let ended = put(&store, name, token("34"), "second").await;
        assert_eq!(ended, Err(Failure::Rejected(Rejected::MappingChanged)));
        let ended = claim(&store, name, token("1:1")).await;
        assert_eq!(ended, Err(Failure::Rejected(Rejected::MappingChanged)));
    }
    assert_eq!(memory.commits().len(), commits);
    let key = Key::new("a/1").unwrap();
    assert_eq!(
        store.read(&key, None).await.unwrap_err(),
        ReadError::MappingChanged,
        "reads do not know the fence any more"
    );
    assert_eq!(store.fence(&key.as_resource()).await.unwrap_err(), ReadError::MappingChanged);
}

#[tokio::test]
async fn a_mapping_changed_while_a_write_is_on_its_way_stops_it() {
    let (store, memory) = shared().await;
    let other = Memory::new(Ownership::Shared);
    crate::testbed::open(Arc::new(other.clone()), guard("a/*", Some("a"), Policy::default())).await.close().await;
    let changed = other.commits()[0].changes.clone();
    memory.inject(Fault::Interleave(changed));
    let ended = put(&store, "a/1", token("33"), "first").await;
    assert_eq!(ended, Err(Failure::Rejected(Rejected::MappingChanged)));
    assert_eq!(memory.commits().len(), 1, "only the store's own record was ever written");
}

/// Two gateways over one shared engine, each with its own cache and sequencer.
#[tokio::test]
async fn two_gateways_fence_each_others_holders() {
    let memory = Memory::new(Ownership::Shared);
    let a = crate::testbed::open(Arc::new(memory.clone()), Guards::default()).await;
    let b = crate::testbed::open(Arc::new(memory.clone()), Guards::default()).await;
    applied(put(&a, "k", token("33"), "from a").await);
    let claimed = claimed(claim(&b, "k", token("34")).await);
    assert_eq!(body(&claimed.values[0].1.clone().unwrap().1), "from a");
    assert_eq!(reason(put(&a, "k", token("33"), "zombie").await), Reason::Stale);
    assert_eq!(reason(put(&b, "k", token("33"), "zombie").await), Reason::Stale);
    applied(put(&a, "k", token("34"), "the holder, through the other gateway").await);
}
