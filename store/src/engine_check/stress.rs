//! Stress: many writers over few records, with and without lost answers. One order of the commits must explain all of it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use super::bench::{Bench, GATEWAYS};
use super::failure::{Checked, Failure, ensure};
use super::history::{Done, History, Place, named};
use super::records::{Records, is_done, write};
use super::writer::{Answers, Counts, NAMES, Writer, mark, note_seen};
use crate::engine::{Commit, Version};

/// Writers of each gateway, while answers are awaited. An engine may send one commit at a time, and one that is given up while
/// it waits for its turn was not sent.
const WRITERS: usize = 2;

/// The most commits of a writer: the order of millions would take long to find.
const MOST_COMMITS: u64 = 2_000;

/// The longest time to wait for commits that are still on their way when everything has ended.
const LONGEST_GRACE: Duration = Duration::from_secs(3);

/// Runs the writers, and returns what they saw and did.
async fn write_all(bench: &Bench, answers: Answers, time: Duration, counts: &Arc<Counts>) -> Checked<History> {
    let writers = match answers {
        Answers::Awaited => GATEWAYS * WRITERS,
        Answers::Lost => GATEWAYS,
    };
    let (mut history, mut tasks) = (History::new(), JoinSet::new());
    for number in 0..writers {
        let writer = Writer {
            records: bench.gateway(number),
            number: number as u64 + 1,
            answers,
            until: Instant::now() + time,
            most_commits: MOST_COMMITS,
            counts: counts.clone(),
        };
        tasks.spawn(writer.run());
    }
    while let Some(ended) = tasks.join_next().await {
        history.extend(ended.map_err(|error| Failure::Unusable(format!("a writer failed: {error}")))??);
    }
    Ok(history)
}

/// The state at the end, as a commit that compared all of it.
async fn end(records: &Records, history: &mut History) -> Checked {
    let label = u64::from(u32::MAX) << 32;
    let places: Vec<Place> = (0..NAMES.len()).collect();
    for attempt in 0..100 {
        let loaded = records.load(&NAMES).await?;
        note_seen(&loaded, &places, history)?;
        let begun = Instant::now();
        let commit = records.commit_after(&loaded, &NAMES, vec![write("end", "")]).await?;
        if let Commit::Done { first: Version(first) } = commit {
            let versions = loaded.records.iter().map(|record| record.as_ref().map(|record| record.version));
            let compared = places.iter().copied().zip(versions).collect();
            let (ended, left) = (Instant::now(), Vec::new());
            history.done.push(Done { label, begun, ended, compared, left, versions: first..first + 1 });
            return Ok(());
        }
        is_done(&commit)?;
        tokio::time::sleep(Duration::from_millis(attempt)).await;
    }
    Err(Failure::Broken("a commit was a conflict a hundred times, although nobody else wrote".to_owned()))
}

/// Finding the order takes a while, and must not stop the engine's connections.
async fn judged(history: History) -> Checked {
    let judged = tokio::task::spawn_blocking(move || history.check(&NAMES)).await;
    judged.map_err(|error| Failure::Unusable(format!("the history could not be judged: {error}")))?
}

/// Writers compare several records and change some: all that was done has one order (E2), each version is given once (E3), and
/// what was read had been committed (E4, E5).
pub(super) async fn commits_have_one_order(bench: Bench, time: Duration) -> Checked<String> {
    let counts = Arc::new(Counts::default());
    let mut history = write_all(&bench, Answers::Awaited, time, &counts).await?;
    end(&bench.gateway(0), &mut history).await?;
    judged(history).await?;
    let (done, conflicts) = (counts.done.load(Ordering::Relaxed), counts.conflicts.load(Ordering::Relaxed));
    ensure!(done > 0, "every commit was a conflict");
    Ok(format!("{done} commits, {conflicts} conflicts"))
}

/// Connections are cut at random moments, and each commit whose answer was lost is settled as a gateway would settle it. What
/// was settled as applied is there, and what was settled as not applied never appears.
pub(super) async fn lost_answers_are_settled(bench: Bench, time: Duration) -> Checked<String> {
    let counts = Arc::new(Counts::default());
    let mut history = write_all(&bench, Answers::Lost, time, &counts).await?;
    // A commit that was given up may still be on its way.
    tokio::time::sleep(LONGEST_GRACE.min(time / 4)).await;
    let records = bench.gateway(0);
    let there: BTreeSet<String> = records.all_names("mark/").await?.into_iter().collect();
    let applied: BTreeSet<String> = history.done.iter().map(|done| mark(done.label)).collect();
    let unknown: BTreeSet<String> = history.unknown.iter().map(|label| mark(*label)).collect();
    let shown = |name: &String| {
        let label = name.strip_prefix("mark/").and_then(|label| u64::from_str_radix(label, 16).ok());
        label.map_or_else(|| name.clone(), named)
    };
    if let Some(missing) = applied.difference(&there).next() {
        let why = format!("E4: {} was done, as its writer was told, and what it wrote is not there", shown(missing));
        return Err(Failure::Broken(why));
    }
    if let Some(late) = there.iter().find(|name| !applied.contains(*name) && !unknown.contains(*name)) {
        let why = format!("E4: {} was not applied, as its writer was told, and what it wrote is there", shown(late));
        return Err(Failure::Broken(why));
    }
    end(&records, &mut history).await?;
    judged(history).await?;
    let (lost, found) = (counts.lost.load(Ordering::Relaxed), counts.applied.load(Ordering::Relaxed));
    let (done, unknown) = (counts.done.load(Ordering::Relaxed), counts.unknown.load(Ordering::Relaxed));
    ensure!(done > 0, "no commit was done");
    let unknown = if unknown == 0 { String::new() } else { format!(", {unknown} not settled in time") };
    Ok(format!("{done} commits; {lost} lost answers, {found} applied{unknown}"))
}
