//! The gateway, from the client's side.

use std::time::Duration;

use bytes::Bytes;
use fencepost_core::wire::{ClaimAnswer, ClaimRequest, FenceAnswer, FencePage, KeyPage, PROBLEM_JSON, header};
use fencepost_core::{Key, ProblemDocument, Resource, percent_encode_name};
use http_body_util::{BodyExt, Full, Limited};
use hyper::header::{CONTENT_TYPE, ETAG, HeaderMap};
use hyper::{Method, Request, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::de::DeserializeOwned;

use crate::call::{Credentials, Precondition, ReadValue, Written, credential_headers};
use crate::error::CallError;

/// The largest answer that is read.
const MAX_ANSWER_BYTES: usize = 64 << 20;

/// A URL that does not lead to a gateway.
#[derive(Debug, thiserror::Error)]
#[error("`{url}` is not a gateway URL: {why}; write it like http://127.0.0.1:3362")]
pub struct BadUrl {
    url: String,
    why: String,
}

/// A gateway to talk to. Clones share connections.
#[derive(Clone, Debug)]
pub struct Gateway {
    base: String,
    http: Client<HttpConnector, Full<Bytes>>,
    timeout: Duration,
}

/// Does the call change something? Then a lost answer is an unknown outcome.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Effect {
    Read,
    Write,
}

struct Answer {
    headers: HeaderMap,
    body: Bytes,
}

impl Answer {
    fn text(&self, name: impl hyper::header::AsHeaderName) -> Option<String> {
        self.headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
    }

    fn token(&self, name: &str) -> Option<fencepost_core::Token> {
        self.text(name)?.parse().ok()
    }

    fn json<T: DeserializeOwned>(&self) -> Result<T, CallError> {
        serde_json::from_slice(&self.body)
            .map_err(|error| CallError::Failed(format!("the gateway's answer cannot be read: {error}")))
    }
}

impl Gateway {
    /// A gateway at a URL such as `http://127.0.0.1:3362`.
    pub fn new(url: &str, timeout: Duration) -> Result<Gateway, BadUrl> {
        let wrong = |why: &str| BadUrl { url: url.to_owned(), why: why.to_owned() };
        let uri: Uri = url.parse().map_err(|error: hyper::http::uri::InvalidUri| wrong(&error.to_string()))?;
        match uri.scheme_str() {
            Some("http") => {}
            Some(_) => return Err(wrong("only http is supported by this version")),
            None => return Err(wrong("it has no scheme")),
        }
        if uri.path() != "/" || uri.query().is_some() {
            return Err(wrong("it has a path or query"));
        }
        let mut connector = HttpConnector::new();
        connector.set_connect_timeout(Some(timeout));
        connector.set_nodelay(true);
        let http = Client::builder(TokioExecutor::new()).pool_timer(TokioTimer::new()).build(connector);
        Ok(Gateway { base: url.trim_end_matches('/').to_owned(), http, timeout })
    }

    /// Writes a value.
    pub async fn put(
        &self,
        key: &Key,
        body: Bytes,
        content_type: Option<&str>,
        credentials: Option<&Credentials>,
        precondition: &Precondition,
    ) -> Result<Written, CallError> {
        let mut headers = write_headers(credentials, precondition);
        headers.extend(content_type.map(|value| (CONTENT_TYPE.as_str(), value.to_owned())));
        let answer = self.call(Method::PUT, &kv_path(key), headers, body, Effect::Write).await?;
        Ok(written(&answer))
    }

    /// Removes a value; the fence stays.
    pub async fn delete(
        &self,
        key: &Key,
        credentials: Option<&Credentials>,
        precondition: &Precondition,
    ) -> Result<Written, CallError> {
        let headers = write_headers(credentials, precondition);
        let answer = self.call(Method::DELETE, &kv_path(key), headers, Bytes::new(), Effect::Write).await?;
        Ok(written(&answer))
    }

    /// Reads a value. With credentials the read is checked: a stale token is refused.
    pub async fn get(&self, key: &Key, credentials: Option<&Credentials>) -> Result<ReadValue, CallError> {
        let headers = credentials.map(credential_headers).unwrap_or_default();
        let answer = self.call(Method::GET, &kv_path(key), headers, Bytes::new(), Effect::Read).await?;
        Ok(ReadValue {
            etag: answer.text(ETAG).unwrap_or_default(),
            content_type: answer.text(CONTENT_TYPE).unwrap_or_default(),
            token: answer.token(header::FENCING_TOKEN),
            fence: answer.token(header::FENCE),
            unclaimed: answer.text(header::FENCING_UNCLAIMED).is_some(),
            body: answer.body,
        })
    }

    /// Lists keys, one page.
    pub async fn list(&self, prefix: &str, after: Option<&str>, limit: usize) -> Result<KeyPage, CallError> {
        let path = format!("/v1/kv{}", list_query(prefix, after, limit));
        self.call(Method::GET, &path, Vec::new(), Bytes::new(), Effect::Read).await?.json()
    }

    /// Raises the fence and reads, in one step.
    pub async fn claim(
        &self,
        resource: &Resource,
        credentials: &Credentials,
        keys: Option<Vec<Key>>,
    ) -> Result<ClaimAnswer, CallError> {
        let path = format!("/v1/claim/{}", percent_encode_name(resource.as_str()));
        let body = serde_json::to_vec(&ClaimRequest { keys }).unwrap_or_default();
        self.call(Method::POST, &path, credential_headers(credentials), body.into(), Effect::Write).await?.json()
    }

    /// Shows a fence, also of a resource never seen.
    pub async fn fence(&self, resource: &Resource) -> Result<FenceAnswer, CallError> {
        let path = format!("/v1/fences/{}", percent_encode_name(resource.as_str()));
        self.call(Method::GET, &path, Vec::new(), Bytes::new(), Effect::Read).await?.json()
    }

    /// Lists fences, one page.
    pub async fn fences(&self, prefix: &str, after: Option<&str>, limit: usize) -> Result<FencePage, CallError> {
        let path = format!("/v1/fences{}", list_query(prefix, after, limit));
        self.call(Method::GET, &path, Vec::new(), Bytes::new(), Effect::Read).await?.json()
    }

    async fn call(
        &self,
        method: Method,
        path: &str,
        headers: Vec<(&str, String)>,
        body: Bytes,
        effect: Effect,
    ) -> Result<Answer, CallError> {
        let mut request = Request::builder().method(method).uri(format!("{}{path}", self.base));
        for (name, value) in headers {
            request = request.header(name, value.as_bytes());
        }
        let request = request.body(Full::new(body)).map_err(|error| CallError::Failed(error.to_string()))?;
        let lost = |why: String| match effect {
            Effect::Write => CallError::Unknown(why),
            Effect::Read => CallError::Failed(why),
        };
        let exchange = async {
            let response = self.http.request(request).await.map_err(|error| {
                let why = causes(&error);
                if error.is_connect() { CallError::Unreachable { url: self.base.clone(), why } } else { lost(why) }
            })?;
            let (head, body) = response.into_parts();
            let body = Limited::new(body, MAX_ANSWER_BYTES).collect().await.map_err(|error| lost(error.to_string()))?;
            Ok((head, body.to_bytes()))
        };
        let (head, body) = tokio::time::timeout(self.timeout, exchange)
            .await
            .unwrap_or_else(|_| Err(lost(format!("no answer within {} s", self.timeout.as_secs_f64()))))?;
        if head.status.is_success() {
            return Ok(Answer { headers: head.headers, body });
        }
        let is_problem = head.headers.get(CONTENT_TYPE).is_some_and(|value| value == PROBLEM_JSON);
        match serde_json::from_slice::<ProblemDocument>(&body) {
            Ok(problem) if is_problem => Err(CallError::from_problem(problem)),
            _ if head.status.is_server_error() => Err(lost(format!("the gateway answered {}", head.status))),
            _ => Err(CallError::Failed(format!("{} answered {}; is it a Fencepost gateway?", self.base, head.status))),
        }
    }
}

fn kv_path(key: &Key) -> String {
    format!("/v1/kv/{}", percent_encode_name(key.as_str()))
}

fn list_query(prefix: &str, after: Option<&str>, limit: usize) -> String {
    let encode = |text| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    let after = after.map(|after| format!("&after={}", encode(after))).unwrap_or_default();
    format!("?prefix={}&limit={limit}{after}", encode(prefix))
}

fn write_headers(credentials: Option<&Credentials>, precondition: &Precondition) -> Vec<(&'static str, String)> {
    let mut headers = credentials.map(credential_headers).unwrap_or_default();
    match precondition {
        Precondition::Always => {}
        Precondition::Absent => headers.push(("if-none-match", "*".into())),
        Precondition::Version(etag) => headers.push(("if-match", etag.clone())),
    }
    headers
}

fn written(answer: &Answer) -> Written {
    Written {
        etag: answer.text(ETAG),
        fence: answer.token(header::FENCE),
        observed: answer.text(header::FENCING_OBSERVED),
    }
}

/// An error with its causes, outermost first.
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
