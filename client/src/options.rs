//! Options of a connection to a gateway.

use std::time::Duration;

/// The HTTP version to use. The gateway accepts both on the same port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Protocol {
    /// HTTP/1.1: each call has a connection to itself while it lasts.
    #[default]
    Http1,
    /// All calls share one connection. Without TLS the version is not negotiated: proxies in between must speak HTTP/2
    /// as well.
    Http2,
}

/// Options of a connection to a gateway; for [`Gateway::with_options`](crate::Gateway::with_options).
///
/// ```
/// use std::time::Duration;
/// use fencepost_client::{Gateway, GatewayOptions, Protocol};
///
/// let options = GatewayOptions::new().protocol(Protocol::Http2).timeout(Duration::from_secs(5));
/// let gateway = Gateway::with_options("http://127.0.0.1:3362", options)?;
/// # Ok::<(), fencepost_client::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "options do nothing until they are given to a gateway"]
pub struct GatewayOptions {
    pub(crate) protocol: Protocol,
    pub(crate) timeout: Duration,
    pub(crate) connect_timeout: Duration,
    pub(crate) idle_connections: usize,
    pub(crate) idle_timeout: Duration,
    pub(crate) keep_alive: Duration,
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

impl GatewayOptions {
    /// The defaults: HTTP/1.1, 30 s for a call, 5 s for a connection.
    pub fn new() -> GatewayOptions {
        GatewayOptions::default()
    }

    /// The version of HTTP.
    pub fn protocol(self, protocol: Protocol) -> GatewayOptions {
        GatewayOptions { protocol, ..self }
    }

    /// How long a call may take, beyond what it is asked to wait for a lock.
    pub fn timeout(self, timeout: Duration) -> GatewayOptions {
        GatewayOptions { timeout, ..self }
    }

    /// How long connecting may take. A call that fails to connect was surely not applied.
    pub fn connect_timeout(self, connect_timeout: Duration) -> GatewayOptions {
        GatewayOptions { connect_timeout, ..self }
    }

    /// How many idle connections are kept for later calls. With HTTP/1.1, concurrent calls open as many as they need: a
    /// call that waits for a lock must not delay a renewal.
    pub fn idle_connections(self, idle_connections: usize) -> GatewayOptions {
        GatewayOptions { idle_connections, ..self }
    }

    /// How long an unused connection is kept.
    pub fn idle_timeout(self, idle_timeout: Duration) -> GatewayOptions {
        GatewayOptions { idle_timeout, ..self }
    }

    /// The interval of HTTP/2 pings, and how long the gateway has to answer one. If it does not, calls under way end
    /// before their timeout.
    pub fn keep_alive(self, keep_alive: Duration) -> GatewayOptions {
        GatewayOptions { keep_alive, ..self }
    }
}
