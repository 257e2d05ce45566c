//! Where the bytes of objects lie: the contract between the object service and a layout.
//!
//! The engine holds the truth (index, fences, intents). A layout only keeps bytes, and never decides anything.

use std::fmt;

use async_trait::async_trait;
use bytes::Bytes;
use fencepost_core::Key;

/// Names bytes that were staged. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ref(pub u64);

impl fmt::Display for Ref {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// What a layout can tell of bytes at rest, so that they are known again: recorded in the index before they are
/// published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Bytes.
    pub size: u64,
    /// Names the file in its file system.
    pub inode: u64,
}

/// Why a layout cannot do something.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// The bucket does not exist.
    #[error("there is no bucket `{0}`")]
    NoBucket(String),
    /// The bytes are not there.
    #[error("`{0}` is not in the storage")]
    Missing(String),
    /// This layout cannot hold an object of this name; the text says why and what to do.
    #[error("{0}")]
    Name(String),
    /// Another object is in the way: one cannot be both a file and a directory.
    #[error("{0}")]
    Clash(String),
    /// The storage failed.
    #[error("{what}: {error}")]
    Failed {
        /// What was tried.
        what: String,
        /// What the system said.
        error: String,
    },
    /// The storage has no room left.
    #[error("{0}")]
    NoSpace(String),
}

/// A file found in the storage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// `bucket/key`.
    pub key: Key,
    /// As it is now.
    pub mark: Mark,
    /// When its bytes were last changed, in milliseconds since 1970.
    pub modified_ms: u64,
}

/// Something in the storage that cannot be an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Foreign {
    /// Its path below the root, shown.
    pub path: String,
    /// Why it cannot be one.
    pub why: String,
}

/// A run of what is in the storage, in order of key (bytes of `bucket/key`).
#[derive(Clone, Debug, Default)]
pub struct Walked {
    /// Files that could be objects.
    pub found: Vec<Found>,
    /// What could not.
    pub foreign: Vec<Foreign>,
    /// Where the next run begins: after this key. `None`: this was the last.
    pub next: Option<Key>,
}

/// Where bytes are kept.
///
/// - **L1** What is staged is seen under no key until it is published.
/// - **L2** `Staging::seal` returns after bytes and name are on stable storage.
/// - **L3** `prepare` finds whatever could make `publish` fail, as far as it can be known, and keeps others from getting
///   in the way until the [`Place`] is dropped.
/// - **L4** `publish` and `remove` are durable when they return, and may be done again after a crash: bytes that were
///   published before are known by their mark.
/// - **L5** What was opened stays readable as it was, whatever is published or removed later.
/// - **L6** Nothing outside the root is ever touched, whatever a name says and wherever links point.
#[async_trait]
pub trait Layout: Send + Sync + 'static {
    /// Begins new bytes, `length` of them as far as that is known. [`LayoutError::NoSpace`] if they would take the space that
    /// must stay free; also while they are written.
    async fn stage(&self, id: Ref, length: Option<u64>) -> Result<Box<dyn Staging>, LayoutError>;

    /// Where staged bytes lie, for messages.
    fn staging_place(&self) -> String;

    /// Makes ready for bytes to be published under a key (L3).
    async fn prepare(&self, key: &Key) -> Result<Box<dyn Place>, LayoutError>;

    /// Shows staged bytes under a key, instead of what was there (L4).
    async fn publish(&self, key: &Key, id: Ref, mark: Mark) -> Result<(), LayoutError>;

    /// Shows nothing under a key any more (L4). Nothing there is no error.
    async fn remove(&self, key: &Key) -> Result<(), LayoutError>;

    /// Opens what is shown under a key.
    async fn open(&self, key: &Key) -> Result<Box<dyn Opened>, LayoutError>;

    /// Opens staged bytes.
    async fn open_staged(&self, id: Ref) -> Result<Box<dyn Opened>, LayoutError>;

    /// Removes staged bytes. Nothing there is no error.
    async fn discard(&self, id: Ref) -> Result<(), LayoutError>;

    /// Every name of staged bytes that is there.
    async fn staged(&self) -> Result<Vec<Ref>, LayoutError>;

    /// Buckets, in order of name.
    async fn buckets(&self) -> Result<Vec<BucketFound>, LayoutError>;

    /// Is there such a bucket?
    async fn has_bucket(&self, bucket: &str) -> Result<bool, LayoutError>;

    /// Makes a bucket. `false`: it was there.
    async fn create_bucket(&self, bucket: &str) -> Result<bool, LayoutError>;

    /// Removes an empty bucket. `false`: something is in it.
    async fn delete_bucket(&self, bucket: &str) -> Result<bool, LayoutError>;

    /// Looks at what is there: at most `limit` files, all of one bucket, after a key.
    async fn walk(&self, bucket: &str, after: Option<&Key>, limit: usize) -> Result<Walked, LayoutError>;
}

/// A bucket that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketFound {
    /// Its name.
    pub name: String,
    /// When it was made, as far as that is known, in milliseconds since 1970.
    pub created_ms: u64,
}

/// New bytes, being written. Dropped before it is sealed, its bytes may stay; the collector removes them.
#[async_trait]
pub trait Staging: Send {
    /// Appends.
    async fn write(&mut self, bytes: Bytes) -> Result<(), LayoutError>;

    /// Writes what is held in memory, and frees that: nothing comes for a while.
    async fn rest(&mut self) -> Result<(), LayoutError>;

    /// Appends a range of other bytes, by the shortest way there is.
    async fn append(&mut self, from: &dyn Opened, start: u64, length: u64) -> Result<(), LayoutError>;

    /// Makes them durable (L2).
    async fn seal(self: Box<Self>) -> Result<Mark, LayoutError>;
}

/// A place where bytes can be published, kept free until it is dropped.
pub trait Place: Send + Sync {
    /// Is something there that would be replaced?
    fn is_taken(&self) -> bool;
}

/// Bytes at rest, opened (L5).
#[async_trait]
pub trait Opened: Send + Sync {
    /// As they were when opened.
    fn mark(&self) -> Mark;

    /// When they were last changed, in milliseconds since 1970.
    fn modified_ms(&self) -> u64;

    /// Reads up to `length` bytes from `start`; fewer only at the end.
    async fn read(&self, start: u64, length: usize) -> Result<Bytes, LayoutError>;

    /// For layouts that can append from their own kind without copying through memory.
    fn as_any(&self) -> &dyn std::any::Any;
}
