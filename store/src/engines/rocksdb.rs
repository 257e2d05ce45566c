//! The embedded engine: RocksDB in a directory that one process owns.
//!
//! Every change has a position, counted from 1, which is never reused (E3). It is the version of the record that it
//! writes, and is stored before the record's bytes. A commit is synced in the journal (`journal.rs`) and then applied to
//! RocksDB's memory, without a log of RocksDB's own; when the store is opened, what is not in tables is applied again.
//! Commits run on the thread that polls them: the sequencer's. The bytes of a large value are stored separately from
//! its version (`bodies.rs`).

mod committer;
mod options;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use rocksdb::{DB, Direction, ErrorKind, IteratorMode, ReadOptions, ReadTier, WriteBatch, properties};

use super::bodies::{self, Stored};
use super::data_dir::{CommittedMark, DataDir};
use super::journal::{Contents, Journal};
use super::{EngineOpenError, EngineOptions, log_check};
use crate::engine::{
    AsOf, Batch, Change, Commit, Engine, EngineError, Loaded, Ownership, Record, Scan, Scanned, Version, Wanted,
};
use crate::record::RecordKey;
use committer::{Committer, applying};
use options::tuned;
use tokio::sync::Semaphore;

/// Maximum number of concurrent reads from disk; each uses a thread and the memory of what it reads.
const MAX_DISK_READS: usize = 16;

/// How long a stalled commit waits before it tries again.
const STALL_PAUSE: Duration = Duration::from_millis(1);

/// The last position that a batch contains, written with every batch: so the tables say how far they go. Sorts after all
/// records and bodies.
const POSITION: &[u8] = &[bodies::BODY, 0xff];

/// A file of the journal has one in this many bytes of the memory for writes, and at least [`MIN_SEGMENT`].
const SEGMENT_SHARE: usize = 4;
const MIN_SEGMENT: usize = 64 << 10;

/// RocksDB and its data directory.
pub struct RocksDb {
    shared: Arc<Shared>,
    /// One commit at a time: compare and write must be atomic (E2).
    committer: Mutex<Committer>,
    disk_reads: Semaphore,
    /// The last durable position. Everything found at opening is durable: it is in tables before the store is used.
    durable: AtomicU64,
}

/// Fields are dropped in this order: the database closes before the directory lock is released.
struct Shared {
    db: DB,
    dir: DataDir,
    /// Whether any value has a separate body. If not, a write need not look for bodies to remove.
    has_bodies: AtomicBool,
}

/// The result of reading several records.
enum Got {
    Records(Vec<Option<Record>>),
    /// Some records are on disk, and only memory was to be read.
    NotInMemory,
    /// A head and its body belong to different writes.
    Torn,
}

impl RocksDb {
    /// Locks the directory and opens the database in it, or reports why that is not safe.
    pub fn open(path: &Path, options: &EngineOptions) -> Result<RocksDb, EngineOpenError> {
        let dir = DataDir::take(path)?;
        let damaged = |why: String| EngineOpenError::Damaged { path: dir.shown(), why };
        let database = dir.path().join("db");
        match log_check::damage(&database) {
            Ok(None) => {}
            Ok(Some(why)) => return Err(damaged(why)),
            Err(error) => return Err(damaged(format!("its logs cannot be read: {error}"))),
        }
        let db =
            DB::open(&tuned(options, &dir), database).map_err(|error| damaged(format!("RocksDB says: {error}")))?;
        let mark = CommittedMark::open(&dir).map_err(|error| damaged(error.to_string()))?;
        let shared = Shared { db, dir, has_bodies: AtomicBool::new(true) };
        let damaged = |why: String| EngineOpenError::Damaged { path: shared.dir.shown(), why };
        let journal = shared.dir.path().join("journal");
        let in_tables = shared.in_tables().map_err(|EngineError(why)| damaged(why))?;
        // A conversion from format 1 that was interrupted may have left a position, with later writes of format 1 after it.
        let in_tables = in_tables.filter(|_| !shared.dir.is_of_format_1());
        // A new store, or one of format 1, whose versions were RocksDB's sequence numbers.
        let tables_end = in_tables.unwrap_or_else(|| shared.db.latest_sequence_number());
        let contents = Contents::read(&journal, tables_end);
        let contents = contents.map_err(|error| damaged(format!("its journal cannot be read: {error}")))?;
        let contents = contents.map_err(|damage| damaged(damage.0))?;
        let (found, expected) = (contents.last, mark.get().unwrap_or(0));
        if found < expected {
            return Err(damaged(format!(
                "its journal ends at write {found}, but write {expected} had been committed, so answered writes are missing"
            )));
        }
        if in_tables.is_none() || !contents.is_in_tables() {
            shared.take_in(&contents).map_err(|EngineError(why)| EngineOpenError::Directory {
                path: shared.dir.shown(),
                why: format!("its journal cannot be brought into tables: {why}"),
            })?;
        }
        let has_bodies = has_bodies(&shared.db).map_err(|error| damaged(format!("RocksDB says: {error}")))?;
        shared.has_bodies.store(has_bodies, Ordering::Relaxed);
        // Before the first commit: an older fencepost would not find it.
        shared.dir.mark()?;
        let journal = Journal::open(&journal, (options.write_buffer_bytes / SEGMENT_SHARE).max(MIN_SEGMENT));
        let journal = journal.map_err(|error| damaged(format!("its journal cannot be opened: {error}")))?;
        Ok(RocksDb {
            shared: Arc::new(shared),
            committer: Mutex::new(Committer::new(mark, journal, found, options.free_space_floor)),
            disk_reads: Semaphore::new(MAX_DISK_READS),
            durable: AtomicU64::new(found),
        })
    }
}

impl Shared {
    /// The last position that is in tables; `None` if no commit went through the journal yet.
    fn in_tables(&self) -> Result<Option<u64>, EngineError> {
        let mut read = ReadOptions::default();
        read.set_read_tier(ReadTier::Persisted);
        let stored = self.db.get_opt(POSITION, &read).map_err(|error| EngineError(error.to_string()))?;
        let unreadable = || EngineError("the position of the tables cannot be read".into());
        stored.map(|stored| stored.try_into().map(u64::from_le_bytes).map_err(|_| unreadable())).transpose()
    }

    /// Brings everything that the journal has into tables.
    fn take_in(&self, contents: &Contents) -> Result<(), EngineError> {
        let apply = |batch: &[u8]| {
            loop {
                match self.db.write_opt(WriteBatch::from_data(batch), &applying()) {
                    Err(error) if error.kind() == ErrorKind::Incomplete => {}
                    applied => return applied.map_err(|error| EngineError(error.to_string())),
                }
                if let Some(fault) = self.fault() {
                    return Err(EngineError(fault));
                }
                pause(STALL_PAUSE);
            }
        };
        contents.replay(apply).map_err(|error| EngineError(error.to_string()))??;
        let mut position = WriteBatch::default();
        position.put(POSITION, contents.last.to_le_bytes());
        apply(position.data())?;
        self.db.flush().map_err(|error| EngineError(error.to_string()))
    }

    /// Reads as of one instant (E1). `ReadTier::BlockCache` reads only memory; `Ok(None)` means that the disk is
    /// needed.
    ///
    /// A snapshot costs more than a read, and takes a lock that all readers and the committer share. So it is only
    /// taken if something was committed during the read.
    fn load(&self, wanted: &[Wanted], spare: usize, tier: ReadTier) -> Result<Option<Loaded>, EngineError> {
        let mut read = ReadOptions::default();
        read.set_read_tier(tier);
        let before = self.db.latest_sequence_number();
        match self.get(wanted, spare, &read)? {
            Got::Records(records) if self.db.latest_sequence_number() == before => {
                return Ok(Some(Loaded { records, as_of: AsOf(before) }));
            }
            Got::Records(_) | Got::Torn => {}
            Got::NotInMemory => return Ok(None),
        }
        let snapshot = self.db.snapshot();
        read.set_snapshot(&snapshot);
        match self.get(wanted, spare, &read)? {
            Got::Records(records) => Ok(Some(Loaded { records, as_of: AsOf(snapshot.sequence_number()) })),
            Got::NotInMemory => Ok(None),
            Got::Torn => Err(torn()),
        }
    }

    fn get(&self, wanted: &[Wanted], mut spare: usize, read: &ReadOptions) -> Result<Got, EngineError> {
        let mut records = Vec::with_capacity(wanted.len());
        for Wanted { key, want } in wanted {
            let stored = match self.db.get_pinned_opt(key.as_bytes(), read) {
                Ok(Some(stored)) => stored,
                Ok(None) => {
                    records.push(None);
                    continue;
                }
                Err(error) if error.kind() == ErrorKind::Incomplete => return Ok(Got::NotInMemory),
                Err(error) => return Err(EngineError(error.to_string())),
            };
            let record = match Stored::parse(&stored)? {
                Stored::Whole(version, bytes) if want.takes(bytes.len(), &mut spare) => {
                    Record::whole(version, Bytes::copy_from_slice(bytes))
                }
                Stored::Whole(version, bytes) => Record::head(version, bytes.len()),
                Stored::Head(version, size) if want.takes(size, &mut spare) => {
                    match self.join(key.as_bytes(), version, size, read) {
                        Ok(Some(record)) => record,
                        Ok(None) => return Ok(Got::Torn),
                        Err(error) if error.kind() == ErrorKind::Incomplete => return Ok(Got::NotInMemory),
                        Err(error) => return Err(EngineError(error.to_string())),
                    }
                }
                Stored::Head(version, size) => Record::head(version, size),
            };
            records.push(Some(record));
        }
        Ok(Got::Records(records))
    }

    /// Reads the body that belongs to a head. `None`: the body is missing, or belongs to another write.
    fn join(
        &self,
        key: &[u8],
        version: Version,
        size: usize,
        read: &ReadOptions,
    ) -> Result<Option<Record>, rocksdb::Error> {
        let body = self.db.get_pinned_opt(bodies::body_key(key), read)?;
        Ok(body.and_then(|body| bodies::join(version, size, &body)))
    }

    fn scan(&self, scan: &Scan) -> Result<Scanned, EngineError> {
        let (mut found, mut taken) = (Scanned::default(), 0);
        let from = scan.from.as_slice().max(&scan.prefix);
        // Heads and bodies are read one after the other, and must be from the same instant.
        let snapshot = self.db.snapshot();
        let as_of_now = || {
            let mut read = ReadOptions::default();
            read.set_snapshot(&snapshot);
            read
        };
        let of_bodies = as_of_now();
        for entry in self.db.iterator_opt(IteratorMode::From(from, Direction::Forward), as_of_now()) {
            let (key, stored) = entry.map_err(|error| EngineError(error.to_string()))?;
            if !key.starts_with(&scan.prefix) || key.first() == Some(&bodies::BODY) {
                break;
            }
            if !scan.inclusive && *key == *scan.from {
                continue;
            }
            let record = match Stored::parse(&stored)? {
                Stored::Whole(version, bytes) => Record::whole(version, Bytes::copy_from_slice(bytes)),
                Stored::Head(version, size) => {
                    let joined = self.join(&key, version, size, &of_bodies);
                    joined.map_err(|error| EngineError(error.to_string()))?.ok_or_else(torn)?
                }
            };
            if !found.push(scan, &mut taken, key.into_vec(), record) {
                break;
            }
        }
        Ok(found)
    }

    fn holds(&self, batch: &Batch) -> Result<bool, EngineError> {
        if self.db.latest_sequence_number() == batch.as_of.0 {
            return Ok(true);
        }
        for (key, expected) in &batch.compare {
            let found = self.db.get_pinned(key.as_bytes()).map_err(|error| EngineError(error.to_string()))?;
            let found = found.map(|stored| Stored::parse(&stored).map(|stored| stored.version())).transpose()?;
            if found != *expected {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn write_batch(&self, changes: &[(RecordKey, Change)], first: u64) -> WriteBatch {
        let written = bodies::write_batch(changes, first, |key| self.may_have_body(key));
        if written.has_bodies {
            self.has_bodies.store(true, Ordering::Relaxed);
        }
        written.batch
    }

    /// Checks filters and memory, never the disk. Only commits change the result, and they run one at a time.
    fn may_have_body(&self, key: &RecordKey) -> bool {
        key.is_value()
            && self.has_bodies.load(Ordering::Relaxed)
            && self.db.key_may_exist(bodies::body_key(key.as_bytes()))
    }

    fn fault(&self) -> Option<String> {
        match self.db.property_int_value(properties::BACKGROUND_ERRORS) {
            Ok(Some(0) | None) => None,
            Ok(Some(errors)) => Some(format!(
                "RocksDB reports {errors} background error(s); its LOG file in the data directory says more"
            )),
            Err(error) => Some(error.to_string()),
        }
    }

    /// Returns whether RocksDB takes no writes until a flush or compaction catches up.
    fn is_stalled(&self) -> bool {
        matches!(self.db.property_int_value(properties::IS_WRITE_STOPPED), Ok(Some(1..)))
    }

    fn free_space(&self) -> Result<u64, String> {
        let disk = rustix::fs::statvfs(self.dir.path()).map_err(|error| error.to_string())?;
        Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
    }
}

#[allow(clippy::disallowed_methods, reason = "a store that is being opened waits for a flush; nothing runs beside it")]
fn pause(time: Duration) {
    std::thread::sleep(time);
}

/// Returns whether any value has a separate body.
fn has_bodies(db: &DB) -> Result<bool, rocksdb::Error> {
    let first = db.iterator(IteratorMode::From(&[bodies::BODY], Direction::Forward)).next().transpose()?;
    Ok(first.is_some_and(|(key, _)| *key != *POSITION))
}

fn torn() -> EngineError {
    EngineError("the bytes of a large value are missing, or of another write".into())
}

#[async_trait]
impl Engine for RocksDb {
    async fn load_wanted(&self, wanted: &[Wanted], spare: usize) -> Result<Loaded, EngineError> {
        if let Some(loaded) = self.shared.load(wanted, spare, ReadTier::BlockCache)? {
            return Ok(loaded);
        }
        let _turn = self.disk_reads.acquire().await.map_err(|error| EngineError(error.to_string()))?;
        let (shared, wanted) = (self.shared.clone(), wanted.to_vec());
        blocking(move || shared.load(&wanted, spare, ReadTier::All))
            .await?
            .ok_or_else(|| EngineError("a read was incomplete".into()))
    }

    async fn load_to_change(&self, wanted: &[Wanted], spare: usize) -> Result<Loaded, EngineError> {
        self.shared.load(wanted, spare, ReadTier::All)?.ok_or_else(|| EngineError("a read was incomplete".into()))
    }

    async fn scan(&self, scan: Scan) -> Result<Scanned, EngineError> {
        let shared = self.shared.clone();
        blocking(move || shared.scan(&scan)).await
    }

    async fn commit(&self, batch: Batch) -> Result<Commit, EngineError> {
        while self.shared.is_stalled() {
            // After some background errors RocksDB would block a write until space appears, possibly forever.
            if let Some(fault) = self.fault() {
                return Ok(Commit::Unavailable(fault));
            }
            tokio::time::sleep(STALL_PAUSE).await;
        }
        if let Some(not_done) = self.sync(&batch)? {
            return Ok(not_done);
        }
        loop {
            if let Some(done) = self.apply()? {
                return Ok(done);
            }
            // The commit is synced and no reader sees it yet, so its outcome is unknown until the store is opened again.
            if let Some(fault) = self.fault() {
                return Err(EngineError(fault));
            }
            tokio::time::sleep(STALL_PAUSE).await;
        }
    }

    fn fault(&self) -> Option<String> {
        self.shared.fault()
    }

    fn ownership(&self) -> Ownership {
        Ownership::Exclusive
    }

    fn position(&self) -> Option<u64> {
        Some(self.durable.load(Ordering::Acquire))
    }
}

/// Runs work that may block on the disk on a thread where it delays no other task.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, EngineError> + Send + 'static,
) -> Result<T, EngineError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => Err(EngineError(format!("a read was aborted: {error}"))),
    }
}

#[cfg(test)]
mod tests;
