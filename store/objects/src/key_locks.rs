//! A lock per object, held from before the commit until the storage has published the change (trap 38).
//!
//! It makes the index and the storage change in the same order, so a reader that looks at both sees a consistent
//! pair.

use std::collections::BTreeSet;
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::Arc;

use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};

/// The number of locks. Objects that share one by chance only wait for each other.
const STRIPES: usize = 1024;

/// Locks of objects.
pub(crate) struct KeyLocks {
    stripes: Vec<Arc<RwLock<()>>>,
    hasher: RandomState,
}

/// Write locks, released on drop.
pub(crate) type Writing = Vec<OwnedRwLockWriteGuard<()>>;

impl KeyLocks {
    pub(crate) fn new() -> KeyLocks {
        KeyLocks { stripes: (0..STRIPES).map(|_| Arc::default()).collect(), hasher: RandomState::new() }
    }

    fn stripe(&self, key: &impl Hash) -> usize {
        (self.hasher.hash_one(key) % STRIPES as u64) as usize
    }

    /// Locks a key for reading index and storage.
    pub(crate) async fn read(&self, key: &impl Hash) -> OwnedRwLockReadGuard<()> {
        self.stripes[self.stripe(key)].clone().read_owned().await
    }

    /// Locks keys for changing index and storage. All callers take the locks in the same order, so there is no
    /// deadlock.
    pub(crate) async fn write<'a, K: Hash + 'a>(&self, keys: impl IntoIterator<Item = &'a K>) -> Writing {
        let wanted: BTreeSet<usize> = keys.into_iter().map(|key| self.stripe(key)).collect();
        let mut held = Vec::with_capacity(wanted.len());
        for stripe in wanted {
            held.push(self.stripes[stripe].clone().write_owned().await);
        }
        held
    }
}
