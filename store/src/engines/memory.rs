//! An in-memory engine for tests, with fault injection.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

use crate::engine::{
    AsOf, Batch, Change, Commit, Engine, EngineError, Limits, Loaded, Ownership, Record, Scan, Scanned, Version, Wanted,
};
use crate::record::RecordKey;

/// What the next commit does instead of its normal work.
#[derive(Clone, Debug)]
pub enum Fault {
    /// Reports that a version differed. Nothing is written.
    Conflict,
    /// Reports that there is no space. Nothing is written.
    NoSpace,
    /// Fails with a known outcome. Nothing is written.
    Unavailable,
    /// Writes, then fails with an unknown outcome.
    UnknownApplied,
    /// Fails with an unknown outcome, without writing.
    UnknownLost,
    /// Fails with an unknown outcome, and every read fails from then on, as with [`Memory::break_reads`].
    Cut,
    /// Fails with an unknown outcome, and compares and writes when [`Memory::release`] is called, or never.
    UnknownLate,
    /// Another writer commits these changes first; the comparison must detect it.
    Interleave(Vec<(RecordKey, Change)>),
    /// Waits until [`Memory::release`] is called, then commits.
    Hold,
    /// Commits, then waits until [`Memory::release`] is called: readers see a commit that its committer does not know
    /// of yet.
    HoldWritten,
}

#[derive(Default)]
struct State {
    records: BTreeMap<Vec<u8>, Record>,
    last: u64,
    faults: VecDeque<Fault>,
    commits: Vec<Batch>,
    background: Option<String>,
    read_fault: Option<String>,
}

/// Records in memory. Clones share them, as gateways share a database.
#[derive(Clone)]
pub struct Memory {
    state: Arc<Mutex<State>>,
    held: Arc<Notify>,
    released: Arc<Notify>,
    ownership: Ownership,
    load_is_proof: bool,
    limits: Limits,
}

impl Default for Memory {
    fn default() -> Memory {
        Memory::new(Ownership::Exclusive)
    }
}

impl Memory {
    /// An empty engine.
    pub fn new(ownership: Ownership) -> Memory {
        let (state, held, released) = (Arc::default(), Arc::default(), Arc::default());
        Memory { state, held, released, ownership, load_is_proof: true, limits: Limits::NONE }
    }

    /// An empty engine that several gateways share, and whose loads prove nothing.
    pub fn unproven() -> Memory {
        Memory { load_is_proof: false, ..Memory::new(Ownership::Shared) }
    }

    /// An empty engine that several gateways share, and that takes no larger commits. Keys count, too.
    pub fn limited(limits: Limits) -> Memory {
        Memory { limits, ..Memory::new(Ownership::Shared) }
    }

    /// Queues a fault for a coming commit.
    pub fn inject(&self, fault: Fault) {
        self.lock().faults.push_back(fault);
    }

    /// Lets a held commit continue.
    pub fn release(&self) {
        self.released.notify_one();
    }

    /// Waits until a commit is held.
    pub async fn wait_held(&self) {
        self.held.notified().await;
    }

    /// Every batch that was written, oldest first.
    pub fn commits(&self) -> Vec<Batch> {
        self.lock().commits.clone()
    }

    /// Reports a background fault from now on.
    pub fn break_background(&self, reason: &str) {
        self.lock().background = Some(reason.to_owned());
    }

    /// Makes every read fail from now on; `None` ends that.
    pub fn break_reads(&self, reason: Option<&str>) {
        self.lock().read_fault = reason.map(str::to_owned);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl State {
    fn write(&mut self, changes: &[(RecordKey, Change)]) -> Version {
        let first = self.last + 1;
        for (key, change) in changes {
            self.last += 1;
            match change {
                Change::Put(bytes) => {
                    let record = Record::whole(Version(self.last), bytes.clone());
                    self.records.insert(key.as_bytes().to_vec(), record);
                }
                Change::Delete => {
                    self.records.remove(key.as_bytes());
                }
            }
        }
        Version(first)
    }

    fn holds(&self, batch: &Batch) -> bool {
        let version = |key: &RecordKey| self.records.get(key.as_bytes()).map(|record| record.version);
        batch.compared().all(|(key, compared)| version(key) == compared)
    }

    fn load(&self, wanted: &[Wanted], mut spare: usize) -> Result<Loaded, EngineError> {
        self.readable()?;
        let records = wanted.iter().map(|Wanted { key, want }| {
            let found = self.records.get(key.as_bytes())?;
            let taken = want.takes(found.size, &mut spare);
            Some(if taken { found.clone() } else { Record::head(found.version, found.size) })
        });
        Ok(Loaded { records: records.collect(), as_of: AsOf(0) })
    }

    fn readable(&self) -> Result<(), EngineError> {
        self.read_fault.clone().map_or(Ok(()), |reason| Err(EngineError(reason)))
    }
}

#[async_trait]
impl Engine for Memory {
    async fn load_wanted(&self, wanted: &[Wanted], spare: usize) -> Result<Loaded, EngineError> {
        self.lock().load(wanted, spare)
    }

    fn at_hand(&self, wanted: &[Wanted], spare: usize) -> Option<Loaded> {
        self.lock().load(wanted, spare).ok()
    }

    async fn scan(&self, scan: Scan) -> Result<Scanned, EngineError> {
        let state = self.lock();
        state.readable()?;
        let (mut found, mut taken) = (Scanned::default(), 0);
        let from = scan.from.as_slice().max(&scan.prefix).to_vec();
        for (key, record) in state.records.range(from..) {
            if !key.starts_with(&scan.prefix) {
                break;
            }
            let skipped = !scan.inclusive && *key == scan.from;
            if !skipped && !found.push(&scan, &mut taken, key.clone(), record.clone()) {
                break;
            }
        }
        Ok(found)
    }

    async fn commit(&self, batch: Batch) -> Result<Commit, EngineError> {
        let fault = self.lock().faults.pop_front();
        if let Some(Fault::Hold) = fault {
            self.held.notify_one();
            self.released.notified().await;
        }
        if let Some(Fault::UnknownLate) = fault {
            let (late, released) = (self.clone(), self.released.clone());
            tokio::spawn(async move {
                released.notified().await;
                // Its committer was answered long ago.
                let _ = late.work(batch, None);
                late.held.notify_one();
            });
            return Err(EngineError("injected: the outcome is unknown".into()));
        }
        let commit = self.work(batch, fault.as_ref());
        if let Some(Fault::HoldWritten) = fault {
            self.held.notify_one();
            self.released.notified().await;
        }
        commit
    }

    fn fault(&self) -> Option<String> {
        self.lock().background.clone()
    }

    fn ownership(&self) -> Ownership {
        self.ownership
    }

    fn position(&self) -> Option<u64> {
        None
    }

    fn load_is_proof(&self) -> bool {
        self.load_is_proof
    }

    fn limits(&self) -> Limits {
        self.limits
    }
}

impl Memory {
    /// Compares and writes, or does what the injected fault prescribes.
    fn work(&self, batch: Batch, fault: Option<&Fault>) -> Result<Commit, EngineError> {
        let mut state = self.lock();
        match fault {
            Some(Fault::Conflict) => return Ok(Commit::Conflict),
            Some(Fault::NoSpace) => return Ok(Commit::NoSpace { free: 1, floor: 2 }),
            Some(Fault::Unavailable) => return Ok(Commit::Unavailable("injected".into())),
            Some(Fault::Cut) => {
                state.read_fault = Some("injected: the connection was cut".into());
                return Err(EngineError("injected: the outcome is unknown".into()));
            }
            Some(Fault::UnknownLost) => return Err(EngineError("injected: the outcome is unknown".into())),
            Some(Fault::Interleave(changes)) => {
                state.write(changes);
            }
            Some(Fault::UnknownApplied | Fault::UnknownLate | Fault::Hold | Fault::HoldWritten) | None => {}
        }
        let (records, bytes) = size(&batch);
        if !self.limits.hold(records, bytes) {
            return Ok(Commit::TooLarge(format!(
                "{records} records with {bytes} bytes; the limit is {:?}",
                self.limits
            )));
        }
        if !state.holds(&batch) {
            return Ok(Commit::Conflict);
        }
        let first = state.write(&batch.changes);
        state.commits.push(batch);
        match fault {
            Some(Fault::UnknownApplied) => Err(EngineError("injected: the outcome is unknown".into())),
            _ => Ok(Commit::Done { first }),
        }
    }
}

/// The records that a batch compares or changes, whichever are more, and the bytes of its changes.
fn size(batch: &Batch) -> (usize, usize) {
    let bytes = batch.changes.iter().map(|(key, change)| match change {
        Change::Put(bytes) => key.as_bytes().len() + bytes.len(),
        Change::Delete => key.as_bytes().len(),
    });
    (batch.compared().count().max(batch.changes.len()), bytes.sum())
}
