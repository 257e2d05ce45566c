//! The activity of a connection: for its deadlines, and for choosing which connection to close when places run out.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

/// The activity of one connection, shared by its socket, its requests and the table of places.
pub(super) struct Activity {
    started: Instant,
    /// Requests under way. Each counts until hyper has the last byte of its answer.
    requests: AtomicUsize,
    /// Milliseconds after `started` when the last request ended.
    quiet_since: AtomicU64,
    /// Some bytes of answers are not taken by the socket yet.
    unsent: AtomicBool,
    /// Bytes received since the last one was sent. Above 0, a client is waiting for an answer.
    unanswered: AtomicUsize,
    answered: AtomicBool,
    http2: AtomicBool,
    /// The client has sent its last byte.
    finished: AtomicBool,
    /// All answers are sent; bytes that still arrive are discarded.
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

    /// Counts a request as under way until the guard is dropped.
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

    /// Records that bytes are given to the socket, which may not take them yet.
    pub(super) fn sending(&self) {
        self.unanswered.store(0, Ordering::Relaxed);
        self.answered.store(true, Ordering::Relaxed);
        self.unsent.store(true, Ordering::Relaxed);
    }

    /// Records that the socket has taken everything.
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

    /// Returns whether the client may still be sending although it has an answer to read.
    pub(super) fn may_be_sending(&self) -> bool {
        self.answered.load(Ordering::Relaxed) && !self.finished.load(Ordering::Relaxed) && !self.is_http2()
    }

    /// Returns whether a client has sent something and waits for its answer. An idle connection is closed without an
    /// answer.
    pub(super) fn is_waited_for(&self) -> bool {
        self.unanswered.load(Ordering::Relaxed) > 0
    }

    /// How long no request was under way. `None`: something is under way.
    pub(super) fn idle_for(&self) -> Option<Duration> {
        if self.is_busy() || self.unsent.load(Ordering::Relaxed) {
            return None;
        }
        let quiet_since = self.started + Duration::from_millis(self.quiet_since.load(Ordering::Relaxed));
        Some(Instant::now().saturating_duration_since(quiet_since))
    }

    /// The priority for closing this connection in favour of a new one; the largest is closed first. `None`: it is in
    /// use.
    pub(super) fn dispensable(&self, patience: Duration) -> Option<(u8, Duration)> {
        if self.lingering.load(Ordering::Relaxed) {
            return Some((2, self.started.elapsed()));
        }
        let idle = self.idle_for()?;
        // A connection that never got an answer, because it sent nothing or is stuck in its first head, is closed
        // before one that may be used again, regardless of its age. A flood of such connections then displaces only
        // itself.
        match self.answered.load(Ordering::Relaxed) {
            false => Some((1, idle)),
            true => Some((0, idle)).filter(|_| idle >= patience),
        }
    }

    /// Asks the connection to end.
    pub(super) fn dismiss(&self) {
        self.leave.notify_one();
    }

    /// Completes when the connection is asked to end.
    pub(super) async fn dismissed(&self) {
        self.leave.notified().await;
    }

    /// Completes when an HTTP/2 connection had no request for this time. On HTTP/1 the deadline for heads covers
    /// this.
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
