//! Answers of the HTTP front end, before they are sent.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use bytes::{Bytes, BytesMut};
use fencepost_core::wire::header;
use fencepost_core::{Reason, Token};
use fencepost_store::engine::Version;
use http_body_util::Full;
use hyper::body::Body as _;
use hyper::header::{
    CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, ETAG, HeaderName, HeaderValue, X_CONTENT_TYPE_OPTIONS,
};
use hyper::{Response, StatusCode};
use serde::Serialize;

use super::Body;
use super::problem::Problem;

const FENCE: HeaderName = HeaderName::from_static(header::FENCE);
const FENCE_NOW: HeaderName = HeaderName::from_static(header::FENCE_NOW);
const FENCING_OBSERVED: HeaderName = HeaderName::from_static(header::FENCING_OBSERVED);
const IDEMPOTENT_REPLAYED: HeaderName = HeaderName::from_static(header::IDEMPOTENT_REPLAYED);
const REQUEST_ID: HeaderName = HeaderName::from_static(header::REQUEST_ID);

/// The version of a value as an entity tag.
pub(super) fn etag(version: Version) -> String {
    ["\"", itoa::Buffer::new().format(version.0), "\""].concat()
}

/// An answer's body in JSON.
pub(super) fn json(body: &impl Serialize) -> Bytes {
    serde_json::to_vec(body).unwrap_or_default().into()
}

/// An answer: status, headers and body.
#[derive(Debug)]
pub(super) struct Answer {
    response: Response<Body>,
    /// Room for the values of headers, which share one allocation.
    values: BytesMut,
}

/// Enough for the values of most answers.
const VALUES: usize = 128;

impl Answer {
    pub(super) fn new(status: u16) -> Answer {
        let mut response = Response::new(Full::default());
        // Enough for every answer, so that the map does not grow step by step.
        response.headers_mut().reserve(10);
        // Browsers must not guess another type than the declared one.
        response.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        // Statuses come from constants; an impossible one would be a server error.
        *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        Answer { response, values: BytesMut::with_capacity(VALUES) }
    }

    /// A JSON answer that no cache may keep.
    pub(super) fn json_bytes(body: Bytes) -> Answer {
        Answer::json_status(200, body)
    }

    pub(super) fn json_status(status: u16, body: Bytes) -> Answer {
        Answer::new(status)
            .header_static(CONTENT_TYPE, "application/json")
            .header_static(CACHE_CONTROL, "no-store")
            .body(body)
    }

    pub(super) fn text(status: u16, text: &str) -> Answer {
        Answer::new(status)
            .header_static(CONTENT_TYPE, "text/plain; charset=utf-8")
            .header_static(CACHE_CONTROL, "no-store")
            .body(Bytes::copy_from_slice(text.as_bytes()))
    }

    pub(super) fn body(mut self, body: Bytes) -> Answer {
        *self.response.body_mut() = Full::new(body);
        self
    }

    /// The answer to HEAD: it states the length of the body, and leaves the body out. (HTTP/2 would send it.)
    pub(super) fn without_body(self) -> Answer {
        match self.response.body().size_hint().exact() {
            Some(bytes) if bytes > 0 => {
                self.header(CONTENT_LENGTH, itoa::Buffer::new().format(bytes)).body(Bytes::new())
            }
            _ => self,
        }
    }

    /// Bytes of the body.
    pub(super) fn length(&self) -> u64 {
        self.response.body().size_hint().lower()
    }

    /// Replaces the bytes of the body, which is complete.
    pub(super) fn map_body(self, map: impl FnOnce(Bytes) -> Result<Bytes, Problem>) -> Result<Answer, Problem> {
        let Answer { response, values } = self;
        let (head, mut body) = response.into_parts();
        let frame = Pin::new(&mut body).poll_frame(&mut Context::from_waker(Waker::noop()));
        let bytes = match frame {
            Poll::Ready(Some(Ok(frame))) => frame.into_data().unwrap_or_default(),
            Poll::Ready(Some(Err(never))) => match never {},
            Poll::Ready(None) | Poll::Pending => Bytes::new(),
        };
        Ok(Answer { response: Response::from_parts(head, Full::new(map(bytes)?)), values })
    }

    pub(super) fn header_static(mut self, name: HeaderName, value: &'static str) -> Answer {
        self.response.headers_mut().insert(name, HeaderValue::from_static(value));
        self
    }

    /// Adds a header. A value that is not valid in a header is left out.
    pub(super) fn header(self, name: HeaderName, value: &str) -> Answer {
        self.joined(name, &[value])
    }

    /// Adds a header whose value has several parts.
    fn joined(mut self, name: HeaderName, parts: &[&str]) -> Answer {
        for part in parts {
            self.values.extend_from_slice(part.as_bytes());
        }
        if let Ok(value) = HeaderValue::from_maybe_shared(self.values.split().freeze()) {
            self.response.headers_mut().insert(name, value);
        }
        self
    }

    pub(super) fn token(self, name: HeaderName, token: Token) -> Answer {
        match token.generation() {
            0 => self.header(name, itoa::Buffer::new().format(token.number().get())),
            _ => self.header(name, &token.text()),
        }
    }

    pub(super) fn etag(self, version: Version) -> Answer {
        self.joined(ETAG, &["\"", itoa::Buffer::new().format(version.0), "\""])
    }

    pub(super) fn fence(self, fence: Option<Token>) -> Answer {
        match fence {
            Some(fence) => self.token(FENCE, fence),
            None => self,
        }
    }

    /// Adds why each resource whose guard only observes would have refused the request.
    pub(super) fn observed(self, reasons: &[Reason]) -> Answer {
        match reasons {
            [] => self,
            [reason] => self.header_static(FENCING_OBSERVED, reason.as_str()),
            reasons => {
                let words: Vec<_> = reasons.iter().map(|reason| reason.as_str()).collect();
                self.header(FENCING_OBSERVED, &words.join(", "))
            }
        }
    }

    /// Marks the recorded answer of an earlier request with the same key. The fence may have been raised since.
    pub(super) fn replayed(self, fence_now: Option<Token>) -> Answer {
        let answer = self.header_static(IDEMPOTENT_REPLAYED, "true");
        match fence_now {
            Some(fence) => answer.token(FENCE_NOW, fence),
            None => answer,
        }
    }

    pub(super) fn with_request_id(self, id: &str) -> Answer {
        self.header(REQUEST_ID, id)
    }

    pub(super) fn into_response(self) -> Response<Body> {
        self.response
    }
}
