//! The engine `postgres`: any number of gateways over one PostgreSQL.
//!
//! There are two dialects. On PostgreSQL, a commit locks what it compares (`postgres/locking.rs`); on servers that speak its
//! protocol and scale out, it is a serializable transaction (`postgres/serializable.rs`). Both are one message, so one round
//! trip. `docs/postgres.md` says how to run it.

mod arguments;
mod connection;
mod dialect;
mod locking;
mod past;
mod range;
mod schema;
mod serializable;
mod server;
mod trouble;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use fencepost_remote::ServerUrl;
use fencepost_remote::postgres::Trouble;

use super::{EngineOpenError, EngineOptions};
use crate::engine::{
    AsOf, Batch, Commit, Engine, EngineError, Limits, Loaded, Ownership, Record, Scan, Scanned, Version, Wanted,
};
use connection::{Connection, Pool, connect};
use dialect::Dialect;
use server::Server;
use trouble::{Fate, explained, is_of_the_server};

pub use schema::{Migrated, SCHEMA, migrate, remove_scratch};

/// A commit that takes longer is unknown. The server gives up waiting for locks much earlier.
const COMMIT_PATIENCE: Duration = Duration::from_secs(10);

/// Commits under way. The server syncs its log once for those that come together.
const LANES: usize = 4;

/// Connections for reads, at most. The store lists over up to four of them, so a list never holds up all reads.
const READERS: usize = 8;

/// Places of changes are counted in the low bits of a version.
const PLACE_BITS: u32 = 16;

/// The most changes that a commit can have.
const MAX_CHANGES: usize = 1 << PLACE_BITS;

/// Records in a PostgreSQL database.
pub struct Postgres {
    server: Server,
    dialect: Dialect,
    readers: Pool,
    /// Apart from those for reads, so that reads do not hold up commits.
    writers: Pool,
    /// The highest version known to be durable.
    position: AtomicU64,
}

impl Postgres {
    /// Connects to a database, and makes the schema if there is none.
    pub async fn open(url: &ServerUrl, options: &EngineOptions) -> Result<Postgres, EngineOpenError> {
        let server = Server::read(url, options.accept_history)?;
        schema::make(&server, options.make).await?;
        if options.accept_history {
            // Before anything is committed: versions that were lost may have been given out.
            schema::skip_versions(&server).await.map_err(|why| server.unusable(why))?;
        }
        let writer = connect(&server).await.map_err(|why| server.unusable(why))?;
        let position =
            schema::position(&server, &writer).await.map_err(|trouble| server.unusable(explained(&trouble)))?;
        let (dialect, writers) = (writer.dialect, Pool::new(LANES + 1));
        writers.add(writer);
        Ok(Postgres { dialect, readers: Pool::new(READERS), writers, position: AtomicU64::new(position), server })
    }

    /// Sends one commit. `None`: a compared version differs.
    async fn apply(&self, connection: &Connection, batch: &Batch) -> Result<Option<Version>, Trouble> {
        match connection.dialect {
            Dialect::Locking => locking::apply(&self.server, connection, batch).await,
            Dialect::Serializable => serializable::apply(&self.server, connection, batch).await,
        }
    }

    /// What became of a commit that failed.
    fn fate(&self, trouble: &Trouble) -> Fate {
        match self.dialect {
            Dialect::Locking => trouble::fate(trouble),
            Dialect::Serializable => serializable::fate(trouble),
        }
    }

    /// Loads over a connection of this pool, once more if the server has closed it meanwhile or another one was promoted.
    async fn load_over(&self, pool: &Pool, wanted: &[Wanted], spare: usize) -> Result<Loaded, EngineError> {
        let mut taken = pool.take(&self.server).await?;
        loop {
            match self.load_once(&taken.connection, wanted, spare).await {
                Ok(records) => {
                    taken.give_back();
                    return Ok(Loaded { records, as_of: AsOf(0) });
                }
                Err(trouble) => taken = taken.after(&self.server, &trouble).await?,
            }
        }
    }

    async fn load_once(
        &self,
        connection: &Connection,
        wanted: &[Wanted],
        spare: usize,
    ) -> Result<Vec<Option<Record>>, Trouble> {
        match connection.dialect {
            Dialect::Locking => locking::load(&self.server, connection, wanted, spare).await,
            Dialect::Serializable => serializable::load(&self.server, connection, wanted, spare).await,
        }
    }

    async fn scan_once(&self, connection: &Connection, scan: &Scan) -> Result<Scanned, Trouble> {
        match connection.dialect {
            Dialect::Locking => locking::scan(&self.server, connection, scan).await,
            Dialect::Serializable => serializable::scan(&self.server, connection, scan).await,
        }
    }
}

#[async_trait]
impl Engine for Postgres {
    async fn load_wanted(&self, wanted: &[Wanted], spare: usize) -> Result<Loaded, EngineError> {
        self.load_over(&self.readers, wanted, spare).await
    }

    async fn load_to_change(&self, wanted: &[Wanted], spare: usize) -> Result<Loaded, EngineError> {
        self.load_over(&self.writers, wanted, spare).await
    }

    async fn scan(&self, scan: Scan) -> Result<Scanned, EngineError> {
        let mut reader = self.readers.take(&self.server).await?;
        loop {
            match self.scan_once(&reader.connection, &scan).await {
                Ok(scanned) => {
                    reader.give_back();
                    return Ok(scanned);
                }
                Err(trouble) => reader = reader.after(&self.server, &trouble).await?,
            }
        }
    }

    async fn commit(&self, batch: Batch) -> Result<Commit, EngineError> {
        if batch.changes.len() > MAX_CHANGES {
            return Ok(Commit::Unavailable(format!("a commit can have {MAX_CHANGES} changes")));
        }
        let writer = match self.writers.take(&self.server).await {
            Ok(writer) => writer,
            // Nothing was sent.
            Err(EngineError(why)) => return Ok(Commit::Unavailable(why)),
        };
        let session = &writer.connection.session;
        let warned = session.warnings();
        let applied = self.apply(&writer.connection, &batch).await;
        let warned = session.warnings() != warned;
        if writer.connection.is_usable() && !warned && !applied.as_ref().is_err_and(is_of_the_server) {
            writer.give_back();
        }
        match applied {
            // Committed here, but perhaps not on the standby that has to have it.
            Ok(_) if warned => {
                let why = "the wait for the synchronous standby was cancelled";
                tracing::error!(server = %self.server, "{why}: the commit may be lost if this server is");
                Err(EngineError(why.to_owned()))
            }
            Ok(None) => Ok(Commit::Conflict),
            Ok(Some(first)) => {
                let last = first.0 + (batch.changes.len() as u64).saturating_sub(1);
                self.position.fetch_max(last, Ordering::AcqRel);
                self.server.past.confirmed(&batch.changes);
                Ok(Commit::Done { first })
            }
            Err(trouble) => match self.fate(&trouble) {
                Fate::Conflict => Ok(Commit::Conflict),
                Fate::Nothing(why) => Ok(Commit::Unavailable(self.server.unusable(why).to_string())),
                Fate::Unknown(why) => Err(EngineError(why)),
            },
        }
    }

    fn fault(&self) -> Option<String> {
        None
    }

    fn ownership(&self) -> Ownership {
        Ownership::Shared
    }

    fn limits(&self) -> Limits {
        match self.dialect {
            Dialect::Locking => locking::LIMITS,
            Dialect::Serializable => serializable::LIMITS,
        }
    }

    /// A server that was replaced may still answer reads.
    fn load_is_proof(&self) -> bool {
        false
    }

    fn position(&self) -> Option<u64> {
        Some(self.position.load(Ordering::Acquire))
    }

    async fn server(&self) -> Option<String> {
        let reader = self.readers.take(&self.server).await.ok()?;
        let rows = reader.connection.session.query("SELECT version()", &[]).await.ok()?;
        let version = rows.first().map(|row| row.get::<_, String>(0));
        reader.give_back();
        version
    }

    async fn accept_history(&self) -> Result<(), EngineError> {
        schema::accept_history(&self.server).await.map_err(|why| EngineError(self.server.unusable(why).to_string()))
    }
}
