//! A held lock: every call carries its token, and its lease is kept alive.

mod attempts;
mod calls;
mod observer;
mod renewal;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use fencepost_core::{Holder, Issuer, Presented, Resource, Token};
use tokio::sync::{oneshot, watch};

use crate::client::{Claimed, Client};
use crate::error::Error;
use crate::locks::LockError;

pub use observer::{LockEvent, LockObserver, Unobserved};

pub(crate) use observer::notify;
use renewal::{Keeper, Standing};

/// Why a lease is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Loss {
    /// The lock service reported the loss, or the gateway refused the token.
    TakenOver,
    /// The lease could not be renewed in time.
    Expired,
    /// The lock was held for [`max_hold`](crate::LockOptions::max_hold).
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

/// A held lock, with its token. Every call carries the token, and the lease is kept alive.
///
/// Dropping a guard releases the lock in the background; [`release`](Guard::release) waits until that is done.
#[must_use = "a guard that is dropped releases its lock"]
pub struct Guard {
    client: Client,
    resource: Resource,
    presented: Presented,
    standing: Arc<watch::Sender<Standing>>,
    watched: watch::Receiver<Standing>,
    orders: Option<oneshot::Sender<oneshot::Sender<Result<(), LockError>>>>,
}

impl Guard {
    /// A guard of a claimed lease, with a task that renews it.
    pub(crate) fn keeping(client: Client, resource: Resource, claimed: Claimed) -> Guard {
        let (standing, watched) = watch::channel(Standing { valid_until: claimed.valid_until, lost: None });
        let standing = Arc::new(standing);
        let (orders, ordered) = oneshot::channel();
        let keeper = Keeper {
            backend: client.backend.clone(),
            options: client.options.clone(),
            claimed: client.options.clock.now(),
            standing: standing.clone(),
        };
        tokio::spawn(keeper.keep(claimed.lease, ordered));
        Guard { client, resource, presented: claimed.presented, standing, watched, orders: Some(orders) }
    }

    /// The resource that the lock protects.
    pub fn resource(&self) -> &Resource {
        &self.resource
    }

    /// The token, captured when the lock was acquired. It never changes.
    pub fn token(&self) -> Token {
        self.presented.token
    }

    /// The holder, `name#nonce`, which is unique to this acquisition.
    pub fn holder(&self) -> Option<&Holder> {
        self.presented.holder.as_ref()
    }

    /// The service that numbered the token.
    pub fn issuer(&self) -> Option<&Issuer> {
        self.presented.issuer.as_ref()
    }

    /// Token, holder and issuer, as sent with every call.
    pub fn credentials(&self) -> &Presented {
        &self.presented
    }

    /// How long the lock is surely held. Zero does not mean that it is lost: only the fence can decide that.
    pub fn validity(&self) -> Duration {
        let standing = *self.watched.borrow();
        match standing.lost {
            Some(_) => Duration::ZERO,
            None => standing.valid_until.since(self.client.options.clock.now()),
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

    /// Releases the lock, and waits until that is done. An error does not affect the work: the lease ends with its ttl.
    pub async fn release(mut self) -> Result<(), Error> {
        let (reply, answer) = oneshot::channel();
        match self.orders.take().map(|orders| orders.send(reply)) {
            // A lost lease has nothing to release.
            Some(Ok(())) => Ok(answer.await.unwrap_or(Ok(()))?),
            Some(Err(_)) | None => Ok(()),
        }
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard").field("resource", &self.resource).field("presented", &self.presented).finish()
    }
}
