//! Keeping a lease alive.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{oneshot, watch};
use tokio::time::{sleep_until, timeout_at};

use super::acquire::validity;
use super::observer::{LockEvent, tell};
use super::{LockOptions, Loss};
use crate::locks::{Kept, Lease, LockBackend, LockError};
use crate::random::jittered;

/// How a lease stands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Standing {
    /// Until then it is surely ours.
    pub(super) valid_until: Instant,
    pub(super) lost: Option<Loss>,
}

/// An order to give the lock back, with whom to tell.
type Order = oneshot::Sender<Result<(), LockError>>;

/// Keeps one lease alive.
pub(super) struct Keeper {
    pub(super) backend: Arc<dyn LockBackend>,
    pub(super) options: Arc<LockOptions>,
    pub(super) claimed: Instant,
    pub(super) standing: Arc<watch::Sender<Standing>>,
}

/// Whatever ends the keeper, an observer's panic too, nobody keeps the lease any more.
struct LostAtTheEnd(Arc<watch::Sender<Standing>>);

impl Drop for LostAtTheEnd {
    fn drop(&mut self) {
        self.0.send_modify(|standing| {
            standing.lost.get_or_insert(Loss::Expired);
        });
    }
}

/// Why keeping ended.
enum End {
    Ordered(Option<Order>),
    Lost(Loss),
}

impl Keeper {
    /// Renews until the lease is lost, or until the guard is gone or asks for its end. A guard that is dropped drops
    /// the other end of `orders`.
    pub(super) async fn keep(self, lease: Lease, orders: oneshot::Receiver<Order>) {
        let _nobody_keeps_it = LostAtTheEnd(self.standing.clone());
        match self.renewals(&lease, orders).await {
            End::Ordered(order) => {
                self.hold_out(&lease).await;
                let name = lease.name.clone();
                let released = self.give_back(lease).await;
                self.tell(&name, LockEvent::Released { held: self.claimed.elapsed() });
                if let Some(order) = order {
                    // Nobody may be waiting any more.
                    let _ = order.send(released);
                } else if let Err(error) = released {
                    tracing::debug!(lock = %name, %error, "a lock could not be given back; it ends with its ttl");
                }
            }
            End::Lost(why) => {
                self.standing.send_modify(|standing| standing.lost = Some(why));
                self.tell(&lease.name, LockEvent::Lost { why, held: self.claimed.elapsed() });
                if why != Loss::TakenOver {
                    // It compares before it deletes, so it can only spare others the rest of the ttl.
                    let _ = self.give_back(lease).await;
                }
            }
        }
    }

    /// Keeps the lease alive until it was held for as long as it must be: that may be far longer than its ttl.
    async fn hold_out(&self, lease: &Lease) {
        let end = self.claimed + self.options.min_hold;
        while Instant::now() < end {
            // An error may be one in passing; the next renewal will tell.
            if let Ok(Ok(Kept::Lost)) = tokio::time::timeout(lease.ttl, self.backend.renew(lease)).await {
                return;
            }
            let next = Instant::now() + jittered(lease.ttl / 3);
            sleep_until(next.min(end).into()).await;
        }
    }

    async fn give_back(&self, lease: Lease) -> Result<(), LockError> {
        let ttl = lease.ttl;
        match tokio::time::timeout(ttl, self.backend.release(lease)).await {
            Ok(released) => released,
            // By now it has ended by itself.
            Err(_) => Ok(()),
        }
    }

    fn tell(&self, name: &fencepost_core::Resource, event: LockEvent<'_>) {
        tell(self.options.observer.as_ref(), name, event);
    }

    async fn renewals(&self, lease: &Lease, mut orders: oneshot::Receiver<Order>) -> End {
        let mut valid_until = self.standing.borrow().valid_until;
        // A claim that took long has used up a part of the lease.
        let left = valid_until.saturating_duration_since(Instant::now());
        let mut pause = jittered(lease.ttl / 3).min(left / 3);
        let end_of_hold = self.options.max_hold.map(|most| self.claimed + most);
        let in_danger_below = self.options.danger.unwrap_or(lease.ttl / 3);
        let mut warned = false;
        let mut watched = self.standing.subscribe();
        loop {
            let next = Instant::now() + pause;
            let danger = valid_until.checked_sub(in_danger_below).unwrap_or(valid_until);
            let step = async {
                let mut renewal = next.min(valid_until);
                if let Some(end) = end_of_hold {
                    renewal = renewal.min(end);
                }
                if !warned && danger < renewal {
                    sleep_until(danger.into()).await;
                    return true;
                }
                sleep_until(renewal.into()).await;
                false
            };
            let in_danger = tokio::select! {
                biased;
                order = &mut orders => return End::Ordered(order.ok()),
                // A call under the guard was refused.
                _ = watched.wait_for(|standing| standing.lost.is_some()) => return End::Lost(Loss::TakenOver),
                in_danger = step => in_danger,
            };
            if in_danger {
                warned = true;
                if let Some(warn) = &self.options.on_danger {
                    warn(valid_until.saturating_duration_since(Instant::now()));
                }
                pause = next.saturating_duration_since(Instant::now());
                continue;
            }
            let asked = Instant::now();
            if end_of_hold.is_some_and(|end| asked >= end) {
                return End::Lost(Loss::MaxHold);
            }
            if asked >= valid_until {
                return End::Lost(Loss::Expired);
            }
            let renewed = tokio::select! {
                biased;
                order = &mut orders => return End::Ordered(order.ok()),
                renewed = timeout_at(valid_until.into(), self.backend.renew(lease)) => renewed,
            };
            match renewed {
                Ok(Ok(Kept::Kept)) => {
                    valid_until = validity(asked, lease.ttl);
                    self.standing.send_modify(|standing| standing.valid_until = valid_until);
                    pause = jittered(lease.ttl / 3);
                    warned = false;
                }
                Ok(Ok(Kept::Lost)) => return End::Lost(Loss::TakenOver),
                Ok(Err(error)) => {
                    self.tell(&lease.name, LockEvent::RenewFailed(&error.to_string()));
                    pause = jittered((lease.ttl / 20).clamp(Duration::from_millis(10), Duration::from_secs(1)));
                }
                Err(_) => return End::Lost(Loss::Expired),
            }
        }
    }
}
