//! How a batch is committed: compared, synced in the journal, applied to RocksDB's memory, marked.

use std::sync::atomic::Ordering;

use rocksdb::{ErrorKind, WriteBatch, WriteOptions};

use super::{POSITION, RocksDb};
use crate::engine::{Batch, Commit, EngineError, Version};
use crate::engines::data_dir::CommittedMark;
use crate::engines::journal::{Entry, Journal};

/// What only one commit at a time may use.
pub(super) struct Committer {
    mark: CommittedMark,
    journal: Journal,
    /// The last position.
    last: u64,
    /// A commit that is in the journal and not yet in RocksDB.
    unapplied: Option<Unapplied>,
    /// A commit failed, so what the journal and RocksDB have is unknown.
    pub(super) failed: bool,
    apply: WriteOptions,
    floor: u64,
}

/// A synced commit that RocksDB has still to take.
struct Unapplied {
    /// Its body is a `WriteBatch`.
    entry: Entry,
    first: u64,
    last: u64,
}

impl Committer {
    /// Commits after the position `last`, and keeps `floor` bytes of the disk free.
    pub(super) fn new(mark: CommittedMark, journal: Journal, last: u64, floor: u64) -> Committer {
        Committer { mark, journal, last, unapplied: None, failed: false, apply: applying(), floor }
    }
}

/// How batches are applied: the journal has them, and a stall is waited for elsewhere.
pub(super) fn applying() -> WriteOptions {
    let mut options = WriteOptions::default();
    options.disable_wal(true);
    options.set_no_slowdown(true);
    options
}

impl RocksDb {
    /// Compares, and syncs the batch in the journal. `None`: the batch is to be applied now.
    pub(super) fn sync(&self, batch: &Batch) -> Result<Option<Commit>, EngineError> {
        let mut committer = self.committer.lock();
        let unavailable = |why: String| Ok(Some(Commit::Unavailable(why)));
        if committer.failed || committer.unapplied.is_some() {
            return unavailable("an earlier commit failed; only a restart shows how it ended".into());
        }
        let floor = batch.purpose.floor(committer.floor);
        match self.shared.free_space() {
            Ok(free) if free < floor => return Ok(Some(Commit::NoSpace { free, floor })),
            Ok(_) => {}
            Err(why) => return unavailable(format!("free space cannot be read: {why}")),
        }
        match self.shared.holds(batch) {
            Ok(true) => {}
            Ok(false) => return Ok(Some(Commit::Conflict)),
            Err(EngineError(why)) => return unavailable(format!("compared records cannot be read: {why}")),
        }
        let Ok(count) = u32::try_from(batch.changes.len()) else {
            return unavailable("the commit has too many changes".into());
        };
        let (first, last) = (committer.last + 1, committer.last + u64::from(count));
        let mut written = self.shared.write_batch(&batch.changes, first);
        written.put(POSITION, last.to_le_bytes());
        let mut entry = Entry::new(written.data());
        drop(written);
        if committer.journal.needs_a_file_for(&entry) {
            match self.shared.in_tables() {
                Ok(in_tables) => committer.journal.free_up_to(in_tables.unwrap_or(0)),
                Err(EngineError(why)) => return unavailable(why),
            }
        }
        if let Err(error) = committer.journal.append(first, count, &mut entry) {
            committer.failed = true;
            return Err(EngineError(format!("the journal cannot be written: {error}")));
        }
        committer.last = last;
        committer.unapplied = Some(Unapplied { entry, first, last });
        Ok(None)
    }

    /// Applies the synced batch. `None`: RocksDB is stalled, and did not take it.
    pub(super) fn apply(&self) -> Result<Option<Commit>, EngineError> {
        let mut committer = self.committer.lock();
        let Some(Unapplied { entry, first, last }) = committer.unapplied.take() else {
            return Err(EngineError("there is no commit to apply".into()));
        };
        match self.shared.db.write_opt(WriteBatch::from_data(entry.body()), &committer.apply) {
            Ok(()) => {}
            // `no_slowdown`: nothing was written.
            Err(error) if error.kind() == ErrorKind::Incomplete => {
                committer.unapplied = Some(Unapplied { entry, first, last });
                return Ok(None);
            }
            Err(error) => {
                committer.failed = true;
                return Err(EngineError(error.to_string()));
            }
        }
        if let Err(error) = committer.mark.set(last) {
            committer.failed = true;
            return Err(EngineError(format!("the committed mark cannot be written: {error}")));
        }
        self.durable.store(last, Ordering::Release);
        Ok(Some(Commit::Done { first: Version(first) }))
    }
}
