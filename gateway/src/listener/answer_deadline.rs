//! A deadline for each answer, not only for its socket.
//!
//! An HTTP/2 client that closes the window of a stream leaves the socket free, and hyper waits for the window without
//! a limit. So the body of a stream is given to hyper in parts, and each part reports when it has been written. If
//! the oldest part waits for longer than `write_timeout`, the task of the stream is dropped, which resets the stream.
//! The end of a body is announced only after its last part was written, so that hyper keeps the task until then.
//!
//! A small answer is given together with its end, because an end of its own costs as much as the answer. hyper lets go of
//! such a stream when its client's window has begun to take the answer, so nothing could reset it any more. If it is not
//! written a second after `write_timeout`, the connection is closed (`untaken.rs`).
//!
//! Over HTTP/1 the deadline of the socket is enough, and bodies pass through unchanged.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use futures_util::task::AtomicWaker;
use hyper::body::{Body, Frame, SizeHint};
use hyper::rt::Executor;
use parking_lot::{Mutex, MutexGuard};
use tokio::time::{Instant, Sleep};

use super::activity::InUse;
use super::places::Slot;
use super::untaken::{Given, Untaken};

/// The largest part given to HTTP/2 at a time: what a client must take within `write_timeout`.
const PART: usize = 64 << 10;

/// An answer of at most this size is given together with the end of its stream.
const SMALL: usize = 16 << 10;

/// How much of an answer an HTTP/2 client has taken.
#[derive(Default)]
pub(super) struct Taking {
    waiting: Mutex<Waiting>,
    taken: AtomicWaker,
}

#[derive(Clone, Copy, Default)]
struct Waiting {
    parts: usize,
    /// When the oldest of the waiting parts became the oldest.
    since: Option<Instant>,
}

impl Taking {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock()
    }

    fn give(self: &Arc<Self>, bytes: Bytes) -> Part {
        let mut waiting = self.waiting();
        waiting.parts += 1;
        waiting.since.get_or_insert_with(Instant::now);
        drop(waiting);
        Part { bytes, taking: Some(self.clone()), _end: None }
    }

    fn take(&self) {
        let mut waiting = self.waiting();
        waiting.parts -= 1;
        waiting.since = (waiting.parts > 0).then(Instant::now);
        drop(waiting);
        self.taken.wake();
    }

    /// Completes when all parts given to hyper are written.
    fn poll_taken(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.taken.register(cx.waker());
        if self.waiting().parts == 0 { Poll::Ready(()) } else { Poll::Pending }
    }
}

/// Some bytes of an answer. hyper drops them when they are written.
pub(super) struct Part {
    bytes: Bytes,
    taking: Option<Arc<Taking>>,
    /// Set if the end of the stream was given with it: then the request is under way until the part is written.
    _end: Option<(Given, UnderWay)>,
}

/// What counts a request as under way.
pub(super) type UnderWay = (InUse, Option<Slot>);

impl Part {
    /// A part that nothing waits for.
    fn unwatched(bytes: Bytes) -> Part {
        Part { bytes, taking: None, _end: None }
    }
}

impl Buf for Part {
    fn remaining(&self) -> usize {
        self.bytes.len()
    }

    fn chunk(&self) -> &[u8] {
        &self.bytes
    }

    fn advance(&mut self, bytes: usize) {
        self.bytes.advance(bytes);
    }

    fn copy_to_bytes(&mut self, length: usize) -> Bytes {
        self.bytes.copy_to_bytes(length)
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if let Some(taking) = &self.taking {
            taking.take();
        }
    }
}

/// The body of an answer, with what its request holds until the answer is sent.
pub(super) struct Answer<B> {
    body: B,
    /// Set for HTTP/2 streams only.
    taking: Option<(Arc<Taking>, Arc<Untaken>)>,
    /// The remainder of the frame that is being given out in parts.
    rest: Bytes,
    begun: bool,
    /// The last part was given together with the end.
    ended: bool,
    request: Option<UnderWay>,
}

impl<B> Answer<B> {
    pub(super) fn new(body: B, taking: Option<(Arc<Taking>, Arc<Untaken>)>, request: UnderWay) -> Answer<B> {
        Answer { body, taking, rest: Bytes::new(), begun: false, ended: false, request: Some(request) }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for Answer<B> {
    type Data = Part;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Part>, B::Error>>> {
        let this = self.get_mut();
        let Some((taking, untaken)) = &this.taking else {
            let frame = ready!(Pin::new(&mut this.body).poll_frame(cx));
            return Poll::Ready(frame.map(|frame| frame.map(|frame| frame.map_data(Part::unwatched))));
        };
        let is_first = !std::mem::replace(&mut this.begun, true);
        while this.rest.is_empty() {
            match ready!(Pin::new(&mut this.body).poll_frame(cx)) {
                None => {
                    ready!(taking.poll_taken(cx));
                    return Poll::Ready(None);
                }
                Some(frame) => match frame?.into_data() {
                    Ok(bytes) => this.rest = bytes,
                    Err(trailers) => {
                        return Poll::Ready(Some(Ok(trailers.map_data(Part::unwatched))));
                    }
                },
            }
        }
        let mut part = taking.give(this.rest.split_to(this.rest.len().min(PART)));
        let is_whole = is_first && this.rest.is_empty() && this.body.is_end_stream();
        if is_whole && part.bytes.len() <= SMALL {
            this.ended = true;
            part._end = this.request.take().map(|request| (untaken.give(), request));
        }
        Poll::Ready(Some(Ok(Frame::data(part))))
    }

    fn is_end_stream(&self) -> bool {
        match self.taking {
            None => self.body.is_end_stream(),
            Some(_) => self.ended || (!self.begun && self.body.is_end_stream()),
        }
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Runs the streams of one HTTP/2 connection, each until it is done or its client stops taking its answer.
#[derive(Clone)]
pub(super) struct Streams {
    write_timeout: Duration,
    /// The state of the request that was handed over last. hyper runs its stream right after calling the service.
    next: Arc<Mutex<Option<Arc<Taking>>>>,
}

impl Streams {
    pub(super) fn new(write_timeout: Duration) -> Streams {
        Streams { write_timeout, next: Arc::default() }
    }

    /// Sets the state that belongs to the next stream.
    pub(super) fn next_is(&self, taking: Arc<Taking>) {
        *self.next.lock() = Some(taking);
    }
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Streams {
    fn execute(&self, stream: F) {
        match self.next.lock().take() {
            Some(taking) => {
                let (stream, limit) = (Box::pin(stream), self.write_timeout);
                drop(tokio::spawn(Watched { stream, taking, limit, timer: None }));
            }
            None => drop(tokio::spawn(stream)),
        }
    }
}

/// A stream that ends when its client takes too long.
struct Watched<F> {
    stream: Pin<Box<F>>,
    taking: Arc<Taking>,
    limit: Duration,
    timer: Option<Pin<Box<Sleep>>>,
}

impl<F: Future<Output = ()>> Future for Watched<F> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.stream.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        loop {
            // Most answers are taken at once and need no timer.
            let Some(since) = self.taking.waiting().since else {
                self.timer = None;
                return Poll::Pending;
            };
            let deadline = since + self.limit;
            if Instant::now() >= deadline {
                return Poll::Ready(());
            }
            let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
            if timer.deadline() != deadline {
                timer.as_mut().reset(deadline);
            }
            ready!(timer.as_mut().poll(cx));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use http_body_util::{BodyExt, Full};

    use super::*;
    use crate::listener::activity::{Activity, Asked, Deadlines};

    const HOUR: Duration = Duration::from_secs(3600);

    fn answer(bytes: usize, taking: Option<Arc<Taking>>) -> Answer<Full<Bytes>> {
        let activity = Activity::new();
        let taking = taking.map(|taking| (taking, activity.untaken().clone()));
        Answer::new(Full::new(Bytes::from(vec![1; bytes])), taking, (activity.begin(), None))
    }

    #[tokio::test]
    async fn s04_a_small_answer_over_http2_has_its_end_with_it_and_a_deadline_for_its_connection() {
        let (activity, taking) = (Activity::new(), Arc::<Taking>::default());
        let untaken = activity.untaken().clone();
        let body = Full::new(Bytes::from(vec![1; SMALL]));
        let mut body = Answer::new(body, Some((taking, untaken)), (activity.begin(), None));
        let part = body.frame().await.unwrap().unwrap().into_data().ok().unwrap();
        assert!(body.is_end_stream());
        drop(body);
        assert!(activity.is_busy(), "its request is under way until the part is written");
        let deadlines = |answer| Deadlines { head: HOUR, idle: HOUR, answer };
        let stuck = || activity.poll_asked_to(Asked::Stuck, &mut Context::from_waker(Waker::noop())).is_ready();
        assert!(activity.check(deadlines(HOUR)) <= HOUR && !stuck());
        activity.check(deadlines(Duration::ZERO));
        assert!(stuck());
        drop(part);
        assert_eq!(activity.untaken().oldest(), None);
        assert!(!activity.is_busy());
    }

    #[tokio::test]
    async fn an_answer_over_http1_passes_through_whole() {
        let mut body = answer(200 << 10, None);
        let part = body.frame().await.unwrap().unwrap().into_data().ok().unwrap();
        assert_eq!((part.remaining(), body.is_end_stream()), (200 << 10, true));
    }

    #[tokio::test]
    async fn s04_an_answer_over_http2_ends_when_its_last_part_was_written() {
        let taking = Arc::<Taking>::default();
        let mut body = answer(100 << 10, Some(taking.clone()));
        let mut parts = Vec::new();
        for length in [64 << 10, 36 << 10] {
            let part = body.frame().await.unwrap().unwrap().into_data().ok().unwrap();
            assert_eq!((part.remaining(), body.is_end_stream()), (length, false));
            parts.push(part);
        }
        let end = tokio::spawn(async move { body.frame().await.is_none() });
        tokio::task::yield_now().await;
        assert!(!end.is_finished() && taking.waiting().parts == 2);
        parts.clear();
        assert!(end.await.unwrap());
    }

    #[tokio::test]
    async fn s04_a_stream_whose_part_is_not_taken_is_dropped() {
        let taking = Arc::<Taking>::default();
        let held = taking.give(Bytes::from_static(b"x"));
        let limit = Duration::from_millis(50);
        let watched = |taking| Watched { stream: Box::pin(std::future::pending()), taking, limit, timer: None };
        let started = Instant::now();
        watched(taking.clone()).await;
        assert!(started.elapsed() >= limit);
        drop(held);
        let idle = tokio::time::timeout(limit * 4, watched(taking)).await;
        assert!(idle.is_err(), "a stream that waits for its request to be answered has no such deadline");
    }
}
