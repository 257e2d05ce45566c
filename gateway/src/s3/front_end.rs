//! The S3 front end, as the accept loop uses it.

use std::sync::Arc;

use fencepost_objects::Objects;
use hyper::StatusCode;
use s3s::{Body, HttpError, HttpResponse, S3Error, S3ErrorCode};
use tokio::net::{TcpListener, TcpStream};

use super::options::S3Options;
use super::request::{Requests, refused};
use crate::config::Limits;
use crate::credentials::S3Credentials;
use crate::listener::{Arriving, Closing, FrontEnd, Full};
use crate::metrics::Metrics;
use crate::peer::PeerAddress;

/// The most requests under way on one HTTP/2 connection.
pub(crate) const MAX_STREAMS: u32 = 64;

/// A bound port, and the front end that serves it.
pub struct S3Listener {
    pub(crate) listener: TcpListener,
    pub(crate) front_end: S3FrontEnd,
}

/// Answers requests of S3 clients.
pub(crate) struct S3FrontEnd(Requests);

impl S3Listener {
    /// Creates a front end for objects on a bound port.
    pub fn new(
        listener: TcpListener,
        objects: Arc<Objects>,
        credentials: Arc<S3Credentials>,
        metrics: Arc<Metrics>,
        limits: &Limits,
        options: &S3Options,
    ) -> S3Listener {
        let requests = Requests::new(objects, credentials, metrics, limits, options);
        S3Listener { listener, front_end: S3FrontEnd(requests) }
    }
}

impl FrontEnd<TcpStream> for S3FrontEnd {
    type Caller = PeerAddress;
    type Share = ();
    type Body = Body;
    type Error = HttpError;

    fn share(&self) {}

    fn caller(&self, _: &TcpStream, peer: PeerAddress, (): ()) -> Option<PeerAddress> {
        Some(peer)
    }

    async fn answer(&self, request: hyper::Request<Arriving>, peer: &PeerAddress) -> Result<HttpResponse, HttpError> {
        self.0.answer(*peer, request).await
    }

    fn reject(&self, full: Full) -> HttpResponse {
        let error = S3Error::with_message(S3ErrorCode::SlowDown, format!("{full}. Try again shortly."));
        refused(error).unwrap_or_else(|_| {
            let mut answer = HttpResponse::new(Body::empty());
            *answer.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
            answer
        })
    }

    fn closing_answer(&self, why: Closing) -> String {
        let (status, code, message) = match why {
            Closing::Full(full) => ("503 Slow Down", "SlowDown", format!("{full}. Try again shortly.")),
            Closing::HeadTimeout => {
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
