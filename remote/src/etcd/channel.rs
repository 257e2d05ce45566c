//! A channel to a cluster: a connection to one member at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::timeout;

use super::connection::Connection;
use super::{Cluster, Rpc, Trouble};

/// The time limit of connecting to one member and signing in.
const CONNECT: Duration = Duration::from_secs(5);

/// Calls to any member of a cluster. They run side by side.
pub struct Channel {
    cluster: Arc<Cluster>,
    connection: Mutex<Option<Arc<Connection>>>,
    /// The index of the member that is tried first.
    first: AtomicUsize,
}

/// Which member comes next.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    Same,
    Other,
}

impl Channel {
    /// A channel, which connects with its first call.
    pub fn new(cluster: Arc<Cluster>) -> Channel {
        Channel { cluster, connection: Mutex::new(None), first: AtomicUsize::new(0) }
    }

    /// Makes a call, whose answer has at most this many bytes. It is sent again only if nothing was done before: the
    /// connection was closed meanwhile, or the token is no longer valid.
    pub async fn call<R: Rpc>(&self, request: &R, limit: Duration, most: usize) -> Result<R::Answer, Trouble> {
        let mut connection = self.connection().await?;
        let mut answer = connection.call(request, limit, most).await;
        let next = match &answer {
            Err(Trouble::NotSent(_)) => Some(Next::Other),
            // Tokens expire, and with every change of users and roles.
            Err(trouble) if trouble.is_about_the_token() && self.cluster.user.is_some() => Some(Next::Same),
            _ => None,
        };
        if let Some(next) = next {
            self.leave(&connection, next).await;
            connection = self.connection().await?;
            answer = connection.call(request, limit, most).await;
        }
        if answer.as_ref().is_err_and(Trouble::is_about_the_member) {
            self.leave(&connection, Next::Other).await;
        }
        answer
    }

    /// The connection, or a new one.
    async fn connection(&self) -> Result<Arc<Connection>, Trouble> {
        let mut current = self.connection.lock().await;
        if let Some(connection) = current.take() {
            if connection.is_open() && !connection.is_suspect() {
                return Ok(current.insert(connection).clone());
            }
            self.prefer(connection.member + 1);
        }
        let connection = Arc::new(self.open().await?);
        Ok(current.insert(connection).clone())
    }

    /// Connects to the first member that can be used.
    async fn open(&self) -> Result<Connection, Trouble> {
        let members = &self.cluster.members;
        let first = self.first.load(Ordering::Relaxed);
        let mut failures = Vec::new();
        for at in (0..members.len()).map(|step| (first + step) % members.len()) {
            let why = match timeout(CONNECT, Connection::open(&self.cluster, at, CONNECT)).await {
                Ok(Ok(connection)) => {
                    self.prefer(at);
                    return Ok(connection);
                }
                // The other members know the same users.
                Ok(Err(refused @ Trouble::Refused { .. })) => return Err(refused),
                Ok(Err(trouble)) => trouble.to_string(),
                Err(_) => format!("no connection within {} s", CONNECT.as_secs()),
            };
            failures.push(format!("{}: {why}", members[at]));
        }
        Err(Trouble::NotSent(failures.join("; ")))
    }

    /// Sends later calls over another connection. The calls in progress on this one go on.
    async fn leave(&self, connection: &Arc<Connection>, next: Next) {
        let mut current = self.connection.lock().await;
        if current.as_ref().is_some_and(|current| Arc::ptr_eq(current, connection)) {
            *current = None;
            if next == Next::Other {
                self.prefer(connection.member + 1);
            }
        }
    }

    fn prefer(&self, member: usize) {
        self.first.store(member % self.cluster.members.len(), Ordering::Relaxed);
    }
}
