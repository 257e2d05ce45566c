//! The names in use. Reservations keep writers from blocking each other between the check of a place and the rename,
//! and keep directories in use from being pruned.

use std::collections::{HashMap, HashSet};

use parking_lot::{Mutex, MutexGuard};

use super::dir::{Dir, failed};
use super::names::{ObjectPath, split_last};
use crate::layout::LayoutError;

// Paths have up to a kilobyte. At this number of paths the set is cleared, and rebuilt over time.
const MAX_DURABLE: usize = 65_536;

/// Names in use, under one mutex.
#[derive(Debug, Default)]
pub(super) struct Reservations {
    names: Mutex<Names>,
}

#[derive(Debug, Default)]
struct Names {
    /// Files about to be published, with the number of their writers.
    files: HashMap<String, usize>,
    /// Directories in use.
    dirs: HashMap<String, DirUse>,
    /// Directories whose names were synced since the start, so that this is not repeated for each file in them.
    durable: HashSet<String>,
}

#[derive(Debug, Default)]
struct DirUse {
    users: usize,
    /// The last user removes the directory when it leaves, if it is empty.
    prune: bool,
}

/// What a name is reserved for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A file will be published.
    Publish,
    /// A file will be removed.
    Remove,
}

impl Reservations {
    fn names(&self) -> MutexGuard<'_, Names> {
        self.names.lock()
    }

    /// Reserves a file and the directories above it.
    pub(super) fn take(&self, path: &ObjectPath<'_>, purpose: Purpose) -> Result<(), LayoutError> {
        let mut names = self.names();
        if purpose == Purpose::Publish {
            if let Some(file) = path.dirs().find(|dir| names.files.contains_key(*dir)) {
                return Err(clash_above(file, path.whole()));
            }
            if names.dirs.contains_key(path.whole()) {
                return Err(clash_below(path.whole()));
            }
            *names.files.entry(path.whole().to_owned()).or_default() += 1;
        }
        for dir in path.dirs() {
            names.dirs.entry(dir.to_owned()).or_default().users += 1;
        }
        Ok(())
    }

    /// Releases a reservation. The last user of a directory marked for pruning removes it if it is empty.
    pub(super) fn give_back(&self, root: &Dir, path: &ObjectPath<'_>, purpose: Purpose) {
        let mut names = self.names();
        if purpose == Purpose::Publish {
            match names.files.get_mut(path.whole()) {
                Some(users) if *users > 1 => *users -= 1,
                _ => drop(names.files.remove(path.whole())),
            }
        }
        for dir in path.dirs().rev() {
            let Some(entry) = names.dirs.get_mut(dir) else { continue };
            entry.users = entry.users.saturating_sub(1);
            if entry.users > 0 {
                continue;
            }
            let prune = entry.prune && dir != path.bucket();
            names.dirs.remove(dir);
            if prune && let Err(error) = names.remove_dir(root, dir) {
                tracing::debug!(dir, %error, "an empty directory could not be removed");
            }
        }
    }

    /// Marks these directories for removal once they are unused and empty.
    pub(super) fn prune_later<'a>(&self, dirs: impl Iterator<Item = &'a str>) {
        self.set_prune(dirs, true);
    }

    /// Clears the mark: these directories have content now.
    pub(super) fn keep<'a>(&self, dirs: impl Iterator<Item = &'a str>) {
        self.set_prune(dirs, false);
    }

    fn set_prune<'a>(&self, dirs: impl Iterator<Item = &'a str>, prune: bool) {
        let mut names = self.names();
        for dir in dirs {
            if let Some(entry) = names.dirs.get_mut(dir) {
                entry.prune = prune;
            }
        }
    }

    /// Removes a directory that is not in use. `false`: it is in use, or not empty.
    pub(super) fn remove_unused(&self, root: &Dir, path: &str) -> Result<bool, LayoutError> {
        let mut names = self.names();
        if names.dirs.contains_key(path) {
            return Ok(false);
        }
        names.remove_dir(root, path)
    }

    /// Returns whether the name of this directory is known to be on stable storage.
    pub(super) fn is_durable(&self, dir: &str) -> bool {
        self.names().durable.contains(dir)
    }

    /// Returns whether the names of all these directories are known to be on stable storage.
    pub(super) fn are_durable<'a>(&self, mut dirs: impl Iterator<Item = &'a str>) -> bool {
        let names = self.names();
        dirs.all(|dir| names.durable.contains(dir))
    }

    /// Records that the name of this directory is on stable storage. The caller holds a reservation for it.
    pub(super) fn set_durable(&self, dir: &str) {
        let mut names = self.names();
        if names.durable.len() >= MAX_DURABLE {
            names.durable.clear();
        }
        names.durable.insert(dir.to_owned());
    }

    #[cfg(test)]
    pub(super) fn is_idle(&self) -> bool {
        let names = self.names();
        names.files.is_empty() && names.dirs.is_empty()
    }
}

impl Names {
    fn remove_dir(&mut self, root: &Dir, path: &str) -> Result<bool, LayoutError> {
        let tried = || format!("removing the empty directory `{path}`");
        let (above, name) = split_last(path);
        let removed = match above {
            Some(above) => root.open_dir(above).and_then(|above| above.remove_dir(name)),
            None => root.remove_dir(name),
        };
        let removed = removed.map_err(|error| failed(tried(), error))?;
        if removed {
            self.durable.remove(path);
        }
        Ok(removed)
    }
}

/// The error for a file where a directory is needed.
pub(super) fn clash_above(file: &str, key: &str) -> LayoutError {
    LayoutError::Clash(format!(
        "`{file}` is an object, so `{key}` cannot be one: in a directory a name is a file or a directory; delete the \
         first, or choose another name"
    ))
}

/// The error for a directory where a file is needed.
pub(super) fn clash_below(key: &str) -> LayoutError {
    LayoutError::Clash(format!(
        "there are objects below `{key}/`, so `{key}` cannot be one: in a directory a name is a file or a directory; \
         delete them, or choose another name"
    ))
}
