//! `mode=advisory`: a session lock determines the holder and ends with its connection; the row only counts.
//!
//! The server itself ends a session that was idle for the ttl (`idle_session_timeout`), so a holder that vanished
//! without closing its connection does not keep the lock.

use std::time::{Duration, Instant};

use async_trait::async_trait;
use fencepost_remote::postgres::{FromSql, Row, Session, SqlState, TIMEOUT, Trouble, Type, Values, explained};

use super::super::{Acquired, Capabilities, Kept, Lease, Lifted, LockBackend, LockError, Wanted};
use super::settings::Settings;
use super::table::{INT8, TEXT, incarnation, set_up};
use super::trouble::lock_error;
use super::{ATTEMPTS, LONGEST_WAIT, MAX_TTL, MIN_TTL, OUTAGE, checked_ttl, countable, counted, issuer};
use crate::Moment;

const CAPABILITIES: Capabilities =
    Capabilities { fair: true, watch: true, floor: true, lift: true, min_ttl: MIN_TTL, detachable: false };

/// The key of a lock: the first 64 bits of the SHA-256 of its name.
const PREPARE: &str = "select ('x' || left(encode(sha256(convert_to($1, 'UTF8')), 'hex'), 16))::bit(64)::bigint, \
    pg_backend_pid(), set_config('idle_session_timeout', $2, false), set_config('lock_timeout', $3, false), \
    set_config('statement_timeout', '0', false), set_config('client_connection_check_interval', '1000', false)";

const WAIT: &str = "select true, pg_backend_pid(), pg_advisory_lock($1)";

const TRY: &str = "select pg_try_advisory_lock($1), pg_backend_pid()";

/// The session lock with the key `$1`, as the server lists it.
const HELD: &str = "select from pg_locks where locktype = 'advisory' and granted and objsubid = 1 \
    and database = (select oid from pg_database where datname = current_database()) \
    and (classid::bigint << 32) | objid::bigint = $1";

/// Parameters: key, name, holder, floor. Counts only in the session that has the lock, so a lost session changes
/// nothing (T31).
const COUNT: &str = "with service as (select holder from LOCKS where name = ''), \
    ours as (select exists (HELD and pid = pg_backend_pid()) as held), \
    counted as (insert into LOCKS as lock (name, token, holder) select $2, $4 + 1, $3 from service, ours where ours.held \
    on conflict (name) do update set token = greatest(lock.token, $4) + 1, holder = excluded.holder, expires = null \
    returning token) \
    select ours.held, pg_backend_pid(), (select token from counted), (select holder from service) from ours";

const VERIFY: &str = "select exists (HELD and pid = pg_backend_pid()), pg_backend_pid()";

/// Parameters: key and process. Whether a closed session of ours still holds the lock at the server.
const LEFT: &str = "select exists (HELD and pid = $2)";

const FREE: &str = "select pg_advisory_unlock($1)";

const WHO: &str = "select pg_backend_pid()";

/// Locks as sessions.
pub(super) struct Sessions {
    settings: Settings,
}

/// The session that holds a lock.
struct Holding {
    session: Session,
    process: i32,
    key: i64,
}

/// The result of an attempt that did not fail.
enum Ended {
    Held(Box<Holding>, Row, Moment),
    Busy,
    /// The table was missing, or had just been created.
    NoTable,
}

impl Sessions {
    pub(super) async fn connect(settings: Settings) -> Result<Sessions, LockError> {
        let sessions = Sessions { settings };
        let session = sessions.open().await?;
        sessions.refuse_pooling(&session).await?;
        set_up(&session, &sessions.settings).await?;
        Ok(sessions)
    }

    async fn open(&self) -> Result<Session, LockError> {
        Session::open(&self.settings.server).await.map_err(|trouble| self.error(trouble))
    }

    fn error(&self, trouble: Trouble) -> LockError {
        lock_error(&trouble, self.settings.service())
    }

    fn failed(&self, why: impl Into<String>) -> LockError {
        LockError::Failed { service: self.settings.service().to_owned(), why: why.into() }
    }

    fn pooled(&self) -> LockError {
        self.failed(
            "its connections go through a proxy that gives one server process to several clients (transaction pooling), \
             where a session's lock passes to the next client: connect to the server itself, or use mode=lease",
        )
    }

    fn get<'a, T: FromSql<'a>>(&self, row: &'a Row, column: usize) -> Result<T, LockError> {
        row.try_get(column).map_err(|error| self.failed(explained(&error)))
    }

    async fn process(&self, session: &Session) -> Result<i32, LockError> {
        let rows = session.query(WHO, &[]).await.map_err(|trouble| self.error(trouble))?;
        self.get(rows.first().ok_or_else(|| self.pooled())?, 0)
    }

    /// Fails behind a transaction pool. Two connections that are open at once must have two different, constant server
    /// processes; behind a transaction pool, the second connection gets the process of the first while that is idle.
    async fn refuse_pooling(&self, session: &Session) -> Result<(), LockError> {
        let other = self.open().await?;
        let before = self.process(session).await?;
        other.batch("begin").await.map_err(|trouble| self.error(trouble))?;
        let others = self.process(&other).await?;
        let after = self.process(session).await?;
        match before == after && others != before {
            true => Ok(()),
            false => Err(self.pooled()),
        }
    }

    /// Waits in the server's queue, then counts, all in one session.
    async fn attempt(&self, wanted: &Wanted<'_>, ttl: i64, floor: i64, wait: Duration) -> Result<Ended, Failed> {
        let session = Session::open(&self.settings.server).await?;
        let limit = wait.min(MAX_TTL).as_millis().max(1).to_string();
        let (name, holder, silence) = (wanted.name.as_str(), wanted.holder.as_str(), ttl.to_string());
        let prepared = session.query(PREPARE, &[(&name, TEXT), (&silence, TEXT), (&limit, TEXT)]).await;
        let prepared = prepared.map_err(|trouble| match trouble.is(&SqlState::UNDEFINED_OBJECT) {
            true => Failed::For(self.failed("mode=advisory needs PostgreSQL 14 or newer: use mode=lease")),
            false => Failed::Trouble(trouble),
        })?;
        let row = prepared.first().ok_or_else(|| self.pooled())?;
        let (key, process): (i64, i32) = (self.get(row, 0)?, self.get(row, 1)?);
        let statement = if wait.is_zero() { TRY } else { WAIT };
        let taken = match session.query_within(wait + TIMEOUT, statement, &[(&key, INT8)]).await {
            Err(trouble) if trouble.is(&SqlState::LOCK_NOT_AVAILABLE) => return Ok(Ended::Busy),
            taken => taken?,
        };
        let row = taken.first().ok_or_else(|| self.pooled())?;
        if self.get::<i32>(row, 1)? != process {
            return Err(self.pooled().into());
        }
        if !self.get::<bool>(row, 0)? {
            return Ok(Ended::Busy);
        }
        let holding = Box::new(Holding { session, process, key });
        let since = Moment::now();
        let rows = match self.count(&holding, name, holder, floor).await {
            Err(trouble) if trouble.is(&SqlState::UNDEFINED_TABLE) => return Ok(Ended::NoTable),
            rows => rows?,
        };
        let row = rows.into_iter().next().ok_or_else(|| self.pooled())?;
        if !self.get::<bool>(&row, 0)? || self.get::<i32>(&row, 1)? != process {
            return Err(self.pooled().into());
        }
        Ok(match self.get::<Option<i64>>(&row, 2)? {
            Some(_) => Ended::Held(holding, row, since),
            None => Ended::NoTable,
        })
    }

    async fn count(&self, holding: &Holding, name: &str, holder: &str, floor: i64) -> Result<Vec<Row>, Trouble> {
        let statement = self.settings.table.in_sql(&COUNT.replace("HELD", HELD));
        let values: &Values<'_> = &[(&holding.key, INT8), (&name, TEXT), (&holder, TEXT), (&floor, INT8)];
        holding.session.query(&statement, values).await
    }

    fn holding<'a>(&self, lease: &'a Lease) -> Result<&'a Holding, LockError> {
        let holding = lease.session.as_ref().and_then(|session| session.downcast_ref::<Holding>());
        holding.ok_or_else(|| {
            LockError::Invalid(format!(
                "the lock `{}` of {} lives in the session that took it, which is not here",
                lease.name,
                self.settings.service()
            ))
        })
    }

    /// Handles a session that did not answer. If it is closed, the server knows whether the lock was released with it.
    async fn after(&self, trouble: Trouble, holding: &Holding) -> Result<(), LockError> {
        if !holding.session.is_closed() {
            return Err(self.error(trouble));
        }
        let server = self.open().await?;
        let statement = LEFT.replace("HELD", HELD);
        let rows = server.query(&statement, &[(&holding.key, INT8), (&holding.process, Type::INT4)]).await;
        let rows = rows.map_err(|trouble| self.error(trouble))?;
        match self.get(rows.first().ok_or_else(|| self.pooled())?, 0)? {
            true => Err(self.error(trouble)),
            false => Ok(()),
        }
    }
}

/// Why an attempt failed: in a way that a retry may fix, or permanently.
enum Failed {
    Trouble(Trouble),
    For(LockError),
}

impl From<Trouble> for Failed {
    fn from(trouble: Trouble) -> Failed {
        Failed::Trouble(trouble)
    }
}

impl From<LockError> for Failed {
    fn from(error: LockError) -> Failed {
        Failed::For(error)
    }
}

#[async_trait]
impl LockBackend for Sessions {
    fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }

    async fn acquire(&self, wanted: &Wanted<'_>) -> Result<Acquired, LockError> {
        let service = self.settings.service();
        let ttl = checked_ttl(CAPABILITIES, wanted.ttl)?;
        let floor = countable(service, wanted.floor)?;
        let deadline = Instant::now() + wanted.wait.min(LONGEST_WAIT);
        let mut attempt = 1;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.attempt(wanted, ttl, floor, left).await {
                Ok(Ended::Busy) => return Ok(Acquired::Busy),
                Ok(Ended::Held(holding, row, since)) => {
                    let number = counted(service, self.get(&row, 2)?)?;
                    let which = incarnation(&self.settings, &self.get::<String>(&row, 3)?)?;
                    return Ok(Acquired::Held(Lease {
                        name: wanted.name.clone(),
                        holder: wanted.holder.clone(),
                        number,
                        generation: None,
                        issuer: issuer(service, &which)?,
                        ttl: wanted.ttl,
                        since,
                        handle: holding.process.to_string(),
                        session: Some(holding),
                    }));
                }
                Ok(Ended::NoTable) if attempt < ATTEMPTS => {
                    set_up(&self.open().await?, &self.settings).await?;
                }
                Ok(Ended::NoTable) => return Err(self.failed("its table of locks vanishes again and again")),
                // All locks of that session are gone with it. A server that restarts or fails over is waited for as
                // long as for the lock.
                Err(Failed::Trouble(trouble))
                    if (trouble.is_broken() || trouble.is_conflict())
                        && (attempt < ATTEMPTS || Instant::now() + OUTAGE < deadline) =>
                {
                    if attempt >= ATTEMPTS {
                        tokio::time::sleep(OUTAGE).await;
                    }
                }
                Err(Failed::Trouble(trouble)) => return Err(self.error(trouble)),
                Err(Failed::For(error)) => return Err(error),
            }
            attempt += 1;
        }
    }

    async fn verify(&self, lease: &Lease) -> Result<Kept, LockError> {
        let holding = self.holding(lease)?;
        let statement = VERIFY.replace("HELD", HELD);
        let rows = match holding.session.query(&statement, &[(&holding.key, INT8)]).await {
            Ok(rows) => rows,
            Err(trouble) => return self.after(trouble, holding).await.map(|()| Kept::Lost),
        };
        let row = rows.first().ok_or_else(|| self.pooled())?;
        match (self.get::<i32>(row, 1)? == holding.process, self.get::<bool>(row, 0)?) {
            (true, true) => Ok(Kept::Kept),
            (true, false) => Ok(Kept::Lost),
            (false, _) => Err(self.pooled()),
        }
    }

    async fn renew(&self, lease: &Lease) -> Result<Kept, LockError> {
        // Any statement resets the session's idle timeout, which is the ttl.
        self.verify(lease).await
    }

    async fn lift(&self, lease: &mut Lease, floor: u64) -> Result<Lifted, LockError> {
        let service = self.settings.service();
        let floor = countable(service, floor)?;
        let holding = self.holding(lease)?;
        let rows = match self.count(holding, lease.name.as_str(), lease.holder.as_str(), floor).await {
            Ok(rows) => rows,
            Err(trouble) if trouble.is(&SqlState::UNDEFINED_TABLE) => return Ok(Lifted::Lost),
            Err(trouble) => return self.after(trouble, holding).await.map(|()| Lifted::Lost),
        };
        let row = rows.first().ok_or_else(|| self.pooled())?;
        if self.get::<i32>(row, 1)? != holding.process {
            return Err(self.pooled());
        }
        let (number, which): (Option<i64>, Option<String>) = (self.get(row, 2)?, self.get(row, 3)?);
        let (Some(number), Some(which)) = (number, which) else { return Ok(Lifted::Lost) };
        // A number from another table must not be presented under this issuer.
        if issuer(service, &incarnation(&self.settings, &which)?)? != lease.issuer {
            return Ok(Lifted::Lost);
        }
        lease.number = counted(service, number)?;
        Ok(Lifted::Lifted)
    }

    async fn release(&self, lease: Lease) -> Result<(), LockError> {
        let holding = self.holding(&lease)?;
        match holding.session.query(FREE, &[(&holding.key, INT8)]).await {
            Ok(_) => Ok(()),
            // The lock was released with its session.
            Err(_) if holding.session.is_closed() => Ok(()),
            Err(trouble) => Err(self.error(trouble)),
        }
    }
}
