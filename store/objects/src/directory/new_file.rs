//! A new file of the staging directory.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use rustix::fs::fstat;

use super::dir::{failed, failed_io, mark_of, set_mode};
use super::tree::Tree;
use crate::layout::{LayoutError, Mark, Ref};

/// A file that is made when it is first needed, by the thread that needs it.
pub(super) struct NewFile {
    pub(super) tree: Arc<Tree>,
    id: Ref,
    file: OnceLock<File>,
    /// The upload was given up. A file that is discarded before it is made must not be made afterwards.
    abandoned: AtomicBool,
}

/// The owner of a new file, which is abandoned with it.
pub(super) struct Owned(Arc<NewFile>);

impl Owned {
    pub(super) fn new(tree: &Arc<Tree>, id: Ref) -> Owned {
        let (file, abandoned) = (OnceLock::new(), AtomicBool::new(false));
        Owned(Arc::new(NewFile { tree: tree.clone(), id, file, abandoned }))
    }

    /// The file, for work that may outlive its owner.
    pub(super) fn file(&self) -> Arc<NewFile> {
        self.0.clone()
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        self.0.abandoned.store(true, Ordering::SeqCst);
    }
}

impl NewFile {
    pub(super) fn shown(&self) -> String {
        self.tree.staging.path_of(&Tree::staged_name(self.id))
    }

    /// The open file. The first call makes it, and fails if there is one of that name.
    pub(super) fn open(&self) -> Result<&File, LayoutError> {
        if let Some(file) = self.file.get() {
            return Ok(file);
        }
        self.tree.check_running()?;
        self.check_wanted()?;
        let name = Tree::staged_name(self.id);
        let making = |error| failed(format!("making `{}`", self.shown()), error);
        let file = self.tree.staging.create(&name, self.tree.modes.file).map_err(making)?;
        if let Err(abandoned) = self.check_wanted() {
            // It may have been discarded before it was there.
            let _ = self.tree.staging.remove_file(&name);
            return Err(abandoned);
        }
        set_mode(&file, self.tree.modes.file).map_err(making)?;
        Ok(self.file.get_or_init(|| file))
    }

    fn check_wanted(&self) -> Result<(), LayoutError> {
        match self.abandoned.load(Ordering::SeqCst) {
            true => Err(LayoutError::Failed {
                what: format!("making `{}`", self.shown()),
                error: "the upload was given up".to_owned(),
            }),
            false => Ok(()),
        }
    }

    /// Appends bytes, if there is room for them.
    pub(super) fn write(&self, piece: &[Bytes]) -> Result<(), LayoutError> {
        let size: usize = piece.iter().map(Bytes::len).sum();
        self.tree.check_room(size as u64)?;
        // Joins short strings of bytes: a sender may cut its body as it likes.
        let mut file = BufWriter::new(self.open()?);
        let written = piece.iter().try_for_each(|bytes| file.write_all(bytes)).and_then(|()| file.flush());
        written.map_err(|error| failed_io(format!("writing `{}`", self.shown()), &error))
    }

    /// Makes bytes and name durable (L2). The file must have `size` bytes.
    pub(super) fn seal(&self, size: u64) -> Result<Mark, LayoutError> {
        let file = self.open()?;
        file.sync_all().map_err(|error| failed_io(format!("syncing `{}`", self.shown()), &error))?;
        let what = || format!("writing `{}`", self.shown());
        let mark = mark_of(&fstat(file).map_err(|error| failed(what(), error))?);
        if mark.size != size {
            let error = format!("{size} bytes were written, and the file has {}", mark.size);
            return Err(LayoutError::Failed { what: what(), error });
        }
        self.tree.sync(&self.tree.staging)?;
        Ok(mark)
    }
}
