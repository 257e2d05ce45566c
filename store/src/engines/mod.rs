//! The list of engines. A new engine needs a file here and an entry below: help text, docs table and the shared test
//! suite are derived from it.

#[cfg(feature = "rocksdb")]
mod bodies;
#[cfg(feature = "rocksdb")]
mod data_dir;
#[cfg(feature = "rocksdb")]
mod journal;
#[cfg(feature = "rocksdb")]
mod log_check;
pub mod memory;
#[cfg(feature = "rocksdb")]
mod recent;
#[cfg(feature = "rocksdb")]
pub mod rocksdb;

use std::path::Path;
use std::sync::Arc;

use crate::engine::Engine;

/// Options for opening an engine.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// Bytes of memory for what is kept at hand: records, and blocks of tables with their indexes and filters.
    pub cache_bytes: usize,
    /// Bytes of memory for data that is not in tables yet.
    pub write_buffer_bytes: usize,
    /// Bytes that must stay free on the disk.
    pub free_space_floor: u64,
}

impl Default for EngineOptions {
    fn default() -> EngineOptions {
        EngineOptions { cache_bytes: 256 << 20, write_buffer_bytes: 64 << 20, free_space_floor: 256 << 20 }
    }
}

/// Why an engine did not open.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EngineOpenError {
    /// Another process uses the directory.
    #[error("{path} is in use by another process{pid}: stop it, or give this gateway another --data directory")]
    InUse {
        /// Path of the directory.
        path: String,
        /// ` (process 123)`, or empty if unknown.
        pid: String,
    },
    /// The directory was written by a later version.
    #[error("{path} has format {found}, and this version of fencepost reads up to {known}: use a newer fencepost")]
    NewerFormat {
        /// Path of the directory.
        path: String,
        /// The directory's format.
        found: u32,
        /// The newest format that this version reads.
        known: u32,
    },
    /// Opening is impossible, or could lower a fence.
    #[error(
        "{path} cannot be opened safely: {why}. Restore it from a backup, or see docs/operations.md, “A store that will not open”"
    )]
    Damaged {
        /// Path of the directory.
        path: String,
        /// The damage that was found.
        why: String,
    },
    /// The directory cannot be created or used.
    #[error("cannot use {path} as data directory: {why}")]
    Directory {
        /// Path of the directory.
        path: String,
        /// The operating system's error message.
        why: String,
    },
}

type Open = fn(&Path, &EngineOptions) -> Result<Arc<dyn Engine>, EngineOpenError>;

/// An engine that can be selected.
pub struct EngineKind {
    /// The value for `--engine`.
    pub name: &'static str,
    /// One line for help text and docs.
    pub summary: &'static str,
    /// Whether its data survives a restart.
    pub durable: bool,
    /// Opens the engine in a directory.
    pub open: Open,
}

/// The engine that is used if none is named. A build without it has no default: the memory engine must be named
/// explicitly.
pub const DEFAULT_ENGINE: &str = "rocksdb";

/// The engines in this build.
pub const ENGINES: &[EngineKind] = &[
    #[cfg(feature = "rocksdb")]
    EngineKind {
        name: "rocksdb",
        summary: "embedded and durable: one process owns the data directory (the default)",
        durable: true,
        open: |path, options| Ok(Arc::new(rocksdb::RocksDb::open(path, options)?)),
    },
    EngineKind {
        name: "memory",
        summary: "for tests: everything is forgotten when the process ends",
        durable: false,
        open: |_, _| Ok(Arc::new(memory::Memory::default())),
    },
];

/// Finds an engine by name.
pub fn find(name: &str) -> Option<&'static EngineKind> {
    ENGINES.iter().find(|engine| engine.name == name)
}
