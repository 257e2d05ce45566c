//! One connection's bytes: deadlines for the head of a request and for a client that stops reading, and an honest
//! goodbye.
//!
//! The deadline for heads is kept here and not by the server, which would set up and take down a timer for every
//! request. Here one timer rings once per deadline, and looks whether anybody is late.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use fencepost_core::ProblemDocument;
use fencepost_core::wire::PROBLEM_JSON;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep};

/// What an HTTP/2 connection begins with.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A stream whose client must say something soon.
pub(super) struct Connection {
    /// `None` only while it is dropped.
    stream: Option<TcpStream>,
    shared: Arc<Shared>,
    head_timeout: Duration,
    /// Since when the next head is waited for, unless a request is being answered.
    since: Instant,
    /// Rings when somebody may be late. `None` once it is HTTP/2, where silence is normal and pings tell who is there.
    bell: Option<Pin<Box<Sleep>>>,
    /// How many bytes the client has sent of an HTTP/2 preface; `None` once it has sent anything else.
    preface: Option<usize>,
    write_timeout: Duration,
    /// Runs while the client takes none of what is sent.
    stalled: Option<Pin<Box<Sleep>>>,
}

/// What is left of a connection after the server is done with it.
pub(super) struct Shared {
    /// The stream, once the server has let go of it.
    stream: OnceLock<TcpStream>,
    /// Bytes received since the last answer began: above 0, somebody is waiting for one.
    unanswered: AtomicUsize,
    /// A request is being answered, however long that takes.
    busy: AtomicBool,
}

impl Connection {
    pub(super) fn new(stream: TcpStream, head_timeout: Duration, write_timeout: Duration) -> (Connection, Arc<Shared>) {
        let shared =
            Arc::new(Shared { stream: OnceLock::new(), unanswered: AtomicUsize::new(0), busy: AtomicBool::new(false) });
        let connection = Connection {
            stream: Some(stream),
            shared: shared.clone(),
            head_timeout,
            since: Instant::now(),
            bell: Some(Box::pin(tokio::time::sleep(head_timeout))),
            preface: Some(0),
            write_timeout,
            stalled: None,
        };
        (connection, shared)
    }

    /// Ready when the client has had its time for the next head.
    fn poll_late(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(bell) = &mut self.bell else { return Poll::Pending };
        while bell.as_mut().poll(cx).is_ready() {
            let now = Instant::now();
            let waiting = !self.shared.busy.load(Ordering::Relaxed) && self.stalled.is_none();
            let since = if waiting { self.since } else { now };
            if now.duration_since(since) >= self.head_timeout {
                return Poll::Ready(());
            }
            bell.as_mut().reset(since + self.head_timeout);
        }
        Poll::Pending
    }

    /// Looks whether this is HTTP/2.
    fn look_for_preface(&mut self, bytes: &[u8]) {
        let Some(seen) = self.preface else { return };
        let rest = &PREFACE[seen..];
        let here = bytes.len().min(rest.len());
        self.preface = (bytes[..here] == rest[..here]).then_some(seen + here);
        if self.preface == Some(PREFACE.len()) {
            self.bell = None;
        }
    }

    fn stream(&mut self) -> Pin<&mut TcpStream> {
        match &mut self.stream {
            Some(stream) => Pin::new(stream),
            None => unreachable!("taken only when it is dropped"),
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let Some(stream) = self.stream.take() {
            // Set only here.
            let _ = self.shared.stream.set(stream);
        }
    }
}

impl Shared {
    /// Runs what answers a request; meanwhile nobody waits for a head.
    pub(super) async fn answering<T>(&self, answer: impl Future<Output = T>) -> T {
        self.busy.store(true, Ordering::Relaxed);
        let answer = answer.await;
        self.busy.store(false, Ordering::Relaxed);
        answer
    }

    /// Is a client in the middle of a request, waiting for its answer? An idle one is left in silence.
    pub(super) fn is_waited_for(&self) -> bool {
        self.unanswered.load(Ordering::Relaxed) > 0
    }

    /// Answers in place of the server, which has let go of the connection.
    pub(super) fn say(&self, problem: &ProblemDocument) {
        if let Some(stream) = self.stream.get() {
            say(stream, problem);
        }
    }
}

/// Answers without a server: before a request, or instead of one.
pub(super) fn say(stream: &TcpStream, problem: &ProblemDocument) {
    let body = serde_json::to_string(problem).unwrap_or_default();
    let (status, length) = (problem.status, body.len());
    let reason = if status == 408 { "Request Timeout" } else { "Service Unavailable" };
    let retry = if status == 503 { "retry-after: 1\r\n" } else { "" };
    let id = problem.request_id.as_deref().unwrap_or_default();
    let answer = format!(
        "HTTP/1.1 {status} {reason}\r\ncontent-type: {PROBLEM_JSON}\r\ncontent-length: {length}\r\n\
         request-id: {id}\r\nx-content-type-options: nosniff\r\n{retry}connection: close\r\n\r\n{body}"
    );
    // A few hundred bytes into an empty buffer; if even that fails, the client is gone.
    let _ = stream.try_write(answer.as_bytes());
}

impl AsyncRead for Connection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        match self.stream().poll_read(cx, buffer) {
            Poll::Ready(read) => read?,
            Poll::Pending => {
                ready!(self.poll_late(cx));
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
        }
        let bytes = &buffer.filled()[before..];
        self.shared.unanswered.fetch_add(bytes.len(), Ordering::Relaxed);
        self.look_for_preface(bytes);
        Poll::Ready(Ok(()))
    }
}

impl Connection {
    fn poll_write_with(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        write: impl FnOnce(Pin<&mut TcpStream>, &mut Context<'_>) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        self.shared.unanswered.store(0, Ordering::Relaxed);
        match write(self.stream(), cx) {
            Poll::Ready(result) => {
                self.stalled = None;
                self.since = Instant::now();
                Poll::Ready(result)
            }
            Poll::Pending => {
                let timeout = self.write_timeout;
                let stalled = self.stalled.get_or_insert_with(|| Box::pin(tokio::time::sleep(timeout)));
                ready!(stalled.as_mut().poll(cx));
                Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
            }
        }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_with(cx, |stream, cx| stream.poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_with(cx, |stream, cx| stream.poll_write_vectored(cx, parts))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_shutdown(cx)
    }
}
