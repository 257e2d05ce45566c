//! New bytes in a file of the staging directory, invisible to readers of the buckets (L1).

use std::fs::File;
use std::io::Write;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use rustix::fs::copy_file_range;
use rustix::io::{Errno, retry_on_intr};
use tokio::task::JoinHandle;

use super::dir::{failed, failed_io, mark_of, set_mode};
use super::opened::OpenedFile;
use super::tree::{Tree, blocking};
use crate::layout::{LayoutError, Mark, Opened, Ref, Staging};

/// Small writes are collected up to this size. An upload needs up to twice this memory.
const WRITE_AT_ONCE: usize = 256 * 1024;
/// Bytes copied from file to file in one step; a copy can be cancelled between steps.
const COPY_AT_ONCE: u64 = 64 * 1024 * 1024;
/// The same where the bytes are copied through memory.
const READ_AT_ONCE: usize = 1024 * 1024;

/// A file being written. While one write is in progress, the next bytes are collected.
pub(super) struct StagedFile {
    tree: Arc<Tree>,
    id: Ref,
    file: Arc<File>,
    size: u64,
    gathered: Vec<u8>,
    spare: Vec<u8>,
    writing: Option<JoinHandle<Result<Vec<u8>, LayoutError>>>,
    failed: Option<LayoutError>,
}

impl StagedFile {
    /// Creates the file, if there is room for `length` bytes.
    pub(super) fn create(tree: &Arc<Tree>, id: Ref, length: u64) -> Result<StagedFile, LayoutError> {
        tree.check_running()?;
        tree.check_room(length)?;
        let making = |error| failed(format!("making `{}`", tree.staging.path_of(&Tree::staged_name(id))), error);
        let file = tree.staging.create(&Tree::staged_name(id), tree.modes.file).map_err(making)?;
        set_mode(&file, tree.modes.file).map_err(making)?;
        Ok(StagedFile {
            tree: tree.clone(),
            id,
            file: Arc::new(file),
            size: 0,
            gathered: Vec::new(),
            spare: Vec::new(),
            writing: None,
            failed: None,
        })
    }

    fn shown(&self) -> String {
        self.tree.staging.path_of(&Tree::staged_name(self.id))
    }

    /// Waits for the write in progress. After a failure no further write is started.
    async fn settle(&mut self) -> Result<(), LayoutError> {
        if let Some(writing) = &mut self.writing {
            let result = writing.await;
            self.writing = None;
            match result {
                Ok(Ok(spare)) => self.spare = spare,
                Ok(Err(error)) => self.failed = Some(error),
                Err(error) => {
                    self.failed = Some(LayoutError::Failed {
                        what: format!("writing `{}`", self.shown()),
                        error: error.to_string(),
                    });
                }
            }
        }
        match &self.failed {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }

    /// Starts writing the collected bytes.
    async fn flush(&mut self) -> Result<(), LayoutError> {
        self.settle().await?;
        if self.gathered.is_empty() {
            return Ok(());
        }
        let (file, what) = (self.file.clone(), format!("writing `{}`", self.shown()));
        let tree = self.tree.clone();
        let mut bytes = std::mem::replace(&mut self.gathered, std::mem::take(&mut self.spare));
        self.writing = Some(tokio::task::spawn_blocking(move || {
            tree.check_room(bytes.len() as u64)?;
            (&*file).write_all(&bytes).map_err(|error| failed_io(what, &error))?;
            bytes.clear();
            Ok(bytes)
        }));
        Ok(())
    }

    /// Copies a range of another file of this directory, in bounded steps.
    async fn copy(&mut self, from: &OpenedFile, start: u64, length: u64) -> Result<(), LayoutError> {
        let (to, source) = (self.file.clone(), from.file.clone());
        let what = format!("copying `{}` to `{}`", from.path, self.shown());
        let tree = self.tree.clone();
        self.writing = Some(tokio::task::spawn_blocking(move || {
            tree.check_room(length)?;
            copy_range(&source, start, &to, length, &what)?;
            Ok(Vec::new())
        }));
        self.settle().await?;
        self.size += length;
        Ok(())
    }
}

#[async_trait]
impl Staging for StagedFile {
    async fn write(&mut self, bytes: Bytes) -> Result<(), LayoutError> {
        self.gathered.extend_from_slice(&bytes);
        self.size += bytes.len() as u64;
        if self.gathered.len() >= WRITE_AT_ONCE {
            self.flush().await?;
        }
        Ok(())
    }

    async fn rest(&mut self) -> Result<(), LayoutError> {
        self.flush().await?;
        self.settle().await?;
        (self.gathered, self.spare) = (Vec::new(), Vec::new());
        Ok(())
    }

    async fn append(&mut self, from: &dyn Opened, start: u64, length: u64) -> Result<(), LayoutError> {
        let size = from.mark().size;
        let end = start.checked_add(length).filter(|end| *end <= size).ok_or_else(|| LayoutError::Failed {
            what: format!("appending {length} bytes from {start} to `{}`", self.shown()),
            error: format!("the source has {size} bytes"),
        })?;
        let ours = from.as_any().downcast_ref::<OpenedFile>();
        let mut at = start;
        if let Some(ours) = ours {
            self.flush().await?;
            self.settle().await?;
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
                    what: format!("appending to `{}`", self.shown()),
                    error: format!("the source ended at {at} of {size} bytes"),
                });
            }
            at += bytes.len() as u64;
            self.write(bytes).await?;
        }
        Ok(())
    }

    async fn seal(mut self: Box<Self>) -> Result<Mark, LayoutError> {
        self.settle().await?;
        blocking(move || {
            self.tree.check_running()?;
            self.tree.check_room(self.gathered.len() as u64)?;
            // Syncing takes a while and many uploads may wait for it, so free the buffers first.
            let (gathered, _) = (std::mem::take(&mut self.gathered), std::mem::take(&mut self.spare));
            let what = || format!("writing `{}`", self.shown());
            (&*self.file).write_all(&gathered).map_err(|error| failed_io(what(), &error))?;
            drop(gathered);
            self.file.sync_all().map_err(|error| failed_io(format!("syncing `{}`", self.shown()), &error))?;
            let mark = mark_of(&rustix::fs::fstat(&self.file).map_err(|error| failed(what(), error))?);
            if mark.size != self.size {
                let error = format!("{} bytes were written, and the file has {}", self.size, mark.size);
                return Err(LayoutError::Failed { what: what(), error });
            }
            self.tree.sync(&self.tree.staging)?;
            Ok(mark)
        })
        .await
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
