//! What all parts of the layout share: the open directories, the names in use, and whether writing may go on.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use fencepost_core::Key;
use rustix::fs::fstatvfs;

use super::dir::{Dir, failed};
use super::modes::SharedModes;
use super::names::ObjectPath;
use super::ownership::Lock;
use super::reservations::{Purpose, Reservations};
use crate::layout::{LayoutError, Ref};

/// An open storage directory.
#[derive(Debug)]
pub(super) struct Tree {
    pub(super) root: Dir,
    pub(super) staging: Dir,
    /// Buckets and all in them must be on it, or a rename could not reach them.
    pub(super) device: u64,
    /// The longest file name here, in bytes.
    pub(super) name_max: usize,
    pub(super) modes: SharedModes,
    pub(super) reservations: Reservations,
    stopped: OnceLock<String>,
    /// Bytes that must stay free.
    floor: AtomicU64,
    _lock: Lock,
}

impl Tree {
    pub(super) fn new(root: Dir, staging: Dir, device: u64, name_max: usize, modes: SharedModes, lock: Lock) -> Tree {
        let (reservations, stopped, floor) = (Reservations::default(), OnceLock::new(), AtomicU64::new(0));
        Tree { root, staging, device, name_max, modes, reservations, stopped, floor, _lock: lock }
    }

    pub(super) fn keep_free(&self, floor: u64) {
        self.floor.store(floor, Ordering::Relaxed);
    }

    /// Refuses to write so many bytes if less than the floor would be free afterwards. Objects often share their file system
    /// with the store, and one upload must not stop every write (trap 47).
    pub(super) fn check_room(&self, bytes: u64) -> Result<(), LayoutError> {
        let floor = self.floor.load(Ordering::Relaxed);
        if floor == 0 {
            return Ok(());
        }
        let disk = fstatvfs(&self.staging)
            .map_err(|error| failed(format!("asking for the free space of `{}`", self.staging.path()), error))?;
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        match free.checked_sub(bytes) {
            Some(left) if left >= floor => Ok(()),
            _ => Err(LayoutError::NoSpace(format!(
                "{free} bytes are free for objects, {bytes} are to be written, and {floor} must stay free (free_space_floor)"
            ))),
        }
    }

    pub(super) fn path<'a>(&self, key: &'a Key) -> Result<ObjectPath<'a>, LayoutError> {
        ObjectPath::new(key, self.name_max)
    }

    /// Refuses to write after a failed sync of a directory. The system forgets what it could not write, so trying again
    /// would be told that all is well (G8).
    pub(super) fn check_running(&self) -> Result<(), LayoutError> {
        match self.stopped.get() {
            None => Ok(()),
            Some(why) => Err(LayoutError::Failed {
                what: "the objects can only be read until the gateway is started again".to_owned(),
                error: why.clone(),
            }),
        }
    }

    /// Makes the names in a directory durable.
    pub(super) fn sync(&self, dir: &Dir) -> Result<(), LayoutError> {
        self.check_running()?;
        dir.sync().map_err(|error| {
            let what = format!("syncing the directory `{}`", dir.path());
            let _ = self.stopped.set(format!("{what} failed: {error}"));
            failed(what, error)
        })
    }

    /// The name of staged bytes in the staging directory.
    pub(super) fn staged_name(id: Ref) -> String {
        id.to_string()
    }
}

/// Names in use until it is dropped.
#[derive(Debug)]
pub(super) struct Reservation {
    tree: Arc<Tree>,
    key: Key,
    purpose: Purpose,
}

impl Reservation {
    pub(super) fn take(tree: &Arc<Tree>, key: &Key, purpose: Purpose) -> Result<Reservation, LayoutError> {
        tree.reservations.take(&tree.path(key)?, purpose)?;
        Ok(Reservation { tree: tree.clone(), key: key.clone(), purpose })
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if let Ok(path) = self.tree.path(&self.key) {
            self.tree.reservations.give_back(&self.tree.root, &path, self.purpose);
        }
    }
}

/// Runs work that may wait for the disk on a thread made for that. Work goes on to its end even if nobody waits for it
/// any more.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, LayoutError> + Send + 'static,
) -> Result<T, LayoutError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => Err(LayoutError::Failed { what: "working on the storage".to_owned(), error: error.to_string() }),
    }
}
