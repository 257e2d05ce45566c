//! The directory layout: a bucket is a directory, an object is a file in it under its natural name, and other processes
//! may read the files.
//!
//! ```text
//! ROOT/.fencepost/lock            held by the gateway that uses the directory
//! ROOT/.fencepost/staging/<ref>   bytes that are not yet published
//! ROOT/<bucket>/<key>             objects
//! ```
//!
//! Only the gateway may write to it. All access is relative to open descriptors, and no link is followed.

mod buckets;
mod dir;
mod modes;
mod names;
mod new_file;
mod opened;
mod ownership;
mod place;
mod probe;
mod publication;
mod reservations;
mod staging;
#[cfg(test)]
mod tests;
mod tree;
mod walk;

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use fencepost_core::Key;

use self::dir::failed;
pub use self::modes::SharedModes;
use self::opened::OpenedFile;
pub use self::ownership::OpenError;
use self::staging::StagedFile;
use self::tree::{Tree, blocking};
use crate::layout::{BucketFound, Layout, LayoutError, Mark, Opened, Place, Ref, Staging, Walked};
use crate::pieces::PIECE;

/// A directory that holds objects, used by this process alone until it is dropped.
///
/// A call whose future is dropped still runs to completion. A caller that must not be overtaken by it has to wait for
/// it.
#[derive(Debug)]
pub struct Directory {
    tree: Arc<Tree>,
    shown: String,
}

impl Directory {
    /// Opens a directory, which must exist, for exclusive use.
    ///
    /// Three kinds of file systems are refused. Network and cluster file systems (NFS, SMB, 9p, AFS, Ceph, Coda, NCP,
    /// Lustre, GPFS, GFS2, OCFS2, VirtualBox folders), because other machines can change the files unnoticed and
    /// locks may hold on one machine only. FUSE, because the behaviour of the program behind it is unknown. And any
    /// file system that fails a probe: a rename must replace the target, keep the inode number and leave open readers
    /// their bytes; directories must be syncable; and different names must stay different. All of this is checked on
    /// every open.
    pub fn open(path: &Path) -> Result<Directory, OpenError> {
        Directory::open_with(path, SharedModes::default())
    }

    /// Like [`Directory::open`], with other modes for what other processes may read.
    pub fn open_with(path: &Path, modes: SharedModes) -> Result<Directory, OpenError> {
        Ok(Directory { tree: Arc::new(ownership::open(path, modes)?), shown: path.display().to_string() })
    }

    /// Binds the directory to a store the first time, and refuses any other store from then on, because the fences
    /// are in that store. A store that already has objects is not bound to a directory it has never used.
    pub fn belongs_to(&self, store: &[u8; 16], knows_objects: bool) -> Result<(), OpenError> {
        ownership::belongs_to(&self.tree.root, &self.shown, store, knows_objects)
    }

    /// Sets how many bytes must stay free on its file system. The default is none.
    pub fn keep_free(&self, floor: u64) {
        self.tree.keep_free(floor);
    }

    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Arc<Tree>) -> Result<T, LayoutError> + Send + 'static,
    ) -> Result<T, LayoutError> {
        let tree = self.tree.clone();
        blocking(move || work(&tree)).await
    }
}

#[async_trait]
impl Layout for Directory {
    async fn stage(&self, id: Ref, length: Option<u64>) -> Result<Box<dyn Staging>, LayoutError> {
        // A short file is made, written and synced in one step. Here only the room for it is checked, which does not
        // read the disk.
        let staged = match length {
            Some(length) if length < PIECE as u64 => StagedFile::begin(&self.tree, id, length)?,
            _ => self.run(move |tree| StagedFile::create(tree, id, length.unwrap_or(0))).await?,
        };
        Ok(Box::new(staged))
    }

    fn staging_place(&self) -> String {
        format!("{}/.fencepost/staging", self.shown)
    }

    async fn prepare(&self, key: &Key) -> Result<Box<dyn Place>, LayoutError> {
        let key = key.clone();
        let (place, _) = self.run(move |tree| place::prepare(tree, &key)).await?;
        Ok(Box::new(place))
    }

    async fn publish(&self, key: &Key, id: Ref, mark: Mark) -> Result<(), LayoutError> {
        let key = key.clone();
        self.run(move |tree| publication::publish(tree, &key, id, mark)).await
    }

    async fn remove(&self, key: &Key) -> Result<(), LayoutError> {
        let key = key.clone();
        self.run(move |tree| publication::remove(tree, &key)).await
    }

    async fn open(&self, key: &Key) -> Result<Box<dyn Opened>, LayoutError> {
        let key = key.clone();
        let opened = self.run(move |tree| match tree.path(&key) {
            Ok(path) => OpenedFile::open(&tree.root, path.whole()),
            // A name that cannot be stored cannot exist.
            Err(_) => Err(LayoutError::Missing(key.to_string())),
        });
        Ok(Box::new(opened.await?))
    }

    async fn open_staged(&self, id: Ref) -> Result<Box<dyn Opened>, LayoutError> {
        Ok(Box::new(self.run(move |tree| OpenedFile::open(&tree.staging, &Tree::staged_name(id))).await?))
    }

    async fn discard(&self, id: Ref) -> Result<(), LayoutError> {
        self.run(move |tree| match tree.staging.remove_file(&Tree::staged_name(id)) {
            Ok(_) => Ok(()),
            Err(error) => Err(failed(format!("removing the staged bytes {id}"), error)),
        })
        .await
    }

    async fn staged(&self) -> Result<Vec<Ref>, LayoutError> {
        self.run(staging::list).await
    }

    async fn buckets(&self) -> Result<Vec<BucketFound>, LayoutError> {
        self.run(|tree| buckets::list(tree)).await
    }

    async fn has_bucket(&self, bucket: &str) -> Result<bool, LayoutError> {
        let bucket = bucket.to_owned();
        self.run(move |tree| Ok(buckets::open(tree, &bucket)?.is_some())).await
    }

    async fn create_bucket(&self, bucket: &str) -> Result<bool, LayoutError> {
        let bucket = bucket.to_owned();
        self.run(move |tree| buckets::create(tree, &bucket)).await
    }

    async fn delete_bucket(&self, bucket: &str) -> Result<bool, LayoutError> {
        let bucket = bucket.to_owned();
        self.run(move |tree| buckets::delete(tree, &bucket)).await
    }

    async fn walk(&self, bucket: &str, after: Option<&Key>, limit: usize) -> Result<Walked, LayoutError> {
        let (bucket, after) = (bucket.to_owned(), after.cloned());
        self.run(move |tree| walk::walk(tree, &bucket, after.as_ref(), limit)).await
    }
}
