//! The last step of a change: its intent is dropped once the storage has published it, and its locks and permits are
//! released.

use std::sync::Arc;

use fencepost_store::Store;
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use crate::key_locks::Writing;
use crate::layout::Place;

/// The most changes settled in one commit.
const SETTLE_AT_ONCE: usize = 128;

/// A change whose intent can be dropped, with what is released then.
pub(crate) struct Settling {
    pub(crate) ids: Vec<u64>,
    /// Released before the lock, so that the next writer of the key finds the place free.
    pub(crate) _places: Vec<Box<dyn Place>>,
    pub(crate) _lock: Writing,
    pub(crate) _under_way: OwnedSemaphorePermit,
}

/// Drops the intents of completed changes, many in one commit.
pub(crate) async fn settle(store: Arc<Store>, mut settled: mpsc::Receiver<Settling>) {
    let mut batch = Vec::with_capacity(SETTLE_AT_ONCE);
    while settled.recv_many(&mut batch, SETTLE_AT_ONCE).await > 0 {
        let ids: Vec<u64> = batch.iter().flat_map(|settling| settling.ids.iter().copied()).collect();
        if let Err(error) = store.settle_intents(&ids).await {
            // The next start repeats these intents, which changes nothing.
            tracing::warn!(%error, intents = ids.len(), "intents stay until the next start");
        }
        batch.clear();
    }
}
