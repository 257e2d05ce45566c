//! The bytes of one connection, with deadlines for the head of a request and for a client that stops reading.
//!
//! The deadline for heads is enforced here and not by hyper. hyper would set a timer for every request, and none
//! before it knows whether a connection uses HTTP/1 or HTTP/2. Here the listener wakes a connection that is late
//! (`Activity::check`).

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

use super::activity::Activity;

/// The first bytes of an HTTP/2 connection.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Bytes that a client must take within `write_timeout`, if there are that many.
const LEAST_TAKEN: usize = 64 << 10;

/// A stream with deadlines for its client.
pub(super) struct Connection<S> {
    /// `None` only during drop.
    stream: Option<S>,
    left: Left<S>,
    activity: Arc<Activity>,
    head_timeout: Duration,
    /// How many bytes the client has sent of an HTTP/2 preface; `None` once it has sent anything else.
    preface: Option<usize>,
    write_timeout: Duration,
    /// Runs while the client does not take the bytes sent.
    stalled: Option<Pin<Box<Sleep>>>,
    /// Bytes taken since `stalled` began.
    taken: usize,
}

/// The stream, returned after hyper has dropped the connection.
pub(super) struct Left<S>(Arc<Mutex<Option<S>>>);

impl<S> Left<S> {
    pub(super) fn take(&self) -> Option<S> {
        self.0.lock().take()
    }
}

impl<S> Connection<S> {
    pub(super) fn new(
        stream: S,
        activity: Arc<Activity>,
        head_timeout: Duration,
        write_timeout: Duration,
    ) -> (Connection<S>, Left<S>) {
        let left = Arc::new(Mutex::new(None));
        let connection = Connection {
            stream: Some(stream),
            left: Left(left.clone()),
            activity,
            head_timeout,
            preface: Some(0),
            write_timeout,
            stalled: None,
            taken: 0,
        };
        (connection, Left(left))
    }

    /// Detects HTTP/2.
    fn look_for_preface(&mut self, bytes: &[u8]) {
        let Some(seen) = self.preface else { return };
        let rest = &PREFACE[seen..];
        let here = bytes.len().min(rest.len());
        self.preface = (bytes[..here] == rest[..here]).then_some(seen + here);
        if self.preface == Some(PREFACE.len()) {
            self.preface = None;
            self.activity.speaks_http2();
        }
    }
}

impl<S: Unpin> Connection<S> {
    fn stream(&mut self) -> Pin<&mut S> {
        match &mut self.stream {
            Some(stream) => Pin::new(stream),
            None => unreachable!("taken only when it is dropped"),
        }
    }
}

impl<S> Drop for Connection<S> {
    fn drop(&mut self) {
        *self.left.0.lock() = self.stream.take();
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Connection<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        match self.stream().poll_read(cx, buffer) {
            Poll::Ready(read) => read?,
            Poll::Pending if self.activity.is_late(self.head_timeout) => {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            Poll::Pending => return Poll::Pending,
        }
        let bytes = &buffer.filled()[before..];
        self.activity.received(bytes.len());
        self.look_for_preface(bytes);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> Connection<S> {
    fn poll_write_with(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        write: impl FnOnce(Pin<&mut S>, &mut Context<'_>) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        self.activity.sending();
        match write(self.stream(), cx) {
            Poll::Ready(result) => {
                self.taken += *result.as_ref().unwrap_or(&0);
                // A few bytes now and then do not extend the deadline.
                if self.taken >= LEAST_TAKEN {
                    self.stalled = None;
                }
                Poll::Ready(result)
            }
            Poll::Pending => {
                if self.stalled.is_none() {
                    self.taken = 0;
                }
                let timeout = self.write_timeout;
                let stalled = self.stalled.get_or_insert_with(|| Box::pin(tokio::time::sleep(timeout)));
                ready!(stalled.as_mut().poll(cx));
                Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
            }
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Connection<S> {
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

    /// hyper calls this when it has written everything.
    fn poll_flush(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.stalled.take().is_some() {
            self.activity.quiet_from_now();
        }
        self.activity.sent();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_shutdown(cx)
    }
}
