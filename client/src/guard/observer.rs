//! Lock events, for metrics.

use std::time::Duration;

use fencepost_core::{Resource, Token};

use super::Loss;

/// An event of a lock.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum LockEvent<'a> {
    /// The lock was acquired and its token claimed.
    Acquired {
        /// The time from the request to the claim.
        wait: Duration,
        /// The token that was claimed.
        token: Token,
    },
    /// A renewal failed, and will be retried.
    RenewFailed(&'a str),
    /// The lease was lost.
    Lost {
        /// The reason of the loss.
        why: Loss,
        /// The time since the claim.
        held: Duration,
    },
    /// The lock was released, or releasing it failed.
    Released {
        /// The time since the claim.
        held: Duration,
    },
    /// The gateway refused a call.
    Refused(&'a str),
}

/// Receives lock events. Implementations must return quickly.
pub trait LockObserver: Send + Sync + 'static {
    /// Called synchronously, on the task that keeps the lease or makes the call.
    fn event(&self, lock: &Resource, event: LockEvent<'_>);
}

/// Ignores every event; the default.
pub struct Unobserved;

impl LockObserver for Unobserved {
    fn event(&self, _: &Resource, _: LockEvent<'_>) {}
}

/// Notifies the observer, and logs the event.
pub(crate) fn notify(observer: &dyn LockObserver, lock: &Resource, event: LockEvent<'_>) {
    match event {
        LockEvent::Acquired { wait, token } => {
            tracing::debug!(%lock, %token, wait_ms = wait.as_millis(), "lock acquired");
        }
        LockEvent::RenewFailed(why) => tracing::warn!(%lock, why, "a lease could not be renewed; trying again"),
        LockEvent::Lost { why, held } => tracing::warn!(%lock, %why, held_ms = held.as_millis(), "lease lost"),
        LockEvent::Released { held } => tracing::debug!(%lock, held_ms = held.as_millis(), "lock released"),
        LockEvent::Refused(why) => tracing::warn!(%lock, why, "refused by the fence"),
    }
    observer.event(lock, event);
}
