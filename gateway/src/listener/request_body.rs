//! The body of a request, and how much of it has arrived when its answer is sent.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::header::{CONTENT_LENGTH, EXPECT};
use hyper::{HeaderMap, Version};

/// A remainder of this size has usually arrived together with the head. hyper reads it, and the connection can be
/// reused.
const SMALL: u64 = 8 << 10;

/// The body of a request.
pub(crate) struct Arriving {
    body: Incoming,
    /// `None`: there is no body.
    arrival: Option<Arc<Arrival>>,
}

/// How much of a body has arrived.
#[derive(Default)]
pub(super) struct Arrival {
    asked_for: AtomicBool,
    ended: AtomicBool,
}

impl Arriving {
    pub(super) fn new(body: Incoming) -> (Arriving, Option<Arc<Arrival>>) {
        let arrival = (!body.is_end_stream()).then(Arc::<Arrival>::default);
        (Arriving { body, arrival: arrival.clone() }, arrival)
    }
}

/// The properties of a head that decide whether the connection can be reused after an answer.
#[derive(Clone, Copy)]
pub(super) struct Framing {
    http1: bool,
    expects: bool,
    small: bool,
}

impl Framing {
    pub(super) fn of(version: Version, headers: &HeaderMap) -> Framing {
        let length = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
        Framing {
            http1: version < Version::HTTP_2,
            expects: headers.contains_key(EXPECT),
            small: length.is_some_and(|length| length <= SMALL),
        }
    }

    /// Returns whether the answer must announce the end of the connection.
    ///
    /// After an `Expect` that was never continued, the client may or may not send its body, and some clients take the
    /// next answer for the answer to this request. Such a connection is not reused, nor is one with much of a body
    /// still to come.
    pub(super) fn closes(self, arrival: Option<&Arrival>) -> bool {
        let (asked_for, ended) = match arrival {
            None => (false, true),
            Some(arrival) => (arrival.asked_for.load(Ordering::Relaxed), arrival.ended.load(Ordering::Relaxed)),
        };
        self.http1 && ((self.expects && !asked_for) || !(ended || self.small))
    }
}

impl Body for Arriving {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        if let Some(arrival) = &self.arrival {
            arrival.asked_for.store(true, Ordering::Relaxed);
        }
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        if let Some(arrival) = self.arrival.as_ref().filter(|_| frame.is_none() || self.body.is_end_stream()) {
            arrival.ended.store(true, Ordering::Relaxed);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
