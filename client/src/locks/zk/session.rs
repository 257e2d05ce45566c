//! Sessions: one per acquisition, with the ttl as its timeout, closed when its last client is dropped.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;
use zookeeper_client::{Acls, Client, Connector, CreateMode, CreateOptions, Error, SessionInfo};

use super::tunnel::{Trouble, Tunnel};
use crate::locks::LockError;

/// The time limit for opening a session.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// The shortest ttl: a shorter session does not survive one lost packet.
const SHORTEST: Duration = Duration::from_secs(1);

/// The longest timeout tried while probing for the shortest.
const LONGEST_TRIED: Duration = Duration::from_secs(4);

/// An ensemble, and our credentials there.
#[derive(Clone)]
pub(super) struct Ensemble {
    /// `host:port,host:port` for the client library: the servers, or the local ends of a tunnel.
    pub(super) hosts: String,
    /// Present if the connection uses TLS.
    pub(super) tunnel: Option<Arc<Tunnel>>,
    /// `user:password`
    pub(super) digest: Option<String>,
    /// The URL without the password.
    pub(super) shown: String,
}

impl Ensemble {
    fn connector(&self, ttl: Duration) -> Connector {
        let connector = Client::connector().with_session_timeout(ttl);
        match &self.digest {
            Some(digest) => connector.with_auth("digest", digest.as_bytes()),
            None => connector,
        }
    }

    /// The options for creating znodes: with a password, only we have access.
    pub(super) fn options(&self, mode: CreateMode) -> CreateOptions<'static> {
        mode.with_acls(if self.digest.is_some() { Acls::creator_all() } else { Acls::anyone_all() })
    }

    /// The shortest ttl that the ensemble grants: a session that asks for less is given that one.
    pub(super) async fn shortest(&self) -> Result<Duration, LockError> {
        let mut asked = SHORTEST;
        loop {
            match self.connected(self.connector(asked)).await {
                // Only a timeout that was raised reveals the minimum. Otherwise an acquisition with a shorter ttl finds
                // out when it opens its session.
                Ok(client) => {
                    let granted = client.session_timeout();
                    return Ok(if granted > asked { granted } else { SHORTEST });
                }
                // The ensemble may be slow, not down: a longer session has more time to connect.
                Err(Error::Timeout) if asked < LONGEST_TRIED && !self.is_refused() => asked *= 2,
                Err(error) => return Err(self.error(error)),
            }
        }
    }

    /// A new session that lasts exactly this long.
    pub(super) async fn open(&self, ttl: Duration) -> Result<Client, LockError> {
        let client = self.connected(self.connector(ttl)).await.map_err(|error| self.error(error))?;
        self.exactly(client, ttl)
    }

    /// Resumes a session. `None`: the service reports that it is over.
    ///
    /// A client that cannot reach its servers ends its session by its own clock; that is not a report of the service.
    pub(super) async fn resume(&self, session: SessionInfo, ttl: Duration) -> Result<Option<Client>, LockError> {
        match self.connected(self.connector(ttl).with_session(session)).await {
            Ok(client) => self.exactly(client, ttl).map(Some),
            Err(Error::SessionExpired) => Ok(None),
            Err(error) => Err(self.error(error)),
        }
    }

    async fn connected(&self, connector: Connector) -> Result<Client, Error> {
        timeout(PATIENCE, connector.connect(&self.hosts)).await.unwrap_or(Err(Error::Timeout))
    }

    fn exactly(&self, client: Client, ttl: Duration) -> Result<Client, LockError> {
        let granted = client.session_timeout();
        if granted == ttl {
            return Ok(client);
        }
        Err(LockError::Invalid(format!(
            "a ttl of {} s was asked for, but {} grants sessions of {} s: choose a ttl between its minSessionTimeout and its \
             maxSessionTimeout, in whole milliseconds, or change these settings on all of its servers",
            ttl.as_secs_f64(),
            self.shown,
            granted.as_secs_f64(),
        )))
    }

    /// True if the tunnel fails permanently.
    fn is_refused(&self) -> bool {
        self.tunnel.as_ref().and_then(|tunnel| tunnel.trouble()).is_some_and(|trouble| trouble.lasting)
    }

    /// The tunnel's error for a connection that could not be made.
    fn untold(&self) -> Option<LockError> {
        let service = self.shown.clone();
        let Trouble { why, lasting } = self.tunnel.as_ref()?.trouble()?;
        Some(match lasting {
            true => LockError::Failed { service, why },
            false => LockError::Unreachable { service, why },
        })
    }

    /// The error for a missing answer.
    pub(super) fn silent(&self) -> LockError {
        if let Some(error) = self.untold() {
            return error;
        }
        LockError::Unreachable { service: self.shown.clone(), why: "it did not answer in time".to_owned() }
    }

    /// Converts an error of the client library.
    pub(super) fn error(&self, error: Error) -> LockError {
        let service = self.shown.clone();
        if (matches!(error, Error::Timeout | Error::NoHosts) || is_blip(&error))
            && let Some(error) = self.untold()
        {
            return error;
        }
        match error {
            Error::Timeout | Error::NoHosts => {
                let why = "no session came about. Are its servers up, do they have a quorum, and does their maxClientCnxns \
                           allow one more connection from this host?";
                LockError::Unreachable { service, why: why.to_owned() }
            }
            Error::SessionExpired | Error::ClientClosed => {
                LockError::Unreachable { service, why: "the session ended; ask again".to_owned() }
            }
            Error::NoAuth | Error::AuthFailed | Error::InvalidAcl => {
                let why = "not allowed. Check the user and the password in the URL, and the ACLs below its path";
                LockError::Failed { service, why: format!("{error}: {why}") }
            }
            error if is_blip(&error) => LockError::Unreachable { service, why: error.to_string() },
            error => LockError::Failed { service, why: error.to_string() },
        }
    }
}

/// The connection was lost, but the session may be alive: the next call waits until it is reconnected, or surely over.
pub(super) fn is_blip(error: &Error) -> bool {
    matches!(
        error,
        Error::ConnectionLoss | Error::Custom(_) | Error::UnexpectedError(_) | Error::SessionMoved | Error::Throttled
    )
}
