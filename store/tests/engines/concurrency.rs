//! Concurrent access: E1, E2 and E5 under load.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use fencepost_store::engine::{Commit, Engine};

use super::bench::{Bench, commit, commit_after, load, number, remove, text, under, write};

const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
/// How many different states a reader must have seen before the writer stops.
const ENOUGH: usize = 25;
const DEADLINE: Duration = Duration::from_secs(60);

/// Writes the same number under every name; every other commit removes them first.
async fn rewrite(engine: Arc<dyn Engine>, seen: Arc<AtomicUsize>) {
    for round in 0.. {
        if seen.load(Ordering::Acquire) >= ENOUGH {
            return;
        }
        let mut changes = Vec::new();
        for name in NAMES {
            if round % 2 == 0 {
                changes.push(remove(name));
            }
            changes.push(write(name, round.to_string()));
        }
        commit(&*engine, changes).await;
        tokio::task::yield_now().await;
    }
}

/// Runs `look` repeatedly while commits happen.
async fn while_rewriting<F>(engine: Arc<dyn Engine>, look: impl Fn(Arc<dyn Engine>) -> F + Send + 'static)
where
    F: Future<Output = Vec<String>> + Send + 'static,
{
    commit(&*engine, NAMES.iter().map(|name| write(name, "before")).collect()).await;
    let count = Arc::new(AtomicUsize::new(0));
    let writer = tokio::spawn(rewrite(engine.clone(), count.clone()));
    let reader = async {
        let mut seen = HashSet::new();
        while seen.len() < ENOUGH {
            let texts = look(engine.clone()).await;
            assert_eq!(texts.len(), NAMES.len(), "a removal was seen without its write: {texts:?}");
            assert!(texts.iter().all(|text| *text == texts[0]), "two commits were mixed: {texts:?}");
            seen.insert(texts[0].clone());
            count.store(seen.len(), Ordering::Release);
        }
    };
    tokio::time::timeout(DEADLINE, reader).await.expect("the reader has seen enough in time");
    writer.await.unwrap();
}

pub(crate) async fn e1_e5_loads_see_only_whole_commits(bench: Bench) {
    while_rewriting(bench.open().await, |engine| async move {
        let loaded = load(&*engine, &NAMES).await;
        loaded.records.iter().flatten().map(|record| String::from_utf8_lossy(&record.bytes).into_owned()).collect()
    })
    .await;
}

pub(crate) async fn e5_scans_see_only_whole_commits(bench: Bench) {
    while_rewriting(bench.open().await, |engine| async move {
        let scanned = engine.scan(under("")).await.unwrap();
        scanned.records.iter().map(|(_, record)| String::from_utf8_lossy(&record.bytes).into_owned()).collect()
    })
    .await;
}

pub(crate) async fn e2_no_increment_is_lost(bench: Bench) {
    const TASKS: u64 = 4;
    const EACH: u64 = 40;
    let engine = bench.open().await;
    let tasks: Vec<_> = (0..TASKS)
        .map(|_| {
            let engine = engine.clone();
            tokio::spawn(async move {
                let (mut counted, mut conflicts) = (0, 0u64);
                while counted < EACH {
                    let loaded = load(&*engine, &["n"]).await;
                    let before = number(loaded.records[0].as_ref());
                    tokio::task::yield_now().await;
                    match commit_after(&*engine, &loaded, &["n"], vec![write("n", (before + 1).to_string())]).await {
                        Commit::Done { .. } => counted += 1,
                        Commit::Conflict => conflicts += 1,
                        other => panic!("{other:?}"),
                    }
                }
                conflicts
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(text(&*engine, "n").await, Some((TASKS * EACH).to_string()));
}

/// What one reader has seen, no later reader misses, whichever records they ask for.
pub(crate) async fn e5_no_reader_goes_back(bench: Bench) {
    const READERS: usize = 3;
    const COMMITS: u64 = 150;
    let engine = bench.open().await;
    commit(&*engine, NAMES.iter().map(|name| write(name, "0")).collect()).await;
    let (seen, done) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let readers: Vec<_> = (0..READERS)
        .map(|reader| {
            let (engine, seen, done) = (engine.clone(), seen.clone(), done.clone());
            tokio::spawn(async move {
                for round in 0.. {
                    if done.load(Ordering::Acquire) {
                        break;
                    }
                    let other = format!("other-{reader}-{round}");
                    // Alone, with one that is never written, and with one that this reader has not asked for yet.
                    let names = [vec!["a"], vec!["a", "never"], vec!["a", other.as_str()]][round % 3].clone();
                    let before = seen.load(Ordering::Acquire);
                    let loaded = load(&*engine, &names).await;
                    let found = number(loaded.records[0].as_ref());
                    assert!(found >= before, "{names:?} went back from commit {before} to {found}");
                    seen.fetch_max(found, Ordering::AcqRel);
                    tokio::task::yield_now().await;
                }
            })
        })
        .collect();
    for round in 1..=COMMITS {
        commit(&*engine, vec![write("a", round.to_string()), write("b", round.to_string())]).await;
    }
    done.store(true, Ordering::Release);
    for reader in readers {
        tokio::time::timeout(DEADLINE, reader).await.expect("readers end").unwrap();
    }
}
