//! Renewal of a lease.

use std::future::pending;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tokio::time::{sleep, timeout};

use super::Loss;
use super::observer::{LockEvent, notify};
use crate::client::{LockOptions, validity};
use crate::locks::{Kept, Lease, LockBackend, LockError};
use crate::random::jittered;
use crate::{Clock, Moment};

/// The minimum and maximum time that the service is given to answer. In between it is a quarter of the ttl: after a
/// renewal that hangs there is time for another one, on a connection of its own.
const LEAST_PATIENCE: Duration = Duration::from_millis(250);
const MOST_PATIENCE: Duration = Duration::from_secs(30);

/// How often the clock is checked during a wait: timers stop while the machine is suspended.
const LOOK: Duration = Duration::from_secs(1);

/// The state of a lease.
#[derive(Clone, Copy, Debug)]
pub(super) struct Standing {
    /// The lease is surely held until this moment.
    pub(super) valid_until: Moment,
    pub(super) lost: Option<Loss>,
}

/// A request to release the lock; its result goes to the receiver of this sender.
type Order = oneshot::Sender<Result<(), LockError>>;

/// Keeps one lease alive.
pub(super) struct Keeper {
    pub(super) backend: Arc<dyn LockBackend>,
    pub(super) options: Arc<LockOptions>,
    pub(super) claimed: Moment,
    pub(super) standing: Arc<watch::Sender<Standing>>,
}

/// Marks the lease as lost when the keeper ends for any reason, including a panic of an observer: nothing renews it any
/// more.
struct LostAtTheEnd(Arc<watch::Sender<Standing>>);

impl Drop for LostAtTheEnd {
    fn drop(&mut self) {
        self.0.send_modify(|standing| {
            standing.lost.get_or_insert(Loss::Expired);
        });
    }
}

/// Why renewal ended.
enum End {
    Ordered(Option<Order>),
    Lost(Loss),
}

impl Keeper {
    /// Renews until the lease is lost, or until the guard is dropped or asks for a release. Dropping a guard drops the
    /// other end of `orders`.
    pub(super) async fn keep(self, lease: Lease, orders: oneshot::Receiver<Order>) {
        let _lost_at_the_end = LostAtTheEnd(self.standing.clone());
        match self.renewals(&lease, orders).await {
            End::Ordered(order) => {
                self.hold_out(&lease).await;
                let name = lease.name.clone();
                let released = self.give_back(lease).await;
                self.notify(&name, LockEvent::Released { held: self.held() });
                if let Some(order) = order {
                    // The caller may be gone; the lock is released.
                    let _ = order.send(released);
                } else if let Err(error) = released {
                    tracing::debug!(lock = %name, %error, "a lock could not be given back; it ends with its ttl");
                }
            }
            End::Lost(why) => {
                self.standing.send_modify(|standing| standing.lost = Some(why));
                self.notify(&lease.name, LockEvent::Lost { why, held: self.held() });
                if why != Loss::TakenOver {
                    // The release compares before it deletes, so it can only save other clients the rest of the ttl.
                    let _ = self.give_back(lease).await;
                }
            }
        }
    }

    fn now(&self) -> Moment {
        self.options.clock.now()
    }

    /// How long the lock has been held.
    fn held(&self) -> Duration {
        self.now().since(self.claimed)
    }

    /// Keeps the lease alive until the minimum hold time is over, which may be far longer than its ttl.
    async fn hold_out(&self, lease: &Lease) {
        let end = self.claimed + self.options.min_hold;
        while self.now() < end {
            let pause = match self.ask(lease).await {
                Ok(Kept::Kept) => lease.ttl / 3,
                Ok(Kept::Lost) => return,
                Err(_) => soon(lease.ttl),
            };
            reached(&self.options.clock, Some((self.now() + jittered(pause)).min(end))).await;
        }
    }

    /// Asks the service once to renew. A timeout is an error like any other, and may be transient.
    async fn ask(&self, lease: &Lease) -> Result<Kept, String> {
        let patience = (lease.ttl / 4).clamp(LEAST_PATIENCE, MOST_PATIENCE);
        match timeout(patience, self.backend.renew(lease)).await {
            Ok(answer) => answer.map_err(|error| error.to_string()),
            Err(_) => Err(format!("no answer within {} s", patience.as_secs_f64())),
        }
    }

    async fn give_back(&self, lease: Lease) -> Result<(), LockError> {
        let ttl = lease.ttl;
        match timeout(ttl, self.backend.release(lease)).await {
            Ok(released) => released,
            // The lease has ended by itself by now.
            Err(_) => Ok(()),
        }
    }

    fn notify(&self, name: &fencepost_core::Resource, event: LockEvent<'_>) {
        notify(self.options.observer.as_ref(), name, event);
    }

    /// Runs the renewals. Whatever they do, even if one hangs, danger, expiry and `max_hold` are detected by our own
    /// clock.
    async fn renewals(&self, lease: &Lease, mut orders: oneshot::Receiver<Order>) -> End {
        let mut valid_until = self.standing.borrow().valid_until;
        // A slow claim has used up part of the lease.
        let left = valid_until.since(self.now());
        let mut next = self.now() + jittered(lease.ttl / 3).min(left / 3);
        let end_of_hold = self.options.max_hold.map(|most| self.claimed + most);
        let clock = &self.options.clock;
        let in_danger_below = self.options.danger.unwrap_or(lease.ttl / 3);
        let mut warned = false;
        let mut watched = self.standing.subscribe();
        let mut under_way: Option<Renewal<'_>> = None;
        loop {
            let danger = valid_until.before(in_danger_below);
            let due = under_way.is_none().then_some(next);
            let (asked, answer) = tokio::select! {
                biased;
                order = &mut orders => return End::Ordered(order.ok()),
                // A call under the guard was refused.
                _ = watched.wait_for(|standing| standing.lost.is_some()) => return End::Lost(Loss::TakenOver),
                answered = answered(&mut under_way) => answered,
                () = reached(clock, (!warned).then_some(danger)) => {
                    warned = true;
                    if let Some(warn) = &self.options.on_danger {
                        warn(valid_until.since(self.now()));
                    }
                    continue;
                }
                () = reached(clock, end_of_hold) => return End::Lost(Loss::MaxHold),
                () = reached(clock, Some(valid_until)) => return End::Lost(Loss::Expired),
                () = reached(clock, due) => {
                    under_way = Some(Renewal { asked: self.now(), answer: Box::pin(self.ask(lease)) });
                    continue;
                }
            };
            under_way = None;
            let pause = match answer {
                Ok(Kept::Kept) => {
                    valid_until = validity(asked, lease.ttl);
                    self.standing.send_modify(|standing| standing.valid_until = valid_until);
                    warned = false;
                    lease.ttl / 3
                }
                Ok(Kept::Lost) => return End::Lost(Loss::TakenOver),
                Err(why) => {
                    self.notify(&lease.name, LockEvent::RenewFailed(&why));
                    soon(lease.ttl)
                }
            };
            next = self.now() + jittered(pause);
        }
    }
}

/// A renewal in progress.
struct Renewal<'a> {
    asked: Moment,
    answer: Pin<Box<dyn Future<Output = Result<Kept, String>> + Send + 'a>>,
}

/// The answer to the renewal in progress, and the moment at which it was sent.
async fn answered(under_way: &mut Option<Renewal<'_>>) -> (Moment, Result<Kept, String>) {
    match under_way {
        Some(renewal) => (renewal.asked, renewal.answer.as_mut().await),
        None => pending().await,
    }
}

/// Resolves at this moment; never if there is none.
async fn reached(clock: &Clock, moment: Option<Moment>) {
    let Some(moment) = moment else { return pending().await };
    loop {
        let left = moment.since(clock.now());
        if left.is_zero() {
            return;
        }
        sleep(left.min(LOOK)).await;
    }
}

/// The pause after a renewal that failed.
fn soon(ttl: Duration) -> Duration {
    (ttl / 20).clamp(Duration::from_millis(10), Duration::from_secs(1))
}
