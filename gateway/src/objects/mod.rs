//! Objects behind fences: bytes in a [`layout`], everything else in the store.
//!
//! The life of a write: an early look at the fence, the bytes into fresh staging, one commit that decides, then the
//! storage shows what was committed, then the answer, then the intent is dropped.

mod abandoned;
mod buckets;
mod checking;
mod choosing;
mod composition;
mod deleting;
mod digest;
pub mod directory;
mod error;
mod folders;
mod key_locks;
pub mod layout;
mod reading;
mod recovery;
mod refs;
#[cfg(test)]
mod tests;
mod unshown;
mod upload_checksums;
mod uploads;
mod writing;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use fencepost_core::Key;
use fencepost_store::Store;
use tokio::sync::{RwLock, Semaphore, mpsc, watch};
use tokio::task::JoinHandle;

use key_locks::KeyLocks;
use layout::{Layout, LayoutError};
use refs::Refs;
use unshown::Unshown;
use writing::Settling;

pub use abandoned::collect_abandoned_uploads;
pub use checking::{Checked, Difference, Leftovers};
pub use choosing::{GivenPart, MIN_PART_BYTES};
pub use composition::Composition;
pub use deleting::Removal;
pub(crate) use digest::Measure;
pub use digest::{Algorithm, Promised};
pub use error::ObjectError;
pub use reading::Reading;
pub use upload_checksums::{ChecksumKind, UploadChecksum};
pub use uploads::{Completed, PutPart, Source};
pub use writing::{Grant, Put, Written};

/// Changes that may be between their commit and their dropped intent at once.
const MAX_SETTLING: usize = 256;

/// Uploads whose parts may be put together at once: each moves as many bytes as the storage can.
const MAX_JOINING: usize = 16;

/// S3 allows at most so many parts in an upload.
const MAX_PARTS: usize = 10_000;

/// Objects, of one layout.
pub struct Objects {
    store: Arc<Store>,
    layout: Arc<dyn Layout>,
    refs: Refs,
    locks: KeyLocks,
    /// Whoever writes into a bucket holds it for reading, whoever removes one for writing.
    buckets: RwLock<()>,
    /// Buckets whose files are in the index.
    adopted: RwLock<HashSet<String>>,
    /// Held by whoever takes one in.
    adopting: tokio::sync::Mutex<()>,
    /// Committed, but the storage does not show it yet.
    blocked: Mutex<HashMap<Key, Unshown>>,
    /// Whoever completes an upload holds it.
    completing: KeyLocks,
    /// Uploads that are put together at once.
    joining: Arc<Semaphore>,
    /// Whoever puts one together stops when this becomes true.
    closing: watch::Sender<bool>,
    /// Changes under way that must come to an end.
    acting: Arc<Semaphore>,
    settling: mpsc::Sender<Settling>,
    settler: JoinHandle<()>,
}

impl Objects {
    /// Opens them: finishes what a crash left half done, and takes in files that were there before.
    pub async fn open(store: Arc<Store>, layout: Arc<dyn Layout>) -> Result<Arc<Objects>, ObjectError> {
        let (settling, settled) = mpsc::channel(MAX_SETTLING);
        let settler = tokio::spawn(writing::settle(store.clone(), settled));
        let objects = Arc::new(Objects {
            store,
            layout,
            refs: Refs::new(),
            locks: KeyLocks::new(),
            buckets: RwLock::new(()),
            adopted: RwLock::default(),
            adopting: tokio::sync::Mutex::default(),
            blocked: Mutex::default(),
            completing: KeyLocks::new(),
            joining: Arc::new(Semaphore::new(MAX_JOINING)),
            closing: watch::Sender::new(false),
            acting: Arc::new(Semaphore::new(MAX_SETTLING)),
            settling,
            settler,
        });
        let recovered = objects.recover().await?;
        tokio::spawn(recovery::collect_now_and_then(Arc::downgrade(&objects), recovered));
        Ok(objects)
    }

    /// Waits until every change under way has come to its end; what is only being put together is given up. Nothing may be
    /// asked of it afterwards.
    pub async fn close(&self) {
        self.closing.send_replace(true);
        let all = u32::try_from(MAX_SETTLING).unwrap_or(u32::MAX);
        // Never closed, so it is always had in the end: each change gives its place back when its intent is dropped.
        let _ = self.acting.acquire_many(all).await;
        self.settler.abort();
    }

    /// The store below.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Is there such a bucket? One that is seen for the first time is taken in, with its files.
    pub async fn need_bucket(&self, bucket: &str) -> Result<(), ObjectError> {
        if !self.layout.has_bucket(bucket).await? {
            return Err(LayoutError::NoBucket(bucket.to_owned()).into());
        }
        if self.is_adopted(bucket).await {
            return Ok(());
        }
        // Nobody writes into it meanwhile: whoever wants to waits here.
        let _alone = self.adopting.lock().await;
        if !self.is_adopted(bucket).await {
            self.take_in_bucket(bucket).await?;
        }
        Ok(())
    }

    async fn is_adopted(&self, bucket: &str) -> bool {
        self.adopted.read().await.contains(bucket)
    }

    fn blocked(&self) -> std::sync::MutexGuard<'_, HashMap<Key, Unshown>> {
        self.blocked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Can a text be told in XML? Two characters cannot that names may have, and one such object would make every list of
/// its bucket unreadable.
pub fn tellable(text: &str) -> bool {
    !text.chars().any(untellable)
}

/// Does XML have no way to tell this character?
pub fn untellable(c: char) -> bool {
    c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}')
}

/// The bucket of an object's name.
pub(crate) fn bucket_of(key: &Key) -> &str {
    key.as_str().split('/').next().unwrap_or_default()
}
