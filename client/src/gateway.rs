//! Every call of the gateway's HTTP interface `/v1`.

use std::time::Duration;

use bytes::Bytes;
use fencepost_core::wire::{
    AcquireRequest, ClaimAnswer, ClaimRequest, FenceAnswer, FencePage, KeyPage, LeaseAnswer, LockPage, LockView,
    OutcomeAnswer, RenewRequest, S3CredentialsAnswer, S3CredentialsRequest, TxnAnswer, TxnRequest, header,
};
use fencepost_core::{IdempotencyKey, Key, Resource, percent_encode_name};
use hyper::header::{CONTENT_TYPE, ETAG};
use hyper::{Method, Uri};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use crate::call::{Credentials, Precondition, ReadValue, WriteOptions, Written, credential_headers};
use crate::error::{Error, absent_is_none};
use crate::options::GatewayOptions;
use crate::transport::{Answer, Missed, Outgoing, Transport};

/// The calls of a gateway, each with a token of your own. Clones share connections.
///
/// With a lock service, use a [`Client`](crate::Client): its guards attach the token to every call, and retry safely.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use fencepost_client::{Credentials, ErrorKind, Gateway, WriteOptions};
/// use fencepost_core::Key;
///
/// let gateway = Gateway::new("http://127.0.0.1:3362")?;
/// let key = Key::new("orders/123")?;
/// let token = Credentials { token: "34".parse()?, holder: None, issuer: None };
/// match gateway.put(&key, "paid".into(), None, &WriteOptions::new().credentials(token)).await {
///     Ok(written) => println!("written as {:?}", written.etag),
///     Err(error) if error.kind() == ErrorKind::Fenced => println!("stop: {error}"),
///     Err(error) => return Err(error.into()),
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Gateway {
    transport: Transport,
    timeout: Duration,
}

impl Gateway {
    /// A gateway at a URL such as `http://127.0.0.1:3362`, with the default [`GatewayOptions`]. Nothing is sent before the
    /// first call.
    ///
    /// # Errors
    ///
    /// [`Invalid`](crate::ErrorKind::Invalid) if this is no URL of a gateway.
    pub fn new(url: &str) -> Result<Gateway, Error> {
        Gateway::with_options(url, GatewayOptions::new())
    }

    /// The same with other [`GatewayOptions`].
    ///
    /// # Errors
    ///
    /// [`Invalid`](crate::ErrorKind::Invalid) if this is no URL of a gateway.
    pub fn with_options(url: &str, options: GatewayOptions) -> Result<Gateway, Error> {
        let wrong = |why: &str| {
            Error::invalid(format!("`{url}` is not a gateway URL: {why}; write it like http://127.0.0.1:3362"))
        };
        let uri: Uri = url.parse().map_err(|error: hyper::http::uri::InvalidUri| wrong(&error.to_string()))?;
        match uri.scheme_str() {
            Some("http") => {}
            Some(_) => return Err(wrong("only http is supported by this version")),
            None => return Err(wrong("it has no scheme")),
        }
        if uri.path() != "/" || uri.query().is_some() {
            return Err(wrong("it has a path or query"));
        }
        Ok(Gateway { transport: Transport::tcp(url, &options), timeout: options.timeout })
    }

    /// Writes a value.
    pub async fn put(
        &self,
        key: &Key,
        body: Bytes,
        content_type: Option<&str>,
        options: &WriteOptions,
    ) -> Result<Written, Error> {
        Ok(self.try_put(key, body, content_type, options).await?)
    }

    /// Like [`put`](Gateway::put); the error also reports whether the call may be repeated.
    pub(crate) async fn try_put(
        &self,
        key: &Key,
        body: Bytes,
        content_type: Option<&str>,
        options: &WriteOptions,
    ) -> Result<Written, Missed> {
        let mut headers = write_headers(options);
        headers.extend(content_type.map(|value| (CONTENT_TYPE_NAME, value.to_owned())));
        let put = Outgoing::write(Method::PUT, named("kv", key.as_str()), headers, body);
        Ok(written(&self.call_once(put, options.idempotency_key.as_ref()).await?))
    }

    /// Removes a value; the fence stays.
    pub async fn delete(&self, key: &Key, options: &WriteOptions) -> Result<Written, Error> {
        Ok(self.try_delete(key, options).await?)
    }

    /// Like [`delete`](Gateway::delete); the error also reports whether the call may be repeated.
    pub(crate) async fn try_delete(&self, key: &Key, options: &WriteOptions) -> Result<Written, Missed> {
        let path = named("kv", key.as_str());
        let delete = Outgoing::write(Method::DELETE, path, write_headers(options), Bytes::new());
        Ok(written(&self.call_once(delete, options.idempotency_key.as_ref()).await?))
    }

    /// Reads a value; `None` if the key has none. With credentials the read is checked: a stale token is refused.
    pub async fn get(&self, key: &Key, credentials: Option<&Credentials>) -> Result<Option<ReadValue>, Error> {
        Ok(self.read(key, credentials).await?)
    }

    /// Like [`get`](Gateway::get); the error also reports whether the call may be repeated.
    pub(crate) async fn read(&self, key: &Key, credentials: Option<&Credentials>) -> Result<Option<ReadValue>, Missed> {
        let headers = credentials.map(credential_headers).unwrap_or_default();
        let outgoing = Outgoing::get(named("kv", key.as_str())).with_headers(headers);
        let Some(answer) = absent_is_none(self.transport.call(outgoing, self.timeout).await)? else {
            return Ok(None);
        };
        Ok(Some(ReadValue {
            etag: answer.text(ETAG).unwrap_or_default(),
            content_type: answer.text(CONTENT_TYPE).unwrap_or_default(),
            token: answer.token(header::FENCING_TOKEN),
            fence: answer.token(header::FENCE),
            unclaimed: answer.text(header::FENCING_UNCLAIMED).is_some(),
            body: answer.body,
        }))
    }

    /// Lists keys, one page.
    pub async fn list(&self, prefix: &str, after: Option<&str>, limit: usize) -> Result<KeyPage, Error> {
        self.call(Outgoing::get(listed("kv", prefix, after, limit))).await?.json()
    }

    /// Raises the fence and reads the given keys, in one step.
    pub async fn claim(
        &self,
        resource: &Resource,
        credentials: &Credentials,
        keys: Option<Vec<Key>>,
    ) -> Result<ClaimAnswer, Error> {
        let claim = Outgoing::post(named("claim", resource.as_str()), &ClaimRequest { keys });
        self.call(claim.with_headers(credential_headers(credentials))).await?.json()
    }

    /// Claims, and returns credentials that carry the token to the S3 front end. A repeated call with the same token
    /// returns new credentials for the same lease. Without a ttl, credentials last as long as the gateway allows.
    pub async fn s3_credentials(
        &self,
        resource: &Resource,
        credentials: &Credentials,
        ttl: Option<Duration>,
    ) -> Result<S3CredentialsAnswer, Error> {
        let asked = S3CredentialsRequest { resource: resource.clone(), ttl_s: ttl.map(|ttl| ttl.as_secs()) };
        let request = Outgoing::post("/v1/s3/credentials".to_owned(), &asked);
        self.call(request.with_headers(credential_headers(credentials))).await?.json()
    }

    /// Applies a transaction atomically. With an idempotency key a retry is safe.
    pub async fn transact(&self, transaction: &TxnRequest, once: Option<&IdempotencyKey>) -> Result<TxnAnswer, Error> {
        Ok(self.try_transact(transaction, once).await?)
    }

    /// Like [`transact`](Gateway::transact); the error also reports whether the call may be repeated.
    pub(crate) async fn try_transact(
        &self,
        transaction: &TxnRequest,
        once: Option<&IdempotencyKey>,
    ) -> Result<TxnAnswer, Missed> {
        let request = Outgoing::post("/v1/txn".to_owned(), transaction).with_headers(key_header(once));
        Ok(self.call_once(request, once).await?.json().map_err(|error| error.with_key(once))?)
    }

    /// Shows a fence, including that of a resource never seen.
    pub async fn fence(&self, resource: &Resource) -> Result<FenceAnswer, Error> {
        self.call(Outgoing::get(named("fences", resource.as_str()))).await?.json()
    }

    /// Lists fences, one page.
    pub async fn fences(&self, prefix: &str, after: Option<&str>, limit: usize) -> Result<FencePage, Error> {
        self.call(Outgoing::get(listed("fences", prefix, after, limit))).await?.json()
    }

    /// Acquires a lock of the built-in lock service, waiting up to the requested time.
    pub async fn acquire(
        &self,
        name: &Resource,
        wanted: &AcquireRequest,
        once: Option<&IdempotencyKey>,
    ) -> Result<LeaseAnswer, Error> {
        let request = Outgoing::post(named("locks", name.as_str()), wanted).with_headers(key_header(once));
        let timeout = self.timeout + Duration::from_millis(wanted.wait_ms);
        let answered = self.transport.call(request, timeout).await;
        let lease = answered.map_err(Error::from).and_then(|answer| answer.json());
        lease.map_err(|error| error.with_key(once))
    }

    /// Renews a lease.
    pub async fn renew(&self, name: &Resource, lease: &str, ttl_ms: u64) -> Result<LeaseAnswer, Error> {
        let renewal = RenewRequest { lease: None, ttl_ms };
        let request = Outgoing::post(named("locks", name.as_str()) + "/renew", &renewal);
        self.call(request.with_headers(lease_header(lease))).await?.json()
    }

    /// Releases a lock.
    pub async fn release(&self, name: &Resource, lease: &str) -> Result<(), Error> {
        let path = named("locks", name.as_str());
        self.call(Outgoing::write(Method::DELETE, path, lease_header(lease), Bytes::new())).await.map(drop)
    }

    /// Shows a lock and its holder; `None` if it is free.
    pub async fn lock(&self, name: &Resource) -> Result<Option<LockView>, Error> {
        let shown = self.transport.call(Outgoing::get(named("locks", name.as_str())), self.timeout).await;
        absent_is_none(shown)?.map(|answer| answer.json()).transpose()
    }

    /// Lists locks that are held, one page.
    pub async fn locks(&self, prefix: &str, after: Option<&str>, limit: usize) -> Result<LockPage, Error> {
        self.call(Outgoing::get(listed("locks", prefix, after, limit))).await?.json()
    }

    /// Returns the recorded outcome of a request with an idempotency key.
    pub async fn outcome(&self, key: &IdempotencyKey) -> Result<OutcomeAnswer, Error> {
        self.call(Outgoing::get(format!("/v1/outcomes/{}", escaped(key.as_str())))).await?.json()
    }

    /// Ensures that a request with this key is never applied, unless it already has been.
    pub async fn abandon(&self, key: &IdempotencyKey) -> Result<OutcomeAnswer, Error> {
        let path = format!("/v1/outcomes/{}/abandon", escaped(key.as_str()));
        self.call(Outgoing::write(Method::POST, path, Vec::new(), Bytes::new())).await?.json()
    }

    /// Makes a call with an idempotency key. An unknown outcome carries that key.
    async fn call_once(&self, outgoing: Outgoing, once: Option<&IdempotencyKey>) -> Result<Answer, Missed> {
        let answered = self.transport.call(outgoing, self.timeout).await;
        answered.map_err(|missed| Missed { error: missed.error.with_key(once), ..missed })
    }

    async fn call(&self, outgoing: Outgoing) -> Result<Answer, Error> {
        Ok(self.transport.call(outgoing, self.timeout).await?)
    }
}

const CONTENT_TYPE_NAME: &str = "content-type";

/// `/v1/kv/orders/123`. A last segment that could be read as an action is escaped.
fn named(what: &str, name: &str) -> String {
    let name = percent_encode_name(name);
    match name.rsplit_once('/') {
        Some((before, last @ ("renew" | "abandon"))) => format!("/v1/{what}/{before}%2F{last}"),
        _ => format!("/v1/{what}/{name}"),
    }
}

fn escaped(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

fn listed(what: &str, prefix: &str, after: Option<&str>, limit: usize) -> String {
    let after = after.map(|after| format!("&after={}", escaped(after))).unwrap_or_default();
    format!("/v1/{what}?prefix={}&limit={limit}{after}", escaped(prefix))
}

/// The lease goes in a header: URLs end up in the logs of proxies.
fn lease_header(lease: &str) -> Vec<(&'static str, String)> {
    vec![(header::FENCING_LEASE, lease.to_owned())]
}

fn key_header(once: Option<&IdempotencyKey>) -> Vec<(&'static str, String)> {
    once.map(|key| (header::IDEMPOTENCY_KEY, key.to_string())).into_iter().collect()
}

fn write_headers(options: &WriteOptions) -> Vec<(&'static str, String)> {
    let mut headers = options.credentials.as_ref().map(credential_headers).unwrap_or_default();
    match &options.precondition {
        Precondition::Always => {}
        Precondition::Absent => headers.push(("if-none-match", "*".into())),
        Precondition::Version(etag) => headers.push(("if-match", etag.clone())),
    }
    headers.extend(key_header(options.idempotency_key.as_ref()));
    headers
}

fn written(answer: &Answer) -> Written {
    Written {
        etag: answer.text(ETAG),
        fence: answer.token(header::FENCE),
        observed: answer.text(header::FENCING_OBSERVED),
        replayed: answer.text(header::IDEMPOTENT_REPLAYED).is_some(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_never_looks_like_an_action() {
        assert_eq!(named("locks", "a/renew"), "/v1/locks/a%2Frenew");
        assert_eq!(named("locks", "renew"), "/v1/locks/renew");
        assert_eq!(named("kv", "a b/c"), "/v1/kv/a%20b/c");
    }
}
