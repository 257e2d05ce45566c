//! The schema: made once, under a lock.

use std::fmt;
use std::time::Duration;

use fencepost_remote::ServerUrl;
use fencepost_remote::postgres::{Session, SqlState, Trouble};

use super::super::{EngineOpenError, SCRATCH_PREFIX};
use super::PLACE_BITS;
use super::connection::{Checked, Connection, History, note_history, open};
use super::dialect::Dialect;
use super::server::Server;
use super::trouble::explained;

/// The schema's text. `fencepost.` stands for its name.
pub const SCHEMA: &str = include_str!("schema.sql");

/// The text of the schema of the serializable dialect.
const SERIALIZABLE_SCHEMA: &str = include_str!("serializable.sql");

/// How often it is tried to make that schema. Several gateways may try at once, and disturb each other.
const ATTEMPTS: usize = 20;

/// The time limit of a statement that changes a schema.
const CHANGE_PATIENCE: Duration = Duration::from_secs(30);

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

/// Removes a schema that was made for a check, with all that is in it. Any other is refused.
pub async fn remove_scratch(url: &ServerUrl) -> Result<(), EngineOpenError> {
    let server = Server::read(url, false)?;
    if !server.schema.starts_with(SCRATCH_PREFIX) {
        return Err(server.unusable(format!("the schema {} was not made for a check; it stays", server.schema)));
    }
    let failed = |trouble: Trouble| server.unusable(explained(&trouble));
    let session = Session::open(&server.address).await.map_err(failed)?;
    let drop = format!("DROP SCHEMA IF EXISTS {} CASCADE", server.schema);
    // Commits that were given up may still be at work in it.
    session.batch_within(CHANGE_PATIENCE, &drop).await.map_err(failed)
}

/// Makes the schema if there is none and that is asked for, and refuses one of a later version.
pub(super) async fn make(server: &Server, if_missing: bool) -> Result<Migrated, EngineOpenError> {
    let failed = |trouble: Trouble| server.unusable(explained(&trouble));
    let Checked { session, dialect, history, has_store, .. } =
        open(server).await.map_err(|why| server.unusable(why))?;
    if !has_store && !if_missing {
        let why = format!("there is no store in the schema {}; look at the name of the database", server.schema);
        return Err(server.unusable(why));
    }
    let created = match dialect {
        Dialect::Locking => !has_store && create(server, &session, &history).await.map_err(failed)?,
        // Its tables come one after the other, so the row may still be missing.
        Dialect::Serializable => if_missing && create_by_steps(server, &session, &history).await.map_err(failed)?,
    };
    if created {
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

/// Makes what is missing, one statement after the other: some servers do not change a schema in a transaction. Returns whether
/// the row of the store was made.
async fn create_by_steps(server: &Server, session: &Session, history: &History) -> Result<bool, Trouble> {
    let row = format!("SELECT 1 FROM {}.store", server.schema);
    if session.query(&row, &[]).await.is_ok_and(|rows| !rows.is_empty()) {
        return Ok(false);
    }
    let text = server.with_schema(SERIALIZABLE_SCHEMA);
    let History { cluster, timeline } = history;
    let first = format!(
        "INSERT INTO {}.store (format, cluster, timeline) VALUES ({FORMAT}, {cluster}, '{timeline}') \
         ON CONFLICT DO NOTHING RETURNING format",
        server.schema
    );
    let mut attempts = 0;
    loop {
        attempts += 1;
        match create_once(session, &text, &first).await {
            Err(trouble) if attempts < ATTEMPTS && is_of_another(&trouble) => {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            made => return made,
        }
    }
}

async fn create_once(session: &Session, text: &str, first: &str) -> Result<bool, Trouble> {
    for statement in text.split(';').filter(|statement| !statement.trim().is_empty()) {
        session.batch_within(CHANGE_PATIENCE, statement).await?;
    }
    Ok(!session.query(first, &[]).await?.is_empty())
}

/// Whether another gateway is making the same thing.
fn is_of_another(trouble: &Trouble) -> bool {
    let code = trouble.code().map_or("", SqlState::code);
    trouble.is_conflict() || ["23505", "42P06", "42P07", "42710", "XX000"].contains(&code)
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
