//! Group commit: judges the commands of a batch in order against one snapshot, commits once, then answers all.
//!
//! The dispatcher makes the batches. Records can be changed in no other way.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fencepost_core::Timestamp;

use crate::engine::{Batch, Commit, Engine, EngineError, Loaded, Ownership, Purpose, Version};
use crate::failure::{Failure, Rejected};
use crate::fence_cache::FenceCache;
use crate::known_base::KnownBase;
use crate::known_records::KnownRecords;
use crate::lane::{Lane, PATIENCE, PATIENCE_AGAIN, Settled};
use crate::lock_queue::Locks;
use crate::overlay::{Overlay, Plan, Proof};
use crate::poison::Poison;
use crate::record::Meta;
use crate::waiting::Waiting;

/// How often a command is judged after conflicts, the last times alone, before it is rejected.
const MAX_ATTEMPTS: usize = 8;

/// Pauses after conflicts are at most this long.
const LONGEST_PAUSE: Duration = Duration::from_millis(64);

/// Metrics of one batch.
#[derive(Clone, Copy, Debug)]
pub struct BatchReport {
    /// Number of commands in the batch.
    pub commands: usize,
    /// Time in `commit`, fsync included; `None` if nothing had to be written.
    pub commit: Option<Duration>,
    /// Time from taking the batch to sending its last answer.
    pub total: Duration,
}

/// Receives a report of every batch. Called on the sequencer's thread, so it must be quick.
pub trait Observer: Send + Sync + 'static {
    /// A batch was answered.
    fn batch(&self, report: BatchReport);
}

pub(crate) struct Sequencer {
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) cache: Arc<FenceCache>,
    /// Shared with readers.
    pub(crate) base: KnownBase,
    pub(crate) poison: Poison,
    pub(crate) locks: Arc<Locks>,
    pub(crate) observer: Arc<dyn Observer>,
    pub(crate) mapping_hash: [u8; 32],
    /// Makes the keys of outcome indexes unique, within this process and across processes.
    pub(crate) index_id: AtomicU64,
    pub(crate) max_read_bytes: usize,
    /// On a shared engine. All lanes are on one thread, and none keeps it borrowed while it waits.
    pub(crate) known: Option<RefCell<KnownRecords>>,
}

impl Sequencer {
    /// Answers every command, in several batches if the values to be read do not fit into one. On a shared engine, it is done in
    /// a lane.
    pub(crate) async fn batch(&self, mut lane: Option<&mut Lane>, waiting: Waiting) {
        let mut next = Some(waiting);
        while let Some(mut waiting) = next.take() {
            let (started, commands) = (Instant::now(), waiting.commands.len());
            let commit = self.attempts(lane.as_deref_mut(), &mut waiting, &mut next).await;
            let commands = commands - next.as_ref().map_or(0, |next| next.commands.len());
            self.observer.batch(BatchReport { commands, commit, total: started.elapsed() });
        }
    }

    /// Judges and commits, repeatedly after conflicts, and answers every command that is not moved to the `next` batch.
    /// Returns the duration of the last commit.
    async fn attempts(
        &self,
        mut lane: Option<&mut Lane>,
        waiting: &mut Waiting,
        next: &mut Option<Waiting>,
    ) -> Option<Duration> {
        let (mut conflicts, mut must_load) = (0, false);
        while conflicts < MAX_ATTEMPTS {
            if let Some(reason) = self.poison.reason() {
                waiting.answer_all(&Rejected::Poisoned(reason.to_owned()).into());
                return None;
            }
            if let Some(fault) = self.engine.fault() {
                self.poison.set(fault);
                continue;
            }
            let plan = Plan::of(&waiting.commands, self.max_read_bytes);
            let (loaded, proof) = match self.load(&plan, must_load).await {
                Ok(found) => found,
                Err(EngineError(why)) => {
                    waiting.answer_all(&Rejected::Unavailable(why).into());
                    return None;
                }
            };
            let judged = current_meta(&loaded, &self.mapping_hash).and_then(|meta| {
                // Another gateway may have raised it.
                if self.known.is_some() && proof != Proof::Assumed {
                    self.base.set(meta.base_generation);
                }
                Overlay::new(&plan, &loaded, meta, Timestamp::now(), proof)
                    .map_err(|error| Rejected::Unavailable(error.to_string()))
            });
            let mut overlay = match judged {
                Ok(overlay) => overlay,
                // The record that was known may be out of date.
                Err(Rejected::MappingChanged) if proof == Proof::Assumed => {
                    must_load = true;
                    continue;
                }
                Err(rejected) => {
                    waiting.answer_all(&rejected.into());
                    return None;
                }
            };
            match overlay.first_short(&waiting.commands) {
                // Alone, a command has room for everything it may read. If bytes are still missing then, its answer is
                // too large.
                Some(0) if waiting.commands.len() > 1 => {
                    waiting.put_off(1, next);
                    continue;
                }
                Some(0) | None => {}
                Some(at) => waiting.put_off(at, next),
            }
            waiting.judge(&mut overlay);
            let changes = overlay.changes(self.index_id.fetch_add(1, Ordering::Relaxed));
            if changes.is_empty() {
                if proof == Proof::Present || !waiting.is_awaited() {
                    waiting.settle(None, &self.locks);
                    self.note(&overlay);
                    return None;
                }
                // What was judged on may be old. A load proves it, or a commit of the lane alone.
                if self.engine.load_is_proof() {
                    waiting.keep_unanswered();
                    must_load = true;
                    continue;
                }
            }
            let mut batch = Batch {
                as_of: loaded.as_of,
                shared: Vec::new(),
                compare: plan.wanted.into_iter().map(|wanted| wanted.key).zip(versions(&loaded)).collect(),
                changes,
                purpose: waiting.purpose(),
            };
            // The store's own record comes first in every plan.
            if let (meta, Some(version)) = batch.compare.swap_remove(0) {
                batch.shared.push((meta, version));
            }
            let (base, purpose) = (overlay.new_base().and_then(|_| self.base.get()), batch.purpose);
            self.forget(&overlay);
            let committing = Instant::now();
            let result = self.commit(lane.as_deref_mut(), batch).await;
            let took = committing.elapsed();
            if let (Some(base), Ok(commit)) = (base, &result)
                && !matches!(commit, Commit::Done { .. })
            {
                // Nothing was written.
                self.base.set(base);
            }
            match result {
                Ok(Commit::Done { first }) => {
                    self.note(&overlay);
                    self.wake_waiters(&overlay);
                    waiting.settle(Some(first), &self.locks);
                }
                Ok(Commit::Conflict) => {
                    must_load = true;
                    waiting.keep_unanswered();
                    let others = waiting.commands.len() / 2;
                    if conflicts > 0 && others > 0 {
                        // One contended record must not hold up all the others.
                        waiting.put_off(waiting.commands.len() - others, next);
                    } else {
                        conflicts += 1;
                    }
                    self.pause(conflicts).await;
                    continue;
                }
                Ok(Commit::NoSpace { free, floor }) => {
                    let rejected = Rejected::NoSpace { free, floor }.into();
                    waiting.answer_those_that_store(&rejected);
                    waiting.keep_unanswered();
                    // Commands that free space may succeed in a batch of their own.
                    if purpose == Purpose::Store && !waiting.commands.is_empty() {
                        continue;
                    }
                    waiting.answer_all(&rejected);
                }
                Ok(Commit::TooLarge(why)) => {
                    let commands = waiting.commands.len();
                    waiting.keep_unanswered();
                    if commands > 1 && !waiting.commands.is_empty() {
                        // The estimate was too low. A part of the commands may fit.
                        let others = waiting.commands.len() / 2;
                        if others > 0 {
                            waiting.put_off(waiting.commands.len() - others, next);
                        }
                        continue;
                    }
                    waiting.answer_all(&Rejected::TooLarge(why).into());
                }
                Ok(Commit::Unavailable(why)) => {
                    let rejected = match self.engine.fault() {
                        Some(fault) => {
                            self.poison.set(fault.clone());
                            Rejected::Poisoned(fault)
                        }
                        None => Rejected::Unavailable(why),
                    };
                    waiting.answer_all(&rejected.into());
                }
                Err(EngineError(why)) => {
                    if self.engine.ownership() == Ownership::Exclusive {
                        self.poison.set(format!("a commit failed: {why}"));
                    }
                    waiting.answer_all(&Failure::Unknown(why));
                }
            }
            return Some(took);
        }
        waiting.answer_all(&Rejected::Contended { attempts: MAX_ATTEMPTS }.into());
        None
    }

    /// The records of a batch: loaded, or as they are known, which saves a round trip.
    async fn load(&self, plan: &Plan, must_load: bool) -> Result<(Loaded, Proof), EngineError> {
        let known = self.known.as_ref().filter(|_| !must_load);
        if let Some(loaded) = known.and_then(|known| known.borrow().all(&plan.wanted)) {
            return Ok((loaded, Proof::Assumed));
        }
        let loaded = self.engine.load_to_change(&plan.wanted, plan.spare).await?;
        if let Some(known) = &self.known {
            known.borrow_mut().loaded(&plan.wanted, &loaded);
        }
        Ok((loaded, Proof::of_load(self.engine.as_ref())))
    }

    /// Commits a batch, and keeps what is known of its records.
    async fn commit(&self, lane: Option<&mut Lane>, batch: Batch) -> Result<Commit, EngineError> {
        let (Some(known), Some(lane)) = (&self.known, lane) else { return self.engine.commit(batch).await };
        let (compared, changed) = (KnownRecords::compared_by(&batch), KnownRecords::changed_by(&batch));
        let result = self.commit_in_lane(lane, batch).await;
        let mut known = known.borrow_mut();
        match &result {
            Ok(Commit::Done { first }) => known.committed(*first, changed),
            Ok(Commit::Conflict) | Err(_) => known.forget(&compared),
            Ok(Commit::NoSpace { .. } | Commit::TooLarge(_) | Commit::Unavailable(_)) => {}
        }
        result
    }

    /// Commits a batch and the lane with it. If the answer was lost, finds out what became of them.
    async fn commit_in_lane(&self, lane: &mut Lane, mut batch: Batch) -> Result<Commit, EngineError> {
        if lane.is_in_doubt() {
            self.settle(lane).await;
            if !lane.is_in_doubt() {
                return Ok(Commit::Conflict);
            }
            let why = "what became of an earlier commit is not known yet, because the database does not answer";
            return Ok(Commit::Unavailable(why.into()));
        }
        lane.join(&mut batch);
        let changes = batch.changes.len();
        let result = self.engine.commit(batch).await;
        match &result {
            Ok(Commit::Done { first }) => lane.committed(*first, changes),
            Ok(Commit::Conflict) => {
                if let Err(lost) = lane.check(self.engine.as_ref()).await {
                    self.poison.set(lost);
                }
            }
            Ok(Commit::NoSpace { .. } | Commit::TooLarge(_) | Commit::Unavailable(_)) => {}
            Err(EngineError(why)) => {
                tracing::warn!(why, "a commit was not answered; asking what became of it");
                lane.doubts(changes);
                match lane.settle(self.engine.as_ref(), PATIENCE).await {
                    Settled::Applied { first } => return Ok(Commit::Done { first }),
                    Settled::Not => return Ok(Commit::Conflict),
                    Settled::HistoryLost(lost) => self.poison.set(lost),
                    // It may apply later, until the lane is settled.
                    Settled::Unknown => {}
                }
            }
        }
        result
    }

    /// Finds out what became of an earlier commit of the lane, if its server answers. Its callers have been told that it is
    /// unknown.
    pub(crate) async fn settle(&self, lane: &mut Lane) {
        if let Settled::HistoryLost(lost) = lane.settle(self.engine.as_ref(), PATIENCE_AGAIN).await {
            self.poison.set(lost);
        }
    }

    /// Lets other gateways go first, for a random time that grows with the conflicts.
    async fn pause(&self, conflicts: usize) {
        if conflicts > 1 && self.engine.ownership() == Ownership::Shared {
            let longest = LONGEST_PAUSE.min(Duration::from_millis(1 << conflicts.min(16)));
            let share = f64::from(getrandom::u32().unwrap_or(u32::MAX)) / f64::from(u32::MAX);
            tokio::time::sleep(longest.mul_f64(share)).await;
        }
    }

    /// Wakes waiters for locks whose lease a fence has overtaken.
    fn wake_waiters(&self, overlay: &Overlay) {
        self.locks.fences_changed(overlay.changed_fences());
        if let Some(base) = overlay.new_base() {
            self.locks.base_changed(base);
        }
    }

    /// Called before a commit: a caller that has read its own write must not be refused, or served, because of an older
    /// fence or base generation.
    fn forget(&self, overlay: &Overlay) {
        if overlay.new_base().is_some() {
            self.cache.clear();
            self.base.withdraw();
        }
        for (resource, _) in overlay.changed_fences() {
            self.cache.forget(resource);
        }
    }

    fn note(&self, overlay: &Overlay) {
        if let Some(base) = overlay.new_base() {
            self.base.set(base);
        }
        for (resource, state) in overlay.fences() {
            if state.high.is_some() || state.generation > 0 {
                self.cache.note(resource, state);
            }
        }
    }
}

/// The store's own record, which comes first in every plan. Fails if the mapping is no longer the one that commands
/// were planned for.
pub(crate) fn current_meta(loaded: &Loaded, mapping_hash: &[u8; 32]) -> Result<Meta, Rejected> {
    let record = loaded.records.first().and_then(Option::as_ref);
    let record = record.ok_or_else(|| Rejected::Unavailable("the store's own record is missing".into()))?;
    let meta = Meta::decode(&record.bytes).map_err(|error| Rejected::Unavailable(error.to_string()))?;
    if meta.mapping_hash == *mapping_hash { Ok(meta) } else { Err(Rejected::MappingChanged) }
}

fn versions(loaded: &Loaded) -> impl Iterator<Item = Option<Version>> {
    loaded.records.iter().map(|record| record.as_ref().map(|record| record.version))
}
