//! Guards on a real gateway: what reaches the user, what keeps a lease, what ends it.

mod calls;
mod diary;
mod keeping;
mod scripted;
mod several;
mod traps;

use std::net::SocketAddr;
use std::time::Duration;

use fencepost_client::locks::LockBackend;
use fencepost_client::{Gateway, LockOptions, Locks};
use fencepost_conformance::proxy::Proxy;
use fencepost_harness::fresh::Fresh;

use crate::suite::connect;

const TTL: Duration = Duration::from_secs(1);

/// Longer than any test.
const LONG: Duration = Duration::from_secs(60);

fn address(gateway: &Fresh) -> SocketAddr {
    gateway.address().parse().unwrap()
}

fn options(name: &str, ttl: Duration) -> LockOptions {
    LockOptions { name: name.to_owned(), wait: LONG, ..LockOptions::with_ttl(ttl) }
}

fn gateway_at(address: SocketAddr) -> Gateway {
    Gateway::new(&format!("http://{address}"), Duration::from_secs(10)).unwrap()
}

/// Locks of the built-in service, for its own gateway.
async fn locks(gateway: &Fresh, options: LockOptions) -> Locks {
    locks_at(address(gateway), address(gateway), options).await
}

/// The same, with the gateway and its lock service each behind an address of its own.
async fn locks_at(gateway: SocketAddr, service: SocketAddr, options: LockOptions) -> Locks {
    Locks::new(gateway_at(gateway), connect(&format!("fencepost://{service}")).await, options)
}

/// Locks of another service.
fn locks_of(gateway: &Fresh, backend: impl LockBackend, options: LockOptions) -> Locks {
    Locks::new(gateway_at(address(gateway)), std::sync::Arc::new(backend), options)
}

fn proxied(gateway: &Fresh) -> Proxy {
    Proxy::start(address(gateway))
}
