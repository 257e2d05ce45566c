//! A memory engine that counts the bytes loaded from it.

use std::sync::Arc;

use async_trait::async_trait;
use fencepost_store::engine::{Batch, Commit, Engine, EngineError, Loaded, Ownership, Scan, Scanned, Wanted};
use fencepost_store::engines::memory::Memory;
use parking_lot::Mutex;

/// Bytes of records in each load, by kind of caller.
#[derive(Default)]
pub(crate) struct Loads {
    /// Loads by the committer.
    pub(crate) to_change: Mutex<Vec<usize>>,
    /// Loads by readers.
    pub(crate) to_read: Mutex<Vec<usize>>,
}

impl Loads {
    /// The most bytes that the committer loaded at once, and the number of its loads, since the last call.
    pub(crate) fn committer(&self) -> (usize, usize) {
        let loads = std::mem::take(&mut *self.to_change.lock());
        (loads.iter().copied().max().unwrap_or(0), loads.len())
    }

    /// The same for readers.
    pub(crate) fn readers(&self) -> (usize, usize) {
        let loads = std::mem::take(&mut *self.to_read.lock());
        (loads.iter().copied().max().unwrap_or(0), loads.len())
    }
}

#[derive(Clone, Default)]
pub(crate) struct Counted {
    pub(crate) memory: Memory,
    pub(crate) loads: Arc<Loads>,
}

fn bytes(loaded: &Loaded) -> usize {
    loaded.records.iter().flatten().map(|record| record.bytes.len()).sum()
}

#[async_trait]
impl Engine for Counted {
    async fn load_wanted(&self, wanted: &[Wanted], spare: usize) -> Result<Loaded, EngineError> {
        let loaded = self.memory.load_wanted(wanted, spare).await?;
        self.loads.to_read.lock().push(bytes(&loaded));
        Ok(loaded)
    }

    async fn load_to_change(&self, wanted: &[Wanted], spare: usize) -> Result<Loaded, EngineError> {
        let loaded = self.memory.load_to_change(wanted, spare).await?;
        self.loads.to_change.lock().push(bytes(&loaded));
        Ok(loaded)
    }

    async fn scan(&self, scan: Scan) -> Result<Scanned, EngineError> {
        self.memory.scan(scan).await
    }

    async fn commit(&self, batch: Batch) -> Result<Commit, EngineError> {
        self.memory.commit(batch).await
    }

    fn fault(&self) -> Option<String> {
        self.memory.fault()
    }

    fn ownership(&self) -> Ownership {
        self.memory.ownership()
    }

    fn position(&self) -> Option<u64> {
        self.memory.position()
    }
}
