//! The session of a lease.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{Mutex, watch};
use tokio::time::sleep_until;
use zookeeper_client::{Client, Error, SessionInfo};

use super::queue::{Head, czxid_of, repeated};
use super::session::Ensemble;
use crate::locks::{Kept, LockError};

/// Attempts at one call: a session that the client library gave up is resumed once.
const ATTEMPTS: usize = 2;

/// The session of a lease. Dropping it closes the session, which removes the znode.
pub(super) struct Held {
    ensemble: Ensemble,
    id: SessionInfo,
    ttl: Duration,
    path: String,
    czxid: i64,
    /// Locked during a whole check, so that the session is not closed while the check finds it alive.
    session: Arc<Mutex<Session>>,
    /// When the lease was last known to be held.
    renewed: watch::Sender<Instant>,
}

/// The state of a session.
enum Session {
    Open(Client),
    /// The client library could not reach the ensemble and stopped trying. The session may still exist.
    Broken,
    /// The lease was not renewed in time: the session is being closed, and must not be resumed.
    GivenUp,
    /// The service reported its end.
    Over,
}

impl Held {
    pub(super) fn new(ensemble: Ensemble, client: Client, ttl: Duration, head: &Head) -> Held {
        let id = client.session().clone();
        let session = Arc::new(Mutex::new(Session::Open(client)));
        let (renewed, seen) = watch::channel(Instant::now());
        tokio::spawn(close_unless_renewed(session.clone(), seen, ttl));
        Held { ensemble, id, ttl, path: head.path.clone(), czxid: head.czxid, session, renewed }
    }

    /// Asks the service whether the lock is still held.
    pub(super) async fn check(&self) -> Result<Kept, LockError> {
        let mut session = self.session.lock().await;
        self.checked(&mut session).await
    }

    /// Like `check`; if the lock is held, the lease lasts its ttl from now.
    pub(super) async fn renew(&self) -> Result<Kept, LockError> {
        let mut session = self.session.lock().await;
        let kept = self.checked(&mut session).await?;
        if kept == Kept::Kept {
            self.renewed.send_replace(Instant::now());
        }
        Ok(kept)
    }

    async fn checked(&self, session: &mut Session) -> Result<Kept, LockError> {
        for _ in 0..ATTEMPTS {
            let Some(client) = self.client(session).await? else { return Ok(Kept::Lost) };
            match repeated(|| czxid_of(&client, &self.path)).await {
                Ok(found) if found == Some(self.czxid) => return Ok(Kept::Kept),
                Ok(_) => return Ok(Kept::Lost),
                Err(Error::SessionExpired | Error::ClientClosed) => *session = Session::Broken,
                Err(error) => return Err(self.ensemble.error(error)),
            }
        }
        Err(self.ensemble.error(Error::SessionExpired))
    }

    /// Deletes the znode, if it still exists. Its name is unique to this lease.
    pub(super) async fn delete(&self) -> Result<(), LockError> {
        let mut session = self.session.lock().await;
        for _ in 0..ATTEMPTS {
            let Some(client) = self.client(&mut session).await? else { return Ok(()) };
            match repeated(|| client.delete(&self.path, None)).await {
                Ok(()) | Err(Error::NoNode) => return Ok(()),
                Err(Error::SessionExpired | Error::ClientClosed) => *session = Session::Broken,
                Err(error) => return Err(self.ensemble.error(error)),
            }
        }
        Err(self.ensemble.error(Error::SessionExpired))
    }

    /// A client of the session. `None`: the service reports that session or znode are gone.
    async fn client(&self, session: &mut Session) -> Result<Option<Client>, LockError> {
        let client = match session {
            Session::Open(client) => return Ok(Some(client.clone())),
            Session::Over => return Ok(None),
            Session::Broken => self.ensemble.resume(self.id.clone(), self.ttl).await?,
            Session::GivenUp => {
                let other = self.ensemble.open(self.ttl).await?;
                match repeated(|| other.delete(&self.path, None)).await {
                    Ok(()) | Err(Error::NoNode) => None,
                    Err(error) => return Err(self.ensemble.error(error)),
                }
            }
        };
        *session = client.clone().map_or(Session::Over, Session::Open);
        Ok(client)
    }
}

/// The client library keeps its session alive by itself. A lease that is not renewed must end nevertheless, so the
/// session is closed after its ttl.
async fn close_unless_renewed(session: Arc<Mutex<Session>>, mut renewed: watch::Receiver<Instant>, ttl: Duration) {
    loop {
        let end = *renewed.borrow_and_update() + ttl;
        tokio::select! {
            changed = renewed.changed() => if changed.is_err() { return },
            () = sleep_until(end.into()) => {
                let mut session = session.lock().await;
                // A renewal may have held the mutex.
                if *renewed.borrow() + ttl <= Instant::now() {
                    if !matches!(*session, Session::Over) {
                        *session = Session::GivenUp;
                    }
                    return;
                }
            }
        }
    }
}
