//! The queue of a lock.

use std::time::{Duration, Instant};

use tokio::time::{sleep, timeout_at};
use zookeeper_client::{Client, CreateMode, Error};

use super::session::{Ensemble, is_blip};
use super::znodes::{Position, Znodes, position};
use crate::Moment;

/// The pause between two attempts while the connection is lost.
const PAUSE: Duration = Duration::from_millis(20);

/// The queue of one lock, as seen by one acquisition.
pub(super) struct Queue<'a> {
    pub(super) ensemble: &'a Ensemble,
    pub(super) znodes: &'a Znodes,
    pub(super) client: &'a Client,
    /// The queue's znode.
    pub(super) path: String,
    /// The prefix of our znode's name; it finds a znode whose create was not answered.
    pub(super) nonce: String,
}

/// Our znode at the head of the queue.
pub(super) struct Head {
    pub(super) path: String,
    pub(super) czxid: i64,
    /// A moment before the call that proved it was sent.
    pub(super) since: Moment,
}

/// The result of waiting in a queue.
pub(super) enum Stood {
    /// It is our turn.
    First(Head),
    /// It was not our turn in time, and we left the queue.
    InVain,
    /// Our znode is gone, with its session or because it was deleted by hand.
    Deleted,
}

impl Queue<'_> {
    /// Waits in the queue until it is our turn, or until this moment.
    ///
    /// No retry here is unbounded: calls fail permanently when the session is over, and the caller's wait is limited.
    pub(super) async fn stand(&self, holder: &str, until: Option<Instant>) -> Result<Stood, Error> {
        let mut created = self.join(holder).await?;
        loop {
            let (own, predecessor) = match self.position().await? {
                Position::First { own } => {
                    let path = format!("{}/{own}", self.path);
                    if let Some(head) = created.take().filter(|head| head.path == path) {
                        return Ok(Stood::First(head));
                    }
                    return self.proven(path).await;
                }
                Position::Behind { own, predecessor } => (own, predecessor),
                Position::Absent => return Ok(Stood::Deleted),
            };
            created = None;
            if until.is_some_and(|until| Instant::now() >= until) || !self.gone(&predecessor, until).await? {
                // If this fails, the end of the session removes the znode.
                let _ = self.client.delete(&format!("{}/{own}", self.path), None).await;
                return Ok(Stood::InVain);
            }
        }
    }

    /// Creates our znode. `None`: it exists, but its number has yet to be read.
    async fn join(&self, holder: &str) -> Result<Option<Head>, Error> {
        let prefix = format!("{}/{}-", self.path, self.nonce);
        let ephemeral = self.ensemble.options(CreateMode::EphemeralSequential);
        loop {
            let since = Moment::now();
            match self.client.create(&prefix, holder.as_bytes(), &ephemeral).await {
                Ok((stat, sequence)) => {
                    return Ok(Some(Head { path: format!("{prefix}{sequence}"), czxid: stat.czxid, since }));
                }
                // The server may remove an empty container at any time, even right after this.
                Err(Error::NoNode) => self.make_queue().await?,
                Err(error) if is_blip(&error) => {
                    sleep(PAUSE).await;
                    if self.position().await? != Position::Absent {
                        return Ok(None);
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    async fn make_queue(&self) -> Result<(), Error> {
        let persistent = self.ensemble.options(CreateMode::Persistent);
        let container = self.ensemble.options(CreateMode::Container);
        repeated(|| self.client.mkdir(&self.znodes.locks, &persistent)).await?;
        match repeated(|| self.client.create(&self.path, &[], &container)).await {
            Ok(_) | Err(Error::NodeExists | Error::NoNode) => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn position(&self) -> Result<Position, Error> {
        let queue = repeated(|| async {
            // Our server may lag behind the others, and after a lost connection it may be another server.
            let synced = self.client.sync(&self.path);
            let queue = self.client.list_children(&self.path);
            synced.await?;
            queue.await
        });
        match queue.await {
            Ok(queue) => Ok(position(&queue, &self.nonce)),
            Err(Error::NoNode) => Ok(Position::Absent),
            Err(error) => Err(error),
        }
    }

    /// Waits until the preceding znode is gone. Watches only that one, so that a release wakes one waiter.
    async fn gone(&self, predecessor: &str, until: Option<Instant>) -> Result<bool, Error> {
        let path = format!("{}/{predecessor}", self.path);
        let (stat, watcher) = match self.client.check_and_watch_stat(&path).await {
            Ok(seen) => seen,
            Err(error) if is_blip(&error) => {
                sleep(PAUSE).await;
                return Ok(true);
            }
            Err(error) => return Err(error),
        };
        if stat.is_none() {
            return Ok(true);
        }
        match until {
            Some(until) => Ok(timeout_at(until.into(), watcher.changed()).await.is_ok()),
            None => {
                watcher.changed().await;
                Ok(true)
            }
        }
    }

    /// Our znode's number, after a wait in which it may have been lost (T23).
    async fn proven(&self, path: String) -> Result<Stood, Error> {
        let since = Moment::now();
        match repeated(|| czxid_of(self.client, &path)).await? {
            Some(czxid) => Ok(Stood::First(Head { path, czxid, since })),
            None => Ok(Stood::Deleted),
        }
    }
}

/// The czxid of a znode, if it exists and this session owns it.
///
/// An empty transaction that checks the znode goes through the quorum: neither a server that lags behind nor a leader
/// that is cut off can answer it. A read after it, in the same session, is at least as new.
pub(super) async fn czxid_of(client: &Client, path: &str) -> Result<Option<i64>, Error> {
    let mut transaction = client.new_multi_writer();
    // -1 matches any version.
    transaction.add_check_version(path, -1)?;
    let (checked, stat) = (transaction.commit(), client.check_stat(path));
    match checked.await.map_err(Error::from) {
        Ok(_) => {}
        Err(Error::NoNode) => return Ok(None),
        Err(error) => return Err(error),
    }
    let owner = client.session_id().0;
    Ok(stat.await?.filter(|stat| stat.ephemeral_owner == owner).map(|stat| stat.czxid))
}

/// Repeats a call while only the connection was lost. A call without a connection waits for one until the session is
/// over.
pub(super) async fn repeated<T, F>(mut call: impl FnMut() -> F) -> Result<T, Error>
where
    F: Future<Output = Result<T, Error>>,
{
    loop {
        match call().await {
            Err(error) if is_blip(&error) => sleep(PAUSE).await,
            done => return done,
        }
    }
}
