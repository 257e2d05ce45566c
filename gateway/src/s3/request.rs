//! One request of an S3 client, from its head to its answer.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use fencepost_core::Timestamp;
use fencepost_objects::Objects;
use hyper::header::{CONTENT_RANGE, CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Method, StatusCode};
use s3s::config::{S3Config, StaticConfigProvider};
use s3s::service::{S3Service, S3ServiceBuilder};
use s3s::{Body, HttpError, HttpResponse, S3Error, S3Result, s3_error};

use super::body::{Coming, FaultFound};
use super::caller::Secrets;
use super::calls::Calls;
use super::denials::{self, Denials};
use super::hosts::{Hosts, Others};
use super::listing::List;
use super::options::{Endpoint, S3Options, Transport};
use super::permit::Permit;
use super::shares::{Share, Shares};
use super::signed;
use super::words;
use crate::config::Limits;
use crate::credentials::S3Credentials;
use crate::listener::Arriving;
use crate::metrics::Metrics;
use crate::peer::PeerAddress;

/// The least memory for the bodies of one peer: enough for some signed chunks.
const LEAST_SHARE: usize = 4 << 20;

/// The most that a client's clock may be ahead, in seconds.
const MAX_SKEW_SECONDS: u32 = 900;

/// The header with the id of a request, which is also logged.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-amz-request-id");

/// Answers requests of S3 clients.
pub(super) struct Requests {
    service: S3Service,
    count: AtomicU64,
    /// The longest pause in a body.
    patience: Duration,
    /// Memory for streamed bodies.
    bodies: Shares,
    /// Places for bodies that are buffered whole.
    lists: Shares,
    hosts: Hosts,
    transport: Transport,
    denials: Denials,
}

/// The places for lists that the caller's peer may use.
#[derive(Clone)]
pub(super) struct ListPlaces(pub(super) Share);

impl Requests {
    pub(super) fn new(
        objects: Arc<Objects>,
        credentials: Arc<S3Credentials>,
        metrics: Arc<Metrics>,
        limits: &Limits,
        options: &S3Options,
    ) -> Requests {
        let denials = Denials::new(metrics.clone());
        let others = match options.endpoint {
            Endpoint::Configured => Others::Refused,
            Endpoint::Listener => Others::Taken,
        };
        let hosts = Hosts::new(credentials.endpoint(), others);
        let (create_buckets, read) = (options.create_buckets, options.read);
        let calls = Calls { objects, metrics, create_buckets, read };
        let mut builder = S3ServiceBuilder::new(calls.clone());
        builder.set_auth(Secrets(credentials.clone()));
        builder.set_access(Permit { credentials, calls });
        let mut config = S3Config::default();
        config.xml_max_body_size = List::Parts.bytes();
        config.presigned_url_max_skew_time_secs = MAX_SKEW_SECONDS;
        // The library reads uploads by HTML forms into memory before it verifies the signature. They are not offered,
        // so none is read.
        config.post_object_max_file_size = 0;
        config.form_max_fields_size = 64 << 10;
        config.form_max_field_size = 16 << 10;
        config.form_max_parts = 64;
        builder.set_config(Arc::new(StaticConfigProvider::new(Arc::new(config))));
        Requests {
            service: builder.build(),
            count: AtomicU64::new(first_id()),
            patience: limits.body_timeout,
            bodies: Shares::new(limits.bodies, LEAST_SHARE),
            lists: Shares::new(limits.bodies / List::Parts.bytes(), 1),
            hosts,
            transport: options.transport,
            denials,
        }
    }

    /// Answers one request of this peer.
    pub(super) async fn answer(
        &self,
        peer: PeerAddress,
        request: hyper::Request<Arriving>,
    ) -> Result<HttpResponse, HttpError> {
        let id = self.count.fetch_add(1, Ordering::Relaxed);
        let is_head = request.method() == Method::HEAD;
        let (head, body) = request.into_parts();
        let path = head.uri.path().to_owned();
        let key_id = denials::key_id(&head);
        let mut is_admitted = true;
        let mut answer = match self.admitted(peer, head, body) {
            Ok(Admitted { request, list: None }) => self.service.call(request).await?,
            Ok(Admitted { request, list: Some(fault) }) => {
                let answer = Aside(Box::pin(self.service.call(request))).await?;
                match fault.get() {
                    Some(fault) if answer.status().is_server_error() => {
                        refused(S3Error::with_message(fault.code.clone(), fault.why.clone()))?
                    }
                    _ => answer,
                }
            }
            Err(error) => {
                is_admitted = false;
                refused(error)?
            }
        };
        // The S3 library sets this status only on answers with a body.
        if is_head && answer.status() == StatusCode::OK && answer.headers().contains_key(CONTENT_RANGE) {
            *answer.status_mut() = StatusCode::PARTIAL_CONTENT;
        }
        let (answer, code) = finished(id, &path, answer).await;
        if let Some(code) = code.filter(|code| denials::is_denial(code, is_admitted)) {
            self.denials.denied(peer, &key_id, &code);
        }
        Ok(answer)
    }

    /// The request for the S3 library, or why it is not admitted.
    fn admitted(&self, peer: PeerAddress, mut head: Parts, body: Arriving) -> S3Result<Admitted> {
        if is_a_form(&head) {
            return Err(s3_error!(NotImplemented, "Uploads by HTML forms are not offered."));
        }
        self.hosts.check(&head)?;
        signed::check(&head, self.transport)?;
        signed::date(&mut head.headers);
        let list = List::of(&head);
        let mut coming = Coming::new(&head, body, self.patience, self.bodies.of(peer));
        if list == Some(List::Keys)
            && let Some(measuring) = coming.measured(&head.headers)
        {
            head.extensions.insert(measuring);
        }
        if let Some(list) = list {
            head.extensions.insert(list);
            head.extensions.insert(ListPlaces(self.lists.of(peer)));
        }
        let fault = list.map(|_| coming.fault());
        Ok(Admitted { request: hyper::Request::from_parts(head, Body::http_body_unsync(coming)), list: fault })
    }
}

/// A request for the S3 library.
struct Admitted {
    request: hyper::Request<Body>,
    /// The error in the request's list, once one is found.
    list: Option<FaultFound>,
}

/// Lists are parsed in one step, which takes a while. Meanwhile the other tasks of the worker, those of the fence
/// among them, continue on another thread.
struct Aside<F>(Pin<Box<F>>);

impl<F: Future> Future for Aside<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        tokio::task::block_in_place(|| self.0.as_mut().poll(context))
    }
}

/// The first request id. It is derived from the start time, so that ids are unique across restarts.
fn first_id() -> u64 {
    Timestamp::now().0 << 20
}

/// Completes an answer with its request id and error text. Also returns the code of an error.
async fn finished(id: u64, path: &str, mut answer: HttpResponse) -> (HttpResponse, Option<String>) {
    let id = format!("{id:016X}");
    if let Ok(id) = HeaderValue::try_from(&id) {
        answer.headers_mut().insert(REQUEST_ID, id);
    }
    words::explained(answer, path, &id).await
}

/// Converts an error to an answer.
pub(super) fn refused(error: S3Error) -> Result<HttpResponse, HttpError> {
    error.to_http_response().map_err(|error| HttpError::new(Box::new(error)))
}

fn is_a_form(head: &Parts) -> bool {
    let kind = head.headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    kind.trim_start().to_ascii_lowercase().starts_with("multipart/form-data") && head.method == Method::POST
}
