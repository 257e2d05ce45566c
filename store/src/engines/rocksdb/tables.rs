//! The tables: RocksDB as it is written to and read, without what is only in memory and in the journal.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use rocksdb::{DB, Direction, ErrorKind, IteratorMode, ReadOptions, ReadTier, WriteBatch, WriteOptions, properties};

use crate::engine::{EngineError, Record, Version, Want};
use crate::engines::bodies::{self, Stored};
use crate::engines::data_dir::DataDir;
use crate::engines::journal::Contents;
use crate::record::RecordKey;

/// How long a write that RocksDB does not take waits before it tries again.
pub(super) const STALL_PAUSE: Duration = Duration::from_millis(1);

/// The last position that the tables have, written after the records up to it: so the tables say how far they go. Sorts after
/// all records and bodies.
pub(super) const POSITION: &[u8] = &[bodies::BODY, 0xff];

/// Fields are dropped in this order: the database closes before the directory lock is released.
pub(super) struct Tables {
    pub(super) db: DB,
    pub(super) dir: DataDir,
    /// Whether any value has a separate body. If not, a write need not look for bodies to remove.
    pub(super) has_bodies: AtomicBool,
    /// The store is being closed: nothing waits for RocksDB any more.
    closing: AtomicBool,
}

/// The result of reading a record.
pub(super) enum Got {
    Record(Option<Record>),
    /// It is on disk, and only memory was to be read.
    NotInMemory,
    /// Its head and its body belong to different writes.
    Torn,
}

impl Tables {
    pub(super) fn new(db: DB, dir: DataDir) -> Tables {
        Tables { db, dir, has_bodies: AtomicBool::new(true), closing: AtomicBool::new(false) }
    }

    /// From now on, a write that RocksDB does not take fails instead of waiting.
    pub(super) fn close(&self) {
        self.closing.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Relaxed)
    }

    /// The last position that is in tables; `None` if no commit went through the journal yet.
    pub(super) fn position(&self) -> Result<Option<u64>, EngineError> {
        let mut read = ReadOptions::default();
        read.set_read_tier(ReadTier::Persisted);
        let stored = self.db.get_opt(POSITION, &read).map_err(|error| EngineError(error.to_string()))?;
        let unreadable = || EngineError("the position of the tables cannot be read".into());
        stored.map(|stored| stored.try_into().map(u64::from_le_bytes).map_err(|_| unreadable())).transpose()
    }

    /// Brings everything that the journal has into tables.
    pub(super) fn take_in(&self, contents: &Contents) -> Result<(), EngineError> {
        contents.replay(|batch| self.write(batch)).map_err(|error| EngineError(error.to_string()))??;
        self.reach(contents.last)?;
        self.db.flush().map_err(|error| EngineError(error.to_string()))
    }

    /// Writes a batch, and waits while RocksDB is stalled. The journal has the batch, so RocksDB does not log it.
    pub(super) fn write(&self, batch: &[u8]) -> Result<(), EngineError> {
        let mut options = WriteOptions::default();
        options.disable_wal(true);
        // After some background errors RocksDB would block a write until space appears, possibly forever.
        options.set_no_slowdown(true);
        loop {
            match self.db.write_opt(WriteBatch::from_data(batch), &options) {
                Err(error) if error.kind() == ErrorKind::Incomplete => {}
                written => return written.map_err(|error| EngineError(error.to_string())),
            }
            if let Some(fault) = self.fault() {
                return Err(EngineError(fault));
            }
            if self.is_closing() {
                return Err(EngineError("the store is being closed".into()));
            }
            pause(STALL_PAUSE);
        }
    }

    /// Notes that everything up to this position was written.
    pub(super) fn reach(&self, position: u64) -> Result<(), EngineError> {
        let mut batch = WriteBatch::default();
        batch.put(POSITION, position.to_le_bytes());
        self.write(batch.data())
    }

    /// Reads a record as far as it is wanted (E6).
    pub(super) fn get(
        &self,
        key: &RecordKey,
        want: Want,
        spare: &mut usize,
        read: &ReadOptions,
    ) -> Result<Got, EngineError> {
        let stored = match self.db.get_pinned_opt(key.as_bytes(), read) {
            Ok(Some(stored)) => stored,
            Ok(None) => return Ok(Got::Record(None)),
            Err(error) if error.kind() == ErrorKind::Incomplete => return Ok(Got::NotInMemory),
            Err(error) => return Err(EngineError(error.to_string())),
        };
        let record = match Stored::parse(&stored)? {
            Stored::Whole(version, bytes) if want.takes(bytes.len(), spare) => {
                Record::whole(version, Bytes::copy_from_slice(bytes))
            }
            Stored::Whole(version, bytes) => Record::head(version, bytes.len()),
            Stored::Head(version, size) if want.takes(size, spare) => {
                match self.join(key.as_bytes(), version, size, read) {
                    Ok(Some(record)) => record,
                    Ok(None) => return Ok(Got::Torn),
                    Err(error) if error.kind() == ErrorKind::Incomplete => return Ok(Got::NotInMemory),
                    Err(error) => return Err(EngineError(error.to_string())),
                }
            }
            Stored::Head(version, size) => Record::head(version, size),
        };
        Ok(Got::Record(Some(record)))
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

    /// The whole record of an entry that an iterator found; its body is read with `read`.
    pub(super) fn scanned(&self, key: &[u8], stored: &[u8], read: &ReadOptions) -> Result<Record, EngineError> {
        match Stored::parse(stored)? {
            Stored::Whole(version, bytes) => Ok(Record::whole(version, Bytes::copy_from_slice(bytes))),
            Stored::Head(version, size) => {
                let joined = self.join(key, version, size, read).map_err(|error| EngineError(error.to_string()))?;
                joined.ok_or_else(torn)
            }
        }
    }

    /// The version of a record.
    pub(super) fn version(&self, key: &RecordKey) -> Result<Option<Version>, EngineError> {
        let found = self.db.get_pinned(key.as_bytes()).map_err(|error| EngineError(error.to_string()))?;
        found.map(|stored| Stored::parse(&stored).map(|stored| stored.version())).transpose()
    }

    /// Checks filters and memory, never the disk. Bodies get into the tables by the one writer that asks, so the result holds
    /// until it writes.
    pub(super) fn may_have_body(&self, key: &RecordKey) -> bool {
        key.is_value()
            && self.has_bodies.load(Ordering::Relaxed)
            && self.db.key_may_exist(bodies::body_key(key.as_bytes()))
    }

    /// Looks for separate bodies.
    pub(super) fn look_for_bodies(&self) -> Result<(), rocksdb::Error> {
        let first = self.db.iterator(IteratorMode::From(&[bodies::BODY], Direction::Forward)).next().transpose()?;
        self.has_bodies.store(first.is_some_and(|(key, _)| *key != *POSITION), Ordering::Relaxed);
        Ok(())
    }

    /// A background failure, after which no write can be trusted.
    pub(super) fn fault(&self) -> Option<String> {
        match self.db.property_int_value(properties::BACKGROUND_ERRORS) {
            Ok(Some(0) | None) => None,
            Ok(Some(errors)) => Some(format!(
                "RocksDB reports {errors} background error(s); its LOG file in the data directory says more"
            )),
            Err(error) => Some(error.to_string()),
        }
    }

    /// Returns whether RocksDB takes no writes until a flush or compaction catches up.
    pub(super) fn is_stalled(&self) -> bool {
        matches!(self.db.property_int_value(properties::IS_WRITE_STOPPED), Ok(Some(1..)))
    }

    /// Returns whether a full write buffer is waiting to be a table.
    pub(super) fn is_flushing(&self) -> bool {
        matches!(self.db.property_int_value(properties::NUM_IMMUTABLE_MEM_TABLE), Ok(Some(1..)))
    }

    pub(super) fn free_space(&self) -> Result<u64, String> {
        let disk = rustix::fs::statvfs(self.dir.path()).map_err(|error| error.to_string())?;
        Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
    }
}

pub(super) fn torn() -> EngineError {
    EngineError("the bytes of a large value are missing, or of another write".into())
}

#[allow(
    clippy::disallowed_methods,
    reason = "on a thread that has nothing else to do, or while the store is being opened"
)]
fn pause(time: Duration) {
    std::thread::sleep(time);
}
