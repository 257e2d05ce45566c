//! Connections to the server. Each is checked before it is used: a failover may have changed which server answers.

use std::time::Duration;

use fencepost_remote::postgres::{Session, Trouble};
use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

use super::dialect::{Dialect, Product};
use super::server::{Durability, Server};
use super::trouble::{explained, is_of_the_server};
use crate::engine::EngineError;

/// The oldest version of PostgreSQL that is used.
const OLDEST: i32 = 13;

/// How long a call waits for a connection.
const TURN: Duration = Duration::from_secs(5);

/// What a PostgreSQL server says of itself.
const FACTS: &str = "SELECT pg_is_in_recovery(), current_setting('transaction_read_only'), current_setting('fsync'), \
    current_setting('full_page_writes'), current_setting('synchronous_standby_names'), \
    current_setting('server_version_num')::integer / 10000, \
    (SELECT system_identifier FROM pg_control_system()), \
    CASE WHEN NOT pg_is_in_recovery() THEN left(pg_walfile_name(pg_current_wal_lsn()), 8) END, \
    to_regclass('SCHEMA.store') IS NOT NULL, to_regproc('SCHEMA.apply_1') IS NOT NULL";

/// What other servers say of themselves.
const FACTS_OF_OTHERS: &str =
    "SELECT current_setting('transaction_read_only'), to_regclass('SCHEMA.store') IS NOT NULL";

/// A connection to the primary.
pub(super) struct Connection {
    pub(super) session: Session,
    pub(super) product: Product,
    pub(super) dialect: Dialect,
    /// The timeline of the records; `None` if any is accepted.
    pub(super) history: Option<String>,
}

impl Connection {
    /// Returns whether it is open, and has answered all that it was asked.
    pub(super) fn is_usable(&self) -> bool {
        !self.session.is_closed() && !self.session.is_in_doubt()
    }
}

/// Where a server is in the history of its cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct History {
    pub(super) cluster: i64,
    pub(super) timeline: String,
}

/// A server that may be used.
pub(super) struct Checked {
    pub(super) session: Session,
    pub(super) product: Product,
    pub(super) dialect: Dialect,
    pub(super) history: History,
    /// Whether the schema is there.
    pub(super) has_store: bool,
}

/// Connects, and refuses a server that could lose what it confirms. Of several that can write, it takes the one that was
/// promoted last: the other is an old primary that came back. Otherwise why not.
pub(super) async fn open(server: &Server) -> Result<Checked, String> {
    let sessions = Session::open_all(&server.address).await.map_err(|trouble| explained(&trouble))?;
    let (mut newest, mut refused) = (None::<Checked>, None);
    for session in sessions {
        match check(server, session).await {
            Ok(found) => match &newest {
                Some(other) if other.history.cluster != found.history.cluster => {
                    return Err("two of the servers take writes, and they are of different clusters".to_owned());
                }
                Some(other) if other.history.timeline >= found.history.timeline => {}
                _ => newest = Some(found),
            },
            Err(why) => refused = Some(why),
        }
    }
    newest.ok_or_else(|| refused.unwrap_or_else(|| "none of the servers takes writes".to_owned()))
}

async fn check(server: &Server, session: Session) -> Result<Checked, String> {
    let version = session.query("SELECT version()", &[]).await.map_err(|trouble| explained(&trouble))?;
    let version: String = version.first().ok_or("the server says nothing of itself")?.get(0);
    let product = Product::of(&version);
    let dialect = Dialect::choose(server.dialect, product, &version)?;
    match product {
        Product::PostgreSql => check_postgres(server, session, &version, dialect).await,
        Product::CockroachDb | Product::YugabyteDb => check_other(server, session, product, dialect).await,
    }
}

async fn check_postgres(server: &Server, session: Session, product: &str, dialect: Dialect) -> Result<Checked, String> {
    let facts =
        session.query(&FACTS.replace("SCHEMA", &server.schema), &[]).await.map_err(|trouble| explained(&trouble))?;
    let facts = facts.first().ok_or("the server says nothing of itself")?;
    let version: i32 = facts.get(5);
    if version < OLDEST {
        return Err(format!("it is {product}; PostgreSQL {OLDEST} or later is needed"));
    }
    let (standby, read_only): (bool, &str) = (facts.get(0), facts.get(1));
    if standby || read_only == "on" {
        return Err(
            "it is a standby, or read-only; name the primary, or all servers: postgres://a,b/database".to_owned()
        );
    }
    let (fsync, pages, standbys): (&str, &str, &str) = (facts.get(2), facts.get(3), facts.get(4));
    if fsync != "on" {
        return Err(
            "it runs with fsync=off, so it may lose what it confirms; set fsync=on in its configuration".to_owned()
        );
    }
    if pages != "on" {
        tracing::warn!(%server, "full_page_writes is off; without a file system that prevents torn pages, a power cut loses data");
    }
    if server.durability == Durability::Standby && standbys.is_empty() {
        let why = "durability=standby, and no standby is synchronous: set synchronous_standby_names on the server";
        return Err(why.to_owned());
    }
    let history = History { cluster: facts.get(6), timeline: facts.get(7) };
    let (has_store, has_functions): (bool, bool) = (facts.get(8), facts.get(9));
    if has_store && has_functions != (dialect == Dialect::Locking) {
        return Err(format!(
            "the schema {} was made for the other dialect, and gateways with different ones would not see what the others \
             compare; use the same `dialect` for all of them, or another schema",
            server.schema
        ));
    }
    Ok(Checked { session, product: Product::PostgreSql, dialect, history, has_store })
}

/// A server that replicates by itself, and says nothing of its disks and its history.
async fn check_other(server: &Server, session: Session, product: Product, dialect: Dialect) -> Result<Checked, String> {
    if server.durability == Durability::Standby {
        return Err(
            "durability=standby is for PostgreSQL; this server replicates by itself, so leave it out".to_owned()
        );
    }
    let facts = FACTS_OF_OTHERS.replace("SCHEMA", &server.schema);
    let facts = session.query(&facts, &[]).await.map_err(|trouble| explained(&trouble))?;
    let facts = facts.first().ok_or("the server says nothing of itself")?;
    let (read_only, has_store): (&str, bool) = (facts.get(0), facts.get(1));
    if read_only == "on" {
        return Err("it is read-only; let this account write".to_owned());
    }
    // All of them are in one history, as far as they tell.
    let history = History { cluster: 0, timeline: "none".to_owned() };
    Ok(Checked { session, product, dialect, history, has_store })
}

/// Connects to the server that has the records, with the history that they have.
pub(super) async fn connect(server: &Server) -> Result<Connection, String> {
    let Checked { session, product, dialect, history, .. } = open(server).await?;
    if server.accept_history {
        return Ok(Connection { session, product, dialect, history: None });
    }
    let explain = |trouble: Trouble| explained(&trouble);
    let known = known_history(server, &session).await.map_err(explain)?;
    if server.past.is_after(&history) {
        return Err(format!(
            "this is an old primary: it is on timeline {}, and a server that was promoted since is in use. Stop it, and make \
             it a standby of the new one",
            history.timeline
        ));
    }
    let has_all = server.past.is_had_by(&session, &server.schema).await.map_err(explain)?;
    if has_all == Some(false) {
        return Err(lost(&history));
    }
    if known != history {
        // A synchronous standby has every commit that was confirmed. That this is one shows by the last commits of this
        // process; a process without one cannot tell, and waits for one that can.
        if server.durability == Durability::Primary || known.cluster != history.cluster || has_all.is_none() {
            return Err(another_history(&known, &history));
        }
        note_history(server, &session, &history).await.map_err(explain)?;
        let (from, to) = (&known.timeline, &history.timeline);
        tracing::warn!(%server, from, to, "a standby was promoted; it has the last commits of this gateway");
    }
    server.past.uses(&history);
    Ok(Connection { session, product, dialect, history: Some(history.timeline) })
}

fn lost(found: &History) -> String {
    format!(
        "a standby was promoted, or an older copy was put back: on timeline {} of cluster {}, a commit of this gateway \
         is missing, and with it perhaps others, and the fences they raised. Go back to the server that has it; or stop every \
         gateway, and run `fencepost restored --yes`",
        found.timeline, found.cluster
    )
}

fn another_history(known: &History, found: &History) -> String {
    let what = match known.cluster == found.cluster {
        true => "a standby was promoted, or an older copy was put back",
        false => "the records were copied to another cluster",
    };
    format!(
        "{what}: it is on timeline {} of cluster {}, and the records are from timeline {} of cluster {}. Writes that were confirmed \
         may be missing, and with them the fences they raised. With `durability=standby`, a gateway that was running accepts a \
         standby that has its last commit. Otherwise, if this is the server to go on with, stop every gateway and run \
         `fencepost restored --yes`",
        found.timeline, found.cluster, known.timeline, known.cluster
    )
}

async fn known_history(server: &Server, session: &Session) -> Result<History, Trouble> {
    let rows = session.query(&format!("SELECT cluster, timeline FROM {}.store", server.schema), &[]).await?;
    Ok(rows.first().map_or_else(
        || History { cluster: 0, timeline: "none".to_owned() },
        |row| History { cluster: row.get(0), timeline: row.get(1) },
    ))
}

/// Makes this history that of the records.
pub(super) async fn note_history(server: &Server, session: &Session, history: &History) -> Result<(), Trouble> {
    use fencepost_remote::postgres::Type;
    let note = format!("UPDATE {}.store SET cluster = $1, timeline = $2", server.schema);
    session.query(&note, &[(&history.cluster, Type::INT8), (&history.timeline, Type::TEXT)]).await.map(|_| ())
}

/// Connections that are used again, and a bound on how many there are.
pub(super) struct Pool {
    idle: Mutex<Vec<Connection>>,
    turns: Semaphore,
}

/// A connection for one call.
pub(super) struct Taken<'p> {
    pub(super) connection: Connection,
    /// It was used before, so the server may have closed it meanwhile.
    used: bool,
    pool: &'p Pool,
    turn: SemaphorePermit<'p>,
}

impl Pool {
    pub(super) fn new(most: usize) -> Pool {
        Pool { idle: Mutex::default(), turns: Semaphore::new(most) }
    }

    pub(super) async fn take(&self, server: &Server) -> Result<Taken<'_>, EngineError> {
        let turn = timeout(TURN, self.turns.acquire()).await.map_err(|_| {
            EngineError(format!(
                "no connection to {server} was free within {} s; it is slow, or there are too many requests",
                TURN.as_secs()
            ))
        })?;
        let turn = turn.map_err(|_| EngineError("the engine is closed".to_owned()))?;
        // One to a server from before a promotion may still answer.
        let timeline = server.past.history().map(|history| history.timeline);
        let is_current = |connection: &Connection| connection.is_usable() && connection.history == timeline;
        let idle = self.idle.lock().pop().filter(is_current);
        let used = idle.is_some();
        let connection = match idle {
            Some(connection) => connection,
            None => fresh(server).await?,
        };
        Ok(Taken { connection, used, pool: self, turn })
    }

    /// Adds a connection that is open already.
    pub(super) fn add(&self, connection: Connection) {
        self.idle.lock().push(connection);
    }
}

async fn fresh(server: &Server) -> Result<Connection, EngineError> {
    connect(server).await.map_err(|why| EngineError(server.unusable(why).to_string()))
}

impl<'p> Taken<'p> {
    /// Keeps the connection for later calls.
    pub(super) fn give_back(self) {
        self.pool.add(self.connection);
    }

    /// After a read that failed: a new connection for another attempt, or the error.
    pub(super) async fn after(self, server: &Server, trouble: &Trouble) -> Result<Taken<'p>, EngineError> {
        let is_another = is_of_the_server(trouble);
        if !self.used || !(trouble.is_broken() || is_another) {
            let why = EngineError(server.unusable(explained(trouble)).to_string());
            if self.connection.is_usable() && !is_another {
                self.give_back();
            }
            return Err(why);
        }
        let Taken { pool, turn, .. } = self;
        Ok(Taken { connection: fresh(server).await?, used: false, pool, turn })
    }
}
