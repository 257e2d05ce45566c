//! One connection to the server: statements with a time limit, notifications and warnings.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{OnceCell, broadcast};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, timeout_at};
use tokio_postgres::error::SqlState;
use tokio_postgres::{AsyncMessage, Client, Config, Error, Row, SimpleQueryMessage};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::{Server, TIMEOUT, Trouble, Values};
use crate::tls::Terms;

/// How much longer other servers may take than the first one that could be connected to.
const GRACE: Duration = Duration::from_millis(500);

/// How many notifications a listener may lag behind; one that lags further receives `Lagged`.
const HEARD: usize = 256;

/// A connection, closed when it is dropped.
pub struct Session {
    client: Client,
    /// The driver has the sender, so the channel closes with the connection.
    heard: broadcast::Receiver<String>,
    listening: OnceCell<String>,
    driver: AbortHandle,
    /// An answer was not waited for, or did not arrive.
    in_doubt: AtomicBool,
    warnings: Arc<AtomicU64>,
}

impl Session {
    /// Connects to the server, or to the first of several that can write.
    pub async fn open(server: &Server) -> Result<Session, Trouble> {
        Session::connect(&server.config, server.tls.clone(), server.terms).await
    }

    /// Connects to every server that the URL names and that can write. One that hangs does not keep the others waiting.
    /// The error is that of the first server.
    pub async fn open_all(server: &Server) -> Result<Vec<Session>, Trouble> {
        if server.members.is_empty() {
            return Ok(vec![Session::open(server).await?]);
        }
        let mut connecting = JoinSet::new();
        for (at, config) in server.members.iter().enumerate() {
            let (config, tls, terms) = (config.clone(), server.tls.clone(), server.terms);
            connecting.spawn(async move { (at, Session::connect(&config, tls, terms).await) });
        }
        let (mut sessions, mut troubles, mut deadline) = (Vec::new(), Vec::new(), None);
        loop {
            let next = match deadline {
                None => connecting.join_next().await,
                Some(deadline) => timeout_at(deadline, connecting.join_next()).await.ok().flatten(),
            };
            match next {
                Some(Ok((_, Ok(session)))) => {
                    sessions.push(session);
                    deadline.get_or_insert(Instant::now() + GRACE);
                }
                Some(Ok((at, Err(trouble)))) => troubles.push((at, trouble)),
                // A task that ended unexpectedly has said so.
                Some(Err(_)) => {}
                None => break,
            }
        }
        match troubles.into_iter().min_by_key(|(at, _)| *at) {
            Some((_, trouble)) if sessions.is_empty() => Err(trouble),
            _ => Ok(sessions),
        }
    }

    async fn connect(config: &Config, tls: MakeRustlsConnect, terms: Terms) -> Result<Session, Trouble> {
        // Connecting may time out at each of several hosts.
        let hosts = u32::try_from(config.get_hosts().len().max(1)).unwrap_or(u32::MAX);
        let limit = config.get_connect_timeout().copied().unwrap_or(TIMEOUT).saturating_mul(hosts) + TIMEOUT;
        let trouble = |error: &Error| Trouble::connecting(error, terms);
        let (client, mut connection) = bounded(limit, config.connect(tls), trouble).await?;
        let (notifications, heard) = broadcast::channel(HEARD);
        let warnings = Arc::new(AtomicU64::new(0));
        let warned = warnings.clone();
        let driver = tokio::spawn(async move {
            while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
                match message {
                    AsyncMessage::Notification(notification) => {
                        // There may be no listener.
                        let _ = notifications.send(notification.payload().to_owned());
                    }
                    // Counted before the messages that follow are passed on, so before the end of the answer.
                    AsyncMessage::Notice(notice) if is_counted(notice.code()) => {
                        warned.fetch_add(1, Ordering::Relaxed);
                    }
                    _ => {}
                }
            }
        });
        let (listening, driver, in_doubt) = (OnceCell::new(), driver.abort_handle(), AtomicBool::new(false));
        Ok(Session { client, heard, listening, driver, in_doubt, warnings })
    }

    /// True if the connection was closed.
    pub fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// True if the connection may hang: a call on it was dropped or timed out without an answer.
    pub fn is_in_doubt(&self) -> bool {
        self.in_doubt.load(Ordering::Relaxed)
    }

    /// How many warnings the server sent: notices with SQLSTATE 01000 or 57P01. It sends one when the wait for a
    /// synchronous standby was cancelled: the statement was committed on the server, perhaps not on the standby.
    ///
    /// A warning about a statement is counted before the answer to the statement is returned, because both arrive in
    /// order and the answer ends after the commit.
    pub fn warnings(&self) -> u64 {
        self.warnings.load(Ordering::Relaxed)
    }

    /// Sends a statement. It is not prepared under a name, because pooling proxies do not know such names.
    pub async fn query(&self, statement: &str, values: &Values<'_>) -> Result<Vec<Row>, Trouble> {
        self.query_within(TIMEOUT, statement, values).await
    }

    /// Sends a statement with a time limit. After the limit, whether the statement was executed is unknown.
    pub async fn query_within(
        &self,
        limit: Duration,
        statement: &str,
        values: &Values<'_>,
    ) -> Result<Vec<Row>, Trouble> {
        self.answered(bounded(limit, self.client.query_typed(statement, values), Trouble::asking)).await
    }

    /// Sends several statements in one transaction.
    pub async fn batch(&self, statements: &str) -> Result<(), Trouble> {
        self.batch_within(TIMEOUT, statements).await
    }

    /// Sends several statements in one transaction, with a time limit.
    pub async fn batch_within(&self, limit: Duration, statements: &str) -> Result<(), Trouble> {
        self.answered(bounded(limit, self.client.batch_execute(statements), Trouble::asking)).await
    }

    /// Sends several statements in one message, with a time limit, and returns the number that the first row starts with. If one
    /// fails, those behind it are not executed. Without a number, what was executed is unknown.
    pub async fn number_within(&self, limit: Duration, statements: &str) -> Result<i64, Trouble> {
        let sent = bounded(limit, self.client.simple_query(statements), Trouble::asking);
        let messages = self.answered(sent).await?;
        let first = messages.iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(row.try_get(0).ok().flatten()),
            _ => None,
        });
        first.flatten().and_then(|number| number.parse().ok()).ok_or_else(|| {
            self.doubt();
            Trouble::garbled("the server did not return a number")
        })
    }

    /// Marks the session as one that may hang, so that it is not used again.
    pub fn doubt(&self) {
        self.in_doubt.store(true, Ordering::Relaxed);
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

    /// Subscribes to the payloads of notifications on a channel, from now on. The name of the channel is not quoted. A
    /// session listens to one channel: later calls name the same one.
    pub async fn listen(&self, channel: &str) -> Result<broadcast::Receiver<String>, Trouble> {
        let heard = self.heard.resubscribe();
        let listen = format!("listen {channel}");
        let listening = self.listening.get_or_try_init(|| async {
            let listening = self.batch(&listen).await;
            listening.map(|()| channel.to_owned())
        });
        let listening = listening.await?;
        debug_assert_eq!(listening, channel, "a session listens to one channel");
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

fn is_counted(code: &SqlState) -> bool {
    *code == SqlState::WARNING || *code == SqlState::ADMIN_SHUTDOWN
}

async fn bounded<T>(
    limit: Duration,
    call: impl Future<Output = Result<T, Error>>,
    trouble: impl FnOnce(&Error) -> Trouble,
) -> Result<T, Trouble> {
    match tokio::time::timeout(limit, call).await {
        Ok(answer) => answer.map_err(|error| trouble(&error)),
        Err(_) => Err(Trouble::unanswered(limit)),
    }
}
