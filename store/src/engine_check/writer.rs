//! A writer under stress: it loads records at random, compares them, changes some, and notes what happened. Each has a lane, as
//! a gateway has, so that a commit whose answer is lost can be settled.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::failure::{Checked, Failure};
use super::history::{Done, History, Place, Seen, named};
use super::random::Random;
use super::records::{Named, Records, is_done, write};
use crate::engine::{Batch, Change, Commit, Loaded, Version};
use crate::lane::{Lane, PATIENCE, Settled};

/// The records that writers contend for.
pub(super) const NAMES: [&str; 10] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"];

/// Commits that fail in a row, until the engine is taken to be unusable.
const MOST_FAILURES: u32 = 100;

/// What writers have done so far, all together.
#[derive(Default)]
pub(super) struct Counts {
    pub(super) done: AtomicU64,
    pub(super) conflicts: AtomicU64,
    /// Commits whose answer was lost.
    pub(super) lost: AtomicU64,
    /// Of those, the ones that were found to be applied.
    pub(super) applied: AtomicU64,
    /// Of those, the ones that could not be settled.
    pub(super) unknown: AtomicU64,
}

/// Whether answers are lost on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answers {
    /// Each is waited for.
    Awaited,
    /// Half of the commits are given up at a random moment, which cuts the connection; and every commit leaves a record of
    /// its own, which shows whether it was applied.
    Lost,
}

pub(super) struct Writer {
    pub(super) records: Records,
    pub(super) number: u64,
    pub(super) answers: Answers,
    pub(super) until: Instant,
    pub(super) most_commits: u64,
    pub(super) counts: Arc<Counts>,
}

/// What a writer does to one record.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Act {
    Compare,
    CompareAndWrite,
    /// Removes it, or writes it if it is absent.
    CompareAndRemove,
    Write,
    Nothing,
}

impl Act {
    fn draw(random: &mut Random) -> Act {
        match random.below(10) {
            0 | 1 => Act::Compare,
            2 => Act::CompareAndWrite,
            3 => Act::CompareAndRemove,
            4 => Act::Write,
            _ => Act::Nothing,
        }
    }

    fn compares(self) -> bool {
        matches!(self, Act::Compare | Act::CompareAndWrite | Act::CompareAndRemove)
    }
}

/// The name of the record that only the commit with this label leaves.
pub(super) fn mark(label: u64) -> String {
    format!("mark/{label:016x}")
}

/// What a commit of the stress writes: its label, and a filling.
fn body(label: u64, filling: usize) -> Bytes {
    let mut body = label.to_be_bytes().to_vec();
    body.resize(8 + filling, b'.');
    body.into()
}

/// The label in a record.
fn label_in(bytes: &Bytes) -> Checked<u64> {
    let label = bytes.get(..8).and_then(|label| label.try_into().ok()).map(u64::from_be_bytes);
    label.ok_or_else(|| Failure::Broken(format!("a record of {} bytes was never written", bytes.len())))
}

/// A batch, and what it means if it is done.
struct Attempt {
    label: u64,
    compared: Vec<(Place, Option<Version>)>,
    /// The last change of each record: its place among the changes, or `None` if it is removed.
    left: Vec<(Place, Option<u64>)>,
    batch: Batch,
}

/// What became of a commit.
enum Answer {
    Known(Commit),
    Lost,
}

impl Writer {
    /// Commits until the time is over. Returns what it saw and did.
    pub(super) async fn run(self) -> Checked<History> {
        let (mut history, mut random, mut lane) = (History::new(), Random::new(), new_lane()?);
        let (mut usual, mut failures) = (Duration::from_millis(5), 0);
        for number in 1..=self.most_commits {
            if Instant::now() >= self.until {
                break;
            }
            let label = (self.number << 32) | number;
            let acts: Vec<Act> = NAMES.iter().map(|_| Act::draw(&mut random)).collect();
            let mut attempt = self.attempt(label, &acts, &mut random, &mut history).await?;
            lane.join(&mut attempt.batch);
            // Others may go in between.
            tokio::task::yield_now().await;
            let changes = attempt.batch.changes.len();
            let begun = Instant::now();
            let given_up = (self.answers == Answers::Lost && random.chance(50))
                .then(|| usual.mul_f64(random.below(200) as f64 / 100.0));
            match self.send(attempt.batch.clone(), given_up).await {
                Answer::Known(Commit::Done { first }) => {
                    usual = (usual * 3 + begun.elapsed()) / 4;
                    failures = 0;
                    lane.committed(first, changes);
                    self.note(attempt, begun, first, &mut history);
                }
                Answer::Known(Commit::Conflict) => {
                    self.counts.conflicts.fetch_add(1, Ordering::Relaxed);
                    lane.check(self.records.engine()).await.map_err(Failure::Broken)?;
                }
                // After a lost answer, the engine must connect again.
                Answer::Known(failed) if failures < MOST_FAILURES && self.answers == Answers::Lost => {
                    failures += 1;
                    tracing::debug!(?failed, "a commit failed");
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                Answer::Known(failed) => {
                    is_done(&failed)?;
                }
                Answer::Lost => self.settle(attempt, begun, &mut lane, &mut history).await?,
            }
            tokio::task::yield_now().await;
        }
        lane.leave(self.records.engine()).await;
        Ok(history)
    }

    /// Loads what is compared, and makes the batch.
    async fn attempt(&self, label: u64, acts: &[Act], random: &mut Random, history: &mut History) -> Checked<Attempt> {
        let compared: Vec<Place> = (0..NAMES.len()).filter(|place| acts[*place].compares()).collect();
        let names: Vec<&str> = compared.iter().map(|place| NAMES[*place]).collect();
        let loaded = self.records.load(&names).await?;
        note_seen(&loaded, &compared, history)?;
        let versions = loaded.records.iter().map(|record| record.as_ref().map(|record| record.version));
        let compared: Vec<(Place, Option<Version>)> = compared.into_iter().zip(versions).collect();

        let mut changes: Vec<(Place, Change)> = Vec::new();
        for (place, act) in acts.iter().enumerate() {
            let is_present = compared.iter().any(|(compared, version)| *compared == place && version.is_some());
            match act {
                Act::CompareAndRemove if is_present => changes.push((place, Change::Delete)),
                Act::CompareAndWrite | Act::CompareAndRemove | Act::Write => {
                    changes.push((place, Change::Put(body(label, self.filling(random)))));
                }
                Act::Compare | Act::Nothing => {}
            }
        }
        // Engines must not rely on the order of keys.
        if random.chance(50) {
            changes.reverse();
        }
        let left = changes
            .iter()
            .zip(0..)
            .map(|((place, change), at)| (*place, matches!(change, Change::Put(_)).then_some(at)));
        let left = left.collect();
        let mut named: Vec<Named> =
            changes.into_iter().map(|(place, change)| (NAMES[place].to_owned(), change)).collect();
        if self.answers == Answers::Lost {
            named.push(write(&mark(label), body(label, 0)));
        }
        let batch = self.records.batch(&loaded, &names, named);
        Ok(Attempt { label, compared, left, batch })
    }

    /// The bytes of a record beside its label. While answers are lost, some are so large that they are cut while they are sent.
    fn filling(&self, random: &mut Random) -> usize {
        let most = match (self.answers, random.chance(10)) {
            (_, false) => 100,
            (Answers::Awaited, true) => 10 << 10,
            (Answers::Lost, true) => 256 << 10,
        };
        let most = most.min(self.records.engine().limits().bytes / 16);
        usize::try_from(random.below(most as u64)).unwrap_or(0)
    }

    /// Sends a batch, and perhaps gives it up.
    async fn send(&self, batch: Batch, given_up: Option<Duration>) -> Answer {
        let sent = async {
            match self.records.engine().commit(batch).await {
                Ok(commit) => Answer::Known(commit),
                Err(error) => {
                    tracing::debug!(%error, "a commit was not answered");
                    Answer::Lost
                }
            }
        };
        match given_up {
            None => sent.await,
            Some(after) => tokio::select! {
                biased;
                answer = sent => answer,
                () = moment(after) => Answer::Lost,
            },
        }
    }

    /// Finds out what became of a commit whose answer was lost.
    async fn settle(&self, attempt: Attempt, begun: Instant, lane: &mut Lane, history: &mut History) -> Checked {
        self.counts.lost.fetch_add(1, Ordering::Relaxed);
        lane.doubts(attempt.batch.changes.len());
        match lane.settle(self.records.engine(), PATIENCE).await {
            Settled::Applied { first } => {
                self.counts.applied.fetch_add(1, Ordering::Relaxed);
                self.note(attempt, begun, first, history);
            }
            Settled::Not => {}
            Settled::Unknown => {
                self.counts.unknown.fetch_add(1, Ordering::Relaxed);
                history.unknown.insert(attempt.label);
                *lane = new_lane()?;
            }
            Settled::HistoryLost(why) => {
                return Err(Failure::Broken(format!("E4: {}: {why}", named(attempt.label))));
            }
        }
        Ok(())
    }

    fn note(&self, attempt: Attempt, begun: Instant, first: Version, history: &mut History) {
        self.counts.done.fetch_add(1, Ordering::Relaxed);
        let Attempt { label, compared, left, batch } = attempt;
        let left = left.into_iter().map(|(place, at)| (place, at.map(|at| Version(first.0 + at)))).collect();
        let versions = first.0..first.0 + batch.changes.len() as u64;
        history.done.push(Done { label, begun, ended: Instant::now(), compared, left, versions });
    }
}

fn new_lane() -> Checked<Lane> {
    Lane::new().map_err(|error| Failure::Unusable(format!("the system gives no random numbers: {error}")))
}

/// Notes the states that a load of these records returned.
pub(super) fn note_seen(loaded: &Loaded, places: &[Place], history: &mut History) -> Checked {
    let at = Instant::now();
    for (place, record) in places.iter().zip(&loaded.records) {
        if let Some(record) = record {
            let label = label_in(&record.bytes)?;
            history.seen.push(Seen { place: *place, version: record.version, label, at });
        }
    }
    Ok(())
}

/// Waits without a timer: those tick in milliseconds, and a commit may take less.
async fn moment(after: Duration) {
    let due = Instant::now() + after;
    while Instant::now() < due {
        tokio::task::yield_now().await;
    }
}
