//! Several engines behind one gateway: a name leads to one store, and what concerns all names asks every store.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::testbed::requests::{Txn, grant, idempotency_key, once, txn};
use crate::testbed::{Ended, Outcome, applied, ended, fence, key, put, put_of, reason, resource, text, token};
use fencepost_core::{EngineName, FenceState, GuardSpec, Guards, Mode, NameError, Policy, Reason};
use fencepost_store::engine::{Engine, Ownership};
use fencepost_store::engines::memory::{Fault, Memory};
use fencepost_store::{
    ClaimKeys, Condition, Failure, FinalOutcome, Health, LockInfo, NoObserver, Once, OpenError, Page, PrefixRotated,
    Put, Rejected, RemapError, Remapped, RotateOutcome, RotatePrefix, Store, StoreOptions, Stores, WrongResource,
    has_store, remap, remap_all,
};

fn name(text: &str) -> EngineName {
    EngineName::new(text).unwrap()
}

fn spec(keys: &str, resource: &str, engine: Option<&str>) -> GuardSpec {
    GuardSpec {
        keys: keys.into(),
        resource: Some(resource.into()),
        policy: Policy::default(),
        engine: engine.map(name),
    }
}

/// `b/*` and `c/*` are on engines of those names, all else is on the engine without one.
fn guards() -> Guards {
    Guards::new(vec![spec("b/*/**", "b/*", Some("b")), spec("c/*/**", "c/*", Some("c"))]).unwrap()
}

/// Three stores, and their engines: that without a name, `b` and `c`.
struct Three {
    stores: Stores,
    engines: [Memory; 3],
}

async fn open(engine: &Memory, guards: Guards) -> Result<Store, OpenError> {
    let observer = Arc::new(NoObserver);
    Store::open(Arc::new(engine.clone()), guards, StoreOptions::default(), observer).await
}

async fn open_all(engines: [Memory; 3]) -> Three {
    let store = async |at: usize, engine: Option<&EngineName>| {
        Arc::new(open(&engines[at], guards().of_engine(engine)).await.unwrap())
    };
    let named =
        BTreeMap::from([(name("b"), store(1, Some(&name("b"))).await), (name("c"), store(2, Some(&name("c"))).await)]);
    let stores = Stores::new(store(0, None).await, named).unwrap();
    Three { stores, engines }
}

async fn three() -> Three {
    open_all([Memory::default(), Memory::new(Ownership::Shared), Memory::new(Ownership::Shared)]).await
}

impl Three {
    /// Writes to the store that keeps the key.
    async fn put(&self, name: &str, number: &str) -> Ended {
        put(self.stores.of(name), name, token(number), name).await
    }

    async fn put_once(&self, name: &str, number: &str, once: Once) -> Ended {
        let put = Put { once: Some(once), ..put_of(name, Some(token(number)), Condition::Always, name) };
        ended(self.stores.of(name).put(put).await)
    }

    async fn outcome(&self, name: &str) -> Option<FinalOutcome> {
        let recorded = self.stores.outcome("anonymous", &idempotency_key(name)).await.unwrap();
        recorded.map(|recorded| recorded.outcome)
    }

    async fn abandon(&self, name: &str) -> Result<FinalOutcome, Failure> {
        self.stores.abandon("anonymous", &idempotency_key(name)).await
    }

    async fn state(&self, name: &str) -> FenceState {
        self.stores.of(name).fence(&resource(name)).await.unwrap()
    }

    async fn generations(&self) -> [u32; 3] {
        [
            self.state("a").await.generation,
            self.state("b/never").await.generation,
            self.state("c/never").await.generation,
        ]
    }

    /// Every page of the keys, with this many entries each.
    async fn keys(&self, prefix: &str, limit: usize) -> Vec<String> {
        let (mut found, mut after) = (Vec::new(), None::<String>);
        loop {
            let page = self.stores.keys(prefix, after.as_deref(), limit).await.unwrap();
            assert!(page.entries.len() <= limit && (page.next.is_none() || page.next > after));
            found.extend(page.entries.into_iter().map(|entry| entry.key.to_string()));
            after = page.next;
            if after.is_none() {
                return found;
            }
        }
    }
}

#[tokio::test]
async fn a_name_leads_to_one_store() {
    let three = three().await;
    for name in ["a", "b/1", "b/1/lines", "c/1", "b", "d/1"] {
        applied(three.put(name, "5").await);
    }
    let all: Vec<_> = three.stores.each().collect();
    assert_eq!(all.iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["default", "b", "c"]);
    for (at, kept) in [vec!["a", "b", "d/1"], vec!["b/1", "b/1/lines"], vec!["c/1"]].into_iter().enumerate() {
        let page = all[at].1.keys("", None, 10).await.unwrap();
        let found: Vec<_> = page.entries.iter().map(|entry| entry.key.to_string()).collect();
        assert_eq!(found, kept, "{}", all[at].0);
    }
    assert_eq!(reason(three.put("b/1/lines", "4").await), Reason::Stale, "one fence for the keys of a resource");
    let lock = grant(three.stores.of("c/2"), "c/2", "worker#1").await;
    assert_eq!(lock.issuer, all[2].1.issuer(), "each store has a lock service");
}

/// G2: whatever leads a request to the wrong store, it is not judged by a fence that is not there.
#[tokio::test]
async fn a_store_refuses_names_that_another_one_keeps() {
    let three = three().await;
    let before = three.engines.each_ref().map(|engine| engine.commits().len());
    let on_b = WrongResource::Name(NameError::OnEngine(name("b")));
    let ended = put(three.stores.unnamed(), "b/1", token("1"), "x").await;
    assert_eq!(ended, Err(on_b.clone().into()));
    let mixed = txn().token("a", token("1")).put("a", "x").when("b/1", Condition::Absent);
    assert_eq!(mixed.send(three.stores.unnamed()).await, Err(on_b.clone().into()));
    let claim = ClaimKeys { resource: resource("b/1"), presented: Some(token("1")), keys: vec![], max_bytes: 0 };
    assert_eq!(three.stores.unnamed().claim(claim).await.map(drop), Err(on_b.into()));
    let elsewhere = put(three.stores.of("b/1"), "a", token("1"), "x").await;
    assert_eq!(elsewhere, Err(WrongResource::Name(NameError::OnUnnamedEngine).into()));
    assert_eq!(three.engines.each_ref().map(|engine| engine.commits().len()), before);
}

#[tokio::test]
async fn a_transaction_over_two_engines_has_no_store() {
    let three = three().await;
    let of = |txn: Txn| {
        let several = three.stores.of_transaction(&txn.0).err()?;
        Some((several.first, several.second))
    };
    let pair = |name: &str, engine: &str| (name.to_owned(), engine.to_owned());
    assert_eq!(of(txn().put("a", "x").put("d/1", "x").token("a", token("1"))), None);
    assert_eq!(of(txn().put("b/1", "x").put("b/2/lines", "x").token("b/1", token("1"))), None);
    assert_eq!(of(txn().put("b/1", "x").put("a", "x")), Some((pair("b/1", "b"), pair("a", "default"))));
    assert_eq!(of(txn().put("b/1", "x").put("c/1", "x")), Some((pair("b/1", "b"), pair("c/1", "c"))));
    assert_eq!(of(txn().put("a", "x").when("c/1", Condition::Absent)), Some((pair("a", "default"), pair("c/1", "c"))));
    assert_eq!(of(txn().put("a", "x").token("b/1", token("1"))), Some((pair("a", "default"), pair("b/1", "b"))));
    assert_eq!(of(txn().get("c/1").get("a")), Some((pair("c/1", "c"), pair("a", "default"))), "nor has a read");
    let claim = |keys: &[&str]| ClaimKeys {
        resource: resource("b/1"),
        presented: Some(token("1")),
        keys: keys.iter().map(|name| key(name)).collect(),
        max_bytes: 0,
    };
    assert!(three.stores.of_claim(&claim(&["b/1", "b/1/lines"])).is_ok());
    assert!(three.stores.of_claim(&claim(&["b/1", "a"])).is_err());
}

#[tokio::test]
async fn lists_are_merged_in_the_order_of_names_on_every_page() {
    let three = three().await;
    let mut names: Vec<String> = ["a", "b", "b-1", "c", "d"].map(str::to_owned).into();
    names.extend((0..7).map(|n| format!("b/{n}")));
    names.extend((0..5).map(|n| format!("c/{n}")));
    for name in &names {
        applied(three.put(name, "1").await);
    }
    names.sort();
    for limit in [1, 2, 3, 5, 16, 17, 18, 1000] {
        assert_eq!(three.keys("", limit).await, names, "{limit} at a time");
        let in_c: Vec<String> = (0..5).map(|n| format!("c/{n}")).collect();
        assert_eq!(three.keys("c/", limit).await, in_c, "{limit} at a time");
    }
    let page = three.stores.keys("", Some("b/3"), 4).await.unwrap();
    let found: Vec<_> = page.entries.iter().map(|entry| entry.key.as_str()).collect();
    assert_eq!((found, page.next.as_deref()), (vec!["b/4", "b/5", "b/6", "c"], Some("c")));
    let fences = three.stores.fences("", None, 1000).await.unwrap();
    let found: Vec<_> = fences.entries.iter().map(|(resource, _)| resource.to_string()).collect();
    assert_eq!((found, fences.next), (names, None));
}

#[tokio::test]
async fn locks_of_all_stores_are_listed() {
    let three = three().await;
    for name in ["c/1", "a", "b/1", "b/2"] {
        grant(three.stores.of(name), name, "worker#1").await;
    }
    let names = |page: &Page<LockInfo>| page.entries.iter().map(|lock| lock.resource.to_string()).collect::<Vec<_>>();
    let page = three.stores.locks("", None, 3).await.unwrap();
    assert_eq!((names(&page), page.next.as_deref()), (vec!["a".into(), "b/1".into(), "b/2".into()], Some("b/2")));
    let page = three.stores.locks("", page.next.as_deref(), 3).await.unwrap();
    assert_eq!((names(&page), page.next), (vec!["c/1".to_owned()], None));
}

/// A store keeps what it had of names that moved to another one. No request reaches it, so no list shows it.
#[tokio::test]
async fn what_a_remap_left_behind_is_not_listed() {
    let engines = [Memory::default(), Memory::new(Ownership::Shared), Memory::new(Ownership::Shared)];
    let before = open(&engines[0], Guards::default()).await.unwrap();
    for name in ["a", "b/1"] {
        applied(put(&before, name, token("34"), "old").await);
    }
    before.close().await;
    let of = |engine: Option<&str>| guards().of_engine(engine.map(name).as_ref());
    let all: [(&dyn Engine, Guards); 3] =
        [(&engines[0], of(None)), (&engines[1], of(Some("b"))), (&engines[2], of(Some("c")))];
    remap_all(&all, &[], 0).await.unwrap();
    let three = open_all(engines).await;
    assert_eq!(three.keys("", 10).await, ["a"]);
    applied(three.put("b/1", "1:1").await);
    assert_eq!(three.keys("", 10).await, ["a", "b/1"]);
    let fences = three.stores.fences("", None, 10).await.unwrap().entries;
    assert_eq!(fences.len(), 2, "{fences:?}");
    let asked = RotatePrefix { prefix: "b/".into(), from: 1, issuer: None, after: None };
    let done = three.stores.rotate_prefix(asked).await.unwrap();
    assert_eq!(done, PrefixRotated { rotated: 1, left: 0, next: None });
}

#[tokio::test]
async fn g7_an_outcome_is_found_whichever_store_has_it() {
    let three = three().await;
    for (number, name) in ["a", "b/1", "c/1"].into_iter().enumerate() {
        assert_eq!(three.outcome(name).await, None);
        applied(three.put_once(name, "1", once(name, 1)).await);
        assert!(matches!(three.outcome(name).await, Some(FinalOutcome::Transacted(_))), "{number}");
        assert!(matches!(three.abandon(name).await, Ok(FinalOutcome::Transacted(_))), "what was done stays done");
    }
    let commits = three.engines[0].commits().len();
    assert!(matches!(three.abandon("b/1").await, Ok(FinalOutcome::Transacted(_))));
    assert_eq!(three.engines[0].commits().len(), commits, "nothing is abandoned where it was not applied");
    three.engines[0].break_reads(Some("the disk"));
    assert!(matches!(three.outcome("b/1").await, Some(FinalOutcome::Transacted(_))), "a final outcome is final");
    assert!(
        three.stores.outcome("anonymous", &idempotency_key("other")).await.is_err(),
        "it may be where nobody can look"
    );
}

#[tokio::test]
async fn g7_what_is_abandoned_applies_on_no_engine() {
    let three = three().await;
    assert_eq!(three.abandon("k").await, Ok(FinalOutcome::Abandoned));
    assert_eq!(three.outcome("k").await, Some(FinalOutcome::Abandoned));
    for (at, name) in ["a", "b/1", "c/1"].into_iter().enumerate() {
        let late = three.put_once(name, "1", once("k", u8::try_from(at).unwrap())).await;
        assert!(matches!(late, Ok(Outcome::Abandoned)), "{late:?}");
        assert_eq!(text(three.stores.of(name), name).await, None);
    }
}

/// Until every store has it, the request may still be applied: nothing final is said, and the call can be repeated.
#[tokio::test]
async fn g7_a_key_that_is_abandoned_in_some_stores_only_is_not_final() {
    let three = three().await;
    for _ in 0..8 {
        three.engines[1].inject(Fault::Unavailable);
    }
    let failed = three.abandon("k").await.unwrap_err().to_string();
    assert!(failed.contains("engine `b`") && failed.contains("`default` only"), "{failed}");
    assert_eq!(three.outcome("k").await, None);
    let mut ended = three.abandon("k").await;
    for _ in 0..8 {
        if ended.is_ok() {
            break;
        }
        ended = three.abandon("k").await;
    }
    assert_eq!(ended, Ok(FinalOutcome::Abandoned));
    assert_eq!(three.outcome("k").await, Some(FinalOutcome::Abandoned));
}

/// The request arrived between the look and the abandonment of its own store.
#[tokio::test]
async fn g7_an_applied_request_is_reported_although_other_stores_abandoned_its_key() {
    let three = three().await;
    for store in [three.stores.unnamed(), three.stores.of("c/1")] {
        store.abandon("anonymous", &idempotency_key("k")).await.unwrap();
    }
    applied(three.put_once("b/1", "1", once("k", 1)).await);
    assert!(matches!(three.outcome("k").await, Some(FinalOutcome::Transacted(_))));
    assert!(matches!(three.abandon("k").await, Ok(FinalOutcome::Transacted(_))));
}

#[tokio::test]
async fn g1_everything_is_rotated_on_every_engine_to_one_generation() {
    let three = three().await;
    for name in ["a", "b/1", "c/1"] {
        applied(three.put(name, "34").await);
    }
    // Its next generation is above those of the others.
    assert_eq!(
        three.stores.of("b/1").rotate(&resource("b/1"), 0, None).await,
        Ok(RotateOutcome::Rotated { generation: 1 })
    );
    let (outcome, engines) = three.stores.rotate_all(0, 10).await.unwrap();
    assert_eq!(outcome, RotateOutcome::Rotated { generation: 10 });
    let done: Vec<_> = engines.iter().map(|done| (done.engine.as_str(), done.generation, done.rotated)).collect();
    assert_eq!(done, [("default", 10, true), ("b", 10, true), ("c", 10, true)]);
    assert_eq!(three.generations().await, [10; 3]);
    for name in ["a", "b/1", "c/1", "c/never"] {
        assert_eq!(reason(three.put(name, "35").await), Reason::RetiredGeneration);
    }
    let (again, engines) = three.stores.rotate_all(0, 99).await.unwrap();
    assert_eq!(again, RotateOutcome::OtherGeneration { found: 10 }, "a retry does not rotate twice");
    assert!(engines.iter().all(|done| !done.rotated));
}

#[tokio::test]
async fn g1_a_rotation_that_failed_in_the_middle_says_what_is_done_and_can_be_repeated() {
    let three = three().await;
    for _ in 0..20 {
        three.engines[1].inject(Fault::Unavailable);
    }
    let failed = three.stores.rotate_all(0, 10).await.unwrap_err();
    let Failure::Unknown(why) = &failed else { panic!("{failed:?}") };
    assert!(why.contains("`default` was rotated") && why.contains("engine `b`"), "{why}");
    let mut ended = three.stores.rotate_all(0, 20).await;
    for _ in 0..20 {
        if ended.is_ok() {
            break;
        }
        ended = three.stores.rotate_all(0, 20).await;
    }
    let (outcome, engines) = ended.unwrap();
    let done: Vec<_> = engines.iter().map(|done| (done.engine.as_str(), done.rotated)).collect();
    assert_eq!(done, [("default", false), ("b", true), ("c", true)]);
    assert_eq!(outcome, RotateOutcome::Rotated { generation: 20 });
    assert_eq!(three.generations().await, [10, 20, 20]);
    // The next one covers all of them, and makes them equal again.
    three.stores.rotate_all(20, 30).await.unwrap();
    assert_eq!(three.generations().await, [30; 3]);
}

#[tokio::test]
async fn a_prefix_is_rotated_on_every_engine_page_by_page() {
    let three = three().await;
    let count = 700;
    for n in 0..count {
        applied(three.put(&format!("b/{n:03}"), "1").await);
        applied(three.put(&format!("b-{n:03}"), "1").await);
    }
    applied(three.put("c/1", "1").await);
    let (mut rotated, mut pages, mut after) = (0, 0, None);
    loop {
        let asked = RotatePrefix { prefix: "b".into(), from: 0, issuer: None, after };
        let page = three.stores.rotate_prefix(asked).await.unwrap();
        assert_eq!(page.left, 0);
        (rotated, pages, after) = (rotated + page.rotated, pages + 1, page.next);
        if after.is_none() {
            break;
        }
    }
    assert_eq!((rotated, pages), (2 * count, 2));
    assert_eq!(three.state("b/699").await.generation, 1);
    assert_eq!((three.state("b-699").await.generation, three.state("c/1").await.generation), (1, 0));
}

#[tokio::test]
async fn g8_a_poisoned_store_stops_only_its_own_resources() {
    let three = three().await;
    three.engines[0].inject(Fault::UnknownLost);
    assert!(matches!(three.put("a", "1").await, Err(Failure::Unknown(_))));
    assert!(matches!(three.put("a", "1").await, Err(Failure::Rejected(Rejected::Poisoned(_)))));
    let health: Vec<_> = three.stores.each().map(|(_, store)| store.health() == Health::Ready).collect();
    assert_eq!(health, [false, true, true]);
    applied(three.put("b/1", "1").await);
    let failed = three.abandon("k").await.unwrap_err();
    assert!(
        matches!(&failed, Failure::Rejected(Rejected::Poisoned(why)) if why.contains("engine `default`")),
        "{failed:?}"
    );
}

#[tokio::test]
async fn rules_are_replaced_in_every_store_or_in_none() {
    let three = three().await;
    applied(three.put("b/1", "5").await);
    let observing = |spec: GuardSpec| GuardSpec { policy: Policy { mode: Mode::Observe, ..Policy::default() }, ..spec };
    let list = || guards().list().iter().map(|guard| observing(guard.spec().clone())).collect::<Vec<_>>();
    let mut moved = list();
    moved[1].engine = Some(name("b"));
    let refused = three.stores.set_rules(&Guards::new(moved).unwrap()).unwrap_err().to_string();
    assert!(refused.contains("on engine c") && refused.contains("fencepost remap"), "{refused}");
    assert_eq!(reason(three.put("b/1", "4").await), Reason::Stale);
    three.stores.set_rules(&Guards::new(list()).unwrap()).unwrap();
    applied(three.put("b/1", "4").await);
}

#[tokio::test]
async fn two_engines_are_two_stores() {
    let (shared, guards) = (Memory::new(Ownership::Shared), guards());
    let store = async |engine: &Memory| Arc::new(open(engine, guards.clone()).await.unwrap());
    let (one, two, other) = (store(&shared).await, store(&shared).await, store(&Memory::default()).await);
    let named = BTreeMap::from([(name("b"), one), (name("c"), two)]);
    let refused = Stores::new(other, named).err().unwrap().to_string();
    assert!(refused.contains("`b` and `c`"), "{refused}");
}

/// Every store has the whole mapping, and knows the name of its engine.
#[tokio::test]
async fn t32_no_store_opens_when_a_guard_moves_or_engines_change_places() {
    let three = three().await;
    let Three { engines, .. } = &three;
    let swapped = open(&engines[1], guards().of_engine(Some(&name("c")))).await;
    assert!(matches!(swapped, Err(OpenError::MappingChanged { .. })));
    let moved = Guards::new(vec![spec("b/*/**", "b/*", None), spec("c/*/**", "c/*", Some("c"))]).unwrap();
    for (engine, name) in engines.iter().zip([None, Some(name("b")), Some(name("c"))]) {
        let refused = open(engine, moved.of_engine(name.as_ref())).await;
        assert!(matches!(refused, Err(OpenError::MappingChanged { .. })), "{name:?}");
    }
}

/// G1: a key that moves to an engine where nothing is known of it is not written by a holder from before.
#[tokio::test]
async fn t32_a_remap_raises_every_store_above_all_of_them_and_makes_those_that_are_missing() {
    let (unnamed, b) = (Memory::default(), Memory::new(Ownership::Shared));
    let before = open(&unnamed, Guards::default()).await.unwrap();
    applied(put(&before, "b/1", token("34"), "old").await);
    for from in 0..3 {
        before.rotate(&resource("x"), from, None).await.unwrap();
    }
    before.close().await;
    let guards = Guards::new(vec![spec("b/*/**", "b/*", Some("b"))]).unwrap();
    let of_b = guards.of_engine(Some(&name("b")));
    assert!(!has_store(&b).await.unwrap());
    let both: [(&dyn Engine, Guards); 2] = [(&unnamed, guards.clone()), (&b, of_b.clone())];
    let done = remap_all(&both, &[], 0).await.unwrap();
    assert!(matches!(&done[0], Remapped::Changed { generation: 4, .. }), "{done:?}");
    assert!(matches!(&done[1], Remapped::Made { generation: 4, .. }), "{done:?}");
    let store = open(&b, of_b).await.unwrap();
    assert_eq!(reason(put(&store, "b/1", token("35"), "zombie").await), Reason::RetiredGeneration);
    applied(put(&store, "b/1", token("4:1"), "new").await);
    assert_eq!(fence(&store, "b/1").await.as_deref(), Some("4:1"));
    let again = remap_all(&both, &[], 99).await.unwrap();
    assert!(again.iter().all(|done| matches!(done, Remapped::Unchanged { generation: 4 })), "{again:?}");
}

/// A remap that stopped in the middle goes above what the stores that were left behind have handed out since.
#[tokio::test]
async fn t32_a_remap_that_stopped_in_the_middle_starts_anew() {
    let (unnamed, b) = (Memory::default(), Memory::new(Ownership::Shared));
    open(&unnamed, Guards::default()).await.unwrap().close().await;
    let guards = Guards::new(vec![spec("b/*/**", "b/*", Some("b"))]).unwrap();
    let of_b = guards.of_engine(Some(&name("b")));
    let both: [(&dyn Engine, Guards); 2] = [(&b, of_b), (&unnamed, guards.clone())];
    // Makes the first store, and fails at the second.
    unnamed.inject(Fault::NoSpace);
    let failed = remap_all(&both, &[], 0).await;
    assert!(matches!(failed, Err(RemapError::Partly { done: 1, .. })), "{failed:?}");
    let store = open(&unnamed, Guards::default()).await.unwrap();
    store.rotate_all_to(0, 50).await.unwrap();
    store.close().await;
    let done = remap_all(&both, &[], 0).await.unwrap();
    assert!(done.iter().all(|done| matches!(done, Remapped::Changed { generation: 51, .. })), "{done:?}");
    assert!(matches!(remap(&Memory::default(), &guards, 0).await, Err(RemapError::NoStore)));
}

/// The store of an engine that no guard names any more gets the new mapping, too: a gateway that was forgotten finds that it
/// has changed.
#[tokio::test]
async fn t32_an_engine_that_is_dropped_is_told() {
    let (unnamed, b) = (Memory::new(Ownership::Shared), Memory::new(Ownership::Shared));
    let old = Guards::new(vec![spec("b/*/**", "b/*", Some("b"))]).unwrap();
    open(&unnamed, old.clone()).await.unwrap().close().await;
    let forgotten = open(&b, old.of_engine(Some(&name("b")))).await.unwrap();
    applied(put(&forgotten, "b/1", token("34"), "old").await);
    let new = Guards::new(vec![spec("b/*/**", "b/*", None)]).unwrap();
    let alone: [(&dyn Engine, Guards); 1] = [(&unnamed, new.clone())];
    let refused = remap_all(&alone, &[], 0).await;
    assert!(matches!(&refused, Err(RemapError::EngineMissing(name)) if name == "b"), "{refused:?}");
    applied(put(&forgotten, "b/1", token("35"), "nothing was changed").await);
    let both: [(&dyn Engine, Guards); 2] = [(&b, new.of_engine(Some(&name("b")))), (&unnamed, new.clone())];
    remap_all(&both, &[], 0).await.unwrap();
    let late = put(&forgotten, "b/1", token("36"), "late").await;
    assert!(matches!(late, Err(Failure::Rejected(Rejected::MappingChanged))), "{late:?}");
    let store = open(&unnamed, new).await.unwrap();
    assert_eq!(reason(put(&store, "b/1", token("37"), "zombie").await), Reason::RetiredGeneration);
}

#[tokio::test]
async fn an_engine_that_is_gone_for_good_can_be_dropped() {
    let unnamed = Memory::default();
    let old = Guards::new(vec![spec("b/*/**", "b/*", Some("b"))]).unwrap();
    open(&unnamed, old).await.unwrap().close().await;
    let alone: [(&dyn Engine, Guards); 1] = [(&unnamed, Guards::default())];
    let done = remap_all(&alone, &[name("b")], 0).await.unwrap();
    assert!(matches!(&done[0], Remapped::Changed { .. }), "{done:?}");
}

#[tokio::test]
async fn a_single_store_is_asked_as_before() {
    let memory = Memory::default();
    let stores = Stores::one(Arc::new(open(&memory, Guards::default()).await.unwrap()));
    applied(put(stores.of("a"), "a", token("1"), "x").await);
    assert!(stores.is_one() && Arc::ptr_eq(stores.of("anything"), stores.unnamed()));
    assert!(stores.of_transaction(&txn().put("a", "x").put("b/1", "x").0).is_ok());
    assert_eq!(stores.keys("", None, 10).await.unwrap().entries.len(), 1);
    let (outcome, engines) = stores.rotate_all(0, 7).await.unwrap();
    assert_eq!((outcome, engines), (RotateOutcome::Rotated { generation: 7 }, Vec::new()));
    let (outcome, _) = stores.rotate_all(5, 9).await.unwrap();
    assert_eq!(outcome, RotateOutcome::OtherGeneration { found: 7 });
    let unknown = stores.outcome("anonymous", &idempotency_key("k")).await.unwrap();
    assert!(unknown.is_none());
    assert_eq!(stores.abandon("anonymous", &idempotency_key("k")).await, Ok(FinalOutcome::Abandoned));
}
