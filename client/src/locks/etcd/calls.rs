//! Calls to etcd's JSON gateway, at any member that answers. Every call may be repeated.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use fencepost_remote::tls::{self, Certificates, Terms};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use hyper::{Request, Response};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use parking_lot::{Mutex, MutexGuard};
use rustls::RootCertStore;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::wire::{Anything, LeaseAnswer, Refusal, SignedIn, Streamed, TxnAnswer, WatchAnswer, watch_deletion};
use crate::locks::LockError;
use crate::transport::causes;

/// How long one attempt may take at most.
const LONGEST_ATTEMPT: Duration = Duration::from_secs(5);

/// The minimum number of attempts before a call fails.
const ATTEMPTS: usize = 3;

/// The largest answer, and the longest message of a stream, that is read.
const MAX_ANSWER_BYTES: usize = 4 << 20;

/// Part of etcd's error for a client certificate with a common name while authentication is enabled; it has no code.
const COMMON_NAME: &str = "CommonName of client";

const AUTHENTICATE: &str = "/v3/auth/authenticate";

/// Status codes of gRPC.
pub(super) const NOT_FOUND: i64 = 5;
pub(super) const FAILED_PRECONDITION: i64 = 9;
const INVALID_ARGUMENT: i64 = 3;
const PERMISSION_DENIED: i64 = 7;
const UNAUTHENTICATED: i64 = 16;
/// Transient codes: unknown, deadline exceeded, resource exhausted, internal, unavailable.
const PASSING: [i64; 5] = [2, 4, 8, 13, 14];

/// A failed call.
#[derive(Debug)]
pub(super) enum Trouble {
    /// No answer, or a transient error.
    Unreachable(String),
    /// A member that does not trust our certificate, or whose certificate we do not trust.
    Untrusted(String),
    /// A refusal, with its gRPC status code.
    Refused { code: i64, why: String },
}

/// The time limit of one attempt at a call that concerns a lease of this ttl.
pub(super) fn patience(ttl: Duration) -> Duration {
    (ttl / 4).clamp(Duration::from_millis(500), LONGEST_ATTEMPT)
}

/// The members of one cluster.
pub(super) struct Calls {
    http: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    /// `http://host:port` or `https://host:port`
    members: Vec<String>,
    /// Present if the connection uses TLS.
    terms: Option<Terms>,
    /// The member that answered last.
    current: AtomicUsize,
    user: Option<(String, String)>,
    signed_in: Mutex<Option<HeaderValue>>,
    /// The URL, for messages.
    service: String,
}

impl Calls {
    pub(super) fn new(
        members: Vec<String>,
        certificates: Option<&Certificates>,
        user: Option<(String, String)>,
        service: String,
    ) -> Result<Calls, LockError> {
        let mut tcp = HttpConnector::new();
        tcp.set_connect_timeout(Some(LONGEST_ATTEMPT));
        tcp.set_nodelay(true);
        tcp.enforce_http(false);
        let config = match certificates {
            Some(certificates) => certificates.config()?,
            // Without TLS, no roots are needed.
            None => tls::builder()?.with_root_certificates(RootCertStore::empty()).with_no_client_auth(),
        };
        let connector = HttpsConnectorBuilder::new().with_tls_config(config).https_or_http().enable_http1();
        let connector = connector.wrap_connector(tcp);
        let http = Client::builder(TokioExecutor::new()).pool_timer(TokioTimer::new()).build(connector);
        let terms = certificates.map(Certificates::terms);
        Ok(Calls { http, members, terms, current: AtomicUsize::new(0), user, signed_in: Mutex::new(None), service })
    }

    /// The error that the caller of the library gets.
    pub(super) fn error(&self, trouble: Trouble) -> LockError {
        let service = self.service.clone();
        match trouble {
            Trouble::Unreachable(why) => LockError::Unreachable { service, why },
            Trouble::Untrusted(why) => LockError::Failed { service, why },
            Trouble::Refused { code: PERMISSION_DENIED, why } if self.user.is_some() => {
                let why = format!("{why}. Grant its user read and write on every key with the prefix of this URL");
                LockError::Failed { service, why }
            }
            Trouble::Refused { code: INVALID_ARGUMENT | UNAUTHENTICATED | PERMISSION_DENIED, why }
                if self.user.is_none() =>
            {
                let scheme = if self.terms.is_some() { "etcds" } else { "etcd" };
                let why =
                    format!("{why}. If it wants a password, write the URL like {scheme}://user:password@host:2379");
                LockError::Failed { service, why }
            }
            Trouble::Refused { why, .. } => LockError::Failed { service, why },
        }
    }

    /// An error for an answer that makes no sense.
    pub(super) fn nonsense(&self, why: &str) -> LockError {
        LockError::Failed { service: self.service.clone(), why: why.to_owned() }
    }

    /// A transaction: the first operations if all comparisons hold, otherwise the second.
    pub(super) async fn txn(
        &self,
        compare: &[Value],
        success: &[Value],
        failure: &[Value],
        limit: Duration,
    ) -> Result<TxnAnswer, Trouble> {
        let body = json!({"compare": compare, "success": success, "failure": failure});
        self.call("/v3/kv/txn", &body, limit).await
    }

    /// Grants a lease with an id of our own, and returns the granted ttl in seconds.
    pub(super) async fn grant(&self, lease: i64, seconds: u64, limit: Duration) -> Result<i64, Trouble> {
        let body = json!({"ID": lease.to_string(), "TTL": seconds.to_string()});
        match self.call::<LeaseAnswer>("/v3/lease/grant", &body, limit).await {
            Ok(granted) => Ok(granted.ttl),
            // An earlier attempt, whose answer was lost, has granted it.
            Err(Trouble::Refused { code: FAILED_PRECONDITION, .. }) => {
                self.time_to_live(lease, limit).await.map(|lease| lease.granted_ttl)
            }
            Err(trouble) => Err(trouble),
        }
    }

    /// Reads the remaining time of a lease. That of an unknown lease is negative.
    pub(super) async fn time_to_live(&self, lease: i64, limit: Duration) -> Result<LeaseAnswer, Trouble> {
        self.call("/v3/lease/timetolive", &json!({"ID": lease.to_string()}), limit).await
    }

    /// Renews a lease for its ttl from now. An unknown lease has no ttl.
    pub(super) async fn keep_alive(&self, lease: i64, limit: Duration) -> Result<LeaseAnswer, Trouble> {
        let body = json!({"ID": lease.to_string()});
        let streamed: Streamed<LeaseAnswer> = self.call("/v3/lease/keepalive", &body, limit).await?;
        one(streamed)?.ok_or_else(|| Trouble::Unreachable("it said nothing about a lease".into()))
    }

    /// Revokes a lease, which deletes its keys.
    pub(super) async fn revoke(&self, lease: i64, limit: Duration) -> Result<(), Trouble> {
        match self.call::<Anything>("/v3/lease/revoke", &json!({"ID": lease.to_string()}), limit).await {
            Ok(_) | Err(Trouble::Refused { code: NOT_FOUND, .. }) => Ok(()),
            Err(trouble) => Err(trouble),
        }
    }

    /// Gets an authentication token for user and password, if the URL has them.
    pub(super) async fn sign_in(&self, limit: Duration) -> Result<(), Trouble> {
        let Some((user, password)) = &self.user else { return Ok(()) };
        let body = json!({"name": user, "password": password});
        let token = match self.attempts::<SignedIn>(AUTHENTICATE, &body, limit).await {
            Ok(signed_in) => {
                let token = HeaderValue::from_str(&signed_in.token);
                let mut token = token.map_err(|error| Trouble::Unreachable(error.to_string()))?;
                token.set_sensitive(true);
                Some(token)
            }
            // Authentication is not enabled.
            Err(Trouble::Refused { code: FAILED_PRECONDITION, .. }) => None,
            Err(Trouble::Refused { code, why }) => {
                let why = format!("{why}. Are user `{user}` and password in the URL right?");
                return Err(Trouble::Refused { code, why });
            }
            Err(trouble) => return Err(trouble),
        };
        *self.token() = token;
        Ok(())
    }

    fn token(&self) -> MutexGuard<'_, Option<HeaderValue>> {
        self.signed_in.lock()
    }

    /// Makes a call, and signs in again once if necessary: tokens expire after some minutes, and with every change of
    /// users and roles.
    async fn call<T: DeserializeOwned>(&self, path: &str, body: &Value, limit: Duration) -> Result<T, Trouble> {
        match self.attempts(path, body, limit).await {
            Err(Trouble::Refused { code: UNAUTHENTICATED | INVALID_ARGUMENT, .. }) if self.user.is_some() => {
                self.sign_in(limit).await?;
                self.attempts(path, body, limit).await
            }
            done => done,
        }
    }

    /// Asks one member after the other until one answers.
    async fn attempts<T: DeserializeOwned>(&self, path: &str, body: &Value, limit: Duration) -> Result<T, Trouble> {
        let mut last = Trouble::Unreachable(String::new());
        for _ in 0..ATTEMPTS.max(self.members.len()) {
            let member = self.current.load(Ordering::Relaxed);
            let unanswered = Unanswered { calls: self, member };
            let answer = tokio::time::timeout(limit, self.attempt(member, path, body)).await;
            match answer {
                Ok(Err(trouble @ (Trouble::Unreachable(_) | Trouble::Untrusted(_)))) => last = trouble,
                Ok(done) => {
                    std::mem::forget(unanswered);
                    return done;
                }
                Err(_) => last = Trouble::Unreachable(format!("no answer within {} s", limit.as_secs_f64())),
            }
        }
        Err(last)
    }

    async fn attempt<T: DeserializeOwned>(&self, member: usize, path: &str, body: &Value) -> Result<T, Trouble> {
        let body = self.send(member, path, body).await?.into_body();
        let body = Limited::new(body, MAX_ANSWER_BYTES).collect().await;
        let body = body.map_err(|error| Trouble::Unreachable(causes(error.as_ref())))?.to_bytes();
        serde_json::from_slice(&body).map_err(|error| Trouble::Unreachable(format!("its answer is broken: {error}")))
    }

    /// Sends the next call to the next member.
    fn avoid(&self, member: usize) {
        let next = (member + 1) % self.members.len();
        // A concurrent call may have moved on already.
        let _ = self.current.compare_exchange(member, next, Ordering::Relaxed, Ordering::Relaxed);
    }

    async fn send(&self, member: usize, path: &str, body: &Value) -> Result<Response<Incoming>, Trouble> {
        let member = &self.members[member];
        let mut request = Request::post(format!("{member}{path}")).header(CONTENT_TYPE, "application/json");
        // The request for a new token must not carry an old one, which would be refused.
        if let Some(token) = self.token().as_ref().filter(|_| path != AUTHENTICATE) {
            request = request.header(AUTHORIZATION, token);
        }
        let unreachable = |why: String| Trouble::Unreachable(format!("{member}: {why}"));
        let request = request.body(Full::from(body.to_string())).map_err(|error| unreachable(error.to_string()))?;
        let answer = self.http.request(request).await.map_err(|error| match self.terms {
            None => unreachable(causes(&error)),
            Some(terms) => match terms.refusal(&error) {
                Some(why) => Trouble::Untrusted(format!("{member}: {why}")),
                None if error.is_connect() && !tls::ended(&error) => unreachable(causes(&error)),
                None => unreachable(format!("{}{}", causes(&error), terms.suspicion())),
            },
        })?;
        let status = answer.status();
        if status.is_success() {
            return Ok(answer);
        }
        let body = Limited::new(answer.into_body(), MAX_ANSWER_BYTES).collect().await;
        let body = body.map_err(|error| unreachable(causes(error.as_ref())))?.to_bytes();
        match serde_json::from_slice::<Refusal>(&body) {
            Ok(refusal) => Err(refusal.into()),
            Err(_) if status.is_server_error() => Err(unreachable(format!("it answered {status}"))),
            Err(_) if self.terms.is_some() && String::from_utf8_lossy(&body).contains(COMMON_NAME) => {
                let why = "with users and passwords switched on, its JSON gateway takes no client certificate that has a \
                           common name (CN). Use one without, and write user and password into the URL";
                Err(Trouble::Untrusted(format!("{member}: {why}")))
            }
            Err(_) => {
                let why = format!(
                    "{member} answered {status} to {path}. It must be etcd 3.4 or newer, with its gRPC gateway"
                );
                Err(Trouble::Refused { code: i64::from(status.as_u16()), why })
            }
        }
    }

    /// Returns when the key is deleted, or when the watch ends.
    pub(super) async fn deletion(&self, key: &str, from: i64) -> Result<(), Trouble> {
        let member = self.current.load(Ordering::Relaxed);
        match self.told(member, key, from).await {
            // The next call signs in; after it the queue is read again.
            Err(Trouble::Refused { code: UNAUTHENTICATED | INVALID_ARGUMENT, why }) if self.user.is_some() => {
                Err(Trouble::Unreachable(why))
            }
            // The next call finds out whether another member can be trusted.
            Err(Trouble::Unreachable(why) | Trouble::Untrusted(why)) => {
                self.avoid(member);
                Err(Trouble::Unreachable(why))
            }
            told => told,
        }
    }

    async fn told(&self, member: usize, key: &str, from: i64) -> Result<(), Trouble> {
        let mut body = self.send(member, "/v3/watch", &watch_deletion(key, from)).await?.into_body();
        let mut unread = Vec::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| Trouble::Unreachable(causes(&error)))?;
            unread.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data));
            while let Some(end) = unread.iter().position(|byte| *byte == b'\n') {
                let message: Vec<u8> = unread.drain(..=end).collect();
                let message = serde_json::from_slice::<Streamed<WatchAnswer>>(&message);
                let message = message.map_err(|error| Trouble::Unreachable(error.to_string()))?;
                match one(message)? {
                    Some(told) if !told.events.is_empty() => return Ok(()),
                    Some(told) if told.canceled => return Err(Trouble::Unreachable("it cancelled a watch".into())),
                    _ => {}
                }
            }
            if unread.len() > MAX_ANSWER_BYTES {
                return Err(Trouble::Unreachable("it told too much at once".into()));
            }
        }
        Err(Trouble::Unreachable("it ended a watch".into()))
    }
}

/// An attempt in progress. If it fails, or its caller drops it, the next attempt goes to another member.
struct Unanswered<'a> {
    calls: &'a Calls,
    member: usize,
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        self.calls.avoid(self.member);
    }
}

fn one<T>(message: Streamed<T>) -> Result<Option<T>, Trouble> {
    match message.error {
        Some(refusal) => Err(refusal.into()),
        None => Ok(message.result),
    }
}

impl From<Refusal> for Trouble {
    fn from(refusal: Refusal) -> Trouble {
        match PASSING.contains(&refusal.code) {
            true => Trouble::Unreachable(refusal.message),
            false => Trouble::Refused { code: refusal.code, why: refusal.message },
        }
    }
}
