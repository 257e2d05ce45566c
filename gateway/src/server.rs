//! All listeners together: where the front ends meet the accept loop, and how serving stops. The first SIGTERM or SIGINT
//! drains, a second one stops. SIGHUP reads the rules again.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::{TcpListener, TcpSocket};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::http::{self, Administrators, Gateway, Public};
use crate::listener::{self, AdminListener, Settings};
use crate::s3::{self, S3Listener};
use crate::sole_owner::sole_owner;

/// Connections that may wait to be accepted; the system may allow fewer.
const BACKLOG: u32 = 4096;

/// Why the gateway does not listen.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The text is not an address.
    #[error("cannot listen on `{0}`: write an address with a port, such as 127.0.0.1:3362")]
    Address(String),
    /// Any client on the network could write.
    #[error(
        "will not listen on {0}: it is not a loopback address, and every caller is anonymous and may write.\n\
         Listen on 127.0.0.1, or pass --insecure-no-auth if something in front of the gateway decides who may reach it"
    )]
    BeyondLoopback(SocketAddr),
    /// The address cannot be bound.
    #[error("cannot listen on {0}: {1}")]
    Bind(SocketAddr, io::Error),
    /// Signals cannot be caught.
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
    /// Binds. An address beyond loopback is refused unless `insecure_no_auth` is set.
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

    /// The bound address; the real port if port 0 was asked for.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until it is stopped: every listener by the same accept loop.
    pub async fn run(mut self, gateway: Gateway, admin: AdminListener, s3_listener: Option<S3Listener>) -> Stopped {
        let limits = gateway.limits().clone();
        let gateway = Arc::new(gateway);
        let (stop, stopping) = watch::channel(false);
        let settings = |bounds, max_streams| Settings { limits: limits.clone(), bounds, max_streams };
        let mut listeners = JoinSet::new();
        let (public, bounds) = (Arc::new(Public(gateway.clone())), limits.public_bounds());
        listeners.spawn(listener::run(self.listener, public, settings(bounds, http::MAX_STREAMS), stopping.clone()));
        let (administrators, bounds) = (Arc::new(Administrators(gateway.clone())), limits.admin_bounds());
        listeners.spawn(listener::run(admin, administrators, settings(bounds, http::MAX_STREAMS), stopping.clone()));
        if let Some(S3Listener { listener, front_end }) = s3_listener {
            let (front_end, bounds) = (Arc::new(front_end), limits.s3_bounds());
            listeners.spawn(listener::run(listener, front_end, settings(bounds, s3::MAX_STREAMS), stopping));
        }
        loop {
            tokio::select! {
                _ = self.hangup.recv() => gateway.reload().await,
                () = stopped(&mut self.terminate, &mut self.interrupt) => break,
            }
        }
        // Report not-ready before closing the listeners, so that a probe in between sees the reason.
        gateway.drain();
        tracing::info!("draining: no new connections; a second signal stops at once");
        // The listeners hold the receivers until they have stopped.
        let _ = stop.send(true);
        tokio::select! {
            () = async { while listeners.join_next().await.is_some() {} } => return Stopped::Drained(sole_owner(gateway).await),
            () = tokio::time::sleep(limits.drain_timeout) => tracing::warn!("requests outlived the drain timeout"),
            () = stopped(&mut self.terminate, &mut self.interrupt) => tracing::warn!("stopped by a second signal"),
        }
        listeners.shutdown().await;
        Stopped::Forced(sole_owner(gateway).await)
    }
}

/// Like `TcpListener::bind`, with a backlog for a fleet that connects at once: a client that finds the backlog full
/// retries only after a second.
fn listen_on(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// How serving ended, with the gateway if nothing uses it any more.
pub enum Stopped {
    /// Every request under way was answered.
    Drained(Option<Gateway>),
    /// A second signal, or the drain timeout, ended some of them.
    Forced(Option<Gateway>),
}

async fn stopped(terminate: &mut Signal, interrupt: &mut Signal) {
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}
