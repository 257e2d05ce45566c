//! The requirements on every lock service, by the numbers of the `LockBackend` contract.
//!
//! Times are multiples of the service's ttl, with room for a slow machine. A case that depends on a timely renewal
//! checks the clock before it blames the service. A case that fails while the machine stalled is tried again
//! ([`patiently`]).

mod faults;
mod garbled;
mod holders;
mod numbers;
mod stall;
mod waiters;
mod zombie;

use std::net::SocketAddr;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fencepost_client::locks::{self, Acquired, Kept, Lease, LockBackend, LockError, Wanted};
use fencepost_client::{Error, ErrorKind};
use fencepost_conformance::proxy::{Direction, Proxy};
use fencepost_core::{Holder, ProblemKind, Resource};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

pub(crate) use stall::{noticed, patiently};
pub(crate) use {faults::*, garbled::*, holders::*, numbers::*, waiters::*, zombie::*};

/// The kind of a call's error, if it failed.
pub(crate) fn kind_of<T>(called: &Result<T, Error>) -> Option<ErrorKind> {
    called.as_ref().err().map(Error::kind)
}

/// Why the fence refused, if it did.
pub(crate) fn reason(error: &Error) -> Option<ProblemKind> {
    error.refusal().and_then(|refusal| refusal.reason)
}

/// A real server for one test.
pub(crate) trait Service: Sized + Send + Sync + 'static {
    /// A ttl that the service keeps exactly, as short as is sensible in a test.
    const TTL: Duration;

    /// Does a lease outlive the connection on which it was acquired? Not if it is a server session that ends with the
    /// connection.
    const OUTLIVES_CONNECTION: bool = true;

    /// Starts an empty server.
    fn start() -> Self;

    /// The address on which it listens.
    fn address(&self) -> SocketAddr;

    /// Its URL when reached at this address (its own, or a proxy's).
    fn url_at(&self, address: SocketAddr) -> String;

    /// Its URL through a proxy in front of it. A service of several servers puts the proxy in front of the others too
    /// ([`Proxy::also`]).
    fn url_through(&self, proxy: &mut Proxy) -> String {
        self.url_at(proxy.address())
    }

    /// Its URL.
    fn url(&self) -> String {
        self.url_at(self.address())
    }

    /// `kill -9`, then starts it again with the same data at the same address.
    fn restart(&mut self);

    /// How many clients wait for the lock with this name, if the service can report it.
    fn waiting(&self, _name: &str) -> Option<usize> {
        None
    }

    /// Makes this the fence of the resource, for a service that reads the fence itself.
    fn raise_fence(&self, _resource: &Resource, _floor: u64, _lease: &Lease) {}
}

/// All cases for one kind of service, each with a server of its own.
macro_rules! suite {
    ($service:path) => {
        mod suite {
            $crate::suite::cases! { $service:
                exclusive_while_held
                renewal_keeps_a_lease
                a_renewal_may_be_given_up
                a_missed_renewal_loses_the_lease
                verify_tells_the_truth
                a_late_release_changes_nothing
                a_short_ttl_is_refused
                numbers_strictly_increase
                numbers_are_above_the_floor
                only_the_holder_can_lift
                holder_and_issuer_are_stable
                a_waiter_gets_the_lock_soon
                waiters_come_in_order
                a_hand_over_wakes_no_herd
                busy_when_the_wait_is_over
                a_dropped_waiter_leaves_nothing
                a_dropped_acquisition_leaves_nothing
                a_lost_reply_is_no_loss
                a_lost_request_is_no_loss
                a_restart_never_makes_two_holders
                a_cut_connection_is_no_loss
                a_message_that_comes_twice_makes_no_two_holders
                messages_that_change_places_make_no_two_holders
                a_zombie_is_refused
                in_observe_mode_a_zombie_overwrites
            }
        }
    };
}

macro_rules! cases {
    ($service:path: $($case:ident)*) => {
        $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $case() {
            let bears = <$service as $crate::suite::Service>::TTL / 4;
            $crate::suite::patiently(bears, $crate::suite::$case::<$service>).await;
        })*
    };
}
pub(crate) use cases;

/// The delay that a slow machine may add to any step.
pub(crate) const SLACK: Duration = Duration::from_secs(5);

/// How long a service may take to answer again after a fault.
pub(crate) const RECOVERY: Duration = Duration::from_secs(60);

/// A server for the calling test.
pub(crate) fn start<S: Service>() -> S {
    tokio::task::block_in_place(S::start)
}

/// A client of it.
pub(crate) async fn connect(url: &str) -> Arc<dyn LockBackend> {
    locks::connect(url).await.unwrap_or_else(|error| panic!("{error}"))
}

/// A client of it behind a proxy.
pub(crate) async fn connect_through<S: Service>(service: &S) -> (Proxy, Arc<dyn LockBackend>) {
    let mut proxy = Proxy::start(service.address());
    let backend = connect(&service.url_through(&mut proxy)).await;
    (proxy, backend)
}

pub(crate) fn resource(name: &str) -> Resource {
    Resource::new(name).unwrap()
}

pub(crate) fn holder(text: &str) -> Holder {
    Holder::new(text).unwrap()
}

/// Makes one attempt and returns any result. The holder is unique per acquisition, as the contract requires.
pub(crate) async fn try_ask(
    backend: &dyn LockBackend,
    name: &str,
    who: &str,
    ttl: Duration,
    wait: Duration,
) -> Result<Acquired, LockError> {
    static ASKED: AtomicU64 = AtomicU64::new(0);
    let who = format!("{who}.{}", ASKED.fetch_add(1, Ordering::Relaxed));
    let (name, holder) = (resource(name), holder(&who));
    backend.acquire(&Wanted { name: &name, holder: &holder, ttl, wait, floor: 0, generation: 0 }).await
}

/// Makes one attempt.
pub(crate) async fn ask(backend: &dyn LockBackend, name: &str, who: &str, ttl: Duration, wait: Duration) -> Acquired {
    try_ask(backend, name, who, ttl, wait).await.unwrap_or_else(|error| panic!("{who}: {error}"))
}

/// Takes a lock that is free.
pub(crate) async fn take(backend: &dyn LockBackend, name: &str, who: &str, ttl: Duration) -> Lease {
    take_within(backend, name, who, ttl, Duration::ZERO).await
}

/// Takes a lock that becomes free in time.
pub(crate) async fn take_within(
    backend: &dyn LockBackend,
    name: &str,
    who: &str,
    ttl: Duration,
    wait: Duration,
) -> Lease {
    match ask(backend, name, who, ttl, wait).await {
        Acquired::Held(lease) => lease,
        Acquired::Busy => panic!("{who} did not get {name} within {wait:?}"),
    }
}

pub(crate) async fn is_busy(backend: &dyn LockBackend, name: &str, who: &str, ttl: Duration) -> bool {
    matches!(ask(backend, name, who, ttl, Duration::ZERO).await, Acquired::Busy)
}

/// A copy of a lease, as another process that knows its handle would have.
pub(crate) fn copy(lease: &Lease) -> Lease {
    Lease {
        name: lease.name.clone(),
        holder: lease.holder.clone(),
        number: lease.number,
        generation: lease.generation,
        issuer: lease.issuer.clone(),
        ttl: lease.ttl,
        since: lease.since,
        handle: lease.handle.clone(),
        session: None,
    }
}

/// Repeats a call while it fails with a temporary error.
pub(crate) async fn eventually<T>(what: &str, call: impl AsyncFn() -> Result<T, LockError>) -> T {
    let deadline = Instant::now() + RECOVERY;
    loop {
        match call().await {
            Ok(answer) => return answer,
            Err(error) if error.is_transient() && Instant::now() < deadline => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Err(error) => panic!("{what}: {error}"),
        }
    }
}

/// Renews a lease in the background until it is stopped.
pub(crate) struct Keeping {
    stop: oneshot::Sender<()>,
    kept: JoinHandle<Lease>,
}

pub(crate) fn keep(backend: &Arc<dyn LockBackend>, lease: Lease) -> Keeping {
    let (stop, mut stopped) = oneshot::channel();
    let backend = backend.clone();
    let kept = tokio::spawn(async move {
        let mut renewed = Instant::now();
        loop {
            let pause = lease.ttl / 4;
            if tokio::time::timeout(pause, &mut stopped).await.is_ok() {
                return lease;
            }
            let asked = Instant::now();
            let kept = backend.renew(&lease).await;
            if kept != Ok(Kept::Kept) {
                noticed(renewed.elapsed().saturating_sub(pause));
            }
            assert_eq!(kept, Ok(Kept::Kept), "a lease that is renewed in time is kept");
            renewed = asked;
        }
    });
    Keeping { stop, kept }
}

impl Keeping {
    pub(crate) async fn stop(self) -> Lease {
        let _ = self.stop.send(());
        self.kept.await.unwrap_or_else(|error| resume_unwind(error.into_panic()))
    }
}

/// Waits for a condition without blocking a thread.
pub(crate) async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + RECOVERY;
    while !condition() {
        assert!(Instant::now() < deadline, "waited {RECOVERY:?} for {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Waits until this many clients are in the queue for a lock, the last of them behind the proxy, where `before` bytes
/// had been sent.
pub(crate) async fn in_line<S: Service>(service: &S, name: &str, count: usize, proxy: &Proxy, before: u64) {
    let waiting = || tokio::task::block_in_place(|| service.waiting(name));
    match waiting() {
        Some(_) => until("somebody to stand in line", || waiting() >= Some(count)).await,
        None => asked(proxy, before).await,
    }
}

/// Waits until something was sent through the proxy since `before` bytes, and then nothing more for a while: as far as
/// can be seen from outside, the client then waits for a notification.
async fn asked(proxy: &Proxy, before: u64) {
    let mut seen = before;
    let mut quiet = Instant::now();
    let patience = Instant::now() + SLACK;
    until("the request to be on its way", || {
        let now = proxy.count(Direction::Up).bytes;
        if now != seen {
            (seen, quiet) = (now, Instant::now());
        }
        // A service without notifications is polled without a pause.
        seen > before && (quiet.elapsed() >= Duration::from_millis(250) || Instant::now() >= patience)
    })
    .await;
}
