//! A lock per object, held from before the commit until the storage shows what was committed (trap 38).
//!
//! So the index and the storage change in the same order, and a reader that looks at both sees what belongs together.

use std::collections::BTreeSet;
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::Arc;

use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};

/// Objects that share a lock by chance only wait for each other.
const STRIPES: usize = 1024;

/// Locks of objects.
pub(crate) struct KeyLocks {
    stripes: Vec<Arc<RwLock<()>>>,
    hasher: RandomState,
}

/// Held for a write. Dropping it lets others go on.
pub(crate) type Writing = Vec<OwnedRwLockWriteGuard<()>>;

impl KeyLocks {
    pub(crate) fn new() -> KeyLocks {
        KeyLocks { stripes: (0..STRIPES).map(|_| Arc::default()).collect(), hasher: RandomState::new() }
    }

    fn stripe(&self, key: &impl Hash) -> usize {
        (self.hasher.hash_one(key) % STRIPES as u64) as usize
    }

    /// For whoever reads index and storage.
    pub(crate) async fn read(&self, key: &impl Hash) -> OwnedRwLockReadGuard<()> {
        self.stripes[self.stripe(key)].clone().read_owned().await
    }

    /// For whoever changes them. All are taken in one order, so nobody waits in a circle.
    pub(crate) async fn write<'a, K: Hash + 'a>(&self, keys: impl IntoIterator<Item = &'a K>) -> Writing {
        let wanted: BTreeSet<usize> = keys.into_iter().map(|key| self.stripe(key)).collect();
        let mut held = Vec::with_capacity(wanted.len());
        for stripe in wanted {
            held.push(self.stripes[stripe].clone().write_owned().await);
        }
        held
    }
}
