//! The embedded engine: RocksDB in a directory that one process owns.
//!
//! Every change has a position, counted from 1, which is never reused (E3). It is the version of the record that it
//! writes, and is stored before the record's bytes. A commit is synced in the journal (`journal.rs`) and then visible in
//! memory (`recent.rs`). Now and then a thread saves what is in memory to RocksDB's tables (`rocksdb/saver.rs`), in its last
//! version and without a log of RocksDB's own; when the store is opened, what is not in tables is applied again.
//! Commits run on the thread that polls them: the sequencer's. The bytes of a large value are stored separately from
//! its version (`bodies.rs`).

mod committer;
mod options;
mod saver;
mod tables;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use parking_lot::Mutex;
use rocksdb::{DB, Direction, IteratorMode, ReadOptions, ReadTier};
use tokio::sync::Semaphore;

use super::data_dir::{CommittedMark, DataDir};
use super::journal::{Contents, Journal};
use super::recent::{Found, Recent};
use super::{EngineOpenError, EngineOptions, bodies, log_check};
use crate::engine::{AsOf, Batch, Commit, Engine, EngineError, Loaded, Ownership, Record, Scan, Scanned, Want, Wanted};
use crate::record::RecordKey;
use committer::Committer;
use options::tuned;
use saver::Saver;
use tables::{Got, STALL_PAUSE, Tables, torn};

/// Maximum number of concurrent reads from disk; each uses a thread and the memory of what it reads.
const MAX_DISK_READS: usize = 16;

/// The share of the cache for records: one in this many bytes. The rest is for blocks of tables.
const RECORDS_SHARE: usize = 4;

/// A file of the journal has one in this many bytes of the memory for writes, and at least [`MIN_SEGMENT`]. Fresh records, and
/// those that are being saved, may take as much; the rest is for RocksDB.
const SEGMENT_SHARE: usize = 4;
const MIN_SEGMENT: usize = 64 << 10;

/// A scan that would have to merge more records than this with the tables saves them first.
const MAX_MERGED: usize = 1024;

/// RocksDB and its data directory.
pub struct RocksDb {
    /// Stops before the database closes.
    saver: Saver,
    shared: Arc<Shared>,
    /// One commit at a time: compare and write must be atomic (E2).
    committer: Mutex<Committer>,
    disk_reads: Semaphore,
    /// The last durable position. Everything found at opening is durable: it is in tables before the store is used.
    durable: AtomicU64,
    /// Fresh records may have this many bytes.
    max_fresh: usize,
}

/// The records, in memory and in tables.
struct Shared {
    recent: Recent,
    tables: Tables,
    /// One save at a time.
    saving: Mutex<()>,
    /// Why records could not be saved. They are in the journal, and in memory until the process ends.
    failed_save: Mutex<Option<String>>,
}

/// The result of reading several records.
enum Gathered {
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
        let records = options.cache_bytes / RECORDS_SHARE;
        let blocks = EngineOptions { cache_bytes: options.cache_bytes - records, ..options.clone() };
        match log_check::damage(&database) {
            Ok(None) => {}
            Ok(Some(why)) => return Err(damaged(why)),
            Err(error) => return Err(damaged(format!("its logs cannot be read: {error}"))),
        }
        let db =
            DB::open(&tuned(&blocks, &dir), database).map_err(|error| damaged(format!("RocksDB says: {error}")))?;
        let mark = CommittedMark::open(&dir).map_err(|error| damaged(error.to_string()))?;
        let tables = Tables::new(db, dir);
        let damaged = |why: String| EngineOpenError::Damaged { path: tables.dir.shown(), why };
        let journal = tables.dir.path().join("journal");
        let in_tables = tables.position().map_err(|EngineError(why)| damaged(why))?;
        // A conversion from format 1 that was interrupted may have left a position, with later writes of format 1 after it.
        let in_tables = in_tables.filter(|_| !tables.dir.is_of_format_1());
        // A new store, or one of format 1, whose versions were RocksDB's sequence numbers.
        let tables_end = in_tables.unwrap_or_else(|| tables.db.latest_sequence_number());
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
            tables.take_in(&contents).map_err(|EngineError(why)| EngineOpenError::Directory {
                path: tables.dir.shown(),
                why: format!("its journal cannot be brought into tables: {why}"),
            })?;
        }
        tables.look_for_bodies().map_err(|error| damaged(format!("RocksDB says: {error}")))?;
        // Before the first commit: an older fencepost would not find it.
        tables.dir.mark()?;
        let max_fresh = (options.write_buffer_bytes / SEGMENT_SHARE).max(MIN_SEGMENT);
        let journal = Journal::open(&journal, max_fresh);
        let journal = journal.map_err(|error| damaged(format!("its journal cannot be opened: {error}")))?;
        let (recent, saving, failed_save) = (Recent::new(records, found), Mutex::default(), Mutex::default());
        let path = tables.dir.shown();
        let shared = Arc::new(Shared { recent, tables, saving, failed_save });
        let saver = Saver::start(shared.clone());
        let saver = saver.map_err(|error| EngineOpenError::Directory { path, why: error.to_string() })?;
        Ok(RocksDb {
            saver,
            shared,
            committer: Mutex::new(Committer::new(mark, journal, found, options.free_space_floor)),
            disk_reads: Semaphore::new(MAX_DISK_READS),
            durable: AtomicU64::new(found),
            max_fresh,
        })
    }
}

impl Shared {
    /// Reads as of one instant (E1). `ReadTier::BlockCache` reads only memory; `Ok(None)` means that the disk is
    /// needed.
    ///
    /// A snapshot costs more than a read, and takes a lock that all readers and the committer share. So it is only
    /// taken if something was committed during the read.
    fn load(&self, wanted: &[Wanted], spare: usize, tier: ReadTier) -> Result<Option<Loaded>, EngineError> {
        let mut read = ReadOptions::default();
        read.set_read_tier(tier);
        if let Some(before) = self.recent.instant() {
            match self.gather(wanted, spare, &read, |key| self.recent.find(key))? {
                Gathered::Records(records) if self.recent.instant() == Some(before) => {
                    return Ok(Some(Loaded { records, as_of: AsOf(before) }));
                }
                Gathered::Records(_) | Gathered::Torn => {}
                Gathered::NotInMemory => return Ok(None),
            }
        }
        // What has left the memory when it is looked for is in the tables when the snapshot is taken.
        let (as_of, found, snapshot) = self.recent.between_commits(|| {
            let found: Vec<Found> = wanted.iter().map(|wanted| self.recent.find(&wanted.key)).collect();
            (self.recent.instant(), found, self.tables.db.snapshot())
        });
        read.set_snapshot(&snapshot);
        let mut found = found.into_iter();
        match self.gather(wanted, spare, &read, |_| found.next().unwrap_or(Found::Here(None)))? {
            Gathered::Records(records) => Ok(Some(Loaded { records, as_of: AsOf(as_of.unwrap_or(0)) })),
            Gathered::NotInMemory => Ok(None),
            Gathered::Torn => Err(torn()),
        }
    }

    /// Reads only what is at hand. `None`: some of it is not, or something was committed meanwhile.
    fn load_at_hand(&self, wanted: &[Wanted], mut spare: usize) -> Option<Loaded> {
        let before = self.recent.instant()?;
        let mut records = Vec::with_capacity(wanted.len());
        for Wanted { key, want } in wanted {
            match self.recent.find(key) {
                Found::Here(record) => records.push(record.map(|record| as_wanted(record, *want, &mut spare))),
                Found::Missing(_) => return None,
            }
        }
        (self.recent.instant() == Some(before)).then_some(Loaded { records, as_of: AsOf(before) })
    }

    /// Reads each record from memory, where `find` finds it, or else from the tables.
    fn gather(
        &self,
        wanted: &[Wanted],
        mut spare: usize,
        read: &ReadOptions,
        mut find: impl FnMut(&RecordKey) -> Found,
    ) -> Result<Gathered, EngineError> {
        let mut records = Vec::with_capacity(wanted.len());
        for Wanted { key, want } in wanted {
            let record = match find(key) {
                Found::Here(record) => record.map(|record| as_wanted(record, *want, &mut spare)),
                Found::Missing(changes) => match self.tables.get(key, *want, &mut spare, read)? {
                    Got::Record(record) => {
                        self.recent.keep(key, &record, changes);
                        record
                    }
                    Got::NotInMemory => return Ok(Gathered::NotInMemory),
                    Got::Torn => return Ok(Gathered::Torn),
                },
            };
            records.push(record);
        }
        Ok(Gathered::Records(records))
    }

    /// Reads the tables, and what they do not have yet.
    fn scan(&self, scan: &Scan) -> Result<Scanned, EngineError> {
        // Only to have less to merge. If it cannot be saved now, all of it is merged.
        if self.recent.unsaved_records() > MAX_MERGED && !self.tables.is_stalled() {
            let _ = self.save();
        }
        let (unsaved, snapshot) =
            self.recent.between_commits(|| (self.recent.unsaved(scan), self.tables.db.snapshot()));
        let mut unsaved = unsaved.into_ordered(scan).into_iter().peekable();
        let (mut found, mut taken) = (Scanned::default(), 0);
        let as_of_now = || {
            let mut read = ReadOptions::default();
            read.set_snapshot(&snapshot);
            read
        };
        let of_bodies = as_of_now();
        let from = scan.from.as_slice().max(&scan.prefix);
        for entry in self.tables.db.iterator_opt(IteratorMode::From(from, Direction::Forward), as_of_now()) {
            let (key, stored) = entry.map_err(|error| EngineError(error.to_string()))?;
            if !key.starts_with(&scan.prefix) || key.first() == Some(&bodies::BODY) {
                break;
            }
            if !scan.has(&key) {
                continue;
            }
            while let Some((before, state)) = unsaved.next_if(|(unsaved, _)| unsaved.as_bytes() < &*key) {
                if !push(&mut found, scan, &mut taken, before, state) {
                    return Ok(found);
                }
            }
            let more = match unsaved.next_if(|(unsaved, _)| unsaved.as_bytes() == &*key) {
                Some((key, state)) => push(&mut found, scan, &mut taken, key, state),
                None => {
                    let record = self.tables.scanned(&key, &stored, &of_bodies)?;
                    found.push(scan, &mut taken, key.into_vec(), record)
                }
            };
            if !more {
                return Ok(found);
            }
        }
        for (key, state) in unsaved {
            if !push(&mut found, scan, &mut taken, key, state) {
                break;
            }
        }
        Ok(found)
    }

    fn holds(&self, batch: &Batch) -> Result<bool, EngineError> {
        if self.recent.instant() == Some(batch.as_of.0) {
            return Ok(true);
        }
        for (key, expected) in batch.compared() {
            let found = match self.recent.find(key) {
                Found::Here(record) => record.map(|record| record.version),
                Found::Missing(_) => self.tables.version(key)?,
            };
            if found != expected {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn fault(&self) -> Option<String> {
        self.failed_save.lock().clone().or_else(|| self.tables.fault())
    }
}

/// A record as far as it is wanted (E6).
fn as_wanted(record: Record, want: Want, spare: &mut usize) -> Record {
    match want.takes(record.size, spare) {
        true => record,
        false => Record::head(record.version, record.size),
    }
}

/// Adds a record that the tables do not have to a scan, unless it was removed. Returns `false` when the scan must stop.
fn push(found: &mut Scanned, scan: &Scan, taken: &mut usize, key: RecordKey, state: Option<Record>) -> bool {
    state.is_none_or(|record| found.push(scan, taken, key.as_bytes().to_vec(), record))
}

#[async_trait]
impl Engine for RocksDb {
    async fn load_wanted(&self, wanted: &[Wanted], spare: usize) -> Result<Loaded, EngineError> {
        if let Some(loaded) = self.shared.load_at_hand(wanted, spare) {
            return Ok(loaded);
        }
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
        if let Some(loaded) = self.shared.load_at_hand(wanted, spare) {
            return Ok(loaded);
        }
        self.shared.load(wanted, spare, ReadTier::All)?.ok_or_else(|| EngineError("a read was incomplete".into()))
    }

    fn at_hand(&self, wanted: &[Wanted], spare: usize) -> Option<Loaded> {
        self.shared.load_at_hand(wanted, spare)
    }

    async fn scan(&self, scan: Scan) -> Result<Scanned, EngineError> {
        let shared = self.shared.clone();
        blocking(move || shared.scan(&scan)).await
    }

    async fn commit(&self, batch: Batch) -> Result<Commit, EngineError> {
        while self.shared.recent.fresh_bytes() >= self.max_fresh {
            if let Some(fault) = self.fault() {
                return Ok(Commit::Unavailable(fault));
            }
            self.saver.wake();
            tokio::time::sleep(STALL_PAUSE).await;
        }
        self.commit_now(batch)
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
