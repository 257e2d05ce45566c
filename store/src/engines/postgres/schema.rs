//! The schema: made once, under a lock.

use std::fmt;

use fencepost_remote::ServerUrl;
use fencepost_remote::postgres::{Session, Trouble};

use super::super::EngineOpenError;
use super::PLACE_BITS;
use super::connection::{Checked, Connection, History, note_history, open};
use super::server::Server;
use super::trouble::explained;

/// The schema's text. `fencepost.` stands for its name.
pub const SCHEMA: &str = include_str!("schema.sql");

/// The format that this version makes, and the newest that it uses.
const FORMAT: i32 = 1;

/// What [`migrate`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Migrated {
    /// There was no schema.
    Created,
    /// The schema has this version's format already.
    Current,
}

impl fmt::Display for Migrated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Migrated::Created => write!(f, "the schema was made, in format {FORMAT}"),
            Migrated::Current => write!(f, "the schema is there already, in format {FORMAT}; nothing was changed"),
        }
    }
}

/// Makes the schema in a database, with an account that may do so.
pub async fn migrate(url: &ServerUrl) -> Result<Migrated, EngineOpenError> {
    make(&Server::read(url, false)?, true).await
}

/// Makes the schema if there is none and that is asked for, and refuses one of a later version.
pub(super) async fn make(server: &Server, if_missing: bool) -> Result<Migrated, EngineOpenError> {
    let failed = |trouble: Trouble| server.unusable(explained(&trouble));
    let Checked { session, history, has_store } = open(server).await.map_err(|why| server.unusable(why))?;
    if !has_store && !if_missing {
        let why = format!("there is no store in the schema {}; look at the name of the database", server.schema);
        return Err(server.unusable(why));
    }
    if !has_store && create(server, &session, &history).await.map_err(failed)? {
        return Ok(Migrated::Created);
    }
    let rows = session.query(&format!("SELECT format FROM {}.store", server.schema), &[]).await.map_err(failed)?;
    match rows.first().map(|row| row.get::<_, i32>(0)) {
        Some(FORMAT) => Ok(Migrated::Current),
        Some(found) => Err(EngineOpenError::NewerFormat {
            path: server.to_string(),
            found: found.unsigned_abs(),
            known: FORMAT.unsigned_abs(),
        }),
        None => {
            Err(server
                .unusable(format!("the table {}.store is empty; restore the database from a backup", server.schema)))
        }
    }
}

/// Makes everything in one transaction. Several gateways may try at once: `false` if another one was faster.
async fn create(server: &Server, session: &Session, history: &History) -> Result<bool, Trouble> {
    session.batch("BEGIN; SELECT pg_advisory_xact_lock(1179403344, 0)").await?;
    // `to_regclass` could answer from before the lock.
    let there = format!(
        "SELECT EXISTS (SELECT FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
         WHERE n.nspname = '{}' AND c.relname = 'store')",
        server.schema
    );
    if session.query(&there, &[]).await?.first().is_some_and(|row| row.get(0)) {
        session.batch("ROLLBACK").await?;
        return Ok(false);
    }
    session.batch(&server.schema_text()).await?;
    let History { cluster, timeline } = history;
    let first = format!(
        "INSERT INTO {}.store (format, cluster, timeline) VALUES ({FORMAT}, {cluster}, '{timeline}'); COMMIT",
        server.schema
    );
    session.batch(&first).await?;
    Ok(true)
}

/// How far the history of the records extends: no commit that was confirmed has a higher version.
pub(super) async fn position(server: &Server, connection: &Connection) -> Result<u64, Trouble> {
    let last = format!("SELECT last_value FROM {}.commits", server.schema);
    let rows = connection.session.query(&last, &[]).await?;
    let last: i64 = rows.first().map_or(0, |row| row.get(0));
    // What was read is durable after a commit that comes later in the server's log.
    connection.session.query(&format!("UPDATE {}.store SET format = format", server.schema), &[]).await?;
    Ok((last.unsigned_abs() << PLACE_BITS) | ((1 << PLACE_BITS) - 1))
}

/// Versions continue above all that may have been given out and lost.
pub(super) async fn skip_versions(server: &Server) -> Result<(), String> {
    let Checked { session, .. } = open(server).await?;
    let ahead = format!("SELECT setval('{0}.commits', nextval('{0}.commits') + (1::bigint << 32))", server.schema);
    session.query(&ahead, &[]).await.map(|_| ()).map_err(|trouble| explained(&trouble))
}

/// Makes the present history that of the records.
pub(super) async fn accept_history(server: &Server) -> Result<(), String> {
    let explain = |trouble: Trouble| explained(&trouble);
    let Checked { session, history, .. } = open(server).await?;
    note_history(server, &session, &history).await.map_err(explain)
}
