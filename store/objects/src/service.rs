//! The service: what all calls about objects share, how it is opened, and how it is closed.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use fencepost_core::{FenceState, Guards, Key, Resource};
use fencepost_store::Store;
use tokio::sync::{RwLock, Semaphore, mpsc, watch};
use tokio::task::JoinHandle;

use crate::error::ObjectError;
use crate::key_locks::KeyLocks;
use crate::layout::{Layout, LayoutError};
use crate::recovery;
use crate::refs::Refs;
use crate::settlement::{Settling, settle};
use crate::unshown::Unshown;

/// Changes that may be between their commit and their dropped intent at once.
pub(crate) const MAX_UNDER_WAY: usize = 256;

/// Uploads whose parts may be put together at once: each moves as many bytes as the storage can.
const MAX_JOINING: usize = 16;

/// Objects, of one layout.
pub struct Objects {
    pub(crate) store: Arc<Store>,
    pub(crate) layout: Arc<dyn Layout>,
    pub(crate) refs: Refs,
    pub(crate) locks: KeyLocks,
    /// Held for reading by writes into a bucket, for writing by removals of one.
    pub(crate) buckets: RwLock<()>,
    /// Buckets whose files are in the index.
    pub(crate) adopted: RwLock<HashSet<String>>,
    /// Held while a bucket is taken in.
    adopting: tokio::sync::Mutex<()>,
    /// Committed, but the storage does not show it yet.
    blocked: Mutex<HashMap<Key, Unshown>>,
    /// Held by the completion of an upload.
    pub(crate) completing: KeyLocks,
    /// Places for uploads that are put together at once.
    pub(crate) joining: Arc<Semaphore>,
    /// Completions that have not committed stop when this becomes true.
    pub(crate) closing: watch::Sender<bool>,
    /// Places for changes that must come to an end.
    pub(crate) under_way: Arc<Semaphore>,
    pub(crate) settling: mpsc::Sender<Settling>,
    settler: JoinHandle<()>,
}

impl Objects {
    /// Opens them: finishes what a crash left half done, and takes in files that were there before.
    pub async fn open(store: Arc<Store>, layout: Arc<dyn Layout>) -> Result<Arc<Objects>, ObjectError> {
        let (settling, settled) = mpsc::channel(MAX_UNDER_WAY);
        let settler = tokio::spawn(settle(store.clone(), settled));
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
            under_way: Arc::new(Semaphore::new(MAX_UNDER_WAY)),
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
        let all = u32::try_from(MAX_UNDER_WAY).unwrap_or(u32::MAX);
        // Never closed, so it is always had in the end: each change gives its place back when its intent is dropped.
        let _ = self.under_way.acquire_many(all).await;
        self.settler.abort();
    }

    /// The rules by which names belong to resources.
    pub fn guards(&self) -> Arc<Guards> {
        self.store.guards()
    }

    /// The fence of a resource.
    pub async fn fence(&self, resource: &Resource) -> Result<FenceState, ObjectError> {
        Ok(self.store.fence(resource).await??)
    }

    /// Is there such a bucket? One that is seen for the first time is taken in, with its files.
    pub async fn need_bucket(&self, bucket: &str) -> Result<(), ObjectError> {
        if !self.layout.has_bucket(bucket).await? {
            return Err(LayoutError::NoBucket(bucket.to_owned()).into());
        }
        if self.is_adopted(bucket).await {
            return Ok(());
        }
        // Writers wait here meanwhile.
        let _alone = self.adopting.lock().await;
        if !self.is_adopted(bucket).await {
            self.take_in_bucket(bucket).await?;
        }
        Ok(())
    }

    async fn is_adopted(&self, bucket: &str) -> bool {
        self.adopted.read().await.contains(bucket)
    }

    pub(crate) fn blocked(&self) -> std::sync::MutexGuard<'_, HashMap<Key, Unshown>> {
        self.blocked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs a change to its end, whether its caller waits or not.
pub(crate) async fn to_its_end<T: Send + 'static>(
    change: impl Future<Output = Result<T, ObjectError>> + Send + 'static,
) -> Result<T, ObjectError> {
    tokio::spawn(change).await.unwrap_or_else(|error| Err(ObjectError::Unknown(error.to_string())))
}
