//! The contract of a layout (L1–L6), tested on the directory layout.

mod bytes_at_rest;
mod durability;
mod links;
mod ownership;
mod places;
mod publication;
mod races;
mod walk;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use fencepost_core::Key;
use tempfile::TempDir;

use super::Directory;
use crate::layout::{Layout, LayoutError, Mark, Opened, Ref};

/// A temporary storage directory with the bucket `bucket`.
struct Storage {
    home: TempDir,
    layout: Arc<Directory>,
    refs: AtomicU64,
}

impl Storage {
    fn new() -> Storage {
        let home = TempDir::new().unwrap();
        fs::create_dir(home.path().join("bucket")).unwrap();
        let layout = Arc::new(Directory::open(home.path()).unwrap());
        Storage { home, layout, refs: AtomicU64::new(1) }
    }

    /// Closes the directory and opens it again, as after a crash: no state in memory remains.
    fn restart(self) -> Storage {
        let Storage { home, layout, refs } = self;
        drop(Arc::into_inner(layout).unwrap());
        let layout = Arc::new(Directory::open(home.path()).unwrap());
        Storage { home, layout, refs }
    }

    fn root(&self) -> &Path {
        self.home.path()
    }

    fn path(&self, below: &str) -> PathBuf {
        self.home.path().join(below)
    }

    async fn stage(&self, bytes: &[u8]) -> (Ref, Mark) {
        let id = Ref(self.refs.fetch_add(1, Ordering::Relaxed));
        let mut staging = self.layout.stage(id, None).await.unwrap();
        staging.write(Bytes::copy_from_slice(bytes)).await.unwrap();
        (id, staging.seal().await.unwrap())
    }

    async fn put(&self, name: &str, bytes: &[u8]) -> Result<Mark, LayoutError> {
        let place = self.layout.prepare(&key(name)).await?;
        let (id, mark) = self.stage(bytes).await;
        self.layout.publish(&key(name), id, mark).await?;
        drop(place);
        Ok(mark)
    }

    async fn get(&self, name: &str) -> Result<Vec<u8>, LayoutError> {
        read(&*self.layout.open(&key(name)).await?).await
    }

    async fn prepare_error(&self, name: &str) -> LayoutError {
        match self.layout.prepare(&key(name)).await {
            Ok(_) => panic!("`{name}` was prepared"),
            Err(error) => error,
        }
    }
}

async fn read(opened: &dyn Opened) -> Result<Vec<u8>, LayoutError> {
    Ok(opened.read(0, usize::MAX).await?.to_vec())
}

fn key(name: &str) -> Key {
    Key::new(name).unwrap()
}

/// Every path below a directory, with the bytes of a file or the target of a link.
fn everything(dir: &Path) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let kind = fs::symlink_metadata(&path).unwrap().file_type();
        let shown = if kind.is_file() {
            format!("file {}", String::from_utf8_lossy(&fs::read(&path).unwrap()))
        } else if kind.is_symlink() {
            format!("link {}", fs::read_link(&path).unwrap().display())
        } else {
            format!("{kind:?}")
        };
        if kind.is_dir() {
            found.extend(everything(&path));
        }
        found.push((path, shown));
    }
    found.sort();
    found
}
