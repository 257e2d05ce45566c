//! `mode=lease`: the row records the holder of the lock, and its expiry by the server's clock.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use fencepost_core::Resource;
use fencepost_remote::postgres::{self, Row, Session, SqlState, TIMEOUT, Trouble, Values, explained};
use parking_lot::Mutex;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{Mutex as Turn, broadcast};
use tokio::time::{sleep_until, timeout_at};

use super::super::cleanup::Cleanup;
use super::super::{Acquired, Capabilities, Kept, Lease, Lifted, LockBackend, LockError, Wanted};
use super::settings::Settings;
use super::table::{INT8, TEXT, incarnation, set_up};
use super::trouble::lock_error;
use super::{ATTEMPTS, LONGEST_WAIT, MIN_TTL, OUTAGE, checked_ttl, countable, counted, issuer};
use crate::Moment;

const CAPABILITIES: Capabilities =
    Capabilities { fair: false, watch: true, floor: true, lift: true, min_ttl: MIN_TTL, detachable: true };

/// How long a waiter relies on notifications before it polls: behind some proxies none arrive.
const PATIENCE: Duration = Duration::from_secs(10);

/// The NOTIFY channel of releases; the payload is the lock's name.
const CHANNEL: &str = "fencepost_locks";

/// Parameters: name, holder, floor, milliseconds. The row is locked before its holder is compared, so under READ
/// COMMITTED the newest version is compared (T17). A stricter isolation level fails instead, and the statement is
/// repeated.
const TAKE: &str = "with service as (select holder from LOCKS where name = '') \
    insert into LOCKS as lock (name, token, holder, expires) \
    select $1, $3 + 1, $2, clock_timestamp() + $4 * interval '1 millisecond' from service \
    on conflict (name) do update set token = greatest(lock.token, $3) + 1, holder = excluded.holder, \
    expires = clock_timestamp() + $4 * interval '1 millisecond' \
    where lock.holder is null or lock.expires <= clock_timestamp() \
    returning token, (select holder from service)";

/// Whether this holder has the lock (after a lost reply), and otherwise for how many milliseconds another holder has
/// it.
const LOOK: &str = "select service.holder, lock.token, lock.holder = $2, \
    ceil(extract(epoch from lock.expires - clock_timestamp()) * 1000)::bigint \
    from LOCKS service left join LOCKS lock on lock.name = $1 where service.name = ''";

const VERIFY: &str = "select token from LOCKS where name = $1 and holder = $2";

const RENEW: &str = "update LOCKS set expires = clock_timestamp() + $3 * interval '1 millisecond' \
    where name = $1 and holder = $2 returning token";

const LIFT: &str = "update LOCKS set token = greatest(token, $3) + 1 where name = $1 and holder = $2 returning token";

const RELEASE: &str = "with freed as (update LOCKS set holder = null, expires = null where name = $1 and holder = $2 \
    returning name) select pg_notify(CHANNEL, name) from freed";

/// Locks as rows.
pub(super) struct Leases {
    server: Arc<Server>,
    /// The waiters in this process, per lock: only the first of them asks the server.
    turns: Mutex<HashMap<Resource, Weak<Turn<()>>>>,
}

/// The server, through one connection that all calls share. It is reopened when it breaks.
struct Server {
    settings: Settings,
    session: Turn<Option<Arc<Session>>>,
}

/// The result of one attempt.
enum Tried {
    Held(Lease),
    /// How long another holder has the lock, unless it is renewed.
    Busy(Duration),
}

impl Leases {
    pub(super) async fn connect(settings: Settings) -> Result<Leases, LockError> {
        let server = Server { settings, session: Turn::new(None) };
        set_up(server.session().await?.as_ref(), &server.settings).await?;
        Ok(Leases { server: Arc::new(server), turns: Mutex::default() })
    }

    fn turn(&self, name: &Resource) -> Arc<Turn<()>> {
        let mut turns = self.turns.lock();
        if let Some(turn) = turns.get(name).and_then(Weak::upgrade) {
            return turn;
        }
        turns.retain(|_, turn| turn.strong_count() > 0);
        let turn = Arc::new(Turn::new(()));
        turns.insert(name.clone(), Arc::downgrade(&turn));
        turn
    }

    async fn wait(&self, wanted: &Wanted<'_>, ttl: i64, floor: i64) -> Result<Acquired, LockError> {
        let asked = Moment::now();
        let deadline = Instant::now() + wanted.wait.min(LONGEST_WAIT);
        let turn = self.turn(wanted.name);
        let Ok(_ours) = timeout_at(deadline.into(), turn.lock()).await else { return Ok(Acquired::Busy) };
        loop {
            let (mut heard, left) = match self.server.take_listening(wanted, ttl, floor, asked).await {
                Ok((_, Tried::Held(lease))) => return Ok(Acquired::Held(lease)),
                Ok((heard, Tried::Busy(left))) => (heard, left),
                // A server that restarts or fails over is waited for as long as for the lock.
                Err(error) if error.is_transient() && Instant::now() + OUTAGE < deadline => {
                    tokio::time::sleep(OUTAGE).await;
                    continue;
                }
                Err(error) => return Err(error),
            };
            let now = Instant::now();
            if now >= deadline {
                return Ok(Acquired::Busy);
            }
            let again = deadline.min(now + left.min(PATIENCE));
            tokio::select! {
                () = released(&mut heard, wanted.name) => {}
                () = sleep_until(again.into()) => {}
            }
        }
    }
}

/// Resolves when a lock of this name may be free, or when notifications were missed or end.
async fn released(heard: &mut broadcast::Receiver<String>, name: &Resource) {
    loop {
        match heard.recv().await {
            Ok(freed) if freed != name.as_str() => {}
            Ok(_) | Err(RecvError::Lagged(_) | RecvError::Closed) => return,
        }
    }
}

impl Server {
    async fn session(&self) -> Result<Arc<Session>, LockError> {
        let mut session = self.session.lock().await;
        if let Some(open) = session.as_ref().filter(|open| !open.is_closed() && !open.is_in_doubt()) {
            return Ok(open.clone());
        }
        let opened = Session::open(&self.settings.server).await.map_err(|trouble| self.error(trouble))?;
        let opened = Arc::new(opened);
        *session = Some(opened.clone());
        Ok(opened)
    }

    /// Drops a connection that does not answer.
    async fn forget(&self, broken: &Arc<Session>) {
        let mut session = self.session.lock().await;
        if session.as_ref().is_some_and(|current| Arc::ptr_eq(current, broken)) {
            *session = None;
        }
    }

    fn error(&self, trouble: Trouble) -> LockError {
        lock_error(&trouble, self.settings.service())
    }

    async fn listen(&self) -> Result<broadcast::Receiver<String>, LockError> {
        let session = self.session().await?;
        match session.listen(CHANNEL).await {
            Ok(heard) => Ok(heard),
            Err(trouble) => {
                self.forget(&session).await;
                self.session().await?.listen(CHANNEL).await.map_err(|_| self.error(trouble))
            }
        }
    }

    /// Sends a statement that compares the holder's nonce, so that it may be repeated. `None`: there is no table.
    async fn run(&self, statement: &str, values: &Values<'_>) -> Result<Option<Vec<Row>>, LockError> {
        let statement = self.settings.table.in_sql(statement);
        let (mut attempt, started) = (1, Instant::now());
        loop {
            let session = self.session().await?;
            match session.query(&statement, values).await {
                Ok(rows) => return Ok(Some(rows)),
                Err(trouble) if trouble.is(&SqlState::UNDEFINED_TABLE) => return Ok(None),
                Err(trouble) if trouble.is_broken() => {
                    self.forget(&session).await;
                    // After a timeout retry only once; after quick failures retry more often.
                    if attempt == ATTEMPTS || started.elapsed() >= 2 * TIMEOUT {
                        return Err(self.error(trouble));
                    }
                }
                Err(trouble) if trouble.is_conflict() && attempt < ATTEMPTS => {}
                Err(trouble) => return Err(self.error(trouble)),
            }
            attempt += 1;
        }
    }

    /// Like `run`, and returns the number in the row that was found.
    async fn number(&self, statement: &str, values: &Values<'_>) -> Result<Option<i64>, LockError> {
        let rows = self.run(statement, values).await?.unwrap_or_default();
        rows.first().map(|row| row.try_get(0).map_err(|error| self.odd(&error))).transpose()
    }

    fn odd(&self, error: &postgres::Error) -> LockError {
        LockError::Failed { service: self.settings.service().to_owned(), why: explained(error) }
    }

    /// Like `take`, but listens first, so that no release is missed in between.
    async fn take_listening(
        &self,
        wanted: &Wanted<'_>,
        ttl: i64,
        floor: i64,
        asked: Moment,
    ) -> Result<(broadcast::Receiver<String>, Tried), LockError> {
        let heard = self.listen().await?;
        Ok((heard, self.take(wanted, ttl, floor, asked).await?))
    }

    /// Takes the lock if it is free, or finds that an earlier attempt took it and its reply was lost.
    async fn take(&self, wanted: &Wanted<'_>, ttl: i64, floor: i64, asked: Moment) -> Result<Tried, LockError> {
        let since = Moment::now();
        let (name, holder) = (wanted.name.as_str(), wanted.holder.as_str());
        for _ in 0..ATTEMPTS {
            let values: &Values<'_> = &[(&name, TEXT), (&holder, TEXT), (&floor, INT8), (&ttl, INT8)];
            let taken = self.run(TAKE, values).await?;
            if let Some(row) = taken.as_ref().and_then(|rows| rows.first()) {
                return self.lease(wanted, since, row.try_get(0), row.try_get(1));
            }
            let found = self.run(LOOK, &[(&name, TEXT), (&holder, TEXT)]).await?;
            let Some(row) = found.as_ref().and_then(|rows| rows.first()) else {
                // The table is missing, or has no row with its incarnation.
                set_up(self.session().await?.as_ref(), &self.settings).await?;
                continue;
            };
            let ours: Option<bool> = row.try_get(2).map_err(|error| self.odd(&error))?;
            if ours == Some(true) {
                // Any earlier statement of this acquisition may have taken it.
                return self.lease(wanted, asked, row.try_get(1), row.try_get(0));
            }
            let left: Option<i64> = row.try_get(3).map_err(|error| self.odd(&error))?;
            // The lock was just freed, or has expired: retry at once, but not in a busy loop.
            let left = left.and_then(|left| u64::try_from(left).ok()).unwrap_or(0).max(1);
            return Ok(Tried::Busy(Duration::from_millis(left)));
        }
        let why = "its table of locks vanishes again and again".to_owned();
        Err(LockError::Failed { service: self.settings.service().to_owned(), why })
    }

    fn lease(
        &self,
        wanted: &Wanted<'_>,
        since: Moment,
        number: Result<i64, postgres::Error>,
        which: Result<String, postgres::Error>,
    ) -> Result<Tried, LockError> {
        let service = self.settings.service();
        let number = number.map_err(|error| self.odd(&error))?;
        let which = which.map_err(|error| self.odd(&error))?;
        Ok(Tried::Held(Lease {
            name: wanted.name.clone(),
            holder: wanted.holder.clone(),
            number: counted(service, number)?,
            generation: None,
            issuer: issuer(service, &incarnation(&self.settings, &which)?)?,
            ttl: wanted.ttl,
            since,
            handle: wanted.holder.to_string(),
            session: None,
        }))
    }

    async fn release(&self, name: &Resource, handle: &str) -> Result<(), LockError> {
        let statement = RELEASE.replace("CHANNEL", &format!("'{CHANNEL}'"));
        self.run(&statement, &[(&name.as_str(), TEXT), (&handle, TEXT)]).await.map(drop)
    }
}

#[async_trait]
impl LockBackend for Leases {
    fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }

    async fn acquire(&self, wanted: &Wanted<'_>) -> Result<Acquired, LockError> {
        let ttl = checked_ttl(CAPABILITIES, wanted.ttl)?;
        let floor = countable(self.server.settings.service(), wanted.floor)?;
        let (server, name, holder) = (self.server.clone(), wanted.name.clone(), wanted.holder.clone());
        // Releases what an acquisition that is dropped, or fails, may have taken. The nonce is never reused, so a later
        // grant cannot be released by mistake.
        let undo = Cleanup::new(async move {
            // If this fails, the ttl ends the lock.
            let _ = server.release(&name, holder.as_str()).await;
        });
        let acquired = match wanted.wait.is_zero() {
            false => self.wait(wanted, ttl, floor).await?,
            true => match self.server.take(wanted, ttl, floor, Moment::now()).await? {
                Tried::Held(lease) => Acquired::Held(lease),
                Tried::Busy(_) => Acquired::Busy,
            },
        };
        undo.disarm();
        Ok(acquired)
    }

    async fn verify(&self, lease: &Lease) -> Result<Kept, LockError> {
        let found = self.server.number(VERIFY, &[(&lease.name.as_str(), TEXT), (&lease.handle, TEXT)]).await?;
        Ok(found.map_or(Kept::Lost, |_| Kept::Kept))
    }

    async fn renew(&self, lease: &Lease) -> Result<Kept, LockError> {
        let ttl = checked_ttl(CAPABILITIES, lease.ttl)?;
        let values: &Values<'_> = &[(&lease.name.as_str(), TEXT), (&lease.handle, TEXT), (&ttl, INT8)];
        let found = self.server.number(RENEW, values).await?;
        Ok(found.map_or(Kept::Lost, |_| Kept::Kept))
    }

    async fn lift(&self, lease: &mut Lease, floor: u64) -> Result<Lifted, LockError> {
        let service = self.server.settings.service();
        let floor = countable(service, floor)?;
        let values: &Values<'_> = &[(&lease.name.as_str(), TEXT), (&lease.handle, TEXT), (&floor, INT8)];
        match self.server.number(LIFT, values).await? {
            Some(number) => {
                lease.number = counted(service, number)?;
                Ok(Lifted::Lifted)
            }
            None => Ok(Lifted::Lost),
        }
    }

    async fn release(&self, lease: Lease) -> Result<(), LockError> {
        self.server.release(&lease.name, &lease.handle).await
    }
}
