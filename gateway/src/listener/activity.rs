//! The activity of a connection: for its deadlines, and for choosing which connection to close when places run out.
//!
//! A connection has no timers of its own while all goes well. One task per listener checks the deadlines of all
//! connections and wakes those that are late, so that a request sets no timer and a woken connection polls none.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::task::AtomicWaker;
use tokio::time::Instant;

use super::untaken::Untaken;

/// The deadlines of connections without a request under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadlines {
    /// For the next head to arrive over HTTP/1.
    pub(super) head: Duration,
    /// For the next request to begin over HTTP/2.
    pub(super) idle: Duration,
    /// For a small answer to be taken over HTTP/2.
    pub(super) answer: Duration,
}

impl Deadlines {
    /// The shortest of them.
    pub(super) fn soonest(self) -> Duration {
        self.head.min(self.idle).min(self.answer)
    }
}

/// Why a connection is asked to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// Its client does not take a small answer.
    Stuck,
    /// The gateway stops.
    Drain,
    /// A new connection needs its place.
    Leave,
    /// It had no request for too long.
    Idle,
}

impl Asked {
    const ALL: [Asked; 4] = [Asked::Stuck, Asked::Drain, Asked::Leave, Asked::Idle];

    fn bit(self) -> u8 {
        match self {
            Asked::Drain => 1,
            Asked::Leave => 2,
            Asked::Idle => 4,
            Asked::Stuck => 8,
        }
    }
}

/// The activity of one connection, shared by its socket, its requests and the table of places.
pub(super) struct Activity {
    started: Instant,
    /// Requests under way. Each counts until hyper has the last byte of its answer.
    requests: AtomicUsize,
    /// Milliseconds after `started` when the last request ended, or when the client took the rest of its answer.
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
    /// The time for the next head is over, unless a request has begun since.
    late: AtomicBool,
    /// The small answers over HTTP/2 that are not written yet.
    untaken: Arc<Untaken>,
    /// What the connection is asked, as bits.
    asked: AtomicU8,
    task: AtomicWaker,
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
            late: AtomicBool::new(false),
            untaken: Arc::default(),
            asked: AtomicU8::new(0),
            task: AtomicWaker::new(),
        })
    }

    /// Counts a request as under way until the guard is dropped.
    pub(super) fn begin(self: &Arc<Self>) -> InUse {
        self.requests.fetch_add(1, Ordering::Relaxed);
        InUse(self.clone())
    }

    /// The small answers over HTTP/2 that are not written yet.
    pub(super) fn untaken(&self) -> &Arc<Untaken> {
        &self.untaken
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

    /// Counts the time without a request from now on.
    pub(super) fn quiet_from_now(&self) {
        let now = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.quiet_since.store(now, Ordering::Relaxed);
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
    pub(super) fn ask(&self, asked: Asked) {
        self.asked.fetch_or(asked.bit(), Ordering::Relaxed);
        self.task.wake();
    }

    /// Completes when the connection is asked to end. Only the connection's own task may poll this.
    pub(super) fn poll_asked(&self, cx: &mut Context<'_>) -> Poll<Asked> {
        self.task.register(cx.waker());
        let bits = self.asked.load(Ordering::Relaxed);
        match Asked::ALL.into_iter().find(|asked| bits & asked.bit() != 0) {
            Some(asked) => Poll::Ready(asked),
            None => Poll::Pending,
        }
    }

    /// Completes when a new connection needs the place of this one.
    pub(super) async fn dismissed(&self) {
        poll_fn(|cx| self.poll_asked_to(Asked::Leave, cx)).await;
    }

    /// Completes when the connection is asked this. Only the connection's own task may poll this.
    pub(super) fn poll_asked_to(&self, asked: Asked, cx: &mut Context<'_>) -> Poll<()> {
        self.task.register(cx.waker());
        if self.asked.load(Ordering::Relaxed) & asked.bit() != 0 { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Wakes the connection if it missed its deadline. Returns when to check it again.
    pub(super) fn check(&self, deadlines: Deadlines) -> Duration {
        let http2 = self.is_http2();
        let untaken = self.untaken.oldest().unwrap_or_default();
        if untaken >= deadlines.answer {
            self.ask(Asked::Stuck);
        }
        let left = deadlines.answer.saturating_sub(untaken);
        let limit = if http2 { deadlines.idle } else { deadlines.head };
        left.min(match self.idle_for() {
            Some(idle) if idle >= limit => {
                if http2 {
                    self.ask(Asked::Idle);
                } else {
                    self.late.store(true, Ordering::Relaxed);
                    self.task.wake();
                }
                limit
            }
            Some(idle) => limit - idle,
            None => limit,
        })
    }

    /// Returns whether the head of the next request is late. Costs nothing unless [`Activity::check`] found it late.
    pub(super) fn is_late(&self, head: Duration) -> bool {
        if !self.late.load(Ordering::Relaxed) {
            return false;
        }
        let late = !self.is_http2() && self.idle_for().is_some_and(|idle| idle >= head);
        self.late.store(late, Ordering::Relaxed);
        late
    }
}

/// A request under way.
pub(super) struct InUse(Arc<Activity>);

impl Drop for InUse {
    fn drop(&mut self) {
        self.0.quiet_from_now();
        self.0.requests.fetch_sub(1, Ordering::Relaxed);
    }
}
