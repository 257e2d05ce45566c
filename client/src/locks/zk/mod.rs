//! ZooKeeper. The number of an acquisition is the `czxid` of its ephemeral, sequential znode.
//!
//! Every acquisition has its own session, whose timeout is the ttl. So a lease is lost exactly when its session is, and
//! an acquisition that is dropped leaves nothing behind but a session that is closed, or times out.

mod held;
mod queue;
mod session;
mod tunnel;
mod znodes;

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use fencepost_core::Issuer;
use fencepost_remote::tls;
use tokio::time::{sleep, timeout};
use zookeeper_client::{Client, CreateMode, Error};

use super::list::{Backend, Connecting};
use super::url::wrong;
use super::{Acquired, Capabilities, Kept, Lease, LockBackend, LockError, LockUrl, Wanted};
use crate::random::jittered;
use held::Held;
use queue::{Queue, Stood, repeated};
use session::{Ensemble, PATIENCE};
use tunnel::Tunnel;
use znodes::Znodes;

/// The pause before a waiter joins the queue again.
const AGAIN: Duration = Duration::from_millis(100);

pub(super) const BACKEND: Backend = Backend {
    scheme: "zk",
    aliases: &["zookeeper", "zks"],
    example: "zk://127.0.0.1:2181/fencepost",
    encrypted: Some("zks://a:2281,b:2281,c:2281/fencepost?ca=ca.pem&cert=worker.pem&key=worker.key"),
    number: "the czxid of the own ephemeral sequential znode, never its suffix",
    waiting: "in order of arrival, by a watch on the predecessor",
    breaks: "an ensemble that was wiped or replaced has another incarnation; one restored from a backup shows as a stale \
             claim. Both ask for fence rotate",
    connect,
};

struct ZooKeeper {
    ensemble: Ensemble,
    znodes: Znodes,
    min_ttl: Duration,
}

fn connect(url: LockUrl) -> Connecting {
    Box::pin(async move {
        let shown = url.to_string();
        let certificates = tls::by_scheme(&url, "zks")?;
        if url.hosts.is_empty() {
            return Err(wrong(&shown, "it names no host"));
        }
        let digest = match &url.user {
            Some((user, Some(password))) => Some(format!("{user}:{password}")),
            Some((_, None)) => return Err(wrong(&shown, "its user has no password")),
            None => None,
        };
        let znodes = Znodes::new(&url.path).map_err(|error| wrong(&shown, &error.to_string()))?;
        let tunnel = match certificates {
            Some(certificates) => Some(Arc::new(Tunnel::dig(&url, &certificates).await?)),
            None => None,
        };
        let hosts = tunnel.as_ref().map_or_else(|| url.hosts.join(","), |tunnel| tunnel.hosts.clone());
        let ensemble = Ensemble { hosts, tunnel, digest, shown };
        let min_ttl = ensemble.shortest().await?;
        Ok(Arc::new(ZooKeeper { ensemble, znodes, min_ttl }) as Arc<dyn LockBackend>)
    })
}

impl ZooKeeper {
    /// Joins the queue, and again at its end if the place is lost and there is time left.
    async fn queue_up(&self, wanted: &Wanted<'_>) -> Result<Acquired, LockError> {
        let until = Instant::now().checked_add(wanted.wait);
        let mut stood = false;
        loop {
            match self.stand(wanted, until, &mut stood).await {
                Err(error)
                    if stood && error.is_transient() && until.is_none_or(|until| Instant::now() + AGAIN < until) =>
                {
                    tracing::debug!(%error, "a place in a queue was lost; standing there again");
                    sleep(jittered(AGAIN)).await;
                }
                done => return done,
            }
        }
    }

    /// One session, and one place in the queue. Sets `stood` when the session is open.
    async fn stand(
        &self,
        wanted: &Wanted<'_>,
        until: Option<Instant>,
        stood: &mut bool,
    ) -> Result<Acquired, LockError> {
        let client = self.ensemble.open(wanted.ttl).await?;
        *stood = true;
        let queue = Queue {
            ensemble: &self.ensemble,
            znodes: &self.znodes,
            client: &client,
            path: self.znodes.queue(wanted.name),
            nonce: format!("{:032x}", u128::from_le_bytes(random()?)),
        };
        let head = match queue.stand(wanted.holder.as_str(), until).await {
            Ok(Stood::First(head)) => head,
            Ok(Stood::InVain) => return Ok(Acquired::Busy),
            Ok(Stood::Deleted) => {
                let why = "while waiting, our znode was deleted, with its session or by another program; ask again";
                return Err(LockError::Unreachable { service: self.ensemble.shown.clone(), why: why.to_owned() });
            }
            Err(error) => return Err(self.ensemble.error(error)),
        };
        // Read in the session that made the znode: a session cannot outlive its ensemble.
        let issuer = self.issuer(&client).await?;
        let number = u64::try_from(head.czxid).ok().and_then(NonZeroU64::new);
        let number = number.ok_or_else(|| self.failed(format!("the czxid of {} is {}", head.path, head.czxid)))?;
        let held = Held::new(self.ensemble.clone(), client.clone(), wanted.ttl, &head);
        Ok(Acquired::Held(Lease {
            name: wanted.name.clone(),
            holder: wanted.holder.clone(),
            number,
            generation: None,
            issuer,
            ttl: wanted.ttl,
            since: head.since,
            handle: head.path,
            session: Some(Box::new(held)),
        }))
    }

    /// `zk:` and the UUID that was stored when the first lock was taken.
    async fn issuer(&self, client: &Client) -> Result<Issuer, LockError> {
        let path = &self.znodes.incarnation;
        let read = || repeated(|| client.get_data(path));
        let found = match read().await {
            Err(Error::NoNode) => {
                let (fresh, persistent) = (uuid()?, self.ensemble.options(CreateMode::Persistent));
                match repeated(|| client.create(path, fresh.as_bytes(), &persistent)).await {
                    // Created by us, or concurrently by another client; the stored value counts.
                    Ok(_) | Err(Error::NodeExists) => read().await,
                    Err(error) => Err(error),
                }
            }
            found => found,
        };
        let (data, _) = found.map_err(|error| self.ensemble.error(error))?;
        let issuer = String::from_utf8(data).ok().and_then(|uuid| Issuer::new(&format!("zk:{uuid}")).ok());
        issuer.ok_or_else(|| {
            self.failed(format!("{path} should hold a UUID, and does not. Did another program write to it?"))
        })
    }

    fn failed(&self, why: String) -> LockError {
        LockError::Failed { service: self.ensemble.shown.clone(), why }
    }
}

/// The lease's session, which lives in this process only.
fn held(lease: &Lease) -> Result<&Held, LockError> {
    let held = lease.session.as_ref().and_then(|session| session.downcast_ref());
    held.ok_or_else(|| LockError::Invalid(format!("the lock `{}` lives in the session of another process", lease.name)))
}

fn random() -> Result<[u8; 16], LockError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| LockError::Invalid(format!("no random numbers: {error}")))?;
    Ok(bytes)
}

fn uuid() -> Result<String, LockError> {
    crate::random::uuid().map_err(|error| LockError::Invalid(format!("no random numbers: {error}")))
}

#[async_trait]
impl LockBackend for ZooKeeper {
    fn capabilities(&self) -> Capabilities {
        Capabilities { fair: true, watch: true, floor: false, lift: false, min_ttl: self.min_ttl, detachable: false }
    }

    async fn acquire(&self, wanted: &Wanted<'_>) -> Result<Acquired, LockError> {
        self.capabilities().check_ttl(wanted.ttl)?;
        let patience = wanted.wait.saturating_add(wanted.ttl).saturating_add(PATIENCE);
        timeout(patience, self.queue_up(wanted)).await.unwrap_or_else(|_| Err(self.ensemble.silent()))
    }

    async fn verify(&self, lease: &Lease) -> Result<Kept, LockError> {
        let check = timeout(lease.ttl, held(lease)?.check());
        check.await.unwrap_or_else(|_| Err(self.ensemble.silent()))
    }

    async fn renew(&self, lease: &Lease) -> Result<Kept, LockError> {
        let renewal = timeout(lease.ttl, held(lease)?.renew());
        renewal.await.unwrap_or_else(|_| Err(self.ensemble.silent()))
    }

    async fn release(&self, lease: Lease) -> Result<(), LockError> {
        let delete = timeout(lease.ttl, held(&lease)?.delete());
        delete.await.unwrap_or_else(|_| Err(self.ensemble.silent()))
    }
}
