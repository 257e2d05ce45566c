//! Guards on a real gateway: what reaches the user, what keeps a lease, what ends it.

mod calls;
mod diary;
mod renewals;
mod scripted;
mod several;
mod traps;

use std::net::SocketAddr;
use std::time::Duration;

use fencepost_client::locks::LockBackend;
use fencepost_client::{Client, Gateway, LockOptions};
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
    LockOptions::new().ttl(ttl).name(name).wait(LONG)
}

fn gateway_at(address: SocketAddr) -> Gateway {
    Gateway::new(&format!("http://{address}")).unwrap()
}

/// A client of the built-in service, for its own gateway.
async fn locks(gateway: &Fresh, options: LockOptions) -> Client {
    locks_at(address(gateway), address(gateway), options).await
}

/// The same, with separate addresses for the gateway and its lock service.
async fn locks_at(gateway: SocketAddr, service: SocketAddr, options: LockOptions) -> Client {
    Client::new(gateway_at(gateway), connect(&format!("fencepost://{service}")).await).with_lock_options(options)
}

/// A client of another service.
fn locks_of(gateway: &Fresh, backend: impl LockBackend, options: LockOptions) -> Client {
    Client::new(gateway_at(address(gateway)), std::sync::Arc::new(backend)).with_lock_options(options)
}

fn proxied(gateway: &Fresh) -> Proxy {
    Proxy::start(address(gateway))
}
