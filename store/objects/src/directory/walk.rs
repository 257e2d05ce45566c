//! Walks through the contents of a bucket, in order of key.
//!
//! A directory sorts as if its name ended in `/`, because the keys below it continue that way: `a-b` comes before
//! `a/b`, and so before the whole directory `a`.

use std::collections::BinaryHeap;

use fencepost_core::{Key, MAX_NAME_BYTES};
use rustix::fs::FileType;
use rustix::io::Errno;

use super::buckets;
use super::dir::{Dir, failed, kind, kind_name, mark_of, modified_ms};
use super::tree::Tree;
use crate::layout::{Foreign, Found, LayoutError, Walked};

/// Entries of one directory held in memory at once. A larger directory is read again for each page.
const PAGE: usize = 8192;

/// An entry of a directory, ordered like keys.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    /// The name, with a trailing `/` for a directory.
    sort: Vec<u8>,
    is_dir: bool,
}

impl Entry {
    fn new(name: &[u8], is_dir: bool) -> Entry {
        let slash: &[u8] = if is_dir { b"/" } else { b"" };
        Entry { sort: [name, slash].concat(), is_dir }
    }

    fn name(&self) -> &[u8] {
        if self.is_dir { &self.sort[..self.sort.len() - 1] } else { &self.sort }
    }
}

/// A directory on the current path, and its entries still to visit.
struct Level {
    dir: Dir,
    entries: std::vec::IntoIter<Entry>,
    /// The last of `entries`, if the directory has more entries after it.
    read_on_after: Option<Vec<u8>>,
}

impl Level {
    /// Reads the first page of entries after a point: the name of an entry, or a path that leads through one.
    fn read(dir: Dir, after: Option<&[u8]>, page: usize) -> Result<Level, LayoutError> {
        let reading = |error| failed(format!("reading the directory `{}`", dir.path()), error);
        let mut first = BinaryHeap::new();
        let mut more = false;
        let listing = match dir.entries() {
            Ok(listing) => Some(listing),
            // The directory was removed while it was open.
            Err(Errno::NOENT) => None,
            Err(error) => return Err(reading(error)),
        };
        for entry in listing.into_iter().flatten() {
            let entry = entry.map_err(reading)?;
            let is_dir = match entry.file_type() {
                FileType::Unknown => match rustix::fs::statat(&dir, entry.file_name(), NOT_THE_TARGET) {
                    Ok(stat) => kind(&stat).is_dir(),
                    Err(Errno::NOENT) => continue,
                    Err(error) => return Err(reading(error)),
                },
                known => known.is_dir(),
            };
            let entry = Entry::new(entry.file_name().to_bytes(), is_dir);
            if after.is_some_and(|after| entry.sort.as_slice() <= after && !leads_through(after, &entry)) {
                continue;
            }
            first.push(entry);
            if first.len() > page {
                first.pop();
                more = true;
            }
        }
        let entries = first.into_sorted_vec();
        let read_on_after = if more { entries.last().map(|last| last.sort.clone()) } else { None };
        Ok(Level { dir, entries: entries.into_iter(), read_on_after })
    }
}

const NOT_THE_TARGET: rustix::fs::AtFlags = rustix::fs::AtFlags::SYMLINK_NOFOLLOW;

/// Returns whether the path continues in this directory.
fn leads_through(path: &[u8], entry: &Entry) -> bool {
    entry.is_dir && path.len() > entry.sort.len() && path.starts_with(&entry.sort)
}

/// Walks through a bucket, starting after a key, until `limit` files and foreign entries were found.
pub(super) fn walk(tree: &Tree, bucket: &str, after: Option<&Key>, limit: usize) -> Result<Walked, LayoutError> {
    walk_by(tree, bucket, after, limit, PAGE)
}

/// Like [`walk`], with a configurable page size for tests.
pub(super) fn walk_by(
    tree: &Tree,
    bucket: &str,
    after: Option<&Key>,
    limit: usize,
    page: usize,
) -> Result<Walked, LayoutError> {
    let dir = buckets::open(tree, bucket)?.ok_or_else(|| LayoutError::NoBucket(bucket.to_owned()))?;
    let mut walked = Walked::default();
    let after = match after {
        None => None,
        Some(after) => match after.as_str().strip_prefix(bucket).and_then(|rest| rest.strip_prefix('/')) {
            Some(rest) => Some(rest.as_bytes()),
            None if after.as_str() < format!("{bucket}/").as_str() => None,
            None => return Ok(walked),
        },
    };
    let limit = limit.max(1);
    let mut levels = vec![Level::read(dir, after, page)?];
    // The part of `after` below the current level, while the walk is still descending towards it.
    let mut rest = after;
    while let Some(mut level) = levels.pop() {
        let Some(entry) = level.entries.next() else {
            // The path to `after` ends at this level. A later directory may contain an entry of the same name, but is
            // not on that path.
            rest = None;
            if let Some(after) = level.read_on_after {
                levels.push(Level::read(level.dir, Some(&after), page)?);
            }
            continue;
        };
        let below = rest.take().filter(|rest| leads_through(rest, &entry)).map(|rest| &rest[entry.sort.len()..]);
        let seen = look(tree, &level.dir, &entry)?;
        levels.push(level);
        let resume = match seen {
            Seen::Nothing => None,
            Seen::Dir(dir) => {
                levels.push(Level::read(dir, below, page)?);
                rest = below;
                None
            }
            Seen::File(found) => {
                let key = found.key.clone();
                walked.found.push(found);
                Some(key)
            }
            Seen::Foreign(foreign, key) => {
                walked.foreign.push(foreign);
                key
            }
        };
        if resume.is_some() && walked.found.len() + walked.foreign.len() >= limit {
            walked.next = resume;
            return Ok(walked);
        }
    }
    Ok(walked)
}

/// The classification of an entry.
enum Seen {
    /// Removed in the meantime.
    Nothing,
    Dir(Dir),
    File(Found),
    /// With its key, if it has one, so that the next run can begin after it.
    Foreign(Foreign, Option<Key>),
}

fn look(tree: &Tree, dir: &Dir, entry: &Entry) -> Result<Seen, LayoutError> {
    let foreign = |path: &str, why: String| Seen::Foreign(Foreign { path: path.to_owned(), why }, None);
    let Ok(name) = std::str::from_utf8(entry.name()) else {
        let path = dir.path_of(&String::from_utf8_lossy(entry.name()));
        return Ok(foreign(&path, "its name is not UTF-8".to_owned()));
    };
    let path = dir.path_of(name);
    let key = match Key::new(&path) {
        Ok(key) => key,
        Err(why) => return Ok(foreign(&path, why.to_string())),
    };
    if entry.is_dir {
        return look_at_dir(tree, dir, name, &path);
    }
    let stat = match dir.stat(name) {
        Ok(Some(stat)) => stat,
        Ok(None) => return Ok(Seen::Nothing),
        Err(error) => return Err(failed(format!("looking at `{path}`"), error)),
    };
    Ok(match kind(&stat) {
        FileType::RegularFile => Seen::File(Found { key, mark: mark_of(&stat), modified_ms: modified_ms(&stat) }),
        FileType::Directory => Seen::Nothing,
        other => Seen::Foreign(Foreign { path, why: format!("it is {}", kind_name(other)) }, Some(key)),
    })
}

fn look_at_dir(tree: &Tree, above: &Dir, name: &str, path: &str) -> Result<Seen, LayoutError> {
    let foreign = |why: &str| Ok(Seen::Foreign(Foreign { path: path.to_owned(), why: why.to_owned() }, None));
    if path.len() + "/x".len() > MAX_NAME_BYTES {
        return foreign("it is a directory so deep that names in it are longer than 1024 bytes");
    }
    match above.open_dir(name) {
        Ok(dir) => {
            let stat = dir.stat_self().map_err(|error| failed(format!("looking at `{path}`"), error))?;
            if stat.st_dev == tree.device { Ok(Seen::Dir(dir)) } else { foreign(OTHER_DEVICE) }
        }
        Err(Errno::XDEV) => foreign(OTHER_DEVICE),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(Seen::Nothing),
        Err(error) => Err(failed(format!("opening the directory `{path}`"), error)),
    }
}

const OTHER_DEVICE: &str = "it is a directory on another file system";
