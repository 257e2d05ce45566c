//! Fresh refs, reserved in blocks so that one commit serves many uploads.

use std::ops::Range;
use std::time::{Duration, Instant};

use fencepost_store::{Failure, Rejected, Store};
use tokio::sync::Mutex;

use crate::layout::Ref;

/// Refs reserved at a time.
const BLOCK: u64 = 64;

/// A block older than this is left to the collector, because the age of a ref counts from its reservation.
const FRESH: Duration = Duration::from_secs(600);

/// Refs that are reserved but not handed out.
pub(crate) struct Refs {
    block: Mutex<(Range<u64>, Instant)>,
}

impl Refs {
    pub(crate) fn new() -> Refs {
        Refs { block: Mutex::new((0..0, Instant::now())) }
    }

    /// Returns a ref that was never used.
    pub(crate) async fn next(&self, store: &Store) -> Result<Ref, Failure> {
        let mut block = self.block.lock().await;
        let (refs, reserved) = &mut *block;
        if refs.is_empty() || reserved.elapsed() > FRESH {
            *refs = store.reserve_refs(BLOCK).await?;
            *reserved = Instant::now();
        }
        // The block was just filled, so it is not empty.
        Ok(Ref(refs.next().unwrap_or_default()))
    }

    /// The refs that are reserved but not handed out.
    pub(crate) async fn unused(&self) -> Range<u64> {
        self.block.lock().await.0.clone()
    }

    /// Several fresh refs for removals. Below the free-space floor no block can be reserved, but the refs for a
    /// removal can.
    pub(crate) async fn several_to_remove(&self, store: &Store, count: usize) -> Result<Vec<Ref>, Failure> {
        match self.several(store, count).await {
            Err(Failure::Rejected(Rejected::NoSpace { .. })) => {
                Ok(store.reserve_refs_to_remove(count as u64).await?.map(Ref).collect())
            }
            several => several,
        }
    }

    /// Several fresh refs.
    pub(crate) async fn several(&self, store: &Store, count: usize) -> Result<Vec<Ref>, Failure> {
        if count <= BLOCK as usize {
            let mut several = Vec::with_capacity(count);
            for _ in 0..count {
                several.push(self.next(store).await?);
            }
            return Ok(several);
        }
        Ok(store.reserve_refs(count as u64).await?.map(Ref).collect())
    }
}
