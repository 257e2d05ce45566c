//! The storage of object bytes: the contract between the object service and a layout.
//!
//! The engine is the source of truth (index, fences, intents). A layout only keeps bytes and decides nothing.

use std::fmt;

use async_trait::async_trait;
use bytes::Bytes;
use fencepost_core::Key;

/// Identifies staged bytes. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ref(pub u64);

impl fmt::Display for Ref {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// Identifies stored bytes, so that they are recognised later. Recorded in the index before the bytes are published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The size in bytes.
    pub size: u64,
    /// The inode number of the file.
    pub inode: u64,
}

/// Why a layout operation failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// The bucket does not exist.
    #[error("there is no bucket `{0}`")]
    NoBucket(String),
    /// The bytes do not exist.
    #[error("`{0}` is not in the storage")]
    Missing(String),
    /// This layout cannot hold an object of this name; the text gives the reason and the remedy.
    #[error("{0}")]
    Name(String),
    /// Another object blocks the name: a name cannot be both a file and a directory.
    #[error("{0}")]
    Clash(String),
    /// The storage failed.
    #[error("{what}: {error}")]
    Failed {
        /// The operation that failed.
        what: String,
        /// The system's error.
        error: String,
    },
    /// The storage has no room left.
    #[error("{0}")]
    NoSpace(String),
}

/// A file found in the storage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The object's name, `bucket/key`.
    pub key: Key,
    /// The current mark of the file.
    pub mark: Mark,
    /// When its bytes were last changed, in milliseconds since 1970.
    pub modified_ms: u64,
}

/// An entry of the storage that cannot be an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Foreign {
    /// The path below the root, in printable form.
    pub path: String,
    /// Why it cannot be an object.
    pub why: String,
}

/// One run of a walk through the storage, in order of key (bytes of `bucket/key`).
#[derive(Clone, Debug, Default)]
pub struct Walked {
    /// Files that could be objects.
    pub found: Vec<Found>,
    /// Entries that cannot be objects.
    pub foreign: Vec<Foreign>,
    /// The next run begins after this key. `None`: the walk is finished.
    pub next: Option<Key>,
}

/// A storage for the bytes of objects.
///
/// - **L1** Staged bytes are visible under no key until they are published.
/// - **L2** `Staging::seal` returns after bytes and name are on stable storage.
/// - **L3** `prepare` detects, as far as possible, everything that could make `publish` fail, and keeps other writers
///   from blocking the name until the [`Place`] is dropped.
/// - **L4** `publish` and `remove` are durable when they return, and may be repeated after a crash: bytes that were
///   published before are recognised by their mark.
/// - **L5** Opened bytes stay readable and unchanged, whatever is published or removed later.
/// - **L6** Nothing outside the root is ever touched, whatever a name contains and wherever links point.
#[async_trait]
pub trait Layout: Send + Sync + 'static {
    /// Starts staging new bytes, `length` of them if that is known. Fails with [`LayoutError::NoSpace`], here or
    /// during the writing, if they would use space that must stay free.
    async fn stage(&self, id: Ref, length: Option<u64>) -> Result<Box<dyn Staging>, LayoutError>;

    /// The location of staged bytes, for messages.
    fn staging_place(&self) -> String;

    /// Prepares the publication of bytes under a key (L3).
    async fn prepare(&self, key: &Key) -> Result<Box<dyn Place>, LayoutError>;

    /// Publishes staged bytes under a key, replacing what was there (L4).
    async fn publish(&self, key: &Key, id: Ref, mark: Mark) -> Result<(), LayoutError>;

    /// Removes what is published under a key (L4). It is no error if nothing is there.
    async fn remove(&self, key: &Key) -> Result<(), LayoutError>;

    /// Opens the bytes published under a key.
    async fn open(&self, key: &Key) -> Result<Box<dyn Opened>, LayoutError>;

    /// Opens staged bytes.
    async fn open_staged(&self, id: Ref) -> Result<Box<dyn Opened>, LayoutError>;

    /// Removes staged bytes. It is no error if there are none.
    async fn discard(&self, id: Ref) -> Result<(), LayoutError>;

    /// The refs of all staged bytes.
    async fn staged(&self) -> Result<Vec<Ref>, LayoutError>;

    /// All buckets, in order of name.
    async fn buckets(&self) -> Result<Vec<BucketFound>, LayoutError>;

    /// Returns whether the bucket exists.
    async fn has_bucket(&self, bucket: &str) -> Result<bool, LayoutError>;

    /// Creates a bucket. `false`: it existed already.
    async fn create_bucket(&self, bucket: &str) -> Result<bool, LayoutError>;

    /// Removes an empty bucket. `false`: it is not empty.
    async fn delete_bucket(&self, bucket: &str) -> Result<bool, LayoutError>;

    /// Lists at most `limit` files of one bucket, starting after a key.
    async fn walk(&self, bucket: &str, after: Option<&Key>, limit: usize) -> Result<Walked, LayoutError>;
}

/// An existing bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketFound {
    /// The bucket's name.
    pub name: String,
    /// When it was created, as far as that is known, in milliseconds since 1970.
    pub created_ms: u64,
}

/// New bytes being written. If it is dropped before it is sealed, the bytes may stay; the collector removes them.
#[async_trait]
pub trait Staging: Send {
    /// Appends bytes.
    async fn write(&mut self, bytes: Bytes) -> Result<(), LayoutError>;

    /// Writes buffered bytes and frees their memory. Called when the sender pauses.
    async fn rest(&mut self) -> Result<(), LayoutError>;

    /// Appends a range of other bytes, by the fastest available means.
    async fn append(&mut self, from: &dyn Opened, start: u64, length: u64) -> Result<(), LayoutError>;

    /// Makes the bytes durable (L2).
    async fn seal(self: Box<Self>) -> Result<Mark, LayoutError>;
}

/// A place where bytes can be published. It stays reserved until it is dropped.
pub trait Place: Send + Sync {
    /// Returns whether a publication would replace something.
    fn is_taken(&self) -> bool;
}

/// Stored bytes, opened for reading (L5).
#[async_trait]
pub trait Opened: Send + Sync {
    /// The mark at the time of opening.
    fn mark(&self) -> Mark;

    /// When the bytes were last changed, in milliseconds since 1970.
    fn modified_ms(&self) -> u64;

    /// Reads up to `length` bytes from `start`; fewer only at the end.
    async fn read(&self, start: u64, length: usize) -> Result<Bytes, LayoutError>;

    /// Lets a layout recognise its own type, to append from it without copying through memory.
    fn as_any(&self) -> &dyn std::any::Any;
}
