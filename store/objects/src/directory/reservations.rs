//! Who is using which names at this moment: keeps writers from getting into each other's way between the check of a
//! place and the rename, and keeps directories from being pruned under somebody's feet.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::dir::{Dir, failed};
use super::names::{ObjectPath, split_last};
use crate::layout::LayoutError;

// Paths are up to a kilobyte; when so many are known, all are forgotten and learned again.
const MAX_DURABLE: usize = 65_536;

/// Names in use, under one mutex.
#[derive(Debug, Default)]
pub(super) struct Reservations {
    names: Mutex<Names>,
}

#[derive(Debug, Default)]
struct Names {
    /// Files about to be published, with the number of those who are about to.
    files: HashMap<String, usize>,
    /// Directories that somebody needs.
    dirs: HashMap<String, DirUse>,
    /// Directories whose names were synced since the start, so that it need not be done for each file in them.
    durable: HashSet<String>,
}

#[derive(Debug, Default)]
struct DirUse {
    users: usize,
    /// The last user to leave removes it, if it is empty.
    prune: bool,
}

/// What a name is reserved for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A file will be there.
    Publish,
    /// A file will be removed.
    Remove,
}

impl Reservations {
    fn names(&self) -> MutexGuard<'_, Names> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// Gives back what was taken. Directories to be pruned are removed by the last one out, if they are empty.
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

    /// These directories are to go when they are empty.
    pub(super) fn prune_later<'a>(&self, dirs: impl Iterator<Item = &'a str>) {
        self.set_prune(dirs, true);
    }

    /// These directories have something in them now.
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

    /// Removes a directory that nobody uses. `false`: somebody does, or something is in it.
    pub(super) fn remove_unused(&self, root: &Dir, path: &str) -> Result<bool, LayoutError> {
        let mut names = self.names();
        if names.dirs.contains_key(path) {
            return Ok(false);
        }
        names.remove_dir(root, path)
    }

    /// Is the name of this directory known to be on stable storage?
    pub(super) fn is_durable(&self, dir: &str) -> bool {
        self.names().durable.contains(dir)
    }

    /// Are all of these?
    pub(super) fn are_durable<'a>(&self, mut dirs: impl Iterator<Item = &'a str>) -> bool {
        let names = self.names();
        dirs.all(|dir| names.durable.contains(dir))
    }

    /// Notes that the name of this directory is on stable storage. Its user holds a reservation.
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

/// A file is where a directory is needed.
pub(super) fn clash_above(file: &str, key: &str) -> LayoutError {
    LayoutError::Clash(format!(
        "`{file}` is an object, so `{key}` cannot be one: in a directory a name is a file or a directory; delete the \
         first, or choose another name"
    ))
}

/// A directory is where a file is wanted.
pub(super) fn clash_below(key: &str) -> LayoutError {
    LayoutError::Clash(format!(
        "there are objects below `{key}/`, so `{key}` cannot be one: in a directory a name is a file or a directory; \
         delete them, or choose another name"
    ))
}
