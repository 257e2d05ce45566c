//! An in-memory engine for tests, with fault injection.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

use crate::engine::{
    AsOf, Batch, Change, Commit, Engine, EngineError, Loaded, Ownership, Record, Scan, Scanned, Version, Wanted,
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
}

impl Default for Memory {
    fn default() -> Memory {
        Memory::new(Ownership::Exclusive)
    }
}

impl Memory {
    /// An empty engine.
    pub fn new(ownership: Ownership) -> Memory {
        Memory { state: Arc::default(), held: Arc::default(), released: Arc::default(), ownership }
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

    fn holds(&self, compare: &[(RecordKey, Option<Version>)]) -> bool {
        compare.iter().all(|(key, version)| self.records.get(key.as_bytes()).map(|record| record.version) == *version)
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
}

impl Memory {
    /// Compares and writes, or does what the injected fault prescribes.
    fn work(&self, batch: Batch, fault: Option<&Fault>) -> Result<Commit, EngineError> {
        let mut state = self.lock();
        match fault {
            Some(Fault::Conflict) => return Ok(Commit::Conflict),
            Some(Fault::NoSpace) => return Ok(Commit::NoSpace { free: 1, floor: 2 }),
            Some(Fault::Unavailable) => return Ok(Commit::Unavailable("injected".into())),
            Some(Fault::UnknownLost) => return Err(EngineError("injected: the outcome is unknown".into())),
            Some(Fault::Interleave(changes)) => {
                state.write(changes);
            }
            Some(Fault::UnknownApplied | Fault::Hold | Fault::HoldWritten) | None => {}
        }
        if !state.holds(&batch.compare) {
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
