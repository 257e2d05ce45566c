//! The S3 face's own port.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hyper::StatusCode;
use hyper::header::{CONTENT_RANGE, CONTENT_TYPE, HeaderName, HeaderValue};
use s3s::config::{S3Config, StaticConfigProvider};
use s3s::service::{S3Service, S3ServiceBuilder};
use s3s::{Body, S3Error, S3ErrorCode, s3_error};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};

use super::body::Coming;
use super::caller::{Permit, Secrets};
use super::credentials::S3Credentials;
use super::face::Face;
use super::words;
use crate::config::Limits;
use crate::http::{Metrics, PeerAddress};
use crate::listener::{self, Arriving, FrontEnd, Full, Goodbye, Settings};
use crate::objects::Objects;

/// Bodies that are taken whole: lists of parts and of keys. 10,000 parts with a checksum each are below it.
const MAX_XML_BYTES: usize = 4 << 20;

/// How far a client's clock may be ahead.
const MAX_SKEW_SECONDS: u32 = 900;

/// Requests that one HTTP/2 connection may have under way.
const MAX_STREAMS: u32 = 64;

/// Names a request in answers and logs.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-amz-request-id");

/// A bound port, and what answers on it.
pub struct S3Door {
    listener: TcpListener,
    front_end: S3FrontEnd,
}

struct S3FrontEnd {
    service: S3Service,
    limits: Limits,
    requests: AtomicU64,
}

impl S3Door {
    /// Makes a face of objects on a port that is already bound.
    pub fn new(
        listener: TcpListener,
        objects: Arc<Objects>,
        credentials: Arc<S3Credentials>,
        metrics: Arc<Metrics>,
        limits: Limits,
        create_buckets: bool,
    ) -> S3Door {
        let face = Face { objects: objects.clone(), metrics, create_buckets };
        let whole = Arc::new(Semaphore::new((limits.bodies / MAX_XML_BYTES).max(1)));
        let mut builder = S3ServiceBuilder::new(face);
        builder.set_auth(Secrets(credentials.clone()));
        builder.set_access(Permit { credentials, objects, whole });
        let mut config = S3Config::default();
        config.xml_max_body_size = MAX_XML_BYTES;
        config.presigned_url_max_skew_time_secs = MAX_SKEW_SECONDS;
        // Uploads by HTML forms are taken into memory before anybody is asked whether they may be made. They are not
        // offered, so none is taken.
        config.post_object_max_file_size = 0;
        config.form_max_fields_size = 64 << 10;
        config.form_max_field_size = 16 << 10;
        config.form_max_parts = 64;
        builder.set_config(Arc::new(StaticConfigProvider::new(Arc::new(config))));
        S3Door { listener, front_end: S3FrontEnd { service: builder.build(), limits, requests: AtomicU64::new(0) } }
    }

    /// Serves until told to stop; then those who are in finish.
    pub(crate) async fn run(self, stop: watch::Receiver<bool>) {
        let S3Door { listener, front_end } = self;
        let limits = front_end.limits.clone();
        let settings = Settings { bounds: limits.s3_bounds(), limits, max_streams: MAX_STREAMS };
        listener::run(listener, Arc::new(front_end), settings, stop).await;
    }
}

impl FrontEnd<TcpStream> for S3FrontEnd {
    type Caller = PeerAddress;
    type Share = ();
    type Body = Body;
    type Error = s3s::HttpError;

    fn share(&self) {}

    fn caller(&self, _: &TcpStream, peer: PeerAddress, (): ()) -> Option<PeerAddress> {
        Some(peer)
    }

    async fn answer(
        &self,
        request: hyper::Request<Arriving>,
        _: &PeerAddress,
    ) -> Result<s3s::HttpResponse, s3s::HttpError> {
        let (service, patience) = (self.service.clone(), self.limits.body_timeout);
        let id = self.requests.fetch_add(1, Ordering::Relaxed);
        let is_head = request.method() == hyper::Method::HEAD;
        let mut answer = match is_a_form(&request) {
            // The S3 library would take it in before it asks who sends it.
            true => refused(s3_error!(NotImplemented, "Uploads by HTML forms are not offered."))?,
            false => {
                let (mut head, body) = request.into_parts();
                let mut coming = Coming::new(&head.headers, body, patience);
                if is_a_list(&head)
                    && let Some(measuring) = coming.measured(&head.headers)
                {
                    head.extensions.insert(measuring);
                }
                let request = hyper::Request::from_parts(head, Body::http_body_unsync(coming));
                service.call(request).await?
            }
        };
        // The S3 library says so of answers with a body only.
        if is_head && answer.status() == StatusCode::OK && answer.headers().contains_key(CONTENT_RANGE) {
            *answer.status_mut() = StatusCode::PARTIAL_CONTENT;
        }
        if let Ok(id) = HeaderValue::try_from(format!("{id:016X}")) {
            answer.headers_mut().insert(REQUEST_ID, id);
        }
        Ok(words::explained(answer).await)
    }

    fn reject(&self, full: Full) -> s3s::HttpResponse {
        let error = S3Error::with_message(S3ErrorCode::SlowDown, format!("{full}. Try again shortly."));
        refused(error).unwrap_or_else(|_| {
            let mut answer = s3s::HttpResponse::new(Body::empty());
            *answer.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
            answer
        })
    }

    fn goodbye(&self, why: Goodbye) -> String {
        let (status, code, message) = match why {
            Goodbye::Full(full) => ("503 Slow Down", "SlowDown", format!("{full}. Try again shortly.")),
            Goodbye::HeadTimeout => {
                ("400 Bad Request", "RequestTimeout", "The headers did not arrive in time.".to_owned())
            }
        };
        let body = format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>{code}</Code><Message>{message}</Message></Error>"
        );
        let length = body.len();
        format!(
            "HTTP/1.1 {status}\r\ncontent-type: application/xml\r\ncontent-length: {length}\r\n\
             connection: close\r\n\r\n{body}"
        )
    }
}

fn refused(error: S3Error) -> Result<s3s::HttpResponse, s3s::HttpError> {
    error.to_http_response().map_err(|error| s3s::HttpError::new(Box::new(error)))
}

/// A list of keys to remove: the S3 library takes it whole, and says nothing of its bytes.
fn is_a_list(head: &hyper::http::request::Parts) -> bool {
    let query = head.uri.query().unwrap_or_default();
    head.method == hyper::Method::POST && query.split('&').any(|part| part.split('=').next() == Some("delete"))
}

fn is_a_form<B>(request: &hyper::Request<B>) -> bool {
    let kind = request.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    kind.trim_start().to_ascii_lowercase().starts_with("multipart/form-data") && request.method() == hyper::Method::POST
}
