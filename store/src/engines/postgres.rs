//! The engine `postgres`: any number of gateways over one PostgreSQL.
//!
//! A commit is one call of one function, so one round trip, one transaction and one sync of the server's log. The function locks
//! what is compared in the order of keys, so E2 holds until the commit and commits hardly ever deadlock; one that does is
//! tried again. `postgres/schema.sql` has it; `docs/postgres.md` says how to run it.

mod arguments;
mod connection;
mod past;
mod schema;
mod server;
mod trouble;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use fencepost_remote::ServerUrl;
use fencepost_remote::postgres::Trouble;
use fencepost_remote::postgres::{ToSql, Type};
use tokio::sync::Mutex;

use super::{EngineOpenError, EngineOptions, after_prefix};
use crate::engine::{
    AsOf, Batch, Change, Commit, Engine, EngineError, Limits, Loaded, Ownership, Record, Scan, Scanned, Version, Want,
    Wanted,
};
use arguments::Arguments;
use connection::{Connection, Readers, connect};
use server::{Durability, Server};
use trouble::{Fate, explained, fate, is_of_the_server};

pub use schema::{Migrated, SCHEMA, migrate};

/// A commit that takes longer is unknown. The server gives up waiting for locks much earlier.
const COMMIT_PATIENCE: Duration = Duration::from_secs(10);

/// What one commit may hold: a batch in one message, and places that fit below the low bits of a version.
const LIMITS: Limits = Limits { records: 16_384, bytes: 8 << 20 };

/// Places of changes are counted in the low bits of a version.
const PLACE_BITS: u32 = 16;

/// The most changes that a commit can have.
const MAX_CHANGES: usize = 1 << PLACE_BITS;

/// Records in a PostgreSQL database.
pub struct Postgres {
    server: Server,
    readers: Readers,
    /// The connection for commits, while there is one.
    writer: Mutex<Option<Connection>>,
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
        Ok(Postgres {
            readers: Readers::default(),
            writer: Mutex::new(Some(writer)),
            position: AtomicU64::new(position),
            server,
        })
    }

    /// The connection for commits, and whether it was used before. Otherwise why there is none.
    async fn writer(&self, kept: &mut Option<Connection>) -> Result<(bool, Connection), String> {
        match kept.take().filter(Connection::is_usable) {
            Some(connection) => Ok((true, connection)),
            None => Ok((false, connect(&self.server).await?)),
        }
    }

    /// Sends one commit.
    async fn apply(&self, connection: &Connection, batch: &Batch) -> Result<Option<Version>, Trouble> {
        let arguments = Arguments::of(batch);
        let function =
            if arguments.alone { &self.server.statements.apply_alone } else { &self.server.statements.apply };
        let standby = self.server.durability == Durability::Standby;
        let values = arguments.values(&connection.history, &standby);
        let rows = connection.session.query_within(COMMIT_PATIENCE, function, &values).await?;
        let first: Option<i64> = rows.first().and_then(|row| row.get(0));
        Ok(first.map(|first| Version(first.unsigned_abs())))
    }

    async fn load_once(
        &self,
        connection: &Connection,
        wanted: &[Wanted],
        spare: usize,
    ) -> Result<Vec<Option<Record>>, Trouble> {
        let keys: Vec<&[u8]> = wanted.iter().map(|wanted| wanted.key.as_bytes()).collect();
        let most: Vec<Option<i64>> = wanted.iter().map(|wanted| most(wanted.want)).collect();
        let spare = i64::try_from(spare).unwrap_or(i64::MAX);
        let values: [(&(dyn ToSql + Sync), Type); 4] = [
            (&keys, Type::BYTEA_ARRAY),
            (&most, Type::INT8_ARRAY),
            (&spare, Type::INT8),
            (&connection.history, Type::TEXT),
        ];
        let mut records = vec![None; wanted.len()];
        for row in connection.session.query(&self.server.statements.load, &values).await? {
            let (at, version, size): (i64, i64, i64) = (row.get(0), row.get(1), row.get(2));
            let bytes: Option<&[u8]> = row.get(3);
            let version = Version(version.unsigned_abs());
            let record = match bytes {
                Some(bytes) => Record::whole(version, Bytes::copy_from_slice(bytes)),
                None => Record::head(version, usize::try_from(size).unwrap_or(usize::MAX)),
            };
            if let Some(place) = usize::try_from(at - 1).ok().and_then(|at| records.get_mut(at)) {
                *place = Some(record);
            }
        }
        Ok(records)
    }

    async fn scan_once(&self, connection: &Connection, scan: &Scan) -> Result<Scanned, Trouble> {
        let (from, inclusive) = match scan.from < scan.prefix {
            true => (scan.prefix.as_slice(), true),
            false => (scan.from.as_slice(), scan.inclusive),
        };
        let before = after_prefix(&scan.prefix);
        let limit = |limit: usize| i64::try_from(limit).unwrap_or(i64::MAX);
        let (records, bytes) = (limit(scan.limit), limit(scan.max_bytes));
        let values: [(&(dyn ToSql + Sync), Type); 6] = [
            (&from, Type::BYTEA),
            (&inclusive, Type::BOOL),
            (&before, Type::BYTEA),
            (&records, Type::INT8),
            (&bytes, Type::INT8),
            (&connection.history, Type::TEXT),
        ];
        let mut scanned = Scanned::default();
        for row in connection.session.query(&self.server.statements.scan, &values).await? {
            let key: Option<&[u8]> = row.get(0);
            let Some(key) = key else {
                scanned.more = true;
                break;
            };
            let (version, bytes): (i64, &[u8]) = (row.get(1), row.get(2));
            let record = Record::whole(Version(version.unsigned_abs()), Bytes::copy_from_slice(bytes));
            scanned.records.push((key.to_vec(), record));
        }
        Ok(scanned)
    }
}

/// The bytes up to which a record is wanted whole, as `load` takes them.
fn most(want: Want) -> Option<i64> {
    match want {
        Want::Version => Some(-1),
        Want::UpTo(most) => Some(i64::try_from(most).unwrap_or(i64::MAX)),
        Want::Bytes => None,
    }
}

#[async_trait]
impl Engine for Postgres {
    async fn load_wanted(&self, wanted: &[Wanted], spare: usize) -> Result<Loaded, EngineError> {
        let mut reader = self.readers.take(&self.server).await?;
        loop {
            match self.load_once(&reader.connection, wanted, spare).await {
                Ok(records) => {
                    reader.give_back();
                    return Ok(Loaded { records, as_of: AsOf(0) });
                }
                Err(trouble) => reader = reader.after(&self.server, &trouble).await?,
            }
        }
    }

    /// On the connection for commits, so that reads do not hold up commits, and both see the same server.
    async fn load_to_change(&self, wanted: &[Wanted], spare: usize) -> Result<Loaded, EngineError> {
        let mut writer = self.writer.lock().await;
        for again in [true, false] {
            let unusable = |why: String| EngineError(self.server.unusable(why).to_string());
            let (used, connection) = self.writer(&mut writer).await.map_err(unusable)?;
            match self.load_once(&connection, wanted, spare).await {
                Ok(records) => {
                    *writer = Some(connection);
                    return Ok(Loaded { records, as_of: AsOf(0) });
                }
                // The server may have closed it meanwhile, or another one was promoted.
                Err(trouble) if again && used && (trouble.is_broken() || is_of_the_server(&trouble)) => {}
                Err(trouble) => {
                    *writer = Some(connection).filter(|kept| kept.is_usable() && !is_of_the_server(&trouble));
                    return Err(unusable(explained(&trouble)));
                }
            }
        }
        Err(EngineError(self.server.unusable("its connections break").to_string()))
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
        let mut writer = self.writer.lock().await;
        let connection = match self.writer(&mut writer).await {
            Ok((_, connection)) => connection,
            // Nothing was sent.
            Err(why) => return Ok(Commit::Unavailable(self.server.unusable(why).to_string())),
        };
        let warned = connection.session.warnings();
        let applied = self.apply(&connection, &batch).await;
        let warned = connection.session.warnings() != warned;
        if connection.is_usable() && !warned && !applied.as_ref().is_err_and(is_of_the_server) {
            *writer = Some(connection);
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
                if let Some((key, Change::Put(_))) = batch.changes.last() {
                    self.server.past.confirmed(key, Version(last));
                }
                Ok(Commit::Done { first })
            }
            Err(trouble) => match fate(&trouble) {
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
        LIMITS
    }

    /// A server that was replaced may still answer reads.
    fn load_is_proof(&self) -> bool {
        false
    }

    fn position(&self) -> Option<u64> {
        Some(self.position.load(Ordering::Acquire))
    }

    async fn accept_history(&self) -> Result<(), EngineError> {
        schema::accept_history(&self.server).await.map_err(|why| EngineError(self.server.unusable(why).to_string()))
    }
}
