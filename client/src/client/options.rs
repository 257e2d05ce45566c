//! Options for acquiring and keeping locks.

use std::sync::Arc;
use std::time::Duration;

use crate::Clock;
use crate::guard::{LockObserver, Unobserved};

/// Options for acquiring and keeping locks; for [`ClientBuilder::lock_options`](crate::ClientBuilder::lock_options).
///
/// ```
/// use std::time::Duration;
/// use fencepost_client::LockOptions;
///
/// let options = LockOptions::new().ttl(Duration::from_secs(10)).wait(Duration::ZERO);
/// ```
#[derive(Clone)]
#[must_use = "options do nothing until they are given to a client"]
pub struct LockOptions {
    pub(crate) name: String,
    pub(crate) ttl: Duration,
    pub(crate) wait: Duration,
    pub(crate) min_hold: Duration,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) danger: Option<Duration>,
    pub(crate) on_danger: Option<Arc<dyn Fn(Duration) + Send + Sync>>,
    pub(crate) observer: Arc<dyn LockObserver>,
    pub(crate) clock: Clock,
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
    /// The defaults: a ttl of 30 s, and a wait of 10 s.
    pub fn new() -> LockOptions {
        LockOptions::default()
    }

    /// The first part of the holder `name#nonce`, which messages show. The default is the host name and the process id.
    pub fn name(self, name: impl Into<String>) -> LockOptions {
        LockOptions { name: name.into(), ..self }
    }

    /// How long a lease lasts unless it is renewed; it is renewed after a third of that.
    pub fn ttl(self, ttl: Duration) -> LockOptions {
        LockOptions { ttl, ..self }
    }

    /// How long to wait while another holder has the lock.
    pub fn wait(self, wait: Duration) -> LockOptions {
        LockOptions { wait, ..self }
    }

    /// The minimum time before a lock is released, so that a short job does not run twice.
    pub fn min_hold(self, min_hold: Duration) -> LockOptions {
        LockOptions { min_hold, ..self }
    }

    /// The maximum time that a lock is held, however long the work takes.
    pub fn max_hold(self, max_hold: Duration) -> LockOptions {
        LockOptions { max_hold: Some(max_hold), ..self }
    }

    /// [`on_danger`](LockOptions::on_danger) is called when a lease could not be renewed and has less than this left.
    /// By default a third of the ttl.
    pub fn danger(self, danger: Duration) -> LockOptions {
        LockOptions { danger: Some(danger), ..self }
    }

    /// Called with the time left, once each time a lease comes into danger; must return quickly.
    pub fn on_danger(self, warn: impl Fn(Duration) + Send + Sync + 'static) -> LockOptions {
        LockOptions { on_danger: Some(Arc::new(warn)), ..self }
    }

    /// Notified of every lock event, for metrics.
    pub fn observer(self, observer: Arc<dyn LockObserver>) -> LockOptions {
        LockOptions { observer, ..self }
    }

    /// The clock of leases. The default is the time since boot, including suspension.
    pub fn clock(self, clock: Clock) -> LockOptions {
        LockOptions { clock, ..self }
    }
}

/// `host-4711`.
fn default_name() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host: String = host.trim().chars().filter(|c| c.is_ascii_graphic() && *c != '#').take(100).collect();
    let host = if host.is_empty() { "unknown".to_owned() } else { host };
    format!("{host}-{}", std::process::id())
}
