//! How a batch is committed: compared, synced in the journal, marked, made visible.

use std::sync::atomic::Ordering;

use super::RocksDb;
use super::tables::POSITION;
use crate::engine::{Batch, Change, Commit, EngineError, Version};
use crate::engines::bodies;
use crate::engines::data_dir::CommittedMark;
use crate::engines::journal::{Entry, Journal};
use crate::record::RecordKey;

/// When a file of the journal is begun and this many are full, everything is brought into tables, so that they can be written
/// over.
const MAX_FULL_FILES: usize = 3;

/// What only one commit at a time may use.
pub(super) struct Committer {
    mark: CommittedMark,
    journal: Journal,
    /// The last position.
    last: u64,
    /// A commit failed, so what the journal has is unknown.
    pub(super) failed: bool,
    floor: u64,
}

impl Committer {
    /// Commits after the position `last`, and keeps `floor` bytes of the disk free.
    pub(super) fn new(mark: CommittedMark, journal: Journal, last: u64, floor: u64) -> Committer {
        Committer { mark, journal, last, failed: false, floor }
    }
}

impl RocksDb {
    /// Commits, without waiting for anything but the disk.
    pub(super) fn commit_now(&self, batch: Batch) -> Result<Commit, EngineError> {
        let mut committer = self.committer.lock();
        let committer = &mut *committer;
        let unavailable = |why: String| Ok(Commit::Unavailable(why));
        if committer.failed {
            return unavailable("an earlier commit failed; only a restart shows how it ended".into());
        }
        let floor = batch.purpose.floor(committer.floor);
        match self.shared.tables.free_space() {
            Ok(free) if free < floor => return Ok(Commit::NoSpace { free, floor }),
            Ok(_) => {}
            Err(why) => return unavailable(format!("free space cannot be read: {why}")),
        }
        match self.shared.holds(&batch) {
            Ok(true) => {}
            Ok(false) => return Ok(Commit::Conflict),
            Err(EngineError(why)) => return unavailable(format!("compared records cannot be read: {why}")),
        }
        let Ok(count) = u32::try_from(batch.changes.len()) else {
            return unavailable("the commit has too many changes".into());
        };
        let (first, last) = (committer.last + 1, committer.last + u64::from(count));
        let mut entry = self.entry(&batch.changes, first, last);
        let begins_file = committer.journal.needs_a_file_for(&entry);
        if begins_file {
            match self.shared.tables.position() {
                Ok(in_tables) => committer.journal.free_up_to(in_tables.unwrap_or(0)),
                Err(EngineError(why)) => return unavailable(why),
            }
        }
        // What goes wrong from here on has an unknown outcome.
        committer.failed = true;
        let append = committer.journal.append(first, count, &mut entry);
        append.map_err(|error| EngineError(format!("the journal cannot be written: {error}")))?;
        let mark = committer.mark.set(last);
        mark.map_err(|error| EngineError(format!("the committed mark cannot be written: {error}")))?;
        committer.failed = false;
        committer.last = last;
        self.shared.recent.publish(batch.changes, Version(first));
        self.durable.store(last, Ordering::Release);
        if begins_file && committer.journal.full_files() >= MAX_FULL_FILES {
            self.saver.flush();
        } else if self.shared.recent.fresh_bytes() >= self.max_fresh / 2 {
            self.saver.wake();
        }
        Ok(Commit::Done { first: Version(first) })
    }

    /// The journal's entry for a commit: a batch for RocksDB. Whether a value that is replaced has a separate body is not
    /// looked up: if there may be any, they are removed.
    fn entry(&self, changes: &[(RecordKey, Change)], first: u64, last: u64) -> Entry {
        let tables = &self.shared.tables;
        let changes = changes.iter().zip(first..).map(|((key, change), version)| match change {
            Change::Put(bytes) => (key, Some((Version(version), bytes))),
            Change::Delete => (key, None),
        });
        let may_have_body = |key: &RecordKey| key.is_value() && tables.has_bodies.load(Ordering::Relaxed);
        let mut written = bodies::write_batch(changes, may_have_body);
        if written.has_bodies {
            tables.has_bodies.store(true, Ordering::Relaxed);
        }
        written.batch.put(POSITION, last.to_le_bytes());
        Entry::new(written.batch.data())
    }
}
