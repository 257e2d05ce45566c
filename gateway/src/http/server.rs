//! Listening, and stopping: the first SIGTERM or SIGINT drains, a second one stops. SIGHUP reads the rules again.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;

use super::Gateway;
use super::admin_door::AdminDoor;
use super::caller::{Caller, PeerAddress};
use super::connection::{Connection, say};
use super::permit::Identity;
use crate::s3::door::S3Door;
use fencepost_core::ProblemKind;

/// Requests that one HTTP/2 connection may have under way.
pub(super) const MAX_STREAMS: u32 = 256;

/// Connections that may wait to be accepted; the system may allow fewer.
const BACKLOG: u32 = 4096;

/// Connections that may be told at once that there is no place for them; more are just closed.
const MAX_GOODBYES: usize = 64;

/// How long a connection that is turned away may take to hear it.
const GOODBYE: Duration = Duration::from_secs(1);

/// Why the gateway does not listen.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Not an address.
    #[error("cannot listen on `{0}`: write an address with a port, such as 127.0.0.1:3362")]
    Address(String),
    /// Everybody on the network could write.
    #[error(
        "will not listen on {0}: it is not a loopback address, and every caller is anonymous and may write.\n\
         Listen on 127.0.0.1, or pass --insecure-no-auth if something in front of the gateway decides who may reach it"
    )]
    BeyondLoopback(SocketAddr),
    /// The system said no.
    #[error("cannot listen on {0}: {1}")]
    Bind(SocketAddr, io::Error),
    /// The system said no.
    #[error("cannot catch signals: {0}")]
    Signals(io::Error),
}

/// A bound listener.
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Server {
    /// Binds, unless that would open the gateway to strangers.
    pub async fn bind(listen: &str, insecure_no_auth: bool) -> Result<Server, ServeError> {
        let mut found = tokio::net::lookup_host(listen).await.map_err(|_| ServeError::Address(listen.into()))?;
        let wanted = found.next().ok_or_else(|| ServeError::Address(listen.into()))?;
        if !wanted.ip().is_loopback() && !insecure_no_auth {
            return Err(ServeError::BeyondLoopback(wanted));
        }
        let listener = listen_on(wanted).map_err(|error| ServeError::Bind(wanted, error))?;
        let address = listener.local_addr().map_err(|error| ServeError::Bind(wanted, error))?;
        let terminate = signal(SignalKind::terminate()).map_err(ServeError::Signals)?;
        let interrupt = signal(SignalKind::interrupt()).map_err(ServeError::Signals)?;
        let hangup = signal(SignalKind::hangup()).map_err(ServeError::Signals)?;
        Ok(Server { listener, address, terminate, interrupt, hangup })
    }

    /// Where it listens; the real port if 0 was asked for.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until told to stop.
    pub async fn run(mut self, gateway: Gateway, admin: AdminDoor, s3: Option<S3Door>) -> Stopped {
        let limits = gateway.limits.clone();
        let gateway = Arc::new(gateway);
        let mut http = Builder::new(TokioExecutor::new());
        // `Connection` sees to it that heads arrive in time.
        http.http1().header_read_timeout(None).max_buf_size(limits.headers + (64 << 10));
        http.http2()
            .timer(TokioTimer::new())
            .max_concurrent_streams(MAX_STREAMS)
            .max_header_list_size(u32::try_from(limits.headers + (16 << 10)).unwrap_or(u32::MAX))
            .keep_alive_interval(Duration::from_secs(20));
        let graceful = GracefulShutdown::new();
        let mut connections = JoinSet::new();
        let close_admin = Arc::new(Notify::new());
        let mut http_of_admin = http.clone();
        http_of_admin.http1().timer(TokioTimer::new()).header_read_timeout(limits.header_timeout);
        let mut admin = tokio::spawn(admin.run(http_of_admin, gateway.clone(), close_admin.clone()));
        let close_s3 = Arc::new(Notify::new());
        let mut s3 = tokio::spawn(futures_util::future::OptionFuture::from(s3.map(|s3| s3.run(close_s3.clone()))));
        let places = Arc::new(Semaphore::new(limits.connections));
        let goodbyes = Arc::new(Semaphore::new(MAX_GOODBYES));
        loop {
            let (stream, address) = tokio::select! {
                accepted = self.listener.accept() => match accepted {
                    Ok(accepted) => accepted,
                    Err(error) => {
                        // Out of file descriptors, most likely; accepting again at once would only spin.
                        tracing::warn!(%error, "cannot accept a connection");
                        tokio::time::sleep(Duration::from_millis(50)).await;
                        continue;
                    }
                },
                _ = self.hangup.recv() => {
                    gateway.reload_by_signal().await;
                    continue;
                }
                () = stopped(&mut self.terminate, &mut self.interrupt) => break,
            };
            while connections.try_join_next().is_some() {}
            // Answers are small and complete; waiting to fill a packet only delays them.
            let _ = stream.set_nodelay(true);
            match places.clone().try_acquire_owned() {
                Ok(place) => {
                    connections.spawn(serve(&http, &graceful, &gateway, (stream, PeerAddress::of(address)), place));
                }
                Err(_) => {
                    if let Ok(goodbye) = goodbyes.clone().try_acquire_owned() {
                        turn_away(&gateway, stream, limits.connections, goodbye);
                    }
                }
            }
        }
        // Not ready before it is not there: whoever asks in between hears the reason.
        gateway.drain();
        tracing::info!("draining: no new connections; a second signal stops at once");
        drop(self.listener);
        close_admin.notify_one();
        close_s3.notify_one();
        tokio::select! {
            () = async { drop(tokio::join!(graceful.shutdown(), &mut admin, &mut s3)) } => return Stopped::Drained(sole_owner(gateway).await),
            () = tokio::time::sleep(limits.drain_timeout) => tracing::warn!("requests outlived the drain timeout"),
            () = stopped(&mut self.terminate, &mut self.interrupt) => tracing::warn!("stopped by a second signal"),
        }
        admin.abort();
        s3.abort();
        connections.shutdown().await;
        Stopped::Forced(sole_owner(gateway).await)
    }
}

/// Like `TcpListener::bind`, with room for a fleet that connects at once; who finds none tries again only after a second.
fn listen_on(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// How serving ended, with the gateway if nobody uses it any more.
pub enum Stopped {
    /// Every request under way was answered.
    Drained(Option<Gateway>),
    /// A second signal, or the drain timeout, ended some of them.
    Forced(Option<Gateway>),
}

/// A connection that has just ended may hold on to it for a moment, until its task is gone.
pub(crate) async fn sole_owner<T>(mut shared: Arc<T>) -> Option<T> {
    for _ in 0..200 {
        match Arc::try_unwrap(shared) {
            Ok(owned) => return Some(owned),
            Err(still) => shared = still,
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    None
}

async fn stopped(terminate: &mut Signal, interrupt: &mut Signal) {
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}

fn serve(
    http: &Builder<TokioExecutor>,
    graceful: &GracefulShutdown,
    gateway: &Arc<Gateway>,
    (stream, peer): (TcpStream, PeerAddress),
    place: OwnedSemaphorePermit,
) -> impl Future<Output = ()> + Send + 'static {
    let (connection, shared) = Connection::new(stream, gateway.limits.header_timeout, gateway.limits.write_timeout);
    let (gateway, owner, of_service) = (gateway.clone(), gateway.clone(), shared.clone());
    let caller = Caller { identity: Identity::Anonymous, peer, waits: Arc::default() };
    let service = service_fn(move |request| {
        let (gateway, shared, caller) = (gateway.clone(), of_service.clone(), caller.clone());
        async move { shared.answering(gateway.handle(request, &caller)).await }
    });
    let serving = http.serve_connection(TokioIo::new(connection), service).into_owned();
    let serving = graceful.watch(serving);
    async move {
        if let Err(error) = serving.await
            && timed_out(error.as_ref())
            && shared.is_waited_for()
        {
            shared.say(&owner.problem_of_connection(ProblemKind::Timeout, "the headers did not arrive in time"));
        }
        drop(place);
    }
}

/// Did a deadline end the connection, ours or the server's?
fn timed_out(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if error.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_timeout)
            || error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::TimedOut)
        {
            return true;
        }
        cause = error.source();
    }
    false
}

/// Says why, then waits a moment for the client to read it: closing on unread bytes would throw the answer away.
fn turn_away(gateway: &Gateway, stream: TcpStream, limit: usize, goodbye: OwnedSemaphorePermit) {
    let detail = format!("all {limit} connections are in use");
    let problem = gateway.problem_of_connection(ProblemKind::Overloaded, &detail);
    tokio::spawn(async move {
        let mut stream = stream;
        // Writable once it is; a new connection has an empty buffer.
        let _ = tokio::time::timeout(GOODBYE, stream.writable()).await;
        say(&stream, &problem);
        let _ = tokio::io::AsyncWriteExt::shutdown(&mut stream).await;
        let _ = tokio::time::timeout(GOODBYE, tokio::io::copy(&mut stream, &mut tokio::io::sink())).await;
        drop(goodbye);
    });
}
