//! The base generation, for readers that do not load the store's own record.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Larger than any generation.
const UNKNOWN: u64 = u64::MAX;

/// The base generation as the sequencer last committed it; unknown while a commit may be changing it, and for good if
/// such a commit ended with an unknown outcome. It never goes down, so two equal readings mean that it did not change
/// between them.
#[derive(Clone, Debug)]
pub(crate) struct KnownBase(Arc<AtomicU64>);

impl KnownBase {
    pub(crate) fn new(generation: u32) -> KnownBase {
        KnownBase(Arc::new(AtomicU64::new(generation.into())))
    }

    pub(crate) fn get(&self) -> Option<u32> {
        u32::try_from(self.0.load(Ordering::Acquire)).ok()
    }

    /// A higher one stays: it was seen by another lane.
    pub(crate) fn set(&self, generation: u32) {
        let higher = |known| Some(if known == UNKNOWN { generation.into() } else { u64::from(generation).max(known) });
        // The closure never gives up.
        let _ = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, higher);
    }

    /// A commit that may change it begins.
    pub(crate) fn withdraw(&self) {
        self.0.store(UNKNOWN, Ordering::Release);
    }
}
