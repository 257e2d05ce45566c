//! The guard mapping is stored state (trap 32): changing it requires `remap`, which retires every token.

use std::sync::Arc;

use crate::testbed::{applied, claim, claimed, fence, guard, open, put, reason, text, token};
use fencepost_core::{GuardSpec, Guards, Mapping, Policy, Reason};
use fencepost_store::engine::{AsOf, Batch, Change, Engine, Purpose};
use fencepost_store::engines::memory::{Fault, Memory};
use fencepost_store::record::{Meta, RecordKey};
use fencepost_store::{NoObserver, OpenError, RemapError, Remapped, Restored, Store, StoreOptions, remap, restored};

fn by_order() -> Guards {
    guard("orders/*/**", Some("orders/*"), Policy::default())
}

async fn try_open(memory: &Memory, guards: Guards) -> Result<Store, OpenError> {
    Store::open(Arc::new(memory.clone()), guards, StoreOptions::default(), Arc::new(NoObserver)).await
}

async fn meta(memory: &Memory) -> Meta {
    let loaded = memory.load(&[RecordKey::meta()]).await.unwrap();
    Meta::decode(&loaded.records[0].as_ref().unwrap().bytes).unwrap()
}

/// A store whose fences are in generation 0, under the default mapping.
async fn filled() -> Memory {
    let memory = Memory::default();
    let store = open(Arc::new(memory.clone()), Guards::default()).await;
    applied(put(&store, "orders/1/lines", token("33"), "lines").await);
    applied(put(&store, "orders/1/head", token("40"), "head").await);
    store.close().await;
    memory
}

#[tokio::test]
async fn t32_another_mapping_is_refused_and_remap_is_named() {
    let memory = filled().await;
    let error = try_open(&memory, by_order()).await.err().unwrap();
    assert!(matches!(error, OpenError::MappingChanged { .. }));
    let text = error.to_string();
    for part in ["fencepost remap", "each key is its own resource", "orders/*/** -> orders/*"] {
        assert!(text.contains(part), "{text}");
    }
    // The reverse holds too, and the refused attempts changed nothing.
    let store = try_open(&memory, Guards::default()).await.unwrap();
    assert_eq!(fence(&store, "orders/1/lines").await.as_deref(), Some("33"));
}

#[tokio::test]
async fn t32_remap_retires_every_token_of_before() {
    let memory = filled().await;
    let remapped = remap(&memory, &by_order(), 0).await.unwrap();
    let expected = Remapped::Changed {
        from: "each key is its own resource".into(),
        to: "orders/*/** -> orders/*".into(),
        generation: 1,
    };
    assert_eq!(remapped, expected);
    assert!(matches!(try_open(&memory, Guards::default()).await, Err(OpenError::MappingChanged { .. })));
    let store = try_open(&memory, by_order()).await.unwrap();
    // The key moved to a resource that had no fence. A zombie from before must not be its first writer.
    for zombie in ["33", "40", "18446744073709551615"] {
        assert_eq!(reason(put(&store, "orders/1/lines", token(zombie), "late").await), Reason::RetiredGeneration);
        assert_eq!(reason(claim(&store, "orders/1", token(zombie)).await), Reason::RetiredGeneration);
        assert_eq!(reason(put(&store, "never/seen", token(zombie), "late").await), Reason::RetiredGeneration);
    }
    assert_eq!(text(&store, "orders/1/lines").await.as_deref(), Some("lines"), "the data stays");
    claimed(claim(&store, "orders/1", token("1:1")).await);
    applied(put(&store, "orders/1/lines", token("1:1"), "again").await);
    assert_eq!(fence(&store, "orders/1").await.as_deref(), Some("1:1"));
}

#[tokio::test]
async fn remap_goes_above_every_stored_generation() {
    let memory = filled().await;
    // One resource is ahead of the base, as after a rotation.
    let ahead = fencepost_core::FenceState { generation: 7, ..Default::default() };
    let record = fencepost_store::record::encode_fence(&ahead);
    memory.inject(Fault::Interleave(vec![(RecordKey::fence(&crate::testbed::resource("ahead")), Change::Put(record))]));
    let store = open(Arc::new(memory.clone()), Guards::default()).await;
    applied(put(&store, "x", token("1"), "carries the interleaved record in").await);
    store.close().await;
    assert!(matches!(remap(&memory, &by_order(), 0).await, Ok(Remapped::Changed { generation: 8, .. })));
    assert_eq!(meta(&memory).await.base_generation, 8);
    let back = remap(&memory, &Guards::default(), 0).await;
    assert!(matches!(back, Ok(Remapped::Changed { generation: 9, .. })), "there is no way back down: {back:?}");
}

#[tokio::test]
async fn remap_to_the_same_mapping_changes_nothing() {
    let memory = filled().await;
    let (before, commits) = (meta(&memory).await, memory.commits().len());
    assert_eq!(remap(&memory, &Guards::default(), 0).await.unwrap(), Remapped::Unchanged { generation: 0 });
    assert_eq!((meta(&memory).await, memory.commits().len()), (before, commits));
}

/// Rules are not part of the mapping: changing them retires no tokens.
#[tokio::test]
async fn another_policy_is_the_same_mapping() {
    let memory = Memory::default();
    let strict = Policy { claim: fencepost_core::Claim::Required, ..Policy::default() };
    open(Arc::new(memory.clone()), guard("a/*", Some("a"), Policy::default())).await.close().await;
    assert!(try_open(&memory, guard("a/*", Some("a"), strict)).await.is_ok());
}

#[tokio::test]
async fn the_order_of_guards_is_part_of_the_mapping() {
    let spec = |keys: &str| GuardSpec { keys: keys.into(), resource: None, policy: Policy::default(), engine: None };
    let memory = Memory::default();
    open(Arc::new(memory.clone()), Guards::new(vec![spec("a/*"), spec("b/*")]).unwrap()).await.close().await;
    let swapped = Guards::new(vec![spec("b/*"), spec("a/*")]).unwrap();
    assert!(matches!(try_open(&memory, swapped).await, Err(OpenError::MappingChanged { .. })));
}

#[tokio::test]
async fn remap_of_nothing_and_remap_that_fails() {
    assert!(matches!(remap(&Memory::default(), &by_order(), 0).await, Err(RemapError::NoStore)));
    for (fault, unknown) in
        [(Fault::Conflict, false), (Fault::NoSpace, false), (Fault::Unavailable, false), (Fault::UnknownLost, true)]
    {
        let memory = filled().await;
        let before = meta(&memory).await;
        memory.inject(fault.clone());
        let error = remap(&memory, &by_order(), 0).await.err().unwrap();
        assert_eq!(matches!(error, RemapError::Unknown(_)), unknown, "{fault:?}: {error}");
        assert_eq!(meta(&memory).await, before, "{fault:?}");
        assert!(matches!(remap(&memory, &by_order(), 0).await, Ok(Remapped::Changed { generation: 1, .. })));
    }
}

#[tokio::test]
async fn there_is_no_generation_above_the_last() {
    let memory = filled().await;
    let last = Meta { base_generation: u32::MAX, ..meta(&memory).await };
    memory.inject(Fault::Interleave(vec![(RecordKey::meta(), Change::Put(last.encode()))]));
    assert!(matches!(remap(&memory, &by_order(), 0).await, Err(RemapError::NotWritten(_))));
    assert!(matches!(remap(&memory, &by_order(), 0).await, Err(RemapError::NoGeneration(u32::MAX))));
}

#[tokio::test]
async fn a_newer_format_of_the_record_is_refused() {
    let memory = filled().await;
    let newer = Meta { format: 2, ..meta(&memory).await };
    memory.inject(Fault::Interleave(vec![(RecordKey::meta(), Change::Put(newer.encode()))]));
    assert!(remap(&memory, &by_order(), 0).await.is_err());
    let error = try_open(&memory, Guards::default()).await.err().unwrap();
    assert!(matches!(error, OpenError::NewerFormat { found: 2, known: 1 }), "{error}");
    assert!(matches!(remap(&memory, &by_order(), 0).await, Err(RemapError::Open(OpenError::NewerFormat { .. }))));
}

#[tokio::test]
async fn a_store_keeps_its_id() {
    let memory = Memory::default();
    let first = open(Arc::new(memory.clone()), Guards::default()).await.store_id();
    assert_eq!(open(Arc::new(memory.clone()), Guards::default()).await.store_id(), first);
    assert_ne!(open(Arc::new(Memory::default()), Guards::default()).await.store_id(), first);
}

/// Replaces the hash of the stored mapping with what version 0.1 wrote: the hash of its text.
async fn with_the_old_hash(memory: &Memory) {
    let meta = meta(memory).await;
    let hash = Mapping { hash: meta.mapping_hash, text: meta.mapping_text.clone() }.old_hash();
    let change = (RecordKey::meta(), Change::Put(Meta { mapping_hash: hash, ..meta }.encode()));
    memory.inject(Fault::Interleave(vec![change]));
    // This commit triggers the interleaved change. Its own result does not matter.
    let batch = Batch { as_of: AsOf(0), shared: vec![], compare: vec![], changes: vec![], purpose: Purpose::Store };
    memory.commit(batch).await.unwrap();
}

fn arrow(keys: &str, resource: &str) -> Guards {
    guard(keys, Some(resource), Policy::default())
}

#[tokio::test]
async fn c07_mappings_with_one_text_have_different_hashes() {
    for (a, b) in [(arrow("a", "b -> c"), arrow("a -> b", "c")), (arrow("x ->", "y"), arrow("x", "-> y"))] {
        assert_eq!(a.mapping().text, b.mapping().text);
        assert_ne!(a.mapping().hash, b.mapping().hash);
        let memory = Memory::default();
        open(Arc::new(memory.clone()), a.clone()).await.close().await;
        assert!(matches!(try_open(&memory, b).await, Err(OpenError::MappingChanged { .. })));
        assert!(try_open(&memory, a).await.is_ok());
    }
}

#[tokio::test]
async fn c07_a_store_with_the_old_hash_opens_once_and_gets_the_new_one() {
    for guards in [Guards::default(), by_order(), arrow("a->b/*", "c")] {
        let memory = Memory::default();
        open(Arc::new(memory.clone()), guards.clone()).await.close().await;
        with_the_old_hash(&memory).await;
        let before = meta(&memory).await;
        assert_ne!(before.mapping_hash, guards.mapping().hash);
        assert!(matches!(try_open(&memory, arrow("z", "y")).await, Err(OpenError::MappingChanged { .. })));
        assert_eq!(remap(&memory, &guards, 0).await.unwrap(), Remapped::Unchanged { generation: 0 });
        // Without free space the store still serves, and the next start writes the hash.
        memory.inject(Fault::NoSpace);
        let store = try_open(&memory, guards.clone()).await.unwrap();
        applied(put(&store, "n", token("1"), "served").await);
        store.set_rules(guards.clone()).unwrap();
        store.close().await;
        assert_eq!(meta(&memory).await, before);
        let store = try_open(&memory, guards.clone()).await.unwrap();
        applied(put(&store, "n", token("1"), "served").await);
        store.close().await;
        assert_eq!(meta(&memory).await, Meta { mapping_hash: guards.mapping().hash, ..before });
    }
}

/// The two mappings cannot be distinguished, so only a new generation is safe.
#[tokio::test]
async fn c07_an_old_hash_of_a_text_with_two_meanings_needs_a_remap() {
    for (stored, configured) in [(arrow("a", "b -> c"), arrow("a -> b", "c")), (arrow("x ->", "y"), arrow("x ->", "y"))]
    {
        let memory = Memory::default();
        open(Arc::new(memory.clone()), stored.clone()).await.close().await;
        with_the_old_hash(&memory).await;
        let error = try_open(&memory, configured.clone()).await.err().unwrap();
        assert!(matches!(error, OpenError::MappingAmbiguous(_)), "{error}");
        assert!(error.to_string().contains("fencepost remap"), "{error}");
        assert!(matches!(remap(&memory, &configured, 0).await, Ok(Remapped::Changed { generation: 1, .. })));
        assert!(try_open(&memory, configured).await.is_ok());
    }
}

#[tokio::test]
async fn c03_a_restore_raises_the_base_above_all_and_drops_every_lease() {
    let memory = filled().await;
    assert_eq!(restored(&memory, 0).await.unwrap(), Restored { generation: 1, locks: 0 });
    let store = open(Arc::new(memory.clone()), Guards::default()).await;
    for n in 0..1_500 {
        crate::testbed::requests::grant(&store, &format!("lock/{n}"), "A#1").await;
    }
    store.close().await;
    assert_eq!(restored(&memory, 1_700_000_000).await.unwrap(), Restored { generation: 1_700_000_000, locks: 1_500 });
    let again = restored(&memory, 1_700_000_000).await.unwrap();
    assert_eq!(again, Restored { generation: 1_700_000_001, locks: 0 }, "never the same twice");
    let Meta { base_generation, highest_generation, .. } = meta(&memory).await;
    assert_eq!((base_generation, highest_generation), (1_700_000_001, 1_700_000_001));
    let store = open(Arc::new(memory.clone()), Guards::default()).await;
    for zombie in ["40", "1:1", "1700000000:1"] {
        assert_eq!(reason(put(&store, "orders/1/head", token(zombie), "late").await), Reason::RetiredGeneration);
        assert_eq!(reason(put(&store, "lock/7", token(zombie), "late").await), Reason::RetiredGeneration);
    }
    let granted = crate::testbed::requests::grant(&store, "lock/7", "B#1").await;
    assert_eq!(granted.token.to_string(), "1700000001:1");
    assert_eq!(text(&store, "orders/1/head").await.as_deref(), Some("head"), "the data stays");
    store.close().await;
    assert!(matches!(restored(&Memory::default(), 0).await, Err(RemapError::NoStore)));
}

/// A clock that is wrong by centuries must not use up the generations.
#[test]
fn c03_the_clock_gives_a_generation_with_room_above() {
    let generation = fencepost_store::generation_by_clock();
    assert!((1_700_000_000..=4_000_000_000).contains(&generation), "{generation}");
}
