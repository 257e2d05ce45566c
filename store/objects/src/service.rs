//! The service: the state shared by all calls about objects, its start and its shutdown.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use fencepost_core::{FenceState, Guards, Key, Resource};
use fencepost_store::Store;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{RwLock, Semaphore, mpsc, watch};
use tokio::task::JoinHandle;

use crate::error::ObjectError;
use crate::key_locks::KeyLocks;
use crate::layout::{Layout, LayoutError};
use crate::recovery;
use crate::refs::Refs;
use crate::settlement::{Settling, settle};
use crate::unshown::Unshown;

/// Changes that may be between their commit and the removal of their intent at once.
pub(crate) const MAX_UNDER_WAY: usize = 256;

/// Uploads whose parts may be joined at once. Each uses the full throughput of the storage.
const MAX_JOINING: usize = 16;

/// The objects of one layout.
pub struct Objects {
    pub(crate) store: Arc<Store>,
    pub(crate) layout: Arc<dyn Layout>,
    pub(crate) refs: Refs,
    pub(crate) locks: KeyLocks,
    /// Locked for reading by writes to a bucket, and for writing by the removal of one.
    pub(crate) buckets: RwLock<()>,
    /// Buckets whose files are in the index.
    pub(crate) adopted: RwLock<HashSet<String>>,
    /// Held while a bucket is adopted.
    adopting: tokio::sync::Mutex<()>,
    /// Changes that are committed but not published yet.
    blocked: Mutex<HashMap<Key, Unshown>>,
    /// Held by the completion of an upload.
    pub(crate) completing: KeyLocks,
    /// Permits for uploads whose parts are being joined.
    pub(crate) joining: Arc<Semaphore>,
    /// Becomes true on shutdown. Completions that have not committed stop then.
    pub(crate) closing: watch::Sender<bool>,
    /// Permits for changes that must run to completion.
    pub(crate) under_way: Arc<Semaphore>,
    pub(crate) settling: mpsc::Sender<Settling>,
    settler: JoinHandle<()>,
}

impl Objects {
    /// Opens the objects: completes what a crash interrupted, and adopts files that existed before.
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

    /// Waits until every change under way has completed. Uploads that are still being joined are given up. The
    /// service must not be used afterwards.
    pub async fn close(&self) {
        self.closing.send_replace(true);
        let all = u32::try_from(MAX_UNDER_WAY).unwrap_or(u32::MAX);
        // The semaphore is never closed, and each change returns its permit when its intent is dropped, so this
        // succeeds.
        let _ = self.under_way.acquire_many(all).await;
        self.settler.abort();
    }

    /// The guards: the rules that assign names to resources.
    pub fn guards(&self) -> Arc<Guards> {
        self.store.guards()
    }

    /// The fence of a resource.
    pub async fn fence(&self, resource: &Resource) -> Result<FenceState, ObjectError> {
        Ok(self.store.fence(resource).await?)
    }

    /// Checks that a bucket exists. One that is seen for the first time is adopted with its files.
    pub async fn need_bucket(&self, bucket: &str) -> Result<(), ObjectError> {
        if !self.layout.has_bucket(bucket).await? {
            return Err(LayoutError::NoBucket(bucket.to_owned()).into());
        }
        if self.is_adopted(bucket).await {
            return Ok(());
        }
        // Writers wait here while the bucket is adopted.
        let _alone = self.adopting.lock().await;
        if !self.is_adopted(bucket).await {
            self.take_in_bucket(bucket).await?;
        }
        Ok(())
    }

    /// Returns whether the files of a bucket are in the index.
    pub(crate) async fn is_adopted(&self, bucket: &str) -> bool {
        self.adopted.read().await.contains(bucket)
    }

    pub(crate) fn blocked(&self) -> MutexGuard<'_, HashMap<Key, Unshown>> {
        self.blocked.lock()
    }
}

/// Runs a change to completion, even if its caller stops waiting.
pub(crate) async fn to_its_end<T: Send + 'static>(
    change: impl Future<Output = Result<T, ObjectError>> + Send + 'static,
) -> Result<T, ObjectError> {
    tokio::spawn(change).await.unwrap_or_else(|error| Err(ObjectError::Unknown(error.to_string())))
}
