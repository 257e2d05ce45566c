//! Locks whose tokens are claimed, kept alive, and attached to every write.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use fencepost_client::Locks;
//! let locks = Locks::connect("http://127.0.0.1:3362", "fencepost://127.0.0.1:3362").await?;
//! let guard = locks.acquire("orders/123").await?;
//! guard.put("orders/123", "paid").await?;
//! guard.release().await?;
//! # Ok(()) }
//! ```

mod acquire;
mod attempts;
mod calls;
mod detached;
mod observer;
mod options;
mod renewal;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fencepost_core::{Holder, Issuer, NameError, Presented, Resource, Token};
use tokio::sync::{oneshot, watch};

use crate::Gateway;
use crate::locks::{LockBackend, LockError};
use crate::random::jittered;

pub use acquire::AcquireError;
pub use calls::GuardError;
pub use detached::Detached;
pub use observer::{LockEvent, LockObserver, Unobserved};
pub use options::LockOptions;

use observer::tell;
use renewal::{Keeper, Standing};

/// How long a call to the gateway may take.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// The pause between two times of standing for the lead.
const STAND_AGAIN: Duration = Duration::from_millis(50);

/// Takes locks of one service, and claims their tokens at one gateway. Clones share connections.
#[derive(Clone)]
pub struct Locks {
    gateway: Gateway,
    backend: Arc<dyn LockBackend>,
    options: Arc<LockOptions>,
}

/// Why a lease is not ours any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// The lock service said so, or the gateway refused our token.
    TakenOver,
    /// It could not be renewed in time.
    Expired,
    /// It was held for as long as it may be.
    MaxHold,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Loss::TakenOver => "the lock was taken over",
            Loss::Expired => "the lease could not be renewed in time",
            Loss::MaxHold => "the lock was held for as long as it may be",
        })
    }
}

/// Why nothing came of a call under a lock.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The gateway's URL is wrong.
    #[error(transparent)]
    Gateway(#[from] crate::BadUrl),
    /// The lock service cannot be used.
    #[error(transparent)]
    Service(#[from] LockError),
}

impl Locks {
    /// Locks of the service at one URL, for the gateway at the other.
    pub async fn connect(gateway: &str, service: &str) -> Result<Locks, ConnectError> {
        let gateway = Gateway::new(gateway, CALL_TIMEOUT)?;
        Ok(Locks::new(gateway, crate::locks::connect(service).await?, LockOptions::default()))
    }

    /// Locks of a service, for a gateway.
    pub fn new(gateway: Gateway, backend: Arc<dyn LockBackend>, options: LockOptions) -> Locks {
        Locks { gateway, backend, options: Arc::new(options) }
    }

    /// The same with other options.
    pub fn with_options(&self, options: LockOptions) -> Locks {
        Locks { options: Arc::new(options), ..self.clone() }
    }

    /// The gateway that tokens are claimed at.
    pub fn gateway(&self) -> &Gateway {
        &self.gateway
    }

    /// Takes the lock of a resource and claims its token. The lock is kept alive until the guard is released or dropped.
    ///
    /// Locks are not re-entrant: a second acquisition waits for the first (T13).
    pub async fn acquire(&self, resource: &str) -> Result<Guard, AcquireError> {
        let resource = Resource::new(resource).map_err(invalid)?;
        let asked = Instant::now();
        let claimed = self.claimed(&resource).await?;
        let token = claimed.presented.token;
        tell(self.options.observer.as_ref(), &resource, LockEvent::Acquired { wait: asked.elapsed(), token });
        let (standing, watched) = watch::channel(Standing { valid_until: claimed.valid_until, lost: None });
        let standing = Arc::new(standing);
        let (orders, ordered) = oneshot::channel();
        let presented = claimed.presented;
        let keeper = Keeper {
            backend: self.backend.clone(),
            options: self.options.clone(),
            claimed: self.options.clock.now(),
            standing: standing.clone(),
        };
        tokio::spawn(keeper.keep(claimed.lease, ordered));
        let orders = Some(orders);
        Ok(Guard { locks: self.clone(), resource, presented, standing, watched, orders })
    }

    /// Takes several locks, in the order of their names, so that two who want the same ones never wait for each other.
    pub async fn acquire_all(&self, resources: &[&str]) -> Result<Vec<Guard>, AcquireError> {
        let mut sorted: Vec<&str> = resources.to_vec();
        sorted.sort_unstable();
        sorted.dedup();
        let mut guards = Vec::with_capacity(sorted.len());
        for resource in sorted {
            // The guards taken so far are dropped, and so released, if one cannot be had.
            guards.push(self.acquire(resource).await?);
        }
        Ok(guards)
    }

    /// Does something under a lock. If the lease is lost, the work is cancelled at its next await.
    pub async fn with_lock<T, F>(&self, resource: &str, work: impl FnOnce(Arc<Guard>) -> F) -> Result<T, WithLockError>
    where
        F: Future<Output = T>,
    {
        let guard = Arc::new(self.acquire(resource).await?);
        let done = tokio::select! {
            biased;
            done = work(guard.clone()) => Ok(done),
            loss = guard.lost() => Err(WithLockError::Lost(loss)),
        };
        give_back(guard).await;
        done
    }

    /// Leads whenever it is its turn: waits for the lock, does the work while it holds it, and stands again. Ends when
    /// the work ends by itself, or when the lock cannot be asked for.
    pub async fn lead<T, F>(&self, resource: &str, mut work: impl FnMut(Arc<Guard>) -> F) -> Result<T, AcquireError>
    where
        F: Future<Output = T>,
    {
        loop {
            let guard = match self.acquire(resource).await {
                Ok(guard) => Arc::new(guard),
                Err(AcquireError::Busy(_) | AcquireError::Lost(_)) => {
                    // With a short wait it would ask without a pause otherwise.
                    tokio::time::sleep(jittered(STAND_AGAIN)).await;
                    continue;
                }
                // Whoever is cut off from the service, or from the gateway, may lead again when it is back.
                Err(error) if error.is_transient() => {
                    tokio::time::sleep(jittered(Duration::from_secs(1))).await;
                    continue;
                }
                Err(error) => return Err(error),
            };
            let done = tokio::select! {
                biased;
                done = work(guard.clone()) => done,
                _ = guard.lost() => continue,
            };
            give_back(guard).await;
            return Ok(done);
        }
    }
}

/// Releases it, unless the work has kept a share: then it is released when the last one is dropped.
async fn give_back(guard: Arc<Guard>) {
    let Ok(guard) = Arc::try_unwrap(guard) else { return };
    let resource = guard.resource.clone();
    if let Err(error) = guard.release().await {
        tracing::debug!(lock = %resource, %error, "a lock could not be given back; it ends with its ttl");
    }
}

/// Why work under a lock did not come to its end.
#[derive(Debug, thiserror::Error)]
pub enum WithLockError {
    /// There was no lock.
    #[error(transparent)]
    Acquire(#[from] AcquireError),
    /// It was lost in the middle; the work was cancelled.
    #[error("{0}; the work under it was cancelled")]
    Lost(Loss),
}

/// A lock that is held, with its token. Dropping it releases the lock in the background.
pub struct Guard {
    locks: Locks,
    resource: Resource,
    presented: Presented,
    standing: Arc<watch::Sender<Standing>>,
    watched: watch::Receiver<Standing>,
    orders: Option<oneshot::Sender<oneshot::Sender<Result<(), LockError>>>>,
}

impl Guard {
    /// What the lock protects.
    pub fn resource(&self) -> &Resource {
        &self.resource
    }

    /// The token: captured when the lock was acquired, the same ever since.
    pub fn token(&self) -> Token {
        self.presented.token
    }

    /// Who holds it: `name#nonce`.
    pub fn holder(&self) -> Option<&Holder> {
        self.presented.holder.as_ref()
    }

    /// The service that numbered the token.
    pub fn issuer(&self) -> Option<&Issuer> {
        self.presented.issuer.as_ref()
    }

    /// What goes with every call.
    pub fn credentials(&self) -> &Presented {
        &self.presented
    }

    /// For how long the lock is surely ours. Zero does not mean that it is lost: only the fence knows.
    pub fn validity(&self) -> Duration {
        let standing = *self.watched.borrow();
        match standing.lost {
            Some(_) => Duration::ZERO,
            None => standing.valid_until.since(self.locks.options.clock.now()),
        }
    }

    /// Why the lease is lost, if it is.
    pub fn loss(&self) -> Option<Loss> {
        self.watched.borrow().lost
    }

    /// Resolves when the lease is lost.
    pub async fn lost(&self) -> Loss {
        let mut watched = self.watched.clone();
        let standing = watched.wait_for(|standing| standing.lost.is_some()).await;
        standing.ok().and_then(|standing| standing.lost).unwrap_or(Loss::Expired)
    }

    /// Gives the lock back, and waits until that is done. An error here is no error of the work: the lease ends with its
    /// ttl.
    pub async fn release(mut self) -> Result<(), LockError> {
        let (reply, answer) = oneshot::channel();
        match self.orders.take().map(|orders| orders.send(reply)) {
            // A lease that was lost has nothing to give back.
            Some(Ok(())) => answer.await.unwrap_or(Ok(())),
            Some(Err(_)) | None => Ok(()),
        }
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard").field("resource", &self.resource).field("presented", &self.presented).finish()
    }
}

fn invalid(error: NameError) -> LockError {
    LockError::Invalid(error.to_string())
}
