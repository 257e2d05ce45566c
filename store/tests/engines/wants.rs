//! How much of a record is loaded (E6), and large records, which an engine may store differently from small ones.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fencepost_store::engine::{Batch, Commit, Engine, Loaded, Purpose, Want, Wanted};

use super::bench::{Bench, at, commit, load, names, one, remove, text, under, write};

const LARGE: usize = 300_000;
const DEADLINE: Duration = Duration::from_secs(60);

fn large(letter: &str) -> String {
    letter.repeat(LARGE)
}

async fn load_wanted(engine: &dyn Engine, wanted: &[(&str, Want)], spare: usize) -> Loaded {
    let wanted: Vec<Wanted> = wanted.iter().map(|(name, want)| Wanted { key: at(name), want: *want }).collect();
    let loaded = engine.load_wanted(&wanted, spare).await.unwrap();
    let to_change = engine.load_to_change(&wanted, spare).await.unwrap();
    assert_eq!(loaded.records, to_change.records, "both ways to load give the same");
    loaded
}

/// Size of each record, and whether its bytes came along.
fn sizes(loaded: &Loaded) -> Vec<Option<(usize, bool)>> {
    let part = |size: usize, bytes: usize| {
        assert!(bytes == 0 || bytes == size, "all bytes or none");
        (size, bytes == size)
    };
    loaded.records.iter().map(|record| record.as_ref().map(|found| part(found.size, found.bytes.len()))).collect()
}

pub(crate) async fn e6_a_version_comes_with_the_size_and_without_bytes(bench: Bench) {
    let engine = bench.open().await;
    commit(&*engine, vec![write("small", "abc"), write("large", large("x"))]).await;
    let versions = [("small", Want::Version), ("none", Want::Version), ("large", Want::Version)];
    let loaded = load_wanted(&*engine, &versions, usize::MAX).await;
    assert_eq!(sizes(&loaded), [Some((3, false)), None, Some((LARGE, false))]);
    let whole = load(&*engine, &["small", "none", "large"]).await;
    let versions = |loaded: &Loaded| {
        loaded.records.iter().map(|found| found.as_ref().map(|found| found.version)).collect::<Vec<_>>()
    };
    assert_eq!(versions(&loaded), versions(&whole));
    assert_eq!(sizes(&whole), [Some((3, true)), None, Some((LARGE, true))]);
}

pub(crate) async fn e6_bytes_come_as_far_as_they_are_wanted(bench: Bench) {
    let engine = bench.open().await;
    commit(&*engine, vec![write("small", "abc"), write("large", large("x"))]).await;
    for (want, comes) in [(Want::UpTo(2), false), (Want::UpTo(3), true), (Want::UpTo(usize::MAX), true)] {
        assert_eq!(sizes(&load_wanted(&*engine, &[("small", want)], 3).await), [Some((3, comes))], "{want:?}");
    }
    for (want, comes) in [(Want::UpTo(LARGE - 1), false), (Want::UpTo(LARGE), true), (Want::Bytes, true)] {
        assert_eq!(sizes(&load_wanted(&*engine, &[("large", want)], LARGE).await), [Some((LARGE, comes))], "{want:?}");
    }
}

pub(crate) async fn e6_spare_bounds_what_is_read(bench: Bench) {
    let engine = bench.open().await;
    commit(&*engine, vec![write("a", large("a")), write("b", large("b")), write("c", large("c")), write("d", "four")])
        .await;
    let all = ["a", "b", "c", "d"].map(|name| (name, Want::UpTo(LARGE)));
    let came = |loaded: &Loaded| sizes(loaded).into_iter().map(|found| found.unwrap().1).collect::<Vec<_>>();
    assert_eq!(came(&load_wanted(&*engine, &all, 2 * LARGE + 4).await), [true, true, false, true]);
    assert_eq!(came(&load_wanted(&*engine, &all, 2 * LARGE + 3).await), [true, true, false, false]);
    assert_eq!(came(&load_wanted(&*engine, &all, 0).await), [false; 4]);
    let mut first = all;
    first[0].1 = Want::Bytes;
    assert_eq!(
        came(&load_wanted(&*engine, &first, LARGE).await),
        [true, true, false, false],
        "what must come costs nothing"
    );
}

pub(crate) async fn e2_compare_covers_records_of_which_only_the_version_was_loaded(bench: Bench) {
    let engine = bench.open().await;
    commit(&*engine, vec![write("a", large("a"))]).await;
    let loaded = load_wanted(&*engine, &[("a", Want::Version)], 0).await;
    let compare = vec![(at("a"), loaded.records[0].as_ref().map(|record| record.version))];
    let batch = |text: &str| Batch {
        as_of: loaded.as_of,
        shared: Vec::new(),
        compare: compare.clone(),
        changes: vec![write("b", text)],
        purpose: Purpose::Store,
    };
    commit(&*engine, vec![write("other", "in between")]).await;
    assert!(matches!(engine.commit(batch("one")).await.unwrap(), Commit::Done { .. }));
    commit(&*engine, vec![write("a", large("a"))]).await;
    assert_eq!(engine.commit(batch("two")).await.unwrap(), Commit::Conflict);
    assert_eq!(text(&*engine, "b").await.as_deref(), Some("one"));
}

pub(crate) async fn large_records_replace_small_ones_and_back(bench: Bench) {
    let engine = bench.open().await;
    let mut versions = HashSet::new();
    for round in 0..3 {
        for body in ["small".to_owned(), large("x"), large("y"), "small again".to_owned(), large("z")] {
            let first = commit(&*engine, vec![write("other", "1"), write("a", &body)]).await;
            let found = one(&*engine, "a").await.unwrap();
            assert_eq!((found.version.0, found.bytes.len()), (first.0 + 1, body.len()));
            assert_eq!(found.bytes, body.as_bytes());
            assert!(versions.insert(found.version), "a version came again");
        }
        commit(&*engine, vec![remove("a")]).await;
        assert_eq!(one(&*engine, "a").await, None, "round {round}");
        assert_eq!(names(&*engine, under("")).await.0, ["other"]);
    }
}

pub(crate) async fn large_records_of_one_key_in_one_commit_apply_in_order(bench: Bench) {
    let engine = bench.open().await;
    let (x, y) = (large("x"), large("y"));
    for (changes, left) in [
        (vec![write("a", &x), write("a", "small")], Some("small".to_owned())),
        (vec![write("a", &x), remove("a")], None),
        (vec![write("a", &x), remove("a"), write("a", &y)], Some(y.clone())),
        (vec![remove("a"), write("a", &x), write("b", &x)], Some(x.clone())),
        (vec![write("a", "small"), write("a", &y)], Some(y.clone())),
    ] {
        let count = changes.len() as u64;
        let first = commit(&*engine, changes).await;
        assert_eq!(text(&*engine, "a").await, left);
        if let Some(found) = one(&*engine, "a").await {
            assert!((first.0..first.0 + count).contains(&found.version.0));
        }
        let next = commit(&*engine, vec![write("next", "1")]).await;
        assert!(!(first.0..first.0 + count).contains(&next.0), "a version came again");
    }
}

pub(crate) async fn large_records_are_scanned_like_others(bench: Bench) {
    let engine = bench.open().await;
    commit(&*engine, vec![write("a", "1"), write("b", large("b")), write("c", "3"), write("d", large("d"))]).await;
    commit(&*engine, vec![write("d", "small"), write("e", large("e")), remove("b")]).await;
    let scanned = engine.scan(under("")).await.unwrap();
    let found: Vec<_> = scanned.records.iter().map(|(key, record)| (key[1], record.bytes.len(), record.size)).collect();
    assert_eq!(found, [(b'a', 1, 1), (b'c', 1, 1), (b'd', 5, 5), (b'e', LARGE, LARGE)]);
    for (key, record) in scanned.records {
        let name = String::from_utf8(key[1..].to_vec()).unwrap();
        assert_eq!(one(&*engine, &name).await, Some(record));
    }
}

/// The head and body of a large record, if an engine separates them, come from one commit.
pub(crate) async fn e1_e5_loads_of_large_records_see_only_whole_commits(bench: Bench) {
    const COMMITS: usize = 20;
    let engine = bench.open().await;
    commit(&*engine, vec![write("a", large("z")), write("b", large("z"))]).await;
    let enough = Arc::new(AtomicBool::new(false));
    let writer = {
        let (engine, enough) = (engine.clone(), enough.clone());
        tokio::spawn(async move {
            for round in (0usize..).take_while(|_| !enough.load(Ordering::Acquire)) {
                let letter = ["x", "y", "z"][round % 3];
                // A different size each time, with small ones in between.
                let body = if round % 5 == 4 { letter.to_owned() } else { letter.repeat(20_000 + round % 1000) };
                commit(&*engine, vec![write("a", &body), write("b", &body)]).await;
                tokio::task::yield_now().await;
            }
        })
    };
    let mut seen = HashSet::new();
    let reader = async {
        while seen.len() < COMMITS {
            let loaded = load(&*engine, &["a", "b"]).await;
            let [Some(a), Some(b)] = &loaded.records[..] else { panic!("both are always there") };
            assert!(a.bytes == b.bytes, "two commits were mixed");
            assert!(a.bytes.iter().all(|byte| *byte == a.bytes[0]), "two bodies were mixed");
            seen.insert(a.version);
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(DEADLINE, reader).await.expect("the reader has seen enough in time");
    enough.store(true, Ordering::Release);
    writer.await.unwrap();
}
