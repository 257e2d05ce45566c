//! Group commit: drains what is queued, judges it in order against one snapshot, commits once, then answers all.
//!
//! Runs on a thread of its own, because committing blocks. There is no other way to change a record.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fencepost_core::Timestamp;
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use crate::command::{Command, Reply};
use crate::engine::{Batch, Commit, Engine, EngineError, Loaded, Ownership, Purpose, Version};
use crate::fence_cache::FenceCache;
use crate::lock_queue::Locks;
use crate::outcome::{Failure, Outcome, Rejected};
use crate::overlay::{Draft, Overlay, Plan, settle};
use crate::poison::Poison;
use crate::record::{Meta, Pending};

/// How often a batch that conflicts is judged anew before it is given up.
const MAX_ATTEMPTS: usize = 8;

/// What one batch did, for metrics.
#[derive(Clone, Copy, Debug)]
pub struct BatchReport {
    /// Commands in it.
    pub commands: usize,
    /// Time in `commit`, fsync included; `None` if nothing had to be written.
    pub commit: Option<Duration>,
    /// Time from taking the batch to its last answer.
    pub total: Duration,
}

/// Told of every batch. Runs on the sequencer's thread, so it must be quick.
pub trait Observer: Send + Sync + 'static {
    /// A batch was answered.
    fn batch(&self, report: BatchReport);
}

pub(crate) struct Sequencer {
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) cache: Arc<FenceCache>,
    /// The base generation, for readers.
    pub(crate) base: Arc<AtomicU32>,
    pub(crate) poison: Poison,
    pub(crate) locks: Arc<Locks>,
    pub(crate) observer: Arc<dyn Observer>,
    pub(crate) mapping_hash: [u8; 32],
    /// Tells this process's indexes of outcomes apart from each other's and from other processes'.
    pub(crate) index_id: AtomicU64,
    pub(crate) max_commands: usize,
    pub(crate) max_bytes: usize,
    pub(crate) max_reads: usize,
    pub(crate) max_read_bytes: usize,
}

pub(crate) type Queued = (Command, Reply);

/// The commands of a batch and who waits for each; an answered one has no reply left.
struct Waiting {
    commands: Vec<Command>,
    replies: Vec<Option<Reply>>,
}

impl Waiting {
    fn answer(&mut self, at: usize, result: Result<Outcome, Failure>) {
        if let Some(reply) = self.replies[at].take() {
            // A caller that went away does not change what happened.
            let _ = reply.send(result);
        }
    }

    fn answer_all(&mut self, failure: &Failure) {
        for at in 0..self.replies.len() {
            self.answer(at, Err(failure.clone()));
        }
    }

    /// What all of them are for: a batch frees space only if each of its commands does.
    fn purpose(&self) -> Purpose {
        match self.commands.iter().all(|command| command.purpose() == Purpose::Free) {
            true => Purpose::Free,
            false => Purpose::Store,
        }
    }

    /// Answers the commands that store something.
    fn answer_those_that_store(&mut self, failure: &Failure) {
        for at in 0..self.replies.len() {
            if self.commands[at].purpose() == Purpose::Store {
                self.answer(at, Err(failure.clone()));
            }
        }
    }

    /// Parts the commands from this one on, to be put before those that already `wait`.
    fn put_off(&mut self, from: usize, wait: &mut Option<Waiting>) {
        let (mut commands, mut replies) = (self.commands.split_off(from), self.replies.split_off(from));
        if let Some(behind) = wait.take() {
            commands.extend(behind.commands);
            replies.extend(behind.replies);
        }
        *wait = Some(Waiting { commands, replies });
    }

    /// Leaves only what is not answered yet, to be judged anew.
    fn keep_unanswered(&mut self) {
        let unanswered: Vec<bool> = self.replies.iter().map(Option::is_some).collect();
        let mut keep = unanswered.iter();
        self.commands.retain(|_| *keep.next().unwrap_or(&false));
        self.replies.retain(Option::is_some);
    }
}

impl Sequencer {
    /// Starts the thread. It ends when every sender is gone and the queue is empty.
    pub(crate) fn start(self, runtime: &Handle, queue: mpsc::Receiver<Queued>) -> std::io::Result<JoinHandle<()>> {
        let runtime = runtime.clone();
        std::thread::Builder::new().name("fp-committer".into()).spawn(move || {
            let mut unexpected = PoisonUnlessDone { poison: self.poison.clone(), done: false };
            runtime.block_on(self.run(queue));
            unexpected.done = true;
        })
    }

    async fn run(self, mut queue: mpsc::Receiver<Queued>) {
        let mut drained = Vec::with_capacity(self.max_commands);
        while queue.recv_many(&mut drained, self.max_commands).await > 0 {
            let mut rest = drained.drain(..).peekable();
            while rest.peek().is_some() {
                let (mut bytes, mut reads) = (0, 0);
                let (mut commands, mut replies) = (Vec::new(), Vec::new());
                while let Some((command, reply)) = rest.next_if(|_| bytes < self.max_bytes && reads < self.max_reads) {
                    bytes += command.bytes();
                    reads += command.reads().count();
                    commands.push(command);
                    replies.push(Some(reply));
                }
                self.batch(Waiting { commands, replies }).await;
            }
        }
    }

    /// Answers everything, in several batches if the values that are read do not fit into one.
    async fn batch(&self, waiting: Waiting) {
        let mut next = Some(waiting);
        while let Some(mut waiting) = next.take() {
            let (started, commands) = (Instant::now(), waiting.commands.len());
            let commit = self.attempts(&mut waiting, &mut next).await;
            let commands = commands - next.as_ref().map_or(0, |next| next.commands.len());
            self.observer.batch(BatchReport { commands, commit, total: started.elapsed() });
        }
    }

    /// Judges and commits, again after a conflict, and answers everything but what is put off to the `next` batch. The
    /// time spent in the last commit.
    async fn attempts(&self, waiting: &mut Waiting, next: &mut Option<Waiting>) -> Option<Duration> {
        for _ in 0..MAX_ATTEMPTS {
            if let Some(reason) = self.poison.reason() {
                waiting.answer_all(&Rejected::Poisoned(reason.to_owned()).into());
                return None;
            }
            if let Some(fault) = self.engine.fault() {
                self.poison.set(fault);
                continue;
            }
            let plan = Plan::of(&waiting.commands, self.max_read_bytes);
            let loaded = match self.engine.load_to_change(&plan.wanted, plan.spare).await {
                Ok(loaded) => loaded,
                Err(EngineError(why)) => {
                    waiting.answer_all(&Rejected::Unavailable(why).into());
                    return None;
                }
            };
            let judged = current_meta(&loaded, &self.mapping_hash).and_then(|meta| {
                Overlay::new(&plan, &loaded, meta, Timestamp::now())
                    .map_err(|error| Rejected::Unavailable(error.to_string()))
            });
            let mut overlay = match judged {
                Ok(overlay) => overlay,
                Err(rejected) => {
                    waiting.answer_all(&rejected.into());
                    return None;
                }
            };
            match overlay.first_short(&waiting.commands) {
                // Alone it has room for what it may read; what it still lacks makes its answer too large.
                Some(0) if waiting.commands.len() > 1 => {
                    waiting.put_off(1, next);
                    continue;
                }
                Some(0) | None => {}
                Some(at) => waiting.put_off(at, next),
            }
            let pending = self.judge(waiting, &mut overlay);
            let changes = overlay.changes(self.index_id.fetch_add(1, Ordering::Relaxed));
            if changes.is_empty() {
                self.settle(waiting, pending, None);
                self.note(&overlay);
                return None;
            }
            let compare = plan.wanted.into_iter().map(|wanted| wanted.key).zip(versions(&loaded)).collect();
            self.forget(&overlay);
            let committing = Instant::now();
            let purpose = waiting.purpose();
            let result = self.engine.commit(Batch { as_of: loaded.as_of, compare, changes, purpose }).await;
            let took = committing.elapsed();
            match result {
                Ok(Commit::Done { first }) => {
                    self.note(&overlay);
                    self.wake_waiters(&overlay);
                    self.settle(waiting, pending, Some(first));
                }
                Ok(Commit::Conflict) => {
                    waiting.keep_unanswered();
                    continue;
                }
                Ok(Commit::NoSpace { free, floor }) => {
                    let rejected = Rejected::NoSpace { free, floor }.into();
                    waiting.answer_those_that_store(&rejected);
                    waiting.keep_unanswered();
                    // Commands that free space may pass once they are by themselves.
                    if purpose == Purpose::Store && !waiting.commands.is_empty() {
                        continue;
                    }
                    waiting.answer_all(&rejected);
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

    /// Judges every command in order. What durable records alone decide is answered at once.
    fn judge(&self, waiting: &mut Waiting, overlay: &mut Overlay) -> Vec<Option<Outcome<Pending>>> {
        let mut pending = Vec::with_capacity(waiting.commands.len());
        for at in 0..waiting.commands.len() {
            pending.push(match overlay.apply(&waiting.commands[at]) {
                Draft::Pending(outcome) => Some(outcome),
                Draft::Settled(outcome) => {
                    waiting.answer(at, Ok(outcome));
                    None
                }
            });
        }
        pending
    }

    /// Answers what waited for the commit.
    fn settle(&self, waiting: &mut Waiting, pending: Vec<Option<Outcome<Pending>>>, first: Option<Version>) {
        for (at, outcome) in pending.into_iter().enumerate() {
            if let Some(outcome) = outcome {
                let outcome = settle(outcome, first);
                if let Some(resource) = waiting.commands[at].lock() {
                    self.locks.note(resource, &outcome);
                }
                waiting.answer(at, Ok(outcome));
            }
        }
    }

    /// Lets those try who wait for a lock whose lease a fence has overtaken.
    fn wake_waiters(&self, overlay: &Overlay) {
        self.locks.fences_changed(overlay.changed_fences());
        if let Some(base) = overlay.new_base() {
            self.locks.base_changed(base);
        }
    }

    /// Before a commit: a caller that has read what it wrote must not be refused by what was cached before.
    fn forget(&self, overlay: &Overlay) {
        if overlay.new_base().is_some() {
            self.cache.clear();
        }
        for (resource, _) in overlay.changed_fences() {
            self.cache.forget(resource);
        }
    }

    fn note(&self, overlay: &Overlay) {
        if let Some(base) = overlay.new_base() {
            self.base.store(base, Ordering::Release);
        }
        for (resource, state) in overlay.fences() {
            if state.high.is_some() || state.generation > 0 {
                self.cache.note(resource, state);
            }
        }
    }
}

/// The store's own record, which every plan names first, if the mapping is still the one that commands were made for.
pub(crate) fn current_meta(loaded: &Loaded, mapping_hash: &[u8; 32]) -> Result<Meta, Rejected> {
    let record = loaded.records.first().and_then(Option::as_ref);
    let record = record.ok_or_else(|| Rejected::Unavailable("the store's own record is missing".into()))?;
    let meta = Meta::decode(&record.bytes).map_err(|error| Rejected::Unavailable(error.to_string()))?;
    if meta.mapping_hash == *mapping_hash { Ok(meta) } else { Err(Rejected::MappingChanged) }
}

fn versions(loaded: &Loaded) -> impl Iterator<Item = Option<Version>> {
    loaded.records.iter().map(|record| record.as_ref().map(|record| record.version))
}

/// A panic on the sequencer's thread must not look like an overload.
struct PoisonUnlessDone {
    poison: Poison,
    done: bool,
}

impl Drop for PoisonUnlessDone {
    fn drop(&mut self) {
        if !self.done {
            self.poison.set("the committer thread ended unexpectedly".into());
        }
    }
}
