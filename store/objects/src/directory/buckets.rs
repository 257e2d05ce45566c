//! Buckets: the directories in the root whose names S3 allows.

use std::sync::Arc;

use rustix::fs::{AtFlags, StatxFlags, statx};
use rustix::io::Errno;

use super::dir::{Dir, failed, modified_ms};
use super::names::{BUCKET_RULES, is_bucket_name};
use super::place::remove_empty;
use super::tree::Tree;
use crate::layout::{BucketFound, LayoutError};

/// Opens a bucket. `None`: the name is not valid, or there is no directory of that name on the root's file system.
/// Links do not count.
pub(super) fn open(tree: &Tree, bucket: &str) -> Result<Option<Dir>, LayoutError> {
    if !is_bucket_name(bucket) {
        return Ok(None);
    }
    let dir = match tree.root.open_dir(bucket) {
        Ok(dir) => dir,
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV) => return Ok(None),
        Err(error) => return Err(failed(format!("opening the bucket `{bucket}`"), error)),
    };
    let stat = dir.stat_self().map_err(|error| failed(format!("looking at the bucket `{bucket}`"), error))?;
    Ok((stat.st_dev == tree.device).then_some(dir))
}

/// All buckets, in order of name.
pub(super) fn list(tree: &Tree) -> Result<Vec<BucketFound>, LayoutError> {
    let reading = |error| failed("reading the storage directory", error);
    let mut found = Vec::new();
    for entry in tree.root.entries().map_err(reading)? {
        let entry = entry.map_err(reading)?;
        let Ok(name) = entry.file_name().to_str() else { continue };
        if let Some(dir) = open(tree, name)? {
            found.push(BucketFound { name: name.to_owned(), created_ms: created_ms(&dir)? });
        }
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

/// The creation time where the file system records it, otherwise the time of the last change.
fn created_ms(dir: &Dir) -> Result<u64, LayoutError> {
    if let Ok(found) = statx(dir, "", AtFlags::EMPTY_PATH, StatxFlags::BTIME)
        && found.stx_mask & StatxFlags::BTIME.bits() != 0
    {
        let birth = found.stx_btime;
        return Ok(u64::try_from(birth.tv_sec).unwrap_or(0) * 1000 + u64::from(birth.tv_nsec / 1_000_000));
    }
    let stat = dir.stat_self().map_err(|error| failed(format!("looking at the bucket `{}`", dir.path()), error))?;
    Ok(modified_ms(&stat))
}

/// Creates a bucket. `false`: it existed already.
pub(super) fn create(tree: &Tree, bucket: &str) -> Result<bool, LayoutError> {
    tree.check_running()?;
    if !is_bucket_name(bucket) {
        return Err(LayoutError::Name(format!("`{bucket}` cannot be a bucket: {BUCKET_RULES}")));
    }
    let made = match tree.root.make_dir(bucket, tree.modes.directory) {
        Ok(()) => {
            let opened = tree.root.open_dir(bucket).and_then(|dir| dir.set_mode(tree.modes.directory));
            opened.map_err(|error| failed(format!("setting the mode of the bucket `{bucket}`"), error))?;
            true
        }
        Err(Errno::EXIST) if open(tree, bucket)?.is_some() => false,
        Err(Errno::EXIST) => {
            return Err(LayoutError::Clash(format!(
                "`{bucket}` cannot be a bucket: something else than a directory of this file system has that name in the \
                 storage directory; remove it, or choose another name"
            )));
        }
        Err(error) => return Err(failed(format!("making the bucket `{bucket}`"), error)),
    };
    tree.sync(&tree.root)?;
    Ok(made)
}

/// Removes a bucket that has neither files nor writers. `false`: it has some.
pub(super) fn delete(tree: &Arc<Tree>, bucket: &str) -> Result<bool, LayoutError> {
    tree.check_running()?;
    if open(tree, bucket)?.is_none() {
        return Err(LayoutError::NoBucket(bucket.to_owned()));
    }
    let removed = remove_empty(tree, &tree.root, bucket)?;
    if removed {
        tree.sync(&tree.root)?;
    }
    Ok(removed)
}
