//! How locks are taken and kept.

use std::sync::Arc;
use std::time::Duration;

use super::observer::{LockObserver, Unobserved};
use crate::Clock;

/// How locks are taken and kept.
#[derive(Clone)]
pub struct LockOptions {
    /// Who takes them, for messages and for the holder `name#nonce`. By default the host and the process.
    pub name: String,
    /// How long a lease lasts unless it is renewed; it is renewed after a third of that.
    pub ttl: Duration,
    /// How long to wait while somebody else holds the lock.
    pub wait: Duration,
    /// A lock is not given back before this, so that a short job does not run twice.
    pub min_hold: Duration,
    /// A lock is given up after this, however long the work takes.
    pub max_hold: Option<Duration>,
    /// `on_danger` is called when a lease has less than this left, because it could not be renewed. By default a third
    /// of the ttl, whatever that is.
    pub danger: Option<Duration>,
    /// Called once each time a lease comes into danger; must be quick.
    pub on_danger: Option<Arc<dyn Fn(Duration) + Send + Sync>>,
    /// Told of everything that happens to locks, for metrics.
    pub observer: Arc<dyn LockObserver>,
    /// What leases are timed by: by default the time since boot, suspension included.
    pub clock: Clock,
}

impl Default for LockOptions {
    fn default() -> LockOptions {
        LockOptions {
            name: default_name(),
            ttl: Duration::from_secs(30),
            wait: Duration::from_secs(10),
            min_hold: Duration::ZERO,
            max_hold: None,
            danger: None,
            on_danger: None,
            observer: Arc::new(Unobserved),
            clock: Clock::default(),
        }
    }
}

impl LockOptions {
    /// The usual, with leases of another length.
    pub fn with_ttl(ttl: Duration) -> LockOptions {
        LockOptions { ttl, ..LockOptions::default() }
    }
}

/// `host-4711`.
fn default_name() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host: String = host.trim().chars().filter(|c| c.is_ascii_graphic() && *c != '#').take(100).collect();
    let host = if host.is_empty() { "unknown".to_owned() } else { host };
    format!("{host}-{}", std::process::id())
}
