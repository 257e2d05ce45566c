//! What every lock service must do, by the numbers of the `LockBackend` contract.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use fencepost_client::locks::{self, Acquired, Lease, LockBackend, Wanted};
use fencepost_core::{Holder, Resource};

/// A real server of one test's own.
pub(crate) trait Service: Sized {
    /// A ttl that the service keeps exactly, as short as is sensible in a test.
    const TTL: Duration;

    /// Starts it, empty.
    fn start() -> Self;

    /// Where it listens.
    fn address(&self) -> SocketAddr;

    /// Its URL, if it is reached at this address (its own, or a proxy's).
    fn url_at(&self, address: SocketAddr) -> String;

    /// Its URL.
    fn url(&self) -> String {
        self.url_at(self.address())
    }

    /// `kill -9`, then starts it again with the same data at the same address.
    fn restart(&mut self);
}

/// All cases for one kind of service, each with a server of its own.
macro_rules! suite {
    ($service:path) => {
        mod suite {
            $crate::suite::cases! { $service:
                exclusive_while_held
            }
        }
    };
}

macro_rules! cases {
    ($service:path: $($case:ident)*) => {
        $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $case() {
            $crate::suite::$case::<$service>().await;
        })*
    };
}
pub(crate) use cases;

/// A client of it.
pub(crate) async fn connect(url: &str) -> Arc<dyn LockBackend> {
    locks::connect(url).await.unwrap_or_else(|error| panic!("{error}"))
}

pub(crate) fn resource(name: &str) -> Resource {
    Resource::new(name).unwrap()
}

pub(crate) fn holder(text: &str) -> Holder {
    Holder::new(text).unwrap()
}

/// Asks once.
pub(crate) async fn ask(backend: &dyn LockBackend, name: &str, who: &str, ttl: Duration, wait: Duration) -> Acquired {
    let (name, holder) = (resource(name), holder(who));
    let wanted = Wanted { name: &name, holder: &holder, ttl, wait, floor: 0 };
    backend.acquire(&wanted).await.unwrap_or_else(|error| panic!("{who}: {error}"))
}

/// Takes a lock that is free.
pub(crate) async fn take(backend: &dyn LockBackend, name: &str, who: &str, ttl: Duration) -> Lease {
    match ask(backend, name, who, ttl, Duration::ZERO).await {
        Acquired::Held(lease) => lease,
        Acquired::Busy => panic!("{who} did not get {name}"),
    }
}

/// Contract 1.
pub(crate) async fn exclusive_while_held<S: Service>() {
    let service = S::start();
    let (a, b) = (connect(&service.url()).await, connect(&service.url()).await);
    let lease = take(a.as_ref(), "orders/1", "a#1", S::TTL).await;
    assert!(matches!(ask(b.as_ref(), "orders/1", "b#1", S::TTL, Duration::ZERO).await, Acquired::Busy));
    let other = take(b.as_ref(), "orders/2", "b#2", S::TTL).await;
    a.release(lease).await.unwrap();
    let next = take(b.as_ref(), "orders/1", "b#3", S::TTL).await;
    b.release(next).await.unwrap();
    b.release(other).await.unwrap();
}
