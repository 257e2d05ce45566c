//! The transport of requests: over TCP with pooled connections, or over a Unix socket.

use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use fencepost_core::ProblemDocument;
use fencepost_core::wire::PROBLEM_JSON;
use fencepost_core::wire::header::IDEMPOTENT_REPLAYED;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HOST, HeaderMap, RETRY_AFTER};
use hyper::{Method, Request, Response};
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;

use crate::error::{Cause, Error};
use crate::options::{GatewayOptions, Protocol};

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The largest response body that is read.
const MAX_ANSWER_BYTES: usize = 64 << 20;

/// The destination of requests.
#[derive(Clone, Debug)]
pub(crate) enum Transport {
    /// `http://host:port`, without a slash at the end.
    Tcp { base: String, http: Box<HttpClient<HttpConnector, Full<Bytes>>> },
    /// The path of a Unix socket.
    Unix(PathBuf),
}

/// Whether a call changes something. If it does, a lost answer is an unknown outcome.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    Read,
    Write,
}

/// A failed call, and what may be concluded from the failure.
pub(crate) struct Missed {
    pub(crate) error: Error,
    /// The call was surely not applied, or is harmless to repeat.
    pub(crate) repeatable: bool,
    /// The answer is the recorded one of an earlier request with the same idempotency key, and therefore final.
    pub(crate) replayed: bool,
}

impl From<Error> for Missed {
    fn from(error: Error) -> Missed {
        Missed { repeatable: error.is_repeatable(), error, replayed: false }
    }
}

impl From<Missed> for Error {
    fn from(missed: Missed) -> Error {
        missed.error
    }
}

impl Effect {
    /// No answer arrived, whatever was sent: any read, and a write with an idempotency key, may be repeated.
    fn lost(self, why: String) -> Missed {
        let error = match self {
            Effect::Write => Error::unknown(why, None),
            Effect::Read => Cause::Failed(why).into(),
        };
        Missed { error, repeatable: true, replayed: false }
    }

    /// Like `lost`, with the connection error as its source.
    fn broken(self, why: String, error: impl Into<BoxError>) -> Missed {
        let missed = self.lost(why);
        Missed { error: missed.error.with_source(error), ..missed }
    }
}

/// A request to be sent.
pub(crate) struct Outgoing {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: Bytes,
    pub(crate) effect: Effect,
}

impl Outgoing {
    pub(crate) fn get(path: String) -> Outgoing {
        Outgoing { method: Method::GET, path, headers: Vec::new(), body: Bytes::new(), effect: Effect::Read }
    }

    pub(crate) fn write(method: Method, path: String, headers: Vec<(&'static str, String)>, body: Bytes) -> Outgoing {
        Outgoing { method, path, headers, body, effect: Effect::Write }
    }

    pub(crate) fn post(path: String, body: &impl Serialize) -> Outgoing {
        let body = serde_json::to_vec(body).unwrap_or_default();
        Outgoing::write(Method::POST, path, Vec::new(), body.into())
    }

    pub(crate) fn with_headers(self, headers: Vec<(&'static str, String)>) -> Outgoing {
        Outgoing { headers, ..self }
    }
}

/// A successful answer.
pub(crate) struct Answer {
    headers: HeaderMap,
    pub(crate) body: Bytes,
    effect: Effect,
}

impl Answer {
    pub(crate) fn text(&self, name: impl hyper::header::AsHeaderName) -> Option<String> {
        self.headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
    }

    pub(crate) fn token(&self, name: &str) -> Option<fencepost_core::Token> {
        self.text(name)?.parse().ok()
    }

    pub(crate) fn json<T: DeserializeOwned>(&self) -> Result<T, Error> {
        serde_json::from_slice(&self.body).map_err(|error| {
            let why = format!("the gateway's answer cannot be read: {error}");
            // The gateway may have applied a write even if its answer cannot be read.
            let unread = match self.effect {
                Effect::Write => Error::unknown(why, None),
                Effect::Read => Cause::Failed(why).into(),
            };
            unread.with_source(error)
        })
    }
}

impl Transport {
    pub(crate) fn tcp(url: &str, options: &GatewayOptions) -> Transport {
        let mut connector = HttpConnector::new();
        connector.set_connect_timeout(Some(options.connect_timeout));
        connector.set_nodelay(true);
        let http = HttpClient::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_max_idle_per_host(options.idle_connections)
            .pool_idle_timeout(options.idle_timeout)
            .http2_only(options.protocol == Protocol::Http2)
            .http2_keep_alive_interval(options.keep_alive)
            .http2_keep_alive_timeout(options.keep_alive)
            .http2_keep_alive_while_idle(true)
            // Safe for writes: only a request that no connection has taken is retried, so not a byte of it was sent.
            .retry_canceled_requests(true)
            .build(connector);
        Transport::Tcp { base: url.trim_end_matches('/').to_owned(), http: Box::new(http) }
    }

    /// The destination, for messages.
    fn place(&self) -> String {
        match self {
            Transport::Tcp { base, .. } => base.clone(),
            Transport::Unix(path) => path.display().to_string(),
        }
    }

    /// Makes one call. The result is an answer, a typed error, or an unknown outcome.
    pub(crate) async fn call(&self, outgoing: Outgoing, timeout: Duration) -> Result<Answer, Missed> {
        let effect = outgoing.effect;
        let exchange = async {
            let (head, body) = self.send(outgoing).await?.into_parts();
            let body = Limited::new(body, MAX_ANSWER_BYTES).collect().await;
            let body = body.map_err(|error| effect.broken(error.to_string(), error))?;
            Ok((head, body.to_bytes()))
        };
        let (head, body) = tokio::time::timeout(timeout, exchange)
            .await
            .unwrap_or_else(|_| Err(effect.lost(format!("no answer within {} s", timeout.as_secs_f64()))))?;
        if head.status.is_success() {
            return Ok(Answer { headers: head.headers, body, effect });
        }
        let is_problem = head.headers.get(CONTENT_TYPE).is_some_and(|value| value == PROBLEM_JSON);
        match serde_json::from_slice::<ProblemDocument>(&body) {
            Ok(problem) if is_problem => {
                let replayed = head.headers.contains_key(IDEMPOTENT_REPLAYED);
                let error = Error::answered(problem).with_retry_after(retry_after(&head.headers));
                Err(Missed { replayed, ..error.into() })
            }
            _ if head.status.is_server_error() => Err(effect.lost(format!("the gateway answered {}", head.status))),
            _ => {
                let why = format!("{} answered {}; is it a Fencepost gateway?", self.place(), head.status);
                Err(Error::from(Cause::Failed(why)).into())
            }
        }
    }

    async fn send(&self, outgoing: Outgoing) -> Result<Response<Incoming>, Missed> {
        let Outgoing { method, path, headers, body, effect } = outgoing;
        let unreachable = |error: BoxError| {
            let cause = Cause::Unreachable { url: self.place(), why: causes(error.as_ref()) };
            Missed::from(Error::from(cause).with_source(error))
        };
        let uri = match self {
            Transport::Tcp { base, .. } => format!("{base}{path}"),
            Transport::Unix(_) => path,
        };
        let mut request = Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            request = request.header(name, value.as_bytes());
        }
        if let Transport::Unix(_) = self {
            request = request.header(HOST, "localhost");
        }
        let request = request
            .body(Full::new(body))
            .map_err(|error| Error::from(Cause::Failed(error.to_string())).with_source(error))?;
        match self {
            Transport::Tcp { http, .. } => http.request(request).await.map_err(|error| match error.is_connect() {
                true => unreachable(error.into()),
                false => effect.broken(causes(&error), error),
            }),
            Transport::Unix(path) => {
                let stream = UnixStream::connect(path).await.map_err(|error| unreachable(error.into()))?;
                let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
                    .await
                    .map_err(|error| unreachable(error.into()))?;
                tokio::spawn(connection);
                sender.send_request(request).await.map_err(|error| effect.broken(causes(&error), error))
            }
        }
    }
}

/// The gateway's `Retry-After`, which it writes in seconds.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
    Some(Duration::from_secs(seconds))
}

/// An error with its causes, outermost first.
pub(crate) fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use fencepost_core::wire::TxnRequest;
    use fencepost_core::{IdempotencyKey, ProblemKind, Resource};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;
    use crate::{ErrorKind, Gateway};

    /// A gateway that gives the same answer to every request.
    async fn answering(head: &str, body: &str) -> Gateway {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let gateway = Gateway::new(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
        let answer = format!("HTTP/1.1 {head}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut request = [0; 4096];
                assert!(stream.read(&mut request).await.unwrap() > 0);
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        });
        gateway
    }

    #[tokio::test]
    async fn c02_a_write_whose_answer_cannot_be_read_is_unknown() {
        let gateway = answering("200 OK", "{").await;
        let transaction: TxnRequest = serde_json::from_str(r#"{"then": [{"get": "k"}]}"#).unwrap();
        let once = IdempotencyKey::new("once").unwrap();
        let written = gateway.transact(&transaction, Some(&once)).await.unwrap_err();
        assert_eq!(written.unknown_outcome().unwrap().key, Some(once), "{written:?}");
        let read = gateway.fence(&Resource::new("k").unwrap()).await.unwrap_err();
        assert_eq!(read.kind(), ErrorKind::Unavailable, "{read:?}");
    }

    #[tokio::test]
    async fn a_rejection_carries_when_to_come_back() {
        let problem = ProblemDocument::new(ProblemKind::Overloaded, "the queue is full").to_json();
        let head = format!("503 Service Unavailable\r\ncontent-type: {PROBLEM_JSON}\r\nretry-after: 7");
        let gateway = answering(&head, std::str::from_utf8(&problem).unwrap()).await;
        let error = gateway.fence(&Resource::new("k").unwrap()).await.unwrap_err();
        assert_eq!((error.kind(), error.retry_after()), (ErrorKind::Unavailable, Some(Duration::from_secs(7))));
        assert!(!error.is_unreachable() && error.problem().is_some(), "{error:?}");
    }
}
