//! Takes locks of one service, and claims their tokens at one gateway.

mod acquisition;
mod builder;
mod detached;
mod options;

use std::sync::Arc;
use std::time::{Duration, Instant};

use fencepost_core::{NameError, Resource};

use crate::error::{Cause, Error, ErrorKind};
use crate::guard::{Guard, LockEvent, notify};
use crate::locks::LockBackend;
use crate::random::jittered;
use crate::{Gateway, locks::LockError};

pub use builder::ClientBuilder;
pub use detached::Detached;
pub use options::LockOptions;

pub(crate) use acquisition::{Claimed, validity};

/// The pause between two attempts to lead.
const LEAD_AGAIN: Duration = Duration::from_millis(50);

/// Takes locks of one service, and claims their tokens at one gateway. Clones share connections.
///
/// ```no_run
/// # async fn example() -> Result<(), fencepost_client::Error> {
/// use fencepost_client::Client;
///
/// let client = Client::builder()
///     .gateway_url("http://127.0.0.1:3362")
///     .lock_service_url("redis://127.0.0.1:6379")
///     .connect()
///     .await?;
/// let guard = client.acquire("orders/123").await?;
/// guard.put("orders/123", "paid").await?;
/// guard.release().await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Client {
    pub(crate) gateway: Gateway,
    pub(crate) backend: Arc<dyn LockBackend>,
    pub(crate) options: Arc<LockOptions>,
}

impl Client {
    /// Starts building a client from its gateway and its lock service.
    pub fn builder() -> ClientBuilder {
        ClientBuilder::default()
    }

    /// A client of an existing gateway and lock service, with the default options.
    pub fn new(gateway: Gateway, lock_service: Arc<dyn LockBackend>) -> Client {
        Client { gateway, backend: lock_service, options: Arc::default() }
    }

    /// The same gateway and lock service, with other options for locks.
    #[must_use]
    pub fn with_lock_options(&self, options: LockOptions) -> Client {
        Client { options: Arc::new(options), ..self.clone() }
    }

    /// The gateway at which tokens are claimed, for calls without a lock.
    pub fn gateway(&self) -> &Gateway {
        &self.gateway
    }

    /// Takes the lock of a resource and claims its token. The lock is kept alive until the guard is released or dropped.
    ///
    /// Locks are not re-entrant: a second acquisition waits for the first (T13).
    pub async fn acquire(&self, resource: &str) -> Result<Guard, Error> {
        let resource = Resource::new(resource).map_err(invalid)?;
        let asked = Instant::now();
        let claimed = self.claimed(&resource).await?;
        let token = claimed.presented.token;
        notify(self.options.observer.as_ref(), &resource, LockEvent::Acquired { wait: asked.elapsed(), token });
        Ok(Guard::keeping(self.clone(), resource, claimed))
    }

    /// Takes several locks, in the order of their names, so that two clients that want the same locks cannot deadlock.
    pub async fn acquire_all(&self, resources: &[&str]) -> Result<Vec<Guard>, Error> {
        let mut sorted: Vec<&str> = resources.to_vec();
        sorted.sort_unstable();
        sorted.dedup();
        let mut guards = Vec::with_capacity(sorted.len());
        for resource in sorted {
            // If one acquisition fails, the guards taken so far are dropped, which releases them.
            guards.push(self.acquire(resource).await?);
        }
        Ok(guards)
    }

    /// Runs work under a lock. If the lease is lost, the work is cancelled at its next await, and the error is
    /// [`Lost`](ErrorKind::Lost).
    pub async fn with_lock<T, F>(&self, resource: &str, work: impl FnOnce(Arc<Guard>) -> F) -> Result<T, Error>
    where
        F: Future<Output = T>,
    {
        let guard = Arc::new(self.acquire(resource).await?);
        let done = tokio::select! {
            biased;
            done = work(guard.clone()) => Ok(done),
            loss = guard.lost() => Err(Cause::Cancelled(loss).into()),
        };
        give_back(guard).await;
        done
    }

    /// Leader election: waits for the lock, runs the work while holding it, and waits again if the lease is lost.
    /// Returns when the work ends by itself, or with an error that a retry cannot fix.
    pub async fn lead<T, F>(&self, resource: &str, mut work: impl FnMut(Arc<Guard>) -> F) -> Result<T, Error>
    where
        F: Future<Output = T>,
    {
        loop {
            let guard = match self.acquire(resource).await {
                Ok(guard) => Arc::new(guard),
                Err(error) if error.kind() == ErrorKind::Busy => {
                    // With a short `wait` this loop would otherwise poll without a pause.
                    tokio::time::sleep(jittered(LEAD_AGAIN)).await;
                    continue;
                }
                // A client cut off from the lock service or the gateway may lead again once it is reachable.
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

/// Releases the lock, unless the work kept an `Arc` of the guard: then the lock is released when the last clone is
/// dropped.
async fn give_back(guard: Arc<Guard>) {
    let Ok(guard) = Arc::try_unwrap(guard) else { return };
    let resource = guard.resource().clone();
    if let Err(error) = guard.release().await {
        tracing::debug!(lock = %resource, %error, "a lock could not be given back; it ends with its ttl");
    }
}

fn invalid(error: NameError) -> LockError {
    LockError::Invalid(error.to_string())
}
