//! How requests travel: over TCP with pooled connections, or over a Unix socket.

use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use fencepost_core::ProblemDocument;
use fencepost_core::wire::PROBLEM_JSON;
use fencepost_core::wire::header::IDEMPOTENT_REPLAYED;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HOST, HeaderMap};
use hyper::{Method, Request, Response};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;

use crate::error::CallError;

/// The largest answer that is read.
const MAX_ANSWER_BYTES: usize = 64 << 20;

/// Which HTTP is spoken with the gateway, which understands both at the same port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// Each call has a connection to itself while it lasts.
    #[default]
    Http1,
    /// All calls share one connection. Without TLS nothing is negotiated: whatever is between must speak HTTP/2 as well.
    Http2,
}

/// How a gateway is talked to.
#[derive(Clone, Debug)]
pub struct GatewayOptions {
    /// Which HTTP.
    pub protocol: Protocol,
    /// How long a call may take, beyond what it is asked to wait for a lock.
    pub timeout: Duration,
    /// How long a connection may take to come about; a call that gets none was surely not applied.
    pub connect_timeout: Duration,
    /// How many connections are kept for later calls. Calls at the same time open as many as they need with HTTP/1.1:
    /// one that waits for a lock must not keep a renewal waiting.
    pub idle_connections: usize,
    /// How long a connection is kept that nobody uses.
    pub idle_timeout: Duration,
    /// With HTTP/2, how often the gateway is asked whether it is still there, and how long it has to answer. If it does
    /// not, the calls on their way end without their timeout being waited for.
    pub keep_alive: Duration,
}

impl Default for GatewayOptions {
    fn default() -> GatewayOptions {
        GatewayOptions {
            protocol: Protocol::Http1,
            timeout: Duration::from_secs(30),
            connect_timeout: Duration::from_secs(5),
            idle_connections: 64,
            idle_timeout: Duration::from_secs(90),
            keep_alive: Duration::from_secs(10),
        }
    }
}

/// Where requests go.
#[derive(Clone, Debug)]
pub(crate) enum Transport {
    /// `http://host:port`, without a slash at the end.
    Tcp { base: String, http: Box<Client<HttpConnector, Full<Bytes>>> },
    /// A socket in the file system.
    Unix(PathBuf),
}

/// Does the call change something? Then a lost answer is an unknown outcome.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    Read,
    Write,
}

/// A call without the answer hoped for.
pub(crate) struct Missed {
    pub(crate) error: CallError,
    /// It was surely not applied, or it is harmless to repeat.
    pub(crate) repeatable: bool,
    /// The answer is the recorded one of an earlier request with the same idempotency key: it is final.
    pub(crate) replayed: bool,
}

impl From<CallError> for Missed {
    fn from(error: CallError) -> Missed {
        let repeatable =
            matches!(error, CallError::Unknown(_) | CallError::Unreachable { .. } | CallError::NotApplied(_));
        Missed { error, repeatable, replayed: false }
    }
}

impl From<Missed> for CallError {
    fn from(missed: Missed) -> CallError {
        missed.error
    }
}

impl Effect {
    /// Whatever was sent, no answer came back: a write with an idempotency key and any read may be repeated.
    fn lost(self, why: String) -> Missed {
        let error = match self {
            Effect::Write => CallError::unknown(why),
            Effect::Read => CallError::Failed(why),
        };
        Missed { error, repeatable: true, replayed: false }
    }
}

/// A request on its way.
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
}

impl Answer {
    pub(crate) fn text(&self, name: impl hyper::header::AsHeaderName) -> Option<String> {
        self.headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
    }

    pub(crate) fn token(&self, name: &str) -> Option<fencepost_core::Token> {
        self.text(name)?.parse().ok()
    }

    pub(crate) fn json<T: DeserializeOwned>(&self) -> Result<T, CallError> {
        serde_json::from_slice(&self.body)
            .map_err(|error| CallError::Failed(format!("the gateway's answer cannot be read: {error}")))
    }
}

impl Transport {
    pub(crate) fn tcp(url: &str, options: &GatewayOptions) -> Transport {
        let mut connector = HttpConnector::new();
        connector.set_connect_timeout(Some(options.connect_timeout));
        connector.set_nodelay(true);
        let http = Client::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_max_idle_per_host(options.idle_connections)
            .pool_idle_timeout(options.idle_timeout)
            .http2_only(options.protocol == Protocol::Http2)
            .http2_keep_alive_interval(options.keep_alive)
            .http2_keep_alive_timeout(options.keep_alive)
            .http2_keep_alive_while_idle(true)
            // Safe for writes: only a request comes back that no connection has taken, so not a byte of it was sent.
            .retry_canceled_requests(true)
            .build(connector);
        Transport::Tcp { base: url.trim_end_matches('/').to_owned(), http: Box::new(http) }
    }

    /// Where it leads, for messages.
    fn place(&self) -> String {
        match self {
            Transport::Tcp { base, .. } => base.clone(),
            Transport::Unix(path) => path.display().to_string(),
        }
    }

    /// Makes one call. Every end is an answer, a typed error, or an outcome that is not known.
    pub(crate) async fn call(&self, outgoing: Outgoing, timeout: Duration) -> Result<Answer, Missed> {
        let effect = outgoing.effect;
        let exchange = async {
            let (head, body) = self.send(outgoing).await?.into_parts();
            let body = Limited::new(body, MAX_ANSWER_BYTES).collect().await;
            let body = body.map_err(|error| effect.lost(error.to_string()))?;
            Ok((head, body.to_bytes()))
        };
        let (head, body) = tokio::time::timeout(timeout, exchange)
            .await
            .unwrap_or_else(|_| Err(effect.lost(format!("no answer within {} s", timeout.as_secs_f64()))))?;
        if head.status.is_success() {
            return Ok(Answer { headers: head.headers, body });
        }
        let is_problem = head.headers.get(CONTENT_TYPE).is_some_and(|value| value == PROBLEM_JSON);
        match serde_json::from_slice::<ProblemDocument>(&body) {
            Ok(problem) if is_problem => {
                let replayed = head.headers.contains_key(IDEMPOTENT_REPLAYED);
                Err(Missed { replayed, ..CallError::from_problem(problem).into() })
            }
            _ if head.status.is_server_error() => Err(effect.lost(format!("the gateway answered {}", head.status))),
            _ => {
                let why = format!("{} answered {}; is it a Fencepost gateway?", self.place(), head.status);
                Err(CallError::Failed(why).into())
            }
        }
    }

    async fn send(&self, outgoing: Outgoing) -> Result<Response<Incoming>, Missed> {
        let Outgoing { method, path, headers, body, effect } = outgoing;
        let unreachable = |why: String| Missed::from(CallError::Unreachable { url: self.place(), why });
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
        let request = request.body(Full::new(body)).map_err(|error| CallError::Failed(error.to_string()))?;
        match self {
            Transport::Tcp { http, .. } => http.request(request).await.map_err(|error| match error.is_connect() {
                true => unreachable(causes(&error)),
                false => effect.lost(causes(&error)),
            }),
            Transport::Unix(path) => {
                let stream = UnixStream::connect(path).await.map_err(|error| unreachable(error.to_string()))?;
                let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
                    .await
                    .map_err(|error| unreachable(causes(&error)))?;
                tokio::spawn(connection);
                sender.send_request(request).await.map_err(|error| effect.lost(causes(&error)))
            }
        }
    }
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
