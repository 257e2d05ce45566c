//! What a connection is doing: for its deadlines, and for the choice of the one that is closed when places run out.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

/// What one connection is doing, shared by its socket, its requests and the table of places.
pub(super) struct Activity {
    started: Instant,
    /// Requests under way, each until hyper has the last byte of its answer.
    requests: AtomicUsize,
    /// Milliseconds after `started` when the last request ended.
    quiet_since: AtomicU64,
    /// Bytes of answers wait for the client to read.
    unsent: AtomicBool,
    /// Bytes received since the last one was sent: above 0, a client waits for an answer.
    unanswered: AtomicUsize,
    answered: AtomicBool,
    http2: AtomicBool,
    /// The client has sent its last byte.
    finished: AtomicBool,
    /// The answers are out; what still arrives is discarded.
    lingering: AtomicBool,
    leave: Notify,
}

impl Activity {
    pub(super) fn new() -> Arc<Activity> {
        Arc::new(Activity {
            started: Instant::now(),
            requests: AtomicUsize::new(0),
            quiet_since: AtomicU64::new(0),
            unsent: AtomicBool::new(false),
            unanswered: AtomicUsize::new(0),
            answered: AtomicBool::new(false),
            http2: AtomicBool::new(false),
            finished: AtomicBool::new(false),
            lingering: AtomicBool::new(false),
            leave: Notify::new(),
        })
    }

    /// A request begins. It is over when the guard is dropped.
    pub(super) fn begin(self: &Arc<Self>) -> InUse {
        self.requests.fetch_add(1, Ordering::Relaxed);
        InUse(self.clone())
    }

    pub(super) fn is_busy(&self) -> bool {
        self.requests.load(Ordering::Relaxed) > 0
    }

    pub(super) fn received(&self, bytes: usize) {
        match bytes {
            0 => self.finished.store(true, Ordering::Relaxed),
            bytes => drop(self.unanswered.fetch_add(bytes, Ordering::Relaxed)),
        }
    }

    /// Bytes are given to the socket, which may not take them yet.
    pub(super) fn sending(&self) {
        self.unanswered.store(0, Ordering::Relaxed);
        self.answered.store(true, Ordering::Relaxed);
        self.unsent.store(true, Ordering::Relaxed);
    }

    /// The socket has taken everything.
    pub(super) fn sent(&self) {
        self.unsent.store(false, Ordering::Relaxed);
    }

    pub(super) fn is_http2(&self) -> bool {
        self.http2.load(Ordering::Relaxed)
    }

    pub(super) fn speaks_http2(&self) {
        self.http2.store(true, Ordering::Relaxed);
    }

    pub(super) fn lingers(&self) {
        self.lingering.store(true, Ordering::Relaxed);
    }

    /// May the client still be sending, and was there an answer that it should be able to read?
    pub(super) fn may_be_sending(&self) -> bool {
        self.answered.load(Ordering::Relaxed) && !self.finished.load(Ordering::Relaxed) && !self.is_http2()
    }

    /// Is a client in the middle of a request, waiting for its answer? An idle one is closed without a word.
    pub(super) fn is_waited_for(&self) -> bool {
        self.unanswered.load(Ordering::Relaxed) > 0
    }

    /// For how long nothing was asked. `None`: something is under way.
    pub(super) fn idle_for(&self) -> Option<Duration> {
        if self.is_busy() || self.unsent.load(Ordering::Relaxed) {
            return None;
        }
        let quiet_since = self.started + Duration::from_millis(self.quiet_since.load(Ordering::Relaxed));
        Some(Instant::now().saturating_duration_since(quiet_since))
    }

    /// How readily this connection is closed for another one, most readily the largest. `None`: it is in use.
    pub(super) fn dispensable(&self, patience: Duration) -> Option<(u8, Duration)> {
        if self.lingering.load(Ordering::Relaxed) {
            return Some((2, self.started.elapsed()));
        }
        let idle = self.idle_for()?;
        // One that never asked anything, or is stuck in its first head, goes before one that may be used again, and
        // however young it is: a flood of such connections then displaces itself.
        match self.answered.load(Ordering::Relaxed) {
            false => Some((1, idle)),
            true => Some((0, idle)).filter(|_| idle >= patience),
        }
    }

    /// Asks the connection to end.
    pub(super) fn dismiss(&self) {
        self.leave.notify_one();
    }

    /// Ready when it is asked to end.
    pub(super) async fn dismissed(&self) {
        self.leave.notified().await;
    }

    /// Ready when an HTTP/2 connection had no request for this time. Silence on HTTP/1 is the head's deadline.
    pub(super) async fn idle(&self, limit: Duration) {
        loop {
            let idle = self.idle_for().unwrap_or_default();
            if idle >= limit && self.is_http2() {
                return;
            }
            tokio::time::sleep(limit.saturating_sub(idle).max(Duration::from_millis(10))).await;
        }
    }
}

/// A request under way.
pub(super) struct InUse(Arc<Activity>);

impl Drop for InUse {
    fn drop(&mut self) {
        let now = u64::try_from(self.0.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.0.quiet_since.store(now, Ordering::Relaxed);
        self.0.requests.fetch_sub(1, Ordering::Relaxed);
    }
}
