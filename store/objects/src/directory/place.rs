//! Preparation for a file: the bucket and all parents exist and are durable, and nothing blocks the name or can block
//! it until the place is released (L3).

use std::sync::Arc;

use fencepost_core::Key;
use rustix::fs::FileType;
use rustix::io::Errno;

use super::dir::{Dir, failed, kind, kind_name};
use super::names::{ObjectPath, split_last};
use super::ownership::OURS;
use super::reservations::{Purpose, clash_above, clash_below};
use super::tree::{Reservation, Tree};
use crate::layout::{LayoutError, Place};

/// A reserved name. Dropping it also removes the parents that were created for it and stayed empty.
#[derive(Debug)]
pub(super) struct FilePlace {
    _reservation: Reservation,
    taken: bool,
}

impl Place for FilePlace {
    fn is_taken(&self) -> bool {
        self.taken
    }
}

/// Prepares a place. Returns it with the directory that will contain the file.
pub(super) fn prepare(tree: &Arc<Tree>, key: &Key) -> Result<(FilePlace, Dir), LayoutError> {
    tree.check_running()?;
    let path = tree.path(key)?;
    if path.parts().nth(1) == Some(OURS) {
        return Err(LayoutError::Name(format!(
            "`{key}` cannot be stored: a bucket with `{OURS}` in it would be taken for the directory of another gateway; \
             choose another name"
        )));
    }
    let reservation = Reservation::take(tree, key, Purpose::Publish)?;
    let parent = open_parents(tree, &path)?;
    if !parent.is_writable() {
        return Err(LayoutError::Failed {
            what: format!("looking whether `{}` can be written", parent.path()),
            error: "the gateway's user has no permission to write in this directory".to_owned(),
        });
    }
    let taken = check_target(tree, &path, &parent)?;
    Ok((FilePlace { _reservation: reservation, taken }, parent))
}

/// Opens the directory of a file and creates what is missing below the bucket. When this returns, every name on the
/// path is durable, including directories that another writer created and may not have synced.
fn open_parents(tree: &Tree, path: &ObjectPath<'_>) -> Result<Dir, LayoutError> {
    if tree.reservations.are_durable(path.dirs())
        && let Ok(parent) = tree.root.open_dir(path.parent())
    {
        return Ok(parent);
    }
    let mut reached: Option<Dir> = None;
    for dir in path.dirs() {
        let above = reached.as_ref().unwrap_or(&tree.root);
        let (_, name) = split_last(dir);
        let (next, made) = match above.open_dir(name) {
            Ok(next) => (next, false),
            Err(Errno::NOENT) if dir != path.bucket() => (make(tree, path, above, dir)?, true),
            Err(error) => return Err(obstacle(path, above, dir, error)),
        };
        if made || !tree.reservations.is_durable(dir) {
            check_fit(tree, path, &next)?;
            tree.sync(above)?;
            tree.reservations.set_durable(dir);
        }
        reached = Some(next);
    }
    reached.ok_or_else(|| LayoutError::NoBucket(path.bucket().to_owned()))
}

fn make(tree: &Tree, path: &ObjectPath<'_>, above: &Dir, dir: &str) -> Result<Dir, LayoutError> {
    let (_, name) = split_last(dir);
    let made = match above.make_dir(name, tree.modes.directory) {
        Ok(()) => true,
        Err(Errno::EXIST) => false,
        Err(error) => return Err(failed(format!("making the directory `{dir}`"), error)),
    };
    if made {
        tree.reservations.prune_later([dir].into_iter());
    }
    let opened = above.open_dir(name).map_err(|error| obstacle(path, above, dir, error))?;
    if made {
        let setting = |error| failed(format!("setting the mode of the directory `{dir}`"), error);
        opened.set_mode(tree.modes.directory).map_err(setting)?;
    }
    Ok(opened)
}

/// Checks that files can be renamed into this directory, and that it is case-sensitive.
fn check_fit(tree: &Tree, path: &ObjectPath<'_>, dir: &Dir) -> Result<(), LayoutError> {
    let stat = dir.stat_self().map_err(|error| failed(format!("looking at the directory `{}`", dir.path()), error))?;
    if stat.st_dev != tree.device {
        return Err(other_device(path, dir.path()));
    }
    if dir.folds_case() {
        return Err(LayoutError::Name(format!(
            "`{}` cannot be stored: the directory `{}` takes upper and lower case for the same (chattr +F), so two \
             objects could be one file; make the bucket anew without that",
            path.whole(),
            dir.path()
        )));
    }
    Ok(())
}

/// Determines why a directory on the path could not be opened.
fn obstacle(path: &ObjectPath<'_>, above: &Dir, dir: &str, error: Errno) -> LayoutError {
    let failure = || failed(format!("opening the directory `{dir}`"), error);
    match error {
        Errno::NOENT | Errno::LOOP | Errno::NOTDIR | Errno::XDEV if dir == path.bucket() => {
            LayoutError::NoBucket(path.bucket().to_owned())
        }
        Errno::XDEV => other_device(path, dir),
        Errno::LOOP | Errno::NOTDIR => match above.stat(split_last(dir).1) {
            Ok(Some(stat)) if kind(&stat).is_file() => clash_above(dir, path.whole()),
            Ok(Some(stat)) => LayoutError::Name(format!(
                "`{}` cannot be stored: `{dir}` is {}, and only real directories are used; remove it, or choose another \
                 name",
                path.whole(),
                kind_name(kind(&stat))
            )),
            _ => failure(),
        },
        _ => failure(),
    }
}

fn other_device(path: &ObjectPath<'_>, dir: &str) -> LayoutError {
    if dir == path.bucket() {
        return LayoutError::NoBucket(dir.to_owned());
    }
    LayoutError::Name(format!(
        "`{}` cannot be stored: `{dir}` is on another file system than the storage directory, and files are not renamed \
         from one to another; unmount it, or choose another name",
        path.whole()
    ))
}

/// Checks what exists under the file's own name. Returns whether it is a file.
fn check_target(tree: &Tree, path: &ObjectPath<'_>, parent: &Dir) -> Result<bool, LayoutError> {
    let found = parent.stat(path.name()).map_err(|error| failed(format!("looking at `{}`", path.whole()), error))?;
    match found.as_ref().map(kind) {
        None => Ok(false),
        Some(FileType::RegularFile) => Ok(true),
        // Empty directories may be left over from a crash. They are not objects and may be removed.
        Some(FileType::Directory) => match remove_empty(tree, parent, path.whole())? {
            true => Ok(false),
            false => Err(clash_below(path.whole())),
        },
        Some(other) => Err(LayoutError::Name(format!(
            "`{}` cannot be stored: {} is under that name, and the gateway replaces only files; remove it, or choose \
             another name",
            path.whole(),
            kind_name(other)
        ))),
    }
}

/// Removes a tree that contains only directories. `false`: it contains something else, or a directory is in use.
pub(super) fn remove_empty(tree: &Tree, above: &Dir, path: &str) -> Result<bool, LayoutError> {
    if path.len() > fencepost_core::MAX_NAME_BYTES {
        return Ok(false);
    }
    let dir = match above.open_dir(split_last(path).1) {
        Ok(dir) => dir,
        Err(Errno::NOENT) => return Ok(true),
        Err(Errno::LOOP | Errno::NOTDIR | Errno::XDEV) => return Ok(false),
        Err(error) => return Err(failed(format!("opening the directory `{path}`"), error)),
    };
    let reading = |error| failed(format!("reading the directory `{path}`"), error);
    for entry in dir.entries().map_err(reading)? {
        let entry = entry.map_err(reading)?;
        let Ok(name) = entry.file_name().to_str() else { return Ok(false) };
        // On a file system that does not report types in listings, opening the entry decides.
        let maybe_dir = matches!(entry.file_type(), FileType::Directory | FileType::Unknown);
        if !maybe_dir || !remove_empty(tree, &dir, &format!("{path}/{name}"))? {
            return Ok(false);
        }
    }
    tree.reservations.remove_unused(&tree.root, path)
}
