//! What survives a restart: E3 and E4 of durable engines.

use std::collections::{HashMap, HashSet};

use fencepost_store::engine::{Commit, Version};
use fencepost_store::engine_check::records::{remove, write};
use fencepost_store::engines::EngineOptions;

use super::bench::Bench;

/// Buffers so small that a few hundred writes are flushed to tables.
fn tiny() -> EngineOptions {
    EngineOptions {
        cache_bytes: 64 << 10,
        write_buffer_bytes: 64 << 10,
        free_space_floor: 0,
        ..EngineOptions::default()
    }
}

pub(crate) async fn e4_a_commit_is_durable(bench: Bench) {
    let engine = bench.open().await;
    let first = engine.commit(vec![write("a", "1"), write("b", "1"), write("b", "2")]).await.unwrap();
    engine.commit(vec![write("c", "1")]).await.unwrap();
    engine.commit(vec![remove("a")]).await.unwrap();
    drop(engine);
    let engine = bench.open().await;
    assert_eq!(engine.one("a").await.unwrap(), None);
    assert_eq!(engine.text("b").await.unwrap().as_deref(), Some("2"));
    assert_eq!(engine.one("b").await.unwrap().unwrap().version, Version(first.0 + 2));
    assert_eq!(engine.all_names("").await.unwrap(), ["b", "c"]);
}

pub(crate) async fn e4_nothing_of_a_conflict_appears_later(bench: Bench) {
    let engine = bench.open().await;
    engine.commit(vec![write("a", "1")]).await.unwrap();
    let loaded = engine.load(&["a"]).await.unwrap();
    engine.commit(vec![write("a", "2")]).await.unwrap();
    let ours = vec![write("a", "ours"), write("b", "ours")];
    assert_eq!(engine.commit_after(&loaded, &["a"], ours).await.unwrap(), Commit::Conflict);
    drop(engine);
    let engine = bench.open().await;
    assert_eq!(engine.text("a").await.unwrap().as_deref(), Some("2"));
    assert_eq!(engine.one("b").await.unwrap(), None);
}

/// Holds even if the newest version belonged to a removal, which leaves no record behind.
pub(crate) async fn e3_versions_are_not_reused_after_reopening(bench: Bench) {
    let mut given = HashSet::new();
    for round in 0..6 {
        let engine = if round % 2 == 0 { bench.open().await } else { bench.open_with(&tiny()).await };
        let first =
            engine.commit(vec![write("a", "same"), remove("a"), write("a", "same"), remove("a")]).await.unwrap();
        assert!((first.0..first.0 + 4).all(|version| given.insert(version)), "{first:?} came again in round {round}");
    }
    let engine = bench.open().await;
    let first = engine.commit(vec![write("a", "same")]).await.unwrap();
    assert_eq!(engine.one("a").await.unwrap().unwrap().version, first);
    assert!(given.insert(first.0));
}

/// Large and small values in turn, across tables and restarts; replaced or removed values do not reappear.
pub(crate) async fn large_records_are_found_when_memory_holds_almost_none(bench: Bench) {
    let text_of = |round: usize, n: usize| match (round + n) % 3 {
        0 => None,
        1 => Some(format!("{round}:{n}")),
        _ => Some(format!("{round}:{n}:{}", "x".repeat(40_000 + n))),
    };
    for round in 0..6 {
        let engine = bench.open_with(&tiny()).await;
        for n in 0..12 {
            let change = text_of(round, n).map_or_else(|| remove(&name(n)), |text| write(&name(n), text));
            engine.commit(vec![change]).await.unwrap();
        }
        drop(engine);
        let engine = bench.open_with(&tiny()).await;
        for n in 0..12 {
            assert_eq!(engine.text(&name(n)).await.unwrap(), text_of(round, n), "{n} in round {round}");
        }
        let present = (0..12).filter(|n| text_of(round, *n).is_some()).count();
        assert_eq!(engine.all_names("").await.unwrap().len(), present, "round {round}");
    }
}

fn name(n: usize) -> String {
    format!("large/{n:02}")
}

/// Results must not depend on the contents of a cache.
pub(crate) async fn every_record_is_found_when_memory_holds_almost_none(bench: Bench) {
    let engine = bench.open_with(&tiny()).await;
    let name = |n: usize| format!("n/{:04}", n * 7919 % 2000);
    let mut expected: HashMap<String, Option<String>> = HashMap::new();
    for round in 0..100 {
        let mut changes = Vec::new();
        for n in 0..60 {
            let name = name(round * 31 + n);
            if (round + n) % 11 == 0 {
                changes.push(remove(&name));
                expected.insert(name, None);
            } else {
                let text = format!("{round}:{}", "x".repeat(n * 5));
                changes.push(write(&name, &text));
                expected.insert(name, Some(text));
            }
        }
        engine.commit(changes).await.unwrap();
    }
    drop(engine);
    let engine = bench.open_with(&tiny()).await;
    for n in 0..2000 {
        let name = name(n);
        assert_eq!(engine.text(&name).await.unwrap(), expected.get(&name).cloned().flatten(), "{name}");
    }
    let present = expected.values().filter(|text| text.is_some()).count();
    assert_eq!(engine.all_names("n/").await.unwrap().len(), present);
}
