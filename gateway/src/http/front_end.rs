//! The gateway behind its two listeners: the public one, and that of administrators.

use std::convert::Infallible;
use std::sync::Arc;

use fencepost_core::wire::PROBLEM_JSON;
use fencepost_core::{ProblemDocument, ProblemKind};
use hyper::{Request, Response};
use tokio::net::{TcpStream, UnixStream};

use super::caller::{AnswerShare, Caller};
use super::permit::{Identity, Peer};
use super::problem::{Problem, SOON};
use super::{Body, Gateway};
use crate::listener::{Arriving, Closing, FrontEnd, Full};
use crate::peer::PeerAddress;

/// Requests that one HTTP/2 connection may have under way.
pub(crate) const MAX_STREAMS: u32 = 256;

/// The public listener: every caller is anonymous.
pub(crate) struct Public(pub(crate) Arc<Gateway>);

impl FrontEnd<TcpStream> for Public {
    type Caller = Caller;
    type Share = Arc<AnswerShare>;
    type Body = Body;
    type Error = Infallible;

    fn share(&self) -> Arc<AnswerShare> {
        AnswerShare::new(&self.0.limits)
    }

    fn caller(&self, _: &TcpStream, peer: PeerAddress, share: Arc<AnswerShare>) -> Option<Caller> {
        Some(Caller { identity: Identity::Anonymous, peer, share, waits: Arc::default() })
    }

    async fn answer(&self, request: Request<Arriving>, caller: &Caller) -> Result<Response<Body>, Infallible> {
        self.0.handle(request, caller).await
    }

    fn reject(&self, full: Full) -> Response<Body> {
        self.0.no_place(full)
    }

    fn closing_answer(&self, why: Closing) -> String {
        self.0.closing_answer(why)
    }
}

/// The administrators' listener: a caller is the process at the other end.
pub(crate) struct Administrators(pub(crate) Arc<Gateway>);

impl FrontEnd<UnixStream> for Administrators {
    type Caller = Caller;
    type Share = Arc<AnswerShare>;
    type Body = Body;
    type Error = Infallible;

    fn share(&self) -> Arc<AnswerShare> {
        AnswerShare::new(&self.0.limits)
    }

    fn caller(&self, stream: &UnixStream, peer: PeerAddress, share: Arc<AnswerShare>) -> Option<Caller> {
        match stream.peer_cred() {
            Ok(found) => {
                let identity = Identity::Administrator(Peer { uid: found.uid(), pid: found.pid() });
                Some(Caller { identity, peer, share, waits: Arc::default() })
            }
            Err(error) => {
                tracing::warn!(%error, "an administrator's connection does not say whose it is");
                None
            }
        }
    }

    async fn answer(&self, request: Request<Arriving>, caller: &Caller) -> Result<Response<Body>, Infallible> {
        if !request.uri().path().starts_with("/v1/admin/") {
            return self.0.handle(request, caller).await;
        }
        // A call runs to its end, and to its line in the audit log, even if its caller does not wait for it.
        let (gateway, caller) = (self.0.clone(), caller.clone());
        match tokio::spawn(async move { gateway.handle(request, &caller).await }).await {
            Ok(answered) => answered,
            Err(ended) => std::panic::resume_unwind(ended.into_panic()),
        }
    }

    fn reject(&self, full: Full) -> Response<Body> {
        self.0.no_place(full)
    }

    fn closing_answer(&self, why: Closing) -> String {
        self.0.closing_answer(why)
    }
}

impl Gateway {
    /// Answers a request that exceeds a limit of the listener.
    fn no_place(&self, full: Full) -> Response<Body> {
        let id = self.next_id();
        let problem = Problem::new(ProblemKind::Overloaded, full.to_string()).advice("Try again shortly.");
        self.metrics.problem(ProblemKind::Overloaded);
        // The request was not read: it may have an idempotency key.
        problem
            .not_applied(SOON)
            .of_a_keyed_request()
            .into_answer(&id, &self.answers)
            .with_request_id(&id)
            .into_response()
    }

    /// The closing answer of a connection without a request to answer.
    fn closing_answer(&self, why: Closing) -> String {
        let (kind, detail) = match why {
            Closing::Full(full) => (ProblemKind::Overloaded, full.to_string()),
            Closing::HeadTimeout => (ProblemKind::Timeout, "the headers did not arrive in time".to_owned()),
        };
        self.metrics.problem(kind);
        // The request was not read: it may be a retry with an idempotency key.
        let (id, outcome) = (self.next_id(), Some("not-applied-by-this-request".into()));
        let problem = ProblemDocument { request_id: Some(id.clone()), outcome, ..ProblemDocument::new(kind, detail) };
        let (status, body) = (problem.status, problem.to_json());
        let body = String::from_utf8_lossy(&body);
        let (reason, retry) = match why {
            Closing::Full(_) => ("Service Unavailable", "retry-after: 1\r\n"),
            Closing::HeadTimeout => ("Request Timeout", ""),
        };
        let length = body.len();
        format!(
            "HTTP/1.1 {status} {reason}\r\ncontent-type: {PROBLEM_JSON}\r\ncontent-length: {length}\r\n\
             request-id: {id}\r\nx-content-type-options: nosniff\r\n{retry}connection: close\r\n\r\n{body}"
        )
    }
}
