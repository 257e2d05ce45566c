//! The engines, one list. A new one is a file here and a line below: help text, docs table and the shared test suite
//! follow from it.

#[cfg(feature = "rocksdb")]
mod bodies;
#[cfg(feature = "rocksdb")]
mod data_dir;
#[cfg(feature = "rocksdb")]
mod log_check;
pub mod memory;
#[cfg(feature = "rocksdb")]
pub mod rocksdb;

use std::path::Path;
use std::sync::Arc;

use crate::engine::Engine;

/// What an engine needs to open.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// Bytes of memory for cached blocks, including indexes and filters.
    pub cache_bytes: usize,
    /// Bytes of memory for data not yet in tables.
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
    /// Another process has the directory.
    #[error("{path} is in use by another process{pid}: stop it, or give this gateway another --data directory")]
    InUse {
        /// The directory.
        path: String,
        /// ` (process 123)`, if known.
        pid: String,
    },
    /// Written by a later version.
    #[error("{path} has format {found}, and this version of fencepost reads up to {known}: use a newer fencepost")]
    NewerFormat {
        /// The directory.
        path: String,
        /// Its format.
        found: u32,
        /// Ours.
        known: u32,
    },
    /// Opening could lower a fence, or is impossible.
    #[error(
        "{path} cannot be opened safely: {why}. Restore it from a backup, or see docs/operations.md, “A store that will not open”"
    )]
    Damaged {
        /// The directory.
        path: String,
        /// What was found.
        why: String,
    },
    /// The directory cannot be made or used.
    #[error("cannot use {path} as data directory: {why}")]
    Directory {
        /// The directory.
        path: String,
        /// The system's words.
        why: String,
    },
}

type Open = fn(&Path, &EngineOptions) -> Result<Arc<dyn Engine>, EngineOpenError>;

/// An engine that can be chosen.
pub struct EngineKind {
    /// What `--engine` takes.
    pub name: &'static str,
    /// One line for help and docs.
    pub summary: &'static str,
    /// Does it survive a restart?
    pub durable: bool,
    /// Opens it in a directory.
    pub open: Open,
}

/// The engine that serves if none is named. A build without it has no default: the memory engine must be asked for.
pub const DEFAULT_ENGINE: &str = "rocksdb";

/// Every engine of this build.
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
