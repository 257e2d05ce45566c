//! One connection to the server: statements with a time limit, and notifications of releases.

use std::error::Error as _;
use std::future::poll_fn;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::{OnceCell, broadcast};
use tokio::task::AbortHandle;
use tokio_postgres::error::SqlState;
use tokio_postgres::{AsyncMessage, Client, Error, Row};

use super::super::tls::Terms;
use super::settings::Settings;
use super::{LockError, TIMEOUT, Values, exhausted};

/// How many names of released locks a waiter may lag behind; one that lags further polls the server.
const HEARD: usize = 256;

/// The NOTIFY channel of releases; the payload is the lock's name.
pub(super) const CHANNEL: &str = "fencepost_locks";

/// A connection, closed when it is dropped.
pub(super) struct Session {
    client: Client,
    /// The driver has the sender, so the channel closes with the connection.
    heard: broadcast::Receiver<String>,
    listening: OnceCell<()>,
    driver: AbortHandle,
    /// An answer was not waited for, or did not arrive.
    in_doubt: AtomicBool,
}

impl Session {
    pub(super) async fn open(settings: &Settings) -> Result<Session, Trouble> {
        let connecting = settings.config.connect(settings.tls.clone());
        // Connecting may time out at each of several hosts.
        let hosts = u32::try_from(settings.config.get_hosts().len().max(1)).unwrap_or(u32::MAX);
        let limit = settings.config.get_connect_timeout().copied().unwrap_or(TIMEOUT).saturating_mul(hosts) + TIMEOUT;
        let trouble = |error: &Error| Trouble::connecting(error, settings.terms);
        let (client, mut connection) = bounded(limit, connecting, trouble).await?;
        let (told, heard) = broadcast::channel(HEARD);
        let driver = tokio::spawn(async move {
            while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
                if let AsyncMessage::Notification(notification) = message {
                    // There may be no waiter.
                    let _ = told.send(notification.payload().to_owned());
                }
            }
        });
        let (listening, driver, in_doubt) = (OnceCell::new(), driver.abort_handle(), AtomicBool::new(false));
        Ok(Session { client, heard, listening, driver, in_doubt })
    }

    pub(super) fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// True if the connection may hang: a call on it was dropped or timed out without an answer.
    pub(super) fn is_in_doubt(&self) -> bool {
        self.in_doubt.load(Ordering::Relaxed)
    }

    /// Sends a statement. It is not prepared under a name, because pooling proxies do not know such names.
    pub(super) async fn query(&self, statement: &str, values: &Values<'_>) -> Result<Vec<Row>, Trouble> {
        self.query_within(TIMEOUT, statement, values).await
    }

    pub(super) async fn query_within(
        &self,
        limit: Duration,
        statement: &str,
        values: &Values<'_>,
    ) -> Result<Vec<Row>, Trouble> {
        self.answered(bounded(limit, self.client.query_typed(statement, values), Trouble::asking)).await
    }

    /// Several statements in one transaction.
    pub(super) async fn batch(&self, statements: &str) -> Result<(), Trouble> {
        self.answered(bounded(TIMEOUT, self.client.batch_execute(statements), Trouble::asking)).await
    }

    /// Marks the session as in doubt until the answer arrives, so also if the caller drops the call.
    async fn answered<T>(&self, call: impl Future<Output = Result<T, Trouble>>) -> Result<T, Trouble> {
        let unanswered = Unanswered(self);
        let answer = call.await;
        if answer.as_ref().map_or_else(Trouble::is_an_answer, |_| true) {
            std::mem::forget(unanswered);
        }
        answer
    }

    /// Subscribes to the names of locks that are released from now on.
    pub(super) async fn listen(&self) -> Result<broadcast::Receiver<String>, Trouble> {
        let heard = self.heard.resubscribe();
        let listen = format!("listen {CHANNEL}");
        self.listening.get_or_try_init(|| self.batch(&listen)).await?;
        Ok(heard)
    }
}

/// A call in progress.
struct Unanswered<'a>(&'a Session);

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        self.0.in_doubt.store(true, Ordering::Relaxed);
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // Closes the socket at once, even with a statement in progress.
        self.driver.abort();
    }
}

async fn bounded<T>(
    limit: Duration,
    call: impl Future<Output = Result<T, Error>>,
    trouble: impl FnOnce(&Error) -> Trouble,
) -> Result<T, Trouble> {
    match tokio::time::timeout(limit, call).await {
        Ok(answer) => answer.map_err(|error| trouble(&error)),
        Err(_) => Err(Trouble { code: None, why: format!("no answer within {} s", limit.as_secs()), lasting: false }),
    }
}

/// An error with its causes: the outer text alone has little information.
pub(super) fn explained(error: &Error) -> String {
    if let Some(said) = error.as_db_error() {
        return match said.hint() {
            Some(hint) => format!("{} ({hint})", said.message()),
            None => said.message().to_owned(),
        };
    }
    causes(error).fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

fn causes(error: &Error) -> impl Iterator<Item = &(dyn std::error::Error + 'static)> {
    std::iter::successors(error.source(), |cause| (*cause).source())
}

/// The error of a statement.
#[derive(Debug)]
pub(super) struct Trouble {
    /// The server's error code; `None` if the server did not answer.
    code: Option<SqlState>,
    why: String,
    /// Not an answer of the server, but permanent nevertheless.
    lasting: bool,
}

impl Trouble {
    fn asking(error: &Error) -> Trouble {
        Trouble { code: error.code().cloned(), why: explained(error), lasting: false }
    }

    /// Network errors are transient. A server without TLS where it is required, an untrusted certificate, or a missing
    /// password are permanent.
    fn connecting(error: &Error, terms: Terms) -> Trouble {
        if let Some(why) = terms.refusal(error) {
            return Trouble { code: None, why, lasting: true };
        }
        let network = causes(error).filter_map(|cause| cause.downcast_ref::<io::Error>()).next();
        let passes = network.is_some_and(|cause| cause.kind() != io::ErrorKind::InvalidData);
        Trouble { lasting: !passes && !error.is_closed(), ..Trouble::asking(error) }
    }

    /// True if the error is an answer of the server.
    fn is_an_answer(&self) -> bool {
        self.code.is_some()
    }

    pub(super) fn is(&self, code: &SqlState) -> bool {
        self.code.as_ref() == Some(code)
    }

    /// The connection broke, or the server closed it: whether the statement was executed is unknown.
    pub(super) fn is_broken(&self) -> bool {
        match &self.code {
            None => !self.lasting,
            Some(code) => code.code().starts_with("08") || code.code().starts_with("57P"),
        }
    }

    /// The server rolled the statement back, and asks to repeat it.
    pub(super) fn is_conflict(&self) -> bool {
        self.is(&SqlState::T_R_SERIALIZATION_FAILURE) || self.is(&SqlState::T_R_DEADLOCK_DETECTED)
    }

    pub(super) fn into_error(self, service: &str) -> LockError {
        let service = service.to_owned();
        let Some(code) = &self.code else {
            return match self.lasting {
                true => LockError::Failed { service, why: self.why },
                false => LockError::Unreachable { service, why: self.why },
            };
        };
        if *code == SqlState::NUMERIC_VALUE_OUT_OF_RANGE {
            return exhausted(&service);
        }
        if *code == SqlState::READ_ONLY_SQL_TRANSACTION {
            let why = format!("{}; it is a standby, or was made read-only: connect to the primary", self.why);
            return LockError::Unreachable { service, why };
        }
        if *code == SqlState::INVALID_PASSWORD || *code == SqlState::INVALID_AUTHORIZATION_SPECIFICATION {
            let why = format!(
                "{}; check user, password and certificate (`sslcert`, `sslkey`) in the URL, and the server's pg_hba.conf",
                self.why
            );
            return LockError::Failed { service, why };
        }
        // Connection, resources, rollback, lock timeout, operator intervention: transient.
        let passing = ["08", "53", "40", "55P03", "57"].iter().any(|class| code.code().starts_with(class));
        match passing {
            true => LockError::Unreachable { service, why: self.why },
            false => LockError::Failed { service, why: format!("{} (SQLSTATE {})", self.why, code.code()) },
        }
    }
}
