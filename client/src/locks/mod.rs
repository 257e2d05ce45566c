//! Lock services, and the numbers they hand out.
//!
//! A backend is one file here and one line in [`BACKENDS`]; help text, the table in the docs and the shared test suite
//! follow from that list.

#[cfg(any(feature = "etcd", feature = "postgres", feature = "redis"))]
mod cleanup;
#[cfg(feature = "etcd")]
mod etcd;
#[cfg(feature = "exec")]
mod exec;
mod fencepost;
mod lease;
mod list;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "token")]
mod token;
mod url;
#[cfg(feature = "zk")]
mod zk;

use std::time::Duration;

use async_trait::async_trait;
use fencepost_core::{Holder, Resource};

pub use lease::Lease;
pub use list::{BACKENDS, Backend, connect};
pub use url::{LockUrl, Unusable};

/// A lock service.
///
/// The promises of every backend, by number; the shared test suite checks each of them:
///
/// 1. **Exclusive.** While a lease is kept alive, no other is granted for the same name.
/// 2. **Increasing.** The number of a lease is above every number given before for that name by the same incarnation of
///    the service, and above the floor where [`Capabilities::floor`] says so. It is never 0.
/// 3. **Captured.** The number is learned in the acquisition itself and never queried again (T12). Only
///    [`lift`](LockBackend::lift) changes it.
/// 4. **Nothing left behind.** After `Busy`, an error, or if the future is dropped, whatever was begun is undone, or
///    ends by itself within the ttl.
/// 5. **A lost reply is no loss.** The holder, which is unique per acquisition, finds a grant whose answer was lost.
/// 6. **Lost is final, an error is not.** `Lost` is returned only when the service reported it. Everything else that
///    goes wrong is an error, after which nothing is known.
/// 7. **Lifting is atomic.** The service's counter is raised above the floor only if this very lease still holds the
///    lock, in one step (T31).
/// 8. **Releasing is harmless.** It compares and deletes; a lease that is not current any more changes nothing, and is
///    no error.
/// 9. **A ttl is kept.** One that the service would round up, or not grant, is an error.
/// 10. **No herd.** Waiting is by watch or push; where [`Capabilities::fair`] says so, in order of arrival.
/// 11. **Given up, asked again.** The future of any call may be dropped. A dropped renewal changes at most the end of
///     the lease. The next call does not wait for one that hangs: where a lease outlives its connection, it uses
///     another connection.
#[async_trait]
pub trait LockBackend: Send + Sync + 'static {
    /// The capabilities of this service.
    fn capabilities(&self) -> Capabilities;

    /// Takes the lock, waiting up to the requested time.
    async fn acquire(&self, wanted: &Wanted<'_>) -> Result<Acquired, LockError>;

    /// Checks whether this lease still holds the lock.
    async fn verify(&self, lease: &Lease) -> Result<Kept, LockError>;

    /// Renews the lease for its ttl from now.
    async fn renew(&self, lease: &Lease) -> Result<Kept, LockError>;

    /// Raises the service's counter above the floor, and this lease's number with it.
    /// Only where [`Capabilities::lift`] says so.
    async fn lift(&self, _lease: &mut Lease, _floor: u64) -> Result<Lifted, LockError> {
        Ok(Lifted::Unsupported)
    }

    /// Releases the lock.
    async fn release(&self, lease: Lease) -> Result<(), LockError>;
}

/// The parameters of an acquisition.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// The lock; the same name as the resource it protects.
    pub name: &'a Resource,
    /// The future holder: `name#nonce`, unique per acquisition.
    pub holder: &'a Holder,
    /// How long the lease lasts unless it is renewed.
    pub ttl: Duration,
    /// How long to wait while another holder has the lock.
    pub wait: Duration,
    /// The number must be above this one: the resource's fence, or 0.
    pub floor: u64,
    /// The generation of the resource, read before the acquisition began.
    pub generation: u32,
}

/// How an acquisition ended.
#[derive(Debug)]
#[must_use]
pub enum Acquired {
    /// The lock is held by this acquisition.
    Held(Lease),
    /// Another holder has the lock, or came first.
    Busy,
}

/// Whether a lease is still held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Kept {
    /// The lease holds the lock.
    Kept,
    /// The service reports that the lease does not hold the lock.
    Lost,
}

/// The result of lifting a lease's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Lifted {
    /// The number is above the floor now.
    Lifted,
    /// The lock is no longer held by this lease; nothing was changed.
    Lost,
    /// The service's numbers cannot be raised.
    Unsupported,
}

/// What a lock service can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Waiters get the lock in order of arrival.
    pub fair: bool,
    /// Waiters are notified; they do not poll.
    pub watch: bool,
    /// An acquisition can ask for a number above a floor.
    pub floor: bool,
    /// The counter can be raised under a held lock.
    pub lift: bool,
    /// The shortest ttl that is granted without rounding.
    pub min_ttl: Duration,
    /// A lease outlives the process that took it, and another process can renew or release it by its handle.
    pub detachable: bool,
}

/// A failed call to a lock service; the state of the lock is unknown. Backends return it; callers of a
/// [`Client`](crate::Client) get it wrapped in an [`Error`](crate::Error).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LockError {
    /// The service cannot be reached, or did not answer. The call may be tried again.
    #[error("{service} cannot be reached: {why}")]
    Unreachable {
        /// The URL or kind of the service.
        service: String,
        /// The error text of the system.
        why: String,
    },
    /// The service answered with an error, or with an answer that makes no sense. Trying again does not help.
    #[error("{service}: {why}")]
    Failed {
        /// The URL or kind of the service.
        service: String,
        /// The error text of the service.
        why: String,
    },
    /// The service checks the fence itself, and the fence refused.
    #[error("{service}: {why}")]
    Refused {
        /// The URL or kind of the service.
        service: String,
        /// The error text of the service.
        why: String,
    },
    /// The request or the URL is wrong.
    #[error("{0}")]
    Invalid(String),
}

impl LockError {
    /// True if the call may be tried again.
    pub fn is_transient(&self) -> bool {
        matches!(self, LockError::Unreachable { .. })
    }
}

impl Capabilities {
    /// Rejects a ttl that would not be kept as requested (9).
    pub fn check_ttl(&self, ttl: Duration) -> Result<(), LockError> {
        if ttl >= self.min_ttl {
            return Ok(());
        }
        let (asked, least) = (ttl.as_secs_f64(), self.min_ttl.as_secs_f64());
        Err(LockError::Invalid(format!(
            "a ttl of {asked} s is too short for this lock service, which keeps {least} s or more"
        )))
    }
}
