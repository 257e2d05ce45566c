//! One request of an S3 client, from its head to its answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hyper::header::{CONTENT_RANGE, CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::{Method, StatusCode};
use s3s::config::{S3Config, StaticConfigProvider};
use s3s::service::{S3Service, S3ServiceBuilder};
use s3s::{Body, HttpError, HttpResponse, S3Error, S3Result, s3_error};
use tokio::sync::Semaphore;

use super::body::Coming;
use super::caller::{Permit, Secrets};
use super::credentials::S3Credentials;
use super::face::Face;
use super::signed;
use super::words;
use crate::config::Limits;
use crate::http::Metrics;
use crate::listener::Arriving;
use crate::objects::Objects;

/// Bodies that are taken whole: lists of parts and of keys. 10,000 parts with a checksum each are below it.
const MAX_XML_BYTES: usize = 4 << 20;

/// How far a client's clock may be ahead.
const MAX_SKEW_SECONDS: u32 = 900;

/// Names a request in answers and logs.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-amz-request-id");

/// Answers requests of S3 clients.
pub(super) struct Requests {
    service: S3Service,
    count: AtomicU64,
    /// How long a body may pause.
    patience: Duration,
}

impl Requests {
    pub(super) fn new(
        objects: Arc<Objects>,
        credentials: Arc<S3Credentials>,
        metrics: Arc<Metrics>,
        limits: &Limits,
        create_buckets: bool,
    ) -> Requests {
        let face = Face { objects: objects.clone(), metrics, create_buckets };
        let whole = Arc::new(Semaphore::new((limits.bodies / MAX_XML_BYTES).max(1)));
        let mut builder = S3ServiceBuilder::new(face);
        builder.set_auth(Secrets(credentials.clone()));
        builder.set_access(Permit { credentials, objects, whole });
        let mut config = S3Config::default();
        config.xml_max_body_size = MAX_XML_BYTES;
        config.presigned_url_max_skew_time_secs = MAX_SKEW_SECONDS;
        // Uploads by HTML forms are read into memory before the signature is verified. They are not offered, so none
        // is read.
        config.post_object_max_file_size = 0;
        config.form_max_fields_size = 64 << 10;
        config.form_max_field_size = 16 << 10;
        config.form_max_parts = 64;
        builder.set_config(Arc::new(StaticConfigProvider::new(Arc::new(config))));
        Requests { service: builder.build(), count: AtomicU64::new(0), patience: limits.body_timeout }
    }

    /// Answers one request.
    pub(super) async fn answer(&self, request: hyper::Request<Arriving>) -> Result<HttpResponse, HttpError> {
        let id = self.count.fetch_add(1, Ordering::Relaxed);
        let is_head = request.method() == Method::HEAD;
        let mut answer = match self.admitted(request) {
            Ok(request) => self.service.call(request).await?,
            Err(error) => refused(error)?,
        };
        // The S3 library sets this status on answers with a body only.
        if is_head && answer.status() == StatusCode::OK && answer.headers().contains_key(CONTENT_RANGE) {
            *answer.status_mut() = StatusCode::PARTIAL_CONTENT;
        }
        if let Ok(id) = HeaderValue::try_from(format!("{id:016X}")) {
            answer.headers_mut().insert(REQUEST_ID, id);
        }
        Ok(words::explained(answer).await)
    }

    /// The request as the S3 library gets it, or why it does not get it.
    fn admitted(&self, request: hyper::Request<Arriving>) -> S3Result<hyper::Request<Body>> {
        if is_a_form(&request) {
            return Err(s3_error!(NotImplemented, "Uploads by HTML forms are not offered."));
        }
        let (mut head, body) = request.into_parts();
        signed::check(&head.headers, &head.uri)?;
        signed::date(&mut head.headers);
        let mut coming = Coming::new(&head.headers, body, self.patience);
        if is_a_list(&head)
            && let Some(measuring) = coming.measured(&head.headers)
        {
            head.extensions.insert(measuring);
        }
        Ok(hyper::Request::from_parts(head, Body::http_body_unsync(coming)))
    }
}

/// An error as an answer.
pub(super) fn refused(error: S3Error) -> Result<HttpResponse, HttpError> {
    error.to_http_response().map_err(|error| HttpError::new(Box::new(error)))
}

/// A list of keys to remove: the S3 library takes it whole, and does not pass its bytes on.
fn is_a_list(head: &hyper::http::request::Parts) -> bool {
    let query = head.uri.query().unwrap_or_default();
    head.method == Method::POST && query.split('&').any(|part| part.split('=').next() == Some("delete"))
}

fn is_a_form<B>(request: &hyper::Request<B>) -> bool {
    let kind = request.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    kind.trim_start().to_ascii_lowercase().starts_with("multipart/form-data") && request.method() == Method::POST
}
