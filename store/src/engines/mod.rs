//! The list of engines. A new engine needs a file here and an entry below: help text, docs table and the shared test
//! suite are derived from it.

#[cfg(feature = "rocksdb")]
mod bodies;
#[cfg(feature = "rocksdb")]
mod data_dir;
#[cfg(feature = "etcd")]
pub mod etcd;
#[cfg(feature = "rocksdb")]
mod journal;
#[cfg(feature = "rocksdb")]
mod log_check;
pub mod memory;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "rocksdb")]
mod recent;
#[cfg(feature = "rocksdb")]
pub mod rocksdb;

use std::fmt;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;

use fencepost_remote::ServerUrl;

use crate::engine::Engine;

/// Where an engine keeps its records.
#[derive(Clone, Debug)]
pub enum Place {
    /// In a directory that one process uses.
    Directory(PathBuf),
    /// On a server that many gateways use.
    Server(ServerUrl),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Directory(path) => write!(f, "{}", path.display()),
            Place::Server(url) => write!(f, "{url}"),
        }
    }
}

/// Options for opening an engine.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// Bytes of memory for what is kept at hand: records, and blocks of tables with their indexes and filters.
    pub cache_bytes: usize,
    /// Bytes of memory for data that is not in tables yet.
    pub write_buffer_bytes: usize,
    /// Bytes that must stay free on the disk.
    pub free_space_floor: u64,
    /// Opens an engine although its server has another history than before. Only for the command that accepts it, see
    /// [`Engine::accept_history`].
    pub accept_history: bool,
    /// Makes a place for the records on a server if there is none.
    pub make: bool,
}

impl Default for EngineOptions {
    fn default() -> EngineOptions {
        EngineOptions {
            cache_bytes: 256 << 20,
            write_buffer_bytes: 64 << 20,
            free_space_floor: 256 << 20,
            accept_history: false,
            make: true,
        }
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
    /// The server cannot be used.
    #[error("cannot use {server} as engine: {why}")]
    Server {
        /// The URL without its password.
        server: String,
        /// What is wrong, and what to do about it.
        why: String,
    },
    /// The engine keeps its records elsewhere.
    #[error("this engine keeps its records {0}")]
    Place(&'static str),
    /// The directory cannot be created or used.
    #[error("cannot use {path} as data directory: {why}")]
    Directory {
        /// Path of the directory.
        path: String,
        /// The operating system's error message.
        why: String,
    },
}

/// An engine that is being opened.
pub type Opening<'a> = Pin<Box<dyn Future<Output = Result<Arc<dyn Engine>, EngineOpenError>> + Send + 'a>>;

/// An engine that can be selected.
pub struct EngineKind {
    /// The value for `--engine`.
    pub name: &'static str,
    /// One line for help text and docs.
    pub summary: &'static str,
    /// Whether its data survives a restart.
    pub durable: bool,
    /// How the setting names it: its name, or the form of its URL.
    pub written: &'static str,
    /// The schemes of its URLs. None: its records are in a directory.
    pub schemes: &'static [&'static str],
    /// Opens the engine at its place. Must be called on a Tokio runtime, which drives it from then on.
    pub open: for<'a> fn(&'a Place, &'a EngineOptions) -> Opening<'a>,
    /// How a part of a server is used for a while. `None`: its records are in a directory.
    pub scratch: Option<Scratch>,
}

/// A place on a server that is used for a while, beside the records that are there.
#[derive(Clone, Copy)]
pub struct Scratch {
    /// The URL of the place with this name, on the server of another URL. Nothing is made before an engine is opened there.
    pub at: fn(&ServerUrl, &str) -> ServerUrl,
    /// Removes the place with all that is in it. It need not be there.
    pub remove: for<'a> fn(&'a ServerUrl) -> Removing<'a>,
}

/// A place that is being removed.
pub type Removing<'a> = Pin<Box<dyn Future<Output = Result<(), EngineOpenError>> + Send + 'a>>;

/// What the names of places for checks begin with, so that one which was left behind can be told.
pub const SCRATCH_PREFIX: &str = "fencepost_check_";

impl EngineKind {
    /// Whether its records are on a server that other gateways may use, too.
    pub fn is_shared(&self) -> bool {
        !self.schemes.is_empty()
    }
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
        written: "rocksdb",
        schemes: &[],
        open: |place, options| Box::pin(async move { opened(rocksdb::RocksDb::open(place.directory()?, options)?) }),
        scratch: None,
    },
    #[cfg(feature = "postgres")]
    EngineKind {
        name: "postgres",
        summary: "many gateways over one PostgreSQL: postgres://user@host/database",
        durable: true,
        written: "postgres://user@host:port/database",
        schemes: &["postgres", "postgresql"],
        open: |place, options| {
            Box::pin(async move { opened(postgres::Postgres::open(place.server()?, options).await?) })
        },
        scratch: Some(Scratch {
            at: |url, name| url.with_setting("schema", name),
            remove: |url| Box::pin(postgres::remove_scratch(url)),
        }),
    },
    #[cfg(feature = "etcd")]
    EngineKind {
        name: "etcd",
        summary: "many gateways over one etcd cluster, for fences, locks and small values: etcd://a,b,c/prefix",
        durable: true,
        written: "etcd://host:port,host:port/prefix",
        schemes: &["etcd", "etcds"],
        open: |place, options| Box::pin(async move { opened(etcd::Etcd::open(place.server()?, options).await?) }),
        scratch: Some(Scratch { at: ServerUrl::with_path, remove: |url| Box::pin(etcd::remove_scratch(url)) }),
    },
    EngineKind {
        name: "memory",
        summary: "for tests: everything is forgotten when the process ends",
        durable: false,
        written: "memory",
        schemes: &[],
        open: |_, _| Box::pin(async move { opened(memory::Memory::default()) }),
        scratch: None,
    },
];

fn opened(engine: impl Engine) -> Result<Arc<dyn Engine>, EngineOpenError> {
    Ok(Arc::new(engine))
}

impl Place {
    /// The directory.
    #[cfg(feature = "rocksdb")]
    fn directory(&self) -> Result<&std::path::Path, EngineOpenError> {
        match self {
            Place::Directory(path) => Ok(path),
            Place::Server(_) => Err(EngineOpenError::Place("in a directory, and takes no URL")),
        }
    }

    /// The server.
    #[cfg(any(feature = "etcd", feature = "postgres"))]
    fn server(&self) -> Result<&ServerUrl, EngineOpenError> {
        match self {
            Place::Server(url) => Ok(url),
            Place::Directory(_) => Err(EngineOpenError::Place("on a server, and needs its URL")),
        }
    }
}

/// The first key after all that start with this prefix; `None` if there can be none.
#[cfg(any(feature = "etcd", feature = "postgres"))]
fn after_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte < u8::MAX)?;
    let mut after = prefix[..=last].to_vec();
    after[last] += 1;
    Some(after)
}

/// Finds an engine by its name, or by a URL.
pub fn find(name: &str) -> Option<&'static EngineKind> {
    let scheme = name.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
    ENGINES.iter().find(|engine| match &scheme {
        Some(scheme) => engine.schemes.contains(&scheme.as_str()),
        None => engine.name == name,
    })
}

#[cfg(all(test, any(feature = "etcd", feature = "postgres")))]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_prefix() {
        assert_eq!(after_prefix(b"fa"), Some(b"fb".to_vec()));
        assert_eq!(after_prefix(b"f\xff\xff"), Some(b"g".to_vec()));
        assert_eq!((after_prefix(b"\xff"), after_prefix(b"")), (None, None));
    }
}
