//! The engine contract: an ordered map of versioned records.
//!
//! The engine is dumb on purpose. Everything about fences lives above it, once.

use async_trait::async_trait;
use bytes::Bytes;

use crate::record::RecordKey;

/// A record's version. Versions are never reused, not after delete and re-create (E3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(pub u64);

/// A stored record, or what was wanted of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Changes with every write.
    pub version: Version,
    /// How many bytes were put.
    pub size: usize,
    /// What was put; empty if its bytes were not wanted or did not fit (E6).
    pub bytes: Bytes,
}

impl Record {
    /// A record with all its bytes.
    pub fn whole(version: Version, bytes: Bytes) -> Record {
        Record { version, size: bytes.len(), bytes }
    }

    /// A record without its bytes.
    pub fn head(version: Version, size: usize) -> Record {
        Record { version, size, bytes: Bytes::new() }
    }

    /// Are its bytes here?
    pub fn is_whole(&self) -> bool {
        self.bytes.len() == self.size
    }
}

/// How much of a record a load gives (E6). In this order, each gives all that the one before gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Want {
    /// Its version and size.
    Version,
    /// Its bytes too, unless they are more than this or than what the load has left of its `spare`.
    UpTo(usize),
    /// Its bytes too.
    Bytes,
}

impl Want {
    /// Are the bytes of a record of this size wanted?
    pub fn covers(self, size: usize) -> bool {
        match self {
            Want::Version => false,
            Want::UpTo(most) => size <= most,
            Want::Bytes => true,
        }
    }

    /// Does a load give the bytes of a record of this size? What it gives is taken from `spare`.
    pub fn takes(self, size: usize, spare: &mut usize) -> bool {
        match self {
            Want::UpTo(_) if self.covers(size) => match spare.checked_sub(size) {
                Some(left) => {
                    *spare = left;
                    true
                }
                None => false,
            },
            Want::Version | Want::UpTo(_) => false,
            Want::Bytes => true,
        }
    }
}

/// A record to load, and how much of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Its key.
    pub key: RecordKey,
    /// How much of it.
    pub want: Want,
}

impl Wanted {
    /// The whole record.
    pub fn bytes(key: RecordKey) -> Wanted {
        Wanted { key, want: Want::Bytes }
    }
}

/// A point in the engine's history. Engines that need none return always the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AsOf(pub u64);

/// Records as of one instant (E1).
#[derive(Clone, Debug)]
pub struct Loaded {
    /// One entry per key asked for, in that order.
    pub records: Vec<Option<Record>>,
    /// The instant, to be handed back with the commit.
    pub as_of: AsOf,
}

/// A change of one record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Write these bytes.
    Put(Bytes),
    /// Remove the record.
    Delete,
}

/// What a commit compares and changes.
#[derive(Clone, Debug)]
pub struct Batch {
    /// When the compared records were loaded. If nothing was committed since, the comparison holds.
    pub as_of: AsOf,
    /// The version of every record loaded, written or not; `None` means it was absent (E2).
    pub compare: Vec<(RecordKey, Option<Version>)>,
    /// Applied in this order; the same key may occur again.
    pub changes: Vec<(RecordKey, Change)>,
    /// Why it is written, which decides how much space must stay free.
    pub purpose: Purpose,
}

/// Why a batch is written. An engine with a free-space floor refuses an ordinary batch below the floor, and a batch that frees
/// space only below [`FREEING_SHARE`] of it: otherwise a full disk could not be cleaned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// It stores something.
    Store,
    /// Every command in it removes something. It may put the small records that come with a removal: the fence that the
    /// request raised, the outcome under its idempotency key, the intent to remove a file.
    Free,
}

/// A batch that frees space passes down to the floor divided by this.
pub const FREEING_SHARE: u64 = 4;

impl Purpose {
    /// The bytes that must stay free for such a batch, given the floor for ordinary ones.
    pub fn floor(self, floor: u64) -> u64 {
        match self {
            Purpose::Store => floor,
            Purpose::Free => floor / FREEING_SHARE,
        }
    }
}

/// How a commit ended, where that is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Commit {
    /// All changes are durable. The i-th one got version `first + i`.
    Done {
        /// The version of the first change.
        first: Version,
    },
    /// A compared version differs. Nothing was written.
    Conflict,
    /// Free space is below the floor. Nothing was written.
    NoSpace {
        /// Bytes free now.
        free: u64,
        /// Bytes that must stay free.
        floor: u64,
    },
    /// The engine cannot commit now. Nothing was written.
    Unavailable(String),
}

/// Something failed. From `commit` it means: the outcome is unknown (E4).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct EngineError(pub String);

/// Which records to scan, in key order.
#[derive(Clone, Debug)]
pub struct Scan {
    /// Start after this key, or at it if `inclusive`.
    pub from: Vec<u8>,
    /// Is the record at `from` itself part of it?
    pub inclusive: bool,
    /// Only keys that start with this.
    pub prefix: Vec<u8>,
    /// At most this many.
    pub limit: usize,
    /// Stop after the record that brings the sum above this many bytes.
    pub max_bytes: usize,
}

/// A run of records.
#[derive(Clone, Debug, Default)]
pub struct Scanned {
    /// In key order.
    pub records: Vec<(Vec<u8>, Record)>,
    /// Did a limit end it before the range did?
    pub more: bool,
}

impl Scanned {
    /// Adds a record of the range, or notes that a limit leaves it out. `false`: stop.
    pub fn push(&mut self, scan: &Scan, taken: &mut usize, key: Vec<u8>, record: Record) -> bool {
        if self.records.len() == scan.limit || *taken > scan.max_bytes {
            self.more = true;
            return false;
        }
        *taken += key.len() + record.size;
        self.records.push((key, record));
        true
    }
}

/// Does this process own the records, or do others write them too?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ownership {
    /// Only this process. An unknown commit poisons (G8).
    Exclusive,
    /// Other gateways too.
    Shared,
}

/// An ordered map of versioned records with compare-and-commit.
///
/// - **E1** The records of one load come from one snapshot.
/// - **E2** The comparison covers the version of every record in `compare`, present or absent, and holds until the
///   commit.
/// - **E3** Versions are never reused, not after delete and re-create.
/// - **E4** A commit is all or nothing, and durable when it returns [`Commit::Done`]. Every other [`Commit`] means
///   that nothing was written; `Err` means that the outcome is unknown.
/// - **E5** Nothing uncommitted is visible to `load` and `scan`.
/// - **E6** A load gives the version and size of every record that is present, and bytes as far as they are wanted: all of
///   them or none. Those of all [`Want::UpTo`] records together are at most `spare`, given out in the order of the keys. A
///   version costs about the same for a large record as for a small one.
///
/// A future of `commit` or `load_to_change` may block its thread: the sequencer polls it on a thread of its own. A future
/// of `load` or `scan` must not block for a disk.
#[async_trait]
pub trait Engine: Send + Sync + 'static {
    /// Reads records, or what is wanted of them, as of one instant (E1, E5, E6).
    async fn load_wanted(&self, wanted: &[Wanted], spare: usize) -> Result<Loaded, EngineError>;

    /// The same, for records about to be changed. Like `commit` it may block its thread, which saves the way to
    /// another one.
    async fn load_to_change(&self, wanted: &[Wanted], spare: usize) -> Result<Loaded, EngineError> {
        self.load_wanted(wanted, spare).await
    }

    /// Reads whole records as of one instant (E1, E5).
    async fn load(&self, keys: &[RecordKey]) -> Result<Loaded, EngineError> {
        let wanted: Vec<Wanted> = keys.iter().cloned().map(Wanted::bytes).collect();
        self.load_wanted(&wanted, 0).await
    }

    /// Reads a run of records in key order (E5).
    async fn scan(&self, scan: Scan) -> Result<Scanned, EngineError>;

    /// Compares, then writes all or nothing (E2, E3, E4).
    async fn commit(&self, batch: Batch) -> Result<Commit, EngineError>;

    /// A fault that happened in the background, after which no commit can be trusted.
    fn fault(&self) -> Option<String>;

    /// Who writes the records.
    fn ownership(&self) -> Ownership;

    /// How far this engine was committed, as far as that is known to be durable: it only grows, and an older copy of the records
    /// has a lower one. `None`: nothing outlives the engine, or it cannot say.
    fn position(&self) -> Option<u64>;
}
