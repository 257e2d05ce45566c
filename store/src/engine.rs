//! The engine contract: an ordered map of versioned records.
//!
//! Engines know nothing about fences. All fence logic lives in the layer above, once for all engines.

use async_trait::async_trait;
use bytes::Bytes;

use crate::record::RecordKey;

/// A record's version. Versions are never reused, even after delete and re-create (E3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(pub u64);

/// A stored record, with or without its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Changes with every write.
    pub version: Version,
    /// The size of the stored bytes.
    pub size: usize,
    /// The stored bytes; empty if they were not wanted or did not fit (E6).
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

    /// Returns whether the bytes are present.
    pub fn is_whole(&self) -> bool {
        self.bytes.len() == self.size
    }
}

/// How much of a record a load returns (E6). Each variant includes what the variants before it return.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Want {
    /// Version and size only.
    Version,
    /// Also the bytes, unless there are more than this many or more than the load's `spare` has left.
    UpTo(usize),
    /// Also the bytes, always.
    Bytes,
}

impl Want {
    /// Returns whether the bytes of a record of this size are wanted.
    pub fn covers(self, size: usize) -> bool {
        match self {
            Want::Version => false,
            Want::UpTo(most) => size <= most,
            Want::Bytes => true,
        }
    }

    /// Returns whether a load returns the bytes of a record of this size, and deducts them from `spare`.
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
    /// The key of the record.
    pub key: RecordKey,
    /// How much of the record to load.
    pub want: Want,
}

impl Wanted {
    /// A request for the whole record.
    pub fn bytes(key: RecordKey) -> Wanted {
        Wanted { key, want: Want::Bytes }
    }
}

/// A point in the engine's history. Engines that do not need one always return the same value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AsOf(pub u64);

/// Records as of one instant (E1).
#[derive(Clone, Debug)]
pub struct Loaded {
    /// One entry per requested key, in request order.
    pub records: Vec<Option<Record>>,
    /// The instant of the load, to be passed to the commit.
    pub as_of: AsOf,
}

/// A change of one record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Writes these bytes.
    Put(Bytes),
    /// Removes the record.
    Delete,
}

/// What a commit compares and changes.
#[derive(Clone, Debug)]
pub struct Batch {
    /// When the compared records were loaded. If nothing was committed since then, the comparison holds.
    pub as_of: AsOf,
    /// Compared by every batch, and changed almost never: the store's own record. An engine that locks what it compares
    /// protects these without making them hot. A batch may change them, too.
    pub shared: Vec<(RecordKey, Version)>,
    /// The version of every other record loaded, written or not; `None` means it was absent (E2).
    pub compare: Vec<(RecordKey, Option<Version>)>,
    /// Applied in this order; the same key may occur again.
    pub changes: Vec<(RecordKey, Change)>,
    /// The purpose of the batch, which decides how much space must stay free.
    pub purpose: Purpose,
}

impl Batch {
    /// The version of every record loaded.
    pub fn compared(&self) -> impl Iterator<Item = (&RecordKey, Option<Version>)> {
        let shared = self.shared.iter().map(|(key, version)| (key, Some(*version)));
        shared.chain(self.compare.iter().map(|(key, version)| (key, *version)))
    }
}

/// What one commit may hold, estimated, and how many may run at once. A batch of several commands stays within it; a single
/// command may be larger, and is refused by the engine if it is too large ([`Commit::TooLarge`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Commits that this process may have under way. What they read and write does not overlap.
    pub lanes: usize,
    /// Records compared, and as many that are changed.
    pub records: usize,
    /// Bytes of changes.
    pub bytes: usize,
}

impl Limits {
    /// No limits to a commit, and one at a time.
    pub const NONE: Limits = Limits { lanes: 1, records: usize::MAX, bytes: usize::MAX };

    /// Returns whether there are any to a commit.
    pub(crate) fn are_any(&self) -> bool {
        (self.records, self.bytes) != (usize::MAX, usize::MAX)
    }

    /// Returns whether a batch of this size is within the limits.
    pub fn hold(&self, records: usize, bytes: usize) -> bool {
        records <= self.records && bytes <= self.bytes
    }
}

/// The purpose of a batch. An engine with a free-space floor refuses ordinary batches below the floor, and batches that
/// free space only below the floor divided by [`FREEING_SHARE`]. Otherwise a full disk could not be cleaned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The batch stores something.
    Store,
    /// Every command in the batch removes something. It may put the small records that accompany a removal: the fence
    /// that the request raised, the outcome under its idempotency key, the intent to remove a file.
    Free,
}

/// Batches that free space are allowed down to the floor divided by this.
pub const FREEING_SHARE: u64 = 4;

impl Purpose {
    /// The bytes that must stay free for a batch of this purpose, given the floor for ordinary batches.
    pub fn floor(self, floor: u64) -> u64 {
        match self {
            Purpose::Store => floor,
            Purpose::Free => floor / FREEING_SHARE,
        }
    }
}

/// How a commit ended, when that is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Commit {
    /// All changes are durable. Change `i` got version `first + i`.
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
    /// The batch has more than one commit can hold, and why. Nothing was written; a smaller batch may be.
    TooLarge(String),
    /// The engine cannot commit now. Nothing was written.
    Unavailable(String),
}

/// An engine failure. From `commit` it means that the outcome is unknown (E4).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct EngineError(pub String);

/// Which records to scan, in key order.
#[derive(Clone, Debug)]
pub struct Scan {
    /// Start after this key, or at it if `inclusive`.
    pub from: Vec<u8>,
    /// Whether a record at `from` itself is included.
    pub inclusive: bool,
    /// Only keys that start with these bytes.
    pub prefix: Vec<u8>,
    /// The maximum number of records.
    pub limit: usize,
    /// Stop after the record that brings the total above this many bytes.
    pub max_bytes: usize,
}

impl Scan {
    /// Returns whether the range includes this key.
    pub fn has(&self, key: &[u8]) -> bool {
        let after_start = if self.inclusive { key >= self.from.as_slice() } else { key > self.from.as_slice() };
        after_start && key.starts_with(&self.prefix)
    }
}

/// A run of records.
#[derive(Clone, Debug, Default)]
pub struct Scanned {
    /// Keys and records, in key order.
    pub records: Vec<(Vec<u8>, Record)>,
    /// Whether a limit was reached before the end of the range.
    pub more: bool,
}

impl Scanned {
    /// Adds a record of the range, or sets `more` if a limit excludes it. Returns `false` when the scan must stop.
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

/// Whether only this process writes the records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ownership {
    /// Only this process writes. A commit with an unknown outcome stops all writes (G8).
    Exclusive,
    /// Other gateways write too.
    Shared,
}

/// An ordered map of versioned records with compare-and-commit.
///
/// - **E1** The records of one load come from one snapshot.
/// - **E2** The comparison covers the version of every record in `compare`, present or absent, and holds until the
///   commit.
/// - **E3** Versions are never reused, even after delete and re-create.
/// - **E4** A commit is all or nothing, and durable when it returns [`Commit::Done`]. Every other [`Commit`] means
///   that nothing was written; `Err` means that the outcome is unknown, and may still be open: it may apply later.
/// - **E5** Nothing uncommitted is visible to `load` and `scan`.
/// - **E6** A load returns the version and size of every record that is present, and bytes where they are wanted: all
///   of a record's bytes or none. The bytes of all [`Want::UpTo`] records together are at most `spare`, assigned in
///   the order of the request. Reading a version costs about the same for a large record as for a small one.
///
/// Futures of `commit` and `load_to_change` may block their thread: the sequencer polls them on a dedicated thread.
/// Futures of `load` and `scan` must not block on disk access.
#[async_trait]
pub trait Engine: Send + Sync + 'static {
    /// Reads records, as far as they are wanted, as of one instant (E1, E5, E6).
    async fn load_wanted(&self, wanted: &[Wanted], spare: usize) -> Result<Loaded, EngineError>;

    /// Like `load_wanted`, for records that are about to be changed. It may block its thread, as `commit` may, which
    /// saves a switch to another thread.
    async fn load_to_change(&self, wanted: &[Wanted], spare: usize) -> Result<Loaded, EngineError> {
        self.load_wanted(wanted, spare).await
    }

    /// What `load_wanted` would return, if nothing of it has to be waited for. `None` says nothing.
    fn at_hand(&self, _wanted: &[Wanted], _spare: usize) -> Option<Loaded> {
        None
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

    /// A background failure after which no commit can be trusted.
    fn fault(&self) -> Option<String>;

    /// Whether other processes write the records too.
    fn ownership(&self) -> Ownership;

    /// What one commit may hold.
    fn limits(&self) -> Limits {
        Limits::NONE
    }

    /// Whether a load proves what is committed now. Otherwise a server may have answered it that another one has
    /// replaced, and only a commit proves it.
    fn load_is_proof(&self) -> bool {
        true
    }

    /// Accepts that the records have another history than before: an older copy of them was put back, or a standby that
    /// lagged behind was promoted. Called after the base generation was raised above every one ever used (G1).
    async fn accept_history(&self) -> Result<(), EngineError> {
        Ok(())
    }

    /// What the server says of itself, with its version. `None`: there is no server, or it does not answer.
    async fn server(&self) -> Option<String> {
        None
    }

    /// The last commit that is known to be durable. It only grows, and an older copy of the records has a lower one.
    /// `None`: nothing outlives the engine, or the engine does not know.
    fn position(&self) -> Option<u64>;
}
