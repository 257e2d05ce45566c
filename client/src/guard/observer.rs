//! What happens to locks, for metrics.

use std::time::Duration;

use fencepost_core::{Resource, Token};

use super::Loss;

/// Something happened to a lock.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum LockEvent<'a> {
    /// It was acquired and claimed.
    Acquired {
        /// From asking to the claim.
        wait: Duration,
        /// The token that was claimed.
        token: Token,
    },
    /// A renewal failed, and will be tried again.
    RenewFailed(&'a str),
    /// The lease was lost.
    Lost {
        /// What ended it.
        why: Loss,
        /// From the claim until now.
        held: Duration,
    },
    /// It was released, or releasing it failed.
    Released {
        /// From the claim until now.
        held: Duration,
    },
    /// The gateway refused a call.
    Refused(&'a str),
}

/// Notified of everything that happens to locks. Must be quick.
pub trait LockObserver: Send + Sync + 'static {
    /// Called at once, on the task that keeps the lease or makes the call.
    fn event(&self, lock: &Resource, event: LockEvent<'_>);
}

/// Ignores every event; the default.
pub struct Unobserved;

impl LockObserver for Unobserved {
    fn event(&self, _: &Resource, _: LockEvent<'_>) {}
}

/// Notifies the observer, and writes to the log.
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
