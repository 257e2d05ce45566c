//! Stores in real directories: created, copied, damaged and reopened.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::journal_format;
use fencepost_core::Guards;
use fencepost_store::engine::Engine;
use fencepost_store::engines::rocksdb::RocksDb;
use fencepost_store::engines::{EngineOpenError, EngineOptions};
use fencepost_store::{NoObserver, Store, StoreOptions};

/// Buffers so small that a few writes fill several log files and tables.
pub(crate) fn small() -> EngineOptions {
    EngineOptions {
        cache_bytes: 256 << 10,
        write_buffer_bytes: 64 << 10,
        free_space_floor: 0,
        ..EngineOptions::default()
    }
}

/// Buffers large enough for everything to stay in one log file.
pub(crate) fn roomy() -> EngineOptions {
    EngineOptions {
        cache_bytes: 1 << 20,
        write_buffer_bytes: 16 << 20,
        free_space_floor: 0,
        ..EngineOptions::default()
    }
}

/// Why a directory did not open: the engine's reason, or the store's.
#[derive(Debug)]
pub(crate) enum NotOpened {
    Engine(EngineOpenError),
    Store(String),
}

impl NotOpened {
    pub(crate) fn text(&self) -> String {
        match self {
            NotOpened::Engine(error) => error.to_string(),
            NotOpened::Store(text) => text.clone(),
        }
    }
}

pub(crate) async fn try_open(path: &Path, options: &EngineOptions) -> Result<Store, NotOpened> {
    let engine: Arc<dyn Engine> = Arc::new(RocksDb::open(path, options).map_err(NotOpened::Engine)?);
    Store::open(engine, Guards::default(), StoreOptions::default(), Arc::new(NoObserver))
        .await
        .map_err(|error| NotOpened::Store(error.to_string()))
}

pub(crate) async fn open(path: &Path, options: &EngineOptions) -> Store {
    try_open(path, options).await.unwrap()
}

/// Copies a directory as a process that was killed now would leave it.
pub(crate) fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// The files in `db/` whose names match, oldest first (RocksDB numbers them in order).
pub(crate) fn files(dir: &Path, matches: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = std::fs::read_dir(dir.join("db"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.file_name().is_some_and(|name| matches(&name.to_string_lossy())))
        .collect();
    found.sort();
    found
}

/// The file of the journal that was begun last.
pub(crate) fn journal(dir: &Path) -> PathBuf {
    let files = std::fs::read_dir(dir.join("journal")).unwrap().map(|entry| entry.unwrap().path());
    files.max_by_key(|path| journal_format::number_of_use(&std::fs::read(path).unwrap())).unwrap()
}

/// RocksDB's own write-ahead logs. Stores of format 1 have their commits in them.
pub(crate) fn logs(dir: &Path) -> Vec<PathBuf> {
    files(dir, |name| name.ends_with(".log"))
}

/// Tables.
pub(crate) fn tables(dir: &Path) -> Vec<PathBuf> {
    files(dir, |name| name.ends_with(".sst"))
}

/// Manifests.
pub(crate) fn manifests(dir: &Path) -> Vec<PathBuf> {
    files(dir, |name| name.starts_with("MANIFEST-"))
}

/// Replaces a file's bytes with the result of `edit`.
pub(crate) fn edit(path: &Path, edit: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = std::fs::read(path).unwrap();
    edit(&mut bytes);
    std::fs::write(path, bytes).unwrap();
}

/// The number of rounds: the second one with `FENCEPOST_BUDGET=full`, else the first.
pub(crate) fn budget(ci: usize, full: usize) -> usize {
    if std::env::var("FENCEPOST_BUDGET").is_ok_and(|budget| budget == "full") { full } else { ci }
}

/// A small generator of reproducible positions (splitmix64).
pub(crate) struct Positions(pub(crate) u64);

impl Positions {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit.max(1) as u64).unwrap()
    }
}
