//! Bodies, within limits of size, time and memory.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::HeaderMap;
use hyper::body::Body as _;
use hyper::header::CONTENT_LENGTH;

use super::problem::Problem;
use super::routes::{Route, Takes};
use crate::config::Limits;
use crate::listener::Arriving;
use fencepost_core::ProblemKind;

/// How many bytes of bodies are in memory, over all requests.
pub(super) struct ByteBudget {
    used: AtomicUsize,
    limit: usize,
}

impl ByteBudget {
    pub(super) fn new(limit: usize) -> Arc<ByteBudget> {
        Arc::new(ByteBudget { used: AtomicUsize::new(0), limit })
    }

    fn reserve(self: &Arc<Self>) -> Reservation {
        Reservation { budget: self.clone(), bytes: 0 }
    }
}

/// Part of the budget, given back when it is dropped.
struct Reservation {
    budget: Arc<ByteBudget>,
    bytes: usize,
}

impl Reservation {
    /// Counts more bytes. `Err` holds the limit that they exceed; they stay counted until the reservation is dropped.
    fn grow(&mut self, bytes: usize) -> Result<(), usize> {
        let before = self.budget.used.fetch_add(bytes, Ordering::Relaxed);
        self.bytes += bytes;
        if before + bytes > self.budget.limit { Err(self.budget.limit) } else { Ok(()) }
    }
}

impl Reservation {
    fn over(self, bytes: Bytes) -> Bytes {
        Bytes::from_owner(Held { bytes, _reserved: self })
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Counts an answer's bytes against a budget until the last reference to them is dropped.
pub(super) fn hold(bytes: Bytes, budget: &Arc<ByteBudget>) -> Result<Bytes, Problem> {
    let mut reserved = budget.reserve();
    reserved.grow(bytes.len()).map_err(Problem::answers_full)?;
    Ok(reserved.over(bytes))
}

/// Like [`hold`], for bytes that must be sent in any case. They may exceed the budget; later answers then find it full.
pub(super) fn hold_anyway(bytes: Bytes, budget: &Arc<ByteBudget>) -> Bytes {
    let mut reserved = budget.reserve();
    // Counted whether or not it fits.
    let _ = reserved.grow(bytes.len());
    reserved.over(bytes)
}

struct Held {
    bytes: Bytes,
    _reserved: Reservation,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Receives a whole body, or returns the limit that it exceeds. A body that was announced too large is not read at all.
pub(super) async fn receive(
    body: Arriving,
    headers: &HeaderMap,
    route: &Route,
    limits: &Limits,
    budget: &Arc<ByteBudget>,
) -> Result<Bytes, Problem> {
    if body.is_end_stream() {
        return Ok(Bytes::new());
    }
    let limit = match route.takes {
        Takes::Body => limits.body,
        Takes::Nothing => 0,
    };
    let announced = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    if announced.is_some_and(|bytes| bytes > limit) {
        return Err(over(route, limit));
    }
    let mut reserved = budget.reserve();
    let bytes = {
        let mut collecting = pin!(collect(body, route, limit, &mut reserved));
        // Most bodies have arrived with their headers; setting a timer would cost more than reading them.
        match poll_fn(|cx| Poll::Ready(collecting.as_mut().poll(cx))).await {
            Poll::Ready(collected) => collected,
            Poll::Pending => tokio::time::timeout(limits.body_timeout, collecting)
                .await
                .unwrap_or_else(|_| Err(Problem::body_timeout(limits.body_timeout.as_secs_f64()))),
        }?
    };
    Ok(reserved.over(bytes))
}

async fn collect(
    mut body: Arriving,
    route: &Route,
    limit: usize,
    reserved: &mut Reservation,
) -> Result<Bytes, Problem> {
    let mut first = Bytes::new();
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| Problem::body_broken(&error.to_string()))?;
        let Ok(data) = frame.into_data() else { continue };
        if first.len() + whole.len() + data.len() > limit {
            return Err(over(route, limit));
        }
        reserved.grow(data.len()).map_err(Problem::bodies_full)?;
        // Most bodies are one frame, and need no copy.
        if first.is_empty() && whole.is_empty() {
            first = data;
        } else {
            whole.extend_from_slice(&std::mem::take(&mut first));
            whole.extend_from_slice(&data);
        }
    }
    Ok(if whole.is_empty() { first } else { whole.freeze() })
}

fn over(route: &Route, limit: usize) -> Problem {
    match route.takes {
        Takes::Body => Problem::body_too_large(limit),
        Takes::Nothing => Problem::new(ProblemKind::MalformedBody, format!("{} takes no body here", route.method)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_count_until_the_last_holder_lets_go() {
        let budget = ByteBudget::new(10);
        let held = hold(Bytes::from_static(b"12345678"), &budget).unwrap();
        let queued = held.clone();
        drop(held);
        assert!(hold(Bytes::from_static(b"123"), &budget).is_err(), "a clone still holds them");
        drop(queued);
        let anyway = hold_anyway(Bytes::from_static(b"123456789012"), &budget);
        assert!(hold(Bytes::new(), &budget).is_err(), "over the limit, even nothing more fits");
        drop(anyway);
        assert!(hold(Bytes::from_static(b"1234567890"), &budget).is_ok());
    }
}
