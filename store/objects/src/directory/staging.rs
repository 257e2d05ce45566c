//! New bytes in a file of the staging directory, invisible to readers of the buckets (L1).

use std::fs::File;
use std::io::Write;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use rustix::fs::copy_file_range;
use rustix::io::{Errno, retry_on_intr};

use super::dir::{failed, failed_io};
use super::new_file::Owned;
use super::opened::OpenedFile;
use super::tree::{Tree, blocking};
use crate::layout::{LayoutError, Mark, Opened, Ref, Staging};
use crate::pieces::Pieces;

/// Bytes copied from file to file in one step; a copy can be cancelled between steps.
const COPY_AT_ONCE: u64 = 64 * 1024 * 1024;
/// The same where the bytes are copied through memory.
const READ_AT_ONCE: usize = 1024 * 1024;

/// A file being written. While one piece is written, the next bytes are collected.
pub(super) struct StagedFile {
    file: Owned,
    size: u64,
    pieces: Pieces,
}

impl StagedFile {
    /// Begins a file, if there is room for `length` bytes. It is made when it is first written, or sealed.
    pub(super) fn begin(tree: &Arc<Tree>, id: Ref, length: u64) -> Result<StagedFile, LayoutError> {
        tree.check_running()?;
        tree.check_room(length)?;
        Ok(StagedFile { file: Owned::new(tree, id), size: 0, pieces: Pieces::default() })
    }

    /// Like [`StagedFile::begin`], and makes the file.
    pub(super) fn create(tree: &Arc<Tree>, id: Ref, length: u64) -> Result<StagedFile, LayoutError> {
        let staged = StagedFile::begin(tree, id, length)?;
        staged.file.file().open()?;
        Ok(staged)
    }

    /// Copies a range of another file of this directory, in bounded steps.
    async fn copy(&mut self, from: &OpenedFile, start: u64, length: u64) -> Result<(), LayoutError> {
        let (to, source) = (self.file.file(), from.file.clone());
        let what = format!("copying `{}` to `{}`", from.path, to.shown());
        let copying = move || {
            to.tree.check_room(length)?;
            copy_range(&source, start, to.open()?, length, &what)
        };
        self.pieces.start(copying).await?;
        self.pieces.settle().await?;
        self.size += length;
        Ok(())
    }
}

#[async_trait]
impl Staging for StagedFile {
    async fn write(&mut self, bytes: Bytes) -> Result<(), LayoutError> {
        let file = self.file.file();
        self.size += bytes.len() as u64;
        self.pieces.add(bytes, move |piece| file.write(&piece)).await
    }

    async fn rest(&mut self) -> Result<(), LayoutError> {
        let file = self.file.file();
        self.pieces.hand_over(move |piece| file.write(&piece)).await?;
        self.pieces.settle().await
    }

    async fn append(&mut self, from: &dyn Opened, start: u64, length: u64) -> Result<(), LayoutError> {
        let size = from.mark().size;
        let end = start.checked_add(length).filter(|end| *end <= size).ok_or_else(|| LayoutError::Failed {
            what: format!("appending {length} bytes from {start} to `{}`", self.file.file().shown()),
            error: format!("the source has {size} bytes"),
        })?;
        let ours = from.as_any().downcast_ref::<OpenedFile>();
        let mut at = start;
        if let Some(ours) = ours {
            self.rest().await?;
            while at < end {
                let length = (end - at).min(COPY_AT_ONCE);
                self.copy(ours, at, length).await?;
                at += length;
            }
            return Ok(());
        }
        while at < end {
            let length = usize::try_from(end - at).unwrap_or(READ_AT_ONCE).min(READ_AT_ONCE);
            let bytes = from.read(at, length).await?;
            if bytes.is_empty() {
                return Err(LayoutError::Failed {
                    what: format!("appending to `{}`", self.file.file().shown()),
                    error: format!("the source ended at {at} of {size} bytes"),
                });
            }
            at += bytes.len() as u64;
            self.write(bytes).await?;
        }
        Ok(())
    }

    async fn seal(self: Box<Self>) -> Result<Mark, LayoutError> {
        let StagedFile { file, size, mut pieces } = *self;
        pieces.settle().await?;
        let (last, new) = (pieces.take(), file.file());
        let sealed = blocking(move || {
            new.tree.check_running()?;
            new.write(&last)?;
            // Syncing takes a while and many uploads may wait for it, so free the memory first.
            drop(last);
            new.seal(size)
        })
        .await;
        // Until here, a caller that gives up abandons the file.
        drop(file);
        sealed
    }
}

/// The refs of all staged files. Other entries of the staging directory are ignored.
pub(super) fn list(tree: &Arc<Tree>) -> Result<Vec<Ref>, LayoutError> {
    let reading = |error| failed(format!("reading the directory `{}`", tree.staging.path()), error);
    let mut found = Vec::new();
    for entry in tree.staging.entries().map_err(reading)? {
        let entry = entry.map_err(reading)?;
        let name = entry.file_name().to_str().ok();
        found.extend(name.and_then(|name| {
            let id = Ref(u64::from_str_radix(name, 16).ok()?);
            (Tree::staged_name(id) == name).then_some(id)
        }));
    }
    found.sort_unstable();
    Ok(found)
}

/// Copies inside the kernel where possible, otherwise through memory.
fn copy_range(from: &File, start: u64, to: &File, length: u64, what: &str) -> Result<(), LayoutError> {
    let (mut at, end) = (start, start + length);
    while at < end {
        let left = usize::try_from(end - at).unwrap_or(usize::MAX);
        // The call advances `at` itself.
        match retry_on_intr(|| copy_file_range(from, Some(&mut at), to, None, left)) {
            // Either the source became shorter, or the file system does not really support the call. Reading shows
            // which.
            Ok(0) => return copy_through_memory(from, at, to, end, what),
            Ok(_) => {}
            Err(Errno::XDEV | Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP | Errno::PERM) => {
                return copy_through_memory(from, at, to, end, what);
            }
            Err(error) => return Err(failed(what, error)),
        }
    }
    Ok(())
}

fn copy_through_memory(from: &File, mut at: u64, mut to: &File, end: u64, what: &str) -> Result<(), LayoutError> {
    use std::os::unix::fs::FileExt;
    let mut buffer = vec![0; READ_AT_ONCE];
    while at < end {
        let length = usize::try_from(end - at).unwrap_or(READ_AT_ONCE).min(READ_AT_ONCE);
        from.read_exact_at(&mut buffer[..length], at).map_err(|error| failed_io(what, &error))?;
        to.write_all(&buffer[..length]).map_err(|error| failed_io(what, &error))?;
        at += length as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Seek};

    use super::*;

    #[test]
    fn copying_through_memory_gives_the_same_bytes() {
        let mut from = tempfile::tempfile().unwrap();
        let bytes: Vec<u8> = (0..READ_AT_ONCE + 4321).map(|at| (at % 251) as u8).collect();
        from.write_all(&bytes).unwrap();
        type Copy = fn(&File, u64, &File, u64, &str) -> Result<(), LayoutError>;
        let through_memory: Copy =
            |from, start, to, length, what| copy_through_memory(from, start, to, start + length, what);
        for copy in [copy_range as Copy, through_memory] {
            let mut to = tempfile::tempfile().unwrap();
            to.write_all(b"before ").unwrap();
            copy(&from, 17, &to, bytes.len() as u64 - 17, "copying").unwrap();
            let mut copied = Vec::new();
            to.rewind().unwrap();
            to.read_to_end(&mut copied).unwrap();
            assert!(copied == [b"before ", &bytes[17..]].concat());
            assert!(copy(&from, 17, &to, bytes.len() as u64, "copying past the end").is_err());
        }
    }
}
