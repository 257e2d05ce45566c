//! The S3 face's own port.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hyper::StatusCode;
use hyper::header::{CONTENT_RANGE, CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use s3s::config::{S3Config, StaticConfigProvider};
use s3s::service::{S3Service, S3ServiceBuilder};
use s3s::{Body, S3Error, s3_error};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;

use super::body::Coming;
use super::caller::{Permit, Secrets};
use super::credentials::S3Credentials;
use super::face::Face;
use super::words;
use crate::config::Limits;
use crate::http::Metrics;
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
    service: S3Service,
    limits: Limits,
    requests: Arc<AtomicU64>,
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
        S3Door { listener, service: builder.build(), limits, requests: Arc::default() }
    }

    /// Serves until told to stop; then those who are in finish.
    pub(crate) async fn run(self, stop: Arc<Notify>) {
        let mut http = Builder::new(TokioExecutor::new());
        http.http1().timer(TokioTimer::new()).header_read_timeout(self.limits.header_timeout);
        http.http1().max_buf_size(self.limits.headers + (64 << 10));
        http.http2()
            .timer(TokioTimer::new())
            .max_concurrent_streams(MAX_STREAMS)
            .max_header_list_size(u32::try_from(self.limits.headers + (16 << 10)).unwrap_or(u32::MAX))
            .keep_alive_interval(Duration::from_secs(20));
        let graceful = GracefulShutdown::new();
        let places = Arc::new(Semaphore::new(self.limits.connections));
        let mut connections = JoinSet::new();
        loop {
            while connections.try_join_next().is_some() {}
            let accepted = async {
                let place = places.clone().acquire_owned().await.map_err(io::Error::other)?;
                self.listener.accept().await.map(|(stream, _)| (stream, place))
            };
            let (stream, place) = tokio::select! {
                accepted = accepted => match accepted {
                    Ok(accepted) => accepted,
                    Err(error) => {
                        tracing::warn!(%error, "cannot accept a connection for S3");
                        tokio::time::sleep(Duration::from_millis(50)).await;
                        continue;
                    }
                },
                () = stop.notified() => break,
            };
            connections.spawn(self.serve(&http, &graceful, stream, place));
        }
        drop(self.listener);
        graceful.shutdown().await;
    }

    fn serve(
        &self,
        http: &Builder<TokioExecutor>,
        graceful: &GracefulShutdown,
        stream: TcpStream,
        place: OwnedSemaphorePermit,
    ) -> impl Future<Output = ()> + Send + 'static {
        let _ = stream.set_nodelay(true);
        // A client that takes nothing of what is sent to it is given up by the system.
        let patience = u32::try_from(self.limits.write_timeout.as_millis()).unwrap_or(u32::MAX);
        let _ = rustix::net::sockopt::set_tcp_user_timeout(&stream, patience);
        let (service, requests) = (self.service.clone(), self.requests.clone());
        let patience = self.limits.body_timeout;
        let service = service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
            let id = requests.fetch_add(1, Ordering::Relaxed);
            let service = service.clone();
            let is_head = request.method() == hyper::Method::HEAD;
            async move {
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
                Ok::<_, s3s::HttpError>(words::explained(answer).await)
            }
        });
        let serving = graceful.watch(http.serve_connection(TokioIo::new(stream), service).into_owned());
        async move {
            // A broken connection is its own client's business.
            let _ = serving.await;
            drop(place);
        }
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
