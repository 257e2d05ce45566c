//! A file opened for reading. A newer file replaces the name and not the bytes, so an open file stays unchanged (L5).

use std::any::Any;
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use rustix::fs::Stat;

use super::dir::{Dir, failed, failed_io, mark_of, modified_ms};
use super::tree::blocking;
use crate::layout::{LayoutError, Mark, Opened};

/// An open file.
#[derive(Debug)]
pub(super) struct OpenedFile {
    pub(super) file: Arc<File>,
    pub(super) path: String,
    mark: Mark,
    modified_ms: u64,
}

impl OpenedFile {
    /// Opens a regular file below a directory. Anything else counts as missing.
    pub(super) fn open(dir: &Dir, path: &str) -> Result<OpenedFile, LayoutError> {
        let shown = dir.path_of(path);
        match dir.open_file(path) {
            Ok(Some((file, stat))) => Ok(OpenedFile::new(file, &stat, shown)),
            Ok(None) => Err(LayoutError::Missing(shown)),
            Err(error) => Err(failed(format!("opening `{shown}`"), error)),
        }
    }

    fn new(file: File, stat: &Stat, path: String) -> OpenedFile {
        OpenedFile { file: Arc::new(file), path, mark: mark_of(stat), modified_ms: modified_ms(stat) }
    }
}

#[async_trait]
impl Opened for OpenedFile {
    fn mark(&self) -> Mark {
        self.mark
    }

    fn modified_ms(&self) -> u64 {
        self.modified_ms
    }

    async fn read(&self, start: u64, length: usize) -> Result<Bytes, LayoutError> {
        let left = usize::try_from(self.mark.size.saturating_sub(start)).unwrap_or(usize::MAX);
        let length = length.min(left);
        if length == 0 {
            return Ok(Bytes::new());
        }
        let (file, path, size) = (self.file.clone(), self.path.clone(), self.mark.size);
        blocking(move || {
            let mut bytes = vec![0; length];
            match file.read_exact_at(&mut bytes, start) {
                Ok(()) => Ok(bytes.into()),
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => Err(LayoutError::Failed {
                    what: format!("reading {length} bytes of `{path}` from {start}"),
                    error: format!(
                        "it had {size} bytes when it was opened, and another program has made it shorter since"
                    ),
                }),
                Err(error) => Err(failed_io(format!("reading `{path}`"), &error)),
            }
        })
        .await
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
