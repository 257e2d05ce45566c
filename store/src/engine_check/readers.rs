//! Readers beside writers: E1 and E5 under load.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;

use super::bench::Bench;
use super::failure::{Checked, Failure, ensure};
use super::records::{Records, number, remove, write};
use crate::engine::Scanned;

const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

/// How many different states a reader must have seen before the writer stops.
const ENOUGH: usize = 25;

/// The time in which it must have seen them.
const DEADLINE: Duration = Duration::from_secs(60);

/// How a reader looks at all records.
#[derive(Clone, Copy)]
enum Look {
    Load,
    Scan,
}

/// What a writer writes: the same under every name.
#[derive(Clone, Copy)]
enum Bodies {
    Numbers,
    /// With small ones in between, and each time of another size.
    Large,
}

impl Bodies {
    fn body(self, round: usize) -> String {
        match self {
            Bodies::Numbers => round.to_string(),
            Bodies::Large if round % 5 == 4 => round.to_string(),
            Bodies::Large => format!("{round} {}", "x".repeat(20_000 + round % 1000)),
        }
    }
}

/// Writes all records in each commit, until the flag is set; every other commit removes them first.
async fn rewrite(engine: Records, bodies: Bodies, enough: Arc<AtomicBool>) -> Checked {
    for round in 0_usize.. {
        if enough.load(Ordering::Acquire) {
            break;
        }
        let body = bodies.body(round);
        let mut changes = Vec::new();
        for name in NAMES {
            if round.is_multiple_of(2) {
                changes.push(remove(name));
            }
            changes.push(write(name, &body));
        }
        engine.commit(changes).await?;
        tokio::task::yield_now().await;
    }
    Ok(())
}

async fn look_at_all(engine: &Records, look: Look) -> Checked<Vec<bytes::Bytes>> {
    Ok(match look {
        Look::Load => engine.load(&NAMES).await?.records.into_iter().flatten().map(|record| record.bytes).collect(),
        Look::Scan => {
            let Scanned { records, .. } = engine.engine().scan(engine.under("")).await?;
            records.into_iter().map(|(_, record)| record.bytes).collect()
        }
    })
}

/// Reads until enough states were seen. Each must be that of one commit.
async fn see_enough(engine: Records, look: Look, enough: Arc<AtomicBool>) -> Checked {
    let mut seen = HashSet::new();
    while seen.len() < ENOUGH {
        let found = look_at_all(&engine, look).await?;
        ensure!(found.len() == NAMES.len(), "E5: a removal was seen without the write of the same commit");
        ensure!(found.iter().all(|bytes| *bytes == found[0]), "E1: one read has records of two commits");
        seen.insert(found[0].clone());
        tokio::task::yield_now().await;
    }
    enough.store(true, Ordering::Release);
    Ok(())
}

/// Reads while commits are made, through another gateway.
async fn while_rewriting(bench: Bench, look: Look, bodies: Bodies) -> Checked {
    let [writer, reader] = bench.pair();
    writer.commit(NAMES.iter().map(|name| write(name, "before")).collect()).await?;
    let enough = Arc::new(AtomicBool::new(false));
    let mut tasks = JoinSet::new();
    tasks.spawn(rewrite(writer, bodies, enough.clone()));
    tasks.spawn(see_enough(reader, look, enough));
    all_end(tasks).await
}

/// Waits for all tasks, up to the first failure.
async fn all_end(mut tasks: JoinSet<Checked>) -> Checked {
    let ending = async {
        while let Some(ended) = tasks.join_next().await {
            ended.map_err(|error| Failure::Unusable(format!("a task of the case failed: {error}")))??;
        }
        Ok::<(), Failure>(())
    };
    match tokio::time::timeout(DEADLINE, ending).await {
        Ok(ended) => ended,
        Err(_) => Err(Failure::Unusable(format!("fewer than {ENOUGH} commits were seen in {DEADLINE:?}"))),
    }
}

pub(super) async fn e1_e5_loads_see_only_whole_commits(bench: Bench) -> Checked {
    while_rewriting(bench, Look::Load, Bodies::Numbers).await
}

pub(super) async fn e5_scans_see_only_whole_commits(bench: Bench) -> Checked {
    while_rewriting(bench, Look::Scan, Bodies::Numbers).await
}

/// The head and body of a large record, if an engine separates them, come from one commit.
pub(super) async fn e1_e5_loads_of_large_records_see_only_whole_commits(bench: Bench) -> Checked {
    while_rewriting(bench, Look::Load, Bodies::Large).await
}

/// What one reader has seen.
#[derive(Default)]
struct Seen {
    highest: AtomicU64,
    loads: AtomicUsize,
    done: AtomicBool,
}

/// What one reader has seen, no later reader misses, whichever records they ask for.
pub(super) async fn e5_no_reader_goes_back(bench: Bench) -> Checked {
    const READERS: usize = 3;
    const COMMITS: u64 = 100;
    let engine = bench.gateway(0);
    engine.commit(NAMES.iter().map(|name| write(name, "0")).collect()).await?;
    let seen = Arc::new(Seen::default());
    let mut tasks = JoinSet::new();
    for reader in 0..READERS {
        tasks.spawn(read_on(bench.gateway(reader), reader, seen.clone()));
    }
    let end = seen.clone();
    tasks.spawn(async move {
        let written = write_on(&engine, COMMITS).await;
        end.done.store(true, Ordering::Release);
        written
    });
    all_end(tasks).await?;
    ensure!(seen.loads.load(Ordering::Acquire) > 0, "nothing was read meanwhile");
    Ok(())
}

async fn write_on(engine: &Records, commits: u64) -> Checked {
    for round in 1..=commits {
        engine.commit(vec![write("a", round.to_string()), write("b", round.to_string())]).await?;
    }
    Ok(())
}

async fn read_on(engine: Records, reader: usize, seen: Arc<Seen>) -> Checked {
    for round in 0.. {
        if seen.done.load(Ordering::Acquire) {
            break;
        }
        let other = format!("other-{reader}-{round}");
        // Alone, with one that is never written, and with one that this reader has not asked for yet.
        let names = [vec!["a"], vec!["a", "never"], vec!["a", other.as_str()]][round % 3].clone();
        let before = seen.highest.load(Ordering::Acquire);
        let loaded = engine.load(&names).await?;
        let found = number(loaded.records[0].as_ref())?;
        ensure!(found >= before, "E5: a read of {names:?} went back from commit {before} to {found}");
        seen.highest.fetch_max(found, Ordering::AcqRel);
        seen.loads.fetch_add(1, Ordering::AcqRel);
        tokio::task::yield_now().await;
    }
    Ok(())
}
