//! Publication and removal of files. Both are durable when they return, and idempotent (L4).

use std::sync::Arc;

use fencepost_core::Key;
use rustix::io::Errno;

use super::dir::{Dir, failed, kind, mark_of};
use super::names::ObjectPath;
use super::place::prepare;
use super::reservations::Purpose;
use super::tree::{Reservation, Tree};
use crate::layout::{LayoutError, Mark, Ref};

/// Renames staged bytes to their key. The place is prepared again, because after a crash no reservation exists.
pub(super) fn publish(tree: &Arc<Tree>, key: &Key, id: Ref, mark: Mark) -> Result<(), LayoutError> {
    let (_place, parent) = prepare(tree, key)?;
    let path = tree.path(key)?;
    let staged = Tree::staged_name(id);
    let found = tree
        .staging
        .stat(&staged)
        .map_err(|error| failed(format!("looking at the staged bytes {id} of `{key}`"), error))?;
    match found {
        Some(found) if mark_of(&found) == mark => {
            tree.staging
                .rename(&staged, &parent, path.name())
                .map_err(|error| failed(format!("renaming the staged bytes {id} to `{key}`"), error))?;
        }
        Some(found) => {
            return Err(LayoutError::Failed {
                what: format!("renaming the staged bytes {id} to `{key}`"),
                error: format!("recorded are {}, found {}", shown(mark), shown(mark_of(&found))),
            });
        }
        None => check_published(&path, &parent, id, mark)?,
    }
    tree.reservations.keep(path.dirs());
    tree.sync(&parent)
}

/// The staged bytes are gone: either they were renamed before, or they are lost. Checks which.
fn check_published(path: &ObjectPath<'_>, parent: &Dir, id: Ref, mark: Mark) -> Result<(), LayoutError> {
    let key = path.whole();
    let found = parent.stat(path.name()).map_err(|error| failed(format!("looking at `{key}`"), error))?;
    match found {
        Some(found) if kind(&found).is_file() && mark_of(&found) == mark => Ok(()),
        _ => Err(LayoutError::Missing(format!("{key} ({}, staged as {id})", shown(mark)))),
    }
}

fn shown(mark: Mark) -> String {
    format!("{} bytes in inode {}", mark.size, mark.inode)
}

/// Removes the file of a key, and the directories that become empty.
///
/// The removal of those directories is not synced. A crash may bring back an empty directory, which is not an object
/// and blocks nothing.
pub(super) fn remove(tree: &Arc<Tree>, key: &Key) -> Result<(), LayoutError> {
    tree.check_running()?;
    let path = tree.path(key)?;
    if open_parent(tree, &path)?.is_none() {
        return Ok(());
    }
    // The reservation keeps the directory from being pruned. Only now is it certain which directory holds the file,
    // so it is opened again.
    let _reservation = Reservation::take(tree, key, Purpose::Remove)?;
    let Some(parent) = open_parent(tree, &path)? else { return Ok(()) };
    let found = parent.stat(path.name()).map_err(|error| failed(format!("looking at `{key}`"), error))?;
    match found.as_ref().map(kind) {
        Some(file) if file.is_file() => {
            parent.remove_file(path.name()).map_err(|error| failed(format!("removing `{key}`"), error))?;
        }
        // Anything but a file was never published as an object.
        Some(_) => return Ok(()),
        // It may have been removed before a crash without a sync, so sync again.
        None => {}
    }
    tree.sync(&parent)?;
    tree.reservations.prune_later(path.dirs());
    Ok(())
}

fn open_parent(tree: &Tree, path: &ObjectPath<'_>) -> Result<Option<Dir>, LayoutError> {
    match tree.root.open_dir(path.parent()) {
        Ok(parent) => Ok(Some(parent)),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV) => Ok(None),
        Err(error) => Err(failed(format!("opening the directory `{}`", path.parent()), error)),
    }
}
