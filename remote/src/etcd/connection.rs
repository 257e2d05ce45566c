//! An HTTP/2 connection to one member, with the token of the user.

use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use h2::Ping;
use h2::client::{Builder, SendRequest};
use http::HeaderValue;
use prost::Message;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use tokio::time::Instant;
use tokio_rustls::TlsConnector;

use super::call::{Rpc, framed, head, unary};
use super::cluster::{Cluster, Encryption, Member};
use super::messages::{AuthenticateRequest, AuthenticateResponse};
use super::{Refusal, Trouble};
use crate::tls::ended;

/// How much a member may send before it is read.
const WINDOW_BYTES: u32 = 4 << 20;

/// The largest headers that are read.
const MAX_HEADER_BYTES: u32 = 64 << 10;

/// The largest answer with a token that is read.
const MAX_TOKEN_BYTES: usize = 64 << 10;

/// A call that its caller gives up after this time says that the member may hang.
const SUSPICIOUS: Duration = Duration::from_secs(1);

/// A connection to one member. Calls on it run side by side; it closes when the last one has ended.
///
/// It is not pinged while it is idle: etcd closes connections that ping without a call. A member that hangs shows when a
/// call has no answer in time.
pub(super) struct Connection {
    sender: SendRequest<Bytes>,
    /// The index of the member.
    pub(super) member: usize,
    origin: String,
    token: Option<HeaderValue>,
    driver: Driver,
    suspect: AtomicBool,
}

impl Connection {
    /// Connects, makes sure that the member answers, and signs in. The caller sets the time limit.
    pub(super) async fn open(cluster: &Cluster, at: usize, limit: Duration) -> Result<Connection, Trouble> {
        let member = &cluster.members[at];
        let tcp = TcpStream::connect((member.host.as_str(), member.port)).await;
        let tcp = tcp.map_err(|error| Trouble::NotSent(error.to_string()))?;
        // Without it, small requests are a little slower.
        let _ = tcp.set_nodelay(true);
        let (sender, driver) = match &cluster.tls {
            None => drive(tcp).await.map_err(|error| {
                Trouble::NotSent(format!(
                    "{error}. Is it the client port of etcd? If it speaks TLS there, write etcds://"
                ))
            })?,
            Some(tls) => encrypted(tls, member, tcp).await?,
        };
        let (origin, suspect) = (cluster.origin(member), AtomicBool::new(false));
        let mut connection = Connection { sender, member: at, origin, token: None, driver, suspect };
        if let Some((name, password)) = &cluster.user {
            connection.token = connection.sign_in(name, password, limit).await?;
        }
        Ok(connection)
    }

    /// Gets a token; none if the cluster has no users.
    async fn sign_in(&self, name: &str, password: &str, limit: Duration) -> Result<Option<HeaderValue>, Trouble> {
        let request = AuthenticateRequest { name: name.to_owned(), password: password.to_owned() };
        let AuthenticateResponse { token } = match self.call(&request, limit, MAX_TOKEN_BYTES).await {
            Ok(answer) => answer,
            Err(trouble) if trouble.is(Refusal::State) => return Ok(None),
            Err(Trouble::Refused { refusal, why }) => {
                let why = format!("{why}. Are user `{name}` and password in the URL right?");
                return Err(Trouble::Refused { refusal, why });
            }
            Err(trouble) => return Err(trouble),
        };
        let token = HeaderValue::from_str(&token);
        let mut token = token.map_err(|_| Trouble::NotSent("it sent a token that cannot be used".to_owned()))?;
        token.set_sensitive(true);
        Ok(Some(token))
    }

    /// Makes a call.
    pub(super) async fn call<R: Rpc>(&self, request: &R, limit: Duration, most: usize) -> Result<R::Answer, Trouble> {
        let mut head = head(&self.origin, R::PATH, limit);
        if let Some(token) = &self.token {
            head = head.header("token", token);
        }
        let head = head.body(()).map_err(|error| Trouble::NotSent(error.to_string()))?;
        let body = framed(request)?;
        let unanswered = Unanswered { connection: self, since: Instant::now() };
        let answer = unary(&self.sender, head, body, limit, most).await;
        std::mem::forget(unanswered);
        R::Answer::decode(answer?).map_err(|error| Trouble::Unknown(format!("its answer makes no sense: {error}")))
    }

    /// Returns whether it is open.
    pub(super) fn is_open(&self) -> bool {
        !self.driver.0.is_finished()
    }

    /// Returns whether the member may hang: a caller gave up waiting.
    pub(super) fn is_suspect(&self) -> bool {
        self.suspect.load(Ordering::Relaxed)
    }
}

/// A call in progress, which its caller may drop.
struct Unanswered<'a> {
    connection: &'a Connection,
    since: Instant,
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        if self.since.elapsed() >= SUSPICIOUS {
            self.connection.suspect.store(true, Ordering::Relaxed);
        }
    }
}

/// Connects by TLS.
async fn encrypted(tls: &Encryption, member: &Member, tcp: TcpStream) -> Result<(SendRequest<Bytes>, Driver), Trouble> {
    let name = ServerName::try_from(member.host.clone());
    let name = name.map_err(|_| Trouble::NotSent("its name cannot be checked by TLS".to_owned()))?;
    let stream = TlsConnector::from(tls.config.clone()).connect(name, tcp).await.map_err(|error| {
        let why = match tls.terms.refusal(&error) {
            Some(why) => why,
            None if ended(&error) => format!("{}{}", explained(&error), tls.terms.suspicion()),
            None => explained(&error),
        };
        Trouble::NotSent(why)
    })?;
    if stream.get_ref().1.alpn_protocol() != Some(&b"h2"[..]) {
        return Err(Trouble::NotSent("it does not offer HTTP/2; is it the client port of etcd?".to_owned()));
    }
    // With TLS 1.3, a member refuses our certificate after the handshake. HTTP/2 passes the error on as a text.
    drive(stream).await.map_err(|error| Trouble::NotSent(format!("{error}{}", tls.terms.suspicion())))
}

/// Starts HTTP/2, and waits for a sign of life.
async fn drive<T>(io: T) -> Result<(SendRequest<Bytes>, Driver), h2::Error>
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut builder = Builder::new();
    builder.enable_push(false).initial_window_size(WINDOW_BYTES).initial_connection_window_size(2 * WINDOW_BYTES);
    builder.max_header_list_size(MAX_HEADER_BYTES);
    let (sender, mut connection) = builder.handshake::<T, Bytes>(io).await?;
    let pings = connection.ping_pong();
    let (report, end) = oneshot::channel();
    let driver = tokio::spawn(async move {
        // Later, every call on the connection reports the error itself.
        let _ = report.send(connection.await);
    });
    let driver = Driver(driver.abort_handle());
    if let Some(mut pings) = pings
        && let Err(error) = pings.ping(Ping::opaque()).await
    {
        // The driver knows more about what happened.
        return Err(end.await.ok().and_then(Result::err).unwrap_or(error));
    }
    Ok((sender, driver))
}

/// The task that reads and writes. It ends with its connection.
struct Driver(AbortHandle);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// An error with its causes.
fn explained(error: &(dyn Error + 'static)) -> String {
    let causes = std::iter::successors(error.source(), |cause| (*cause).source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}
