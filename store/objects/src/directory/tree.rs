//! State shared by all parts of the layout: the open directories, the names in use, and whether writing is still
//! allowed.

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
    /// The device of the root. Buckets and their contents must be on it, because a rename cannot cross devices.
    pub(super) device: u64,
    /// The longest possible file name, in bytes.
    pub(super) name_max: usize,
    pub(super) modes: SharedModes,
    pub(super) reservations: Reservations,
    stopped: OnceLock<String>,
    /// Bytes that must stay free on the file system.
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

    /// Refuses a write of `bytes` bytes if it would leave less than the floor free. Objects often share a file system
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

    /// Refuses to write after a failed sync of a directory. The kernel drops the data it could not write, so a second
    /// sync would report success (G8).
    pub(super) fn check_running(&self) -> Result<(), LayoutError> {
        match self.stopped.get() {
            None => Ok(()),
            Some(why) => Err(LayoutError::Failed {
                what: "the objects can only be read until the gateway is started again".to_owned(),
                error: why.clone(),
            }),
        }
    }

    /// Makes the entries of a directory durable.
    pub(super) fn sync(&self, dir: &Dir) -> Result<(), LayoutError> {
        self.check_running()?;
        dir.sync().map_err(|error| {
            let what = format!("syncing the directory `{}`", dir.path());
            let _ = self.stopped.set(format!("{what} failed: {error}"));
            failed(what, error)
        })
    }

    /// The file name of staged bytes in the staging directory.
    pub(super) fn staged_name(id: Ref) -> String {
        id.to_string()
    }
}

/// A reservation of names, released when it is dropped.
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

/// Runs blocking disk work on a thread for that purpose. The work runs to completion even if the caller stops
/// waiting.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, LayoutError> + Send + 'static,
) -> Result<T, LayoutError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => Err(LayoutError::Failed { what: "working on the storage".to_owned(), error: error.to_string() }),
    }
}
