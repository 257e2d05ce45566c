//! The public interface of the built-in lock service: acquire, wait, renew, release.
//!
//! Only the head of a queue submits commands, when the lock was released or the lease that blocks it has expired. So a
//! thousand waiters cost no more than one.

use std::time::Duration;

use fencepost_core::{Access, Holder, Resource};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::command::{Acquire, Action, Judged, Once, Take};
use crate::entry::Entry;
use crate::failure::{Failure, Rejected};
use crate::lock_queue::{CallerId, Place};
use crate::outcome::{AcquireOutcome, ForceReleaseOutcome, Held, Holding, ReleaseOutcome, RenewOutcome};
use crate::record::LeaseId;
use crate::store::{Store, WrongResource};

/// How long a waiter pauses when the store's command queue is full.
const BUSY: Duration = Duration::from_millis(20);

/// A request to acquire a lock.
#[derive(Clone, Debug)]
pub struct AcquireLock {
    /// The lock, which is also the resource.
    pub resource: Resource,
    /// The holder it is acquired for, unique per acquisition.
    pub holder: Holder,
    /// How long the lease lasts unless it is renewed.
    pub ttl: Duration,
    /// How long to wait for it.
    pub wait: Duration,
    /// Makes a retry safe.
    pub once: Option<Once>,
    /// The caller whose share of the waiter limits is used.
    pub caller: CallerId,
}

impl Store {
    /// Acquires a lock, and waits for it if requested. Dropping the future leaves the queue.
    pub async fn acquire(&self, wanted: AcquireLock) -> Result<AcquireOutcome, Failure> {
        self.resource(&wanted.resource)?;
        if wanted.wait.is_zero() {
            return self.take_now(&wanted).await;
        }
        match self.locks.enter(&wanted.resource, &wanted.caller) {
            Ok(place) => self.take_in_turn(&wanted, &place).await,
            // Only waiting needs a place in the queue; a free lock can be taken without one.
            Err(full) => match self.take_now(&wanted).await? {
                AcquireOutcome::Held(_) => Err(full.into()),
                outcome => Ok(outcome),
            },
        }
    }

    /// Takes a lock that is free and has no waiters, or reports what blocks it.
    async fn take_now(&self, wanted: &AcquireLock) -> Result<AcquireOutcome, Failure> {
        let resource = &wanted.resource;
        let take = if self.locks.waiting(resource) > 0 { Take::Never } else { self.what_may_be_taken(resource) };
        let outcome = self.attempt(wanted, take).await?;
        Ok(self.with_times(resource, outcome, self.locks.waiting(resource)))
    }

    /// Waits for a lock in the queue.
    async fn take_in_turn(&self, wanted: &AcquireLock, place: &Place<'_>) -> Result<AcquireOutcome, Failure> {
        let AcquireLock { resource, wait, once, .. } = wanted;
        let deadline = Instant::now() + *wait;
        let mut closing = self.locks.closing();
        // A retry finds its recorded grant, whatever its place in the queue.
        let mut look = once.is_some();
        loop {
            let head = place.is_head();
            let take = match (head, look || Instant::now() >= deadline) {
                (true, _) => Some(self.what_may_be_taken(resource)),
                (false, true) => Some(Take::Never),
                (false, false) => None,
            };
            let mut wake_at = deadline;
            if let Some(take) = take {
                match self.attempt(wanted, take).await {
                    Ok(AcquireOutcome::Held(holding)) if Instant::now() < deadline => {
                        look = false;
                        let runs_out = holding.by.as_ref().filter(|_| head).map(|by| self.locks.runs_out(resource, by));
                        wake_at = deadline.min(runs_out.unwrap_or(deadline));
                    }
                    // An overloaded store gives no information about the lock, so waiters keep their places.
                    Err(Failure::Rejected(Rejected::Overloaded { .. })) if Instant::now() < deadline => {
                        wake_at = deadline.min(Instant::now() + BUSY);
                    }
                    ended => {
                        let others = self.locks.waiting(resource).saturating_sub(1);
                        return ended.map(|outcome| self.with_times(resource, outcome, others));
                    }
                }
            }
            if *closing.borrow() {
                return Err(Rejected::Closing.into());
            }
            tokio::select! {
                () = place.turn() => {}
                () = tokio::time::sleep_until(wake_at) => {}
                _ = closing.changed() => {}
            }
        }
    }

    /// The lock may be taken if it is free, or if its watched lease has expired.
    fn what_may_be_taken(&self, resource: &Resource) -> Take {
        self.locks.run_out(resource).map_or(Take::Free, Take::Expired)
    }

    /// Submits one attempt to the sequencer.
    async fn attempt(&self, wanted: &AcquireLock, take: Take) -> Result<AcquireOutcome, Failure> {
        let lease = LeaseId::random().map_err(Rejected::Unavailable)?;
        let AcquireLock { resource, holder, ttl, once, .. } = wanted;
        let acquire = Acquire { lease, holder: holder.clone(), ttl_ms: millis(*ttl), take };
        let Ok(judged) = self.lock_of(resource) else {
            return Err(Rejected::Unavailable("the guards have changed".into()).into());
        };
        // With an idempotency key the caller may still retry and collect the grant.
        let give_back = once.is_none().then(|| (self.entry.clone(), judged.clone(), lease));
        let (sender, answer) = oneshot::channel();
        let (entry, once) = (self.entry.clone(), once.clone());
        tokio::spawn(async move {
            sender.send(entry.submit(vec![judged], once, |reply| Action::Acquire(acquire, reply)).await)
        });
        Attempt { answer: Some(answer), give_back }.outcome().await
    }

    /// Renews a lease, even after its TTL if the lock was not taken meanwhile.
    pub async fn renew(&self, resource: &Resource, lease: LeaseId, ttl: Duration) -> Result<RenewOutcome, Failure> {
        let (judged, ttl_ms) = (self.lock_of(resource)?, millis(ttl));
        self.entry.submit(vec![judged], None, |reply| Action::Renew { lease, ttl_ms, reply }).await
    }

    /// Releases a lock.
    pub async fn release(&self, resource: &Resource, lease: LeaseId) -> Result<ReleaseOutcome, Failure> {
        release(&self.entry, self.lock_of(resource)?, lease).await
    }

    /// Takes a lock from its holder, and raises the fence above the holder's token.
    pub async fn force_release(&self, resource: &Resource) -> Result<ForceReleaseOutcome, Failure> {
        self.entry.submit(vec![self.lock_of(resource)?], None, |reply| Action::ForceRelease { reply }).await
    }

    /// A lock is judged on the resource of its name; which token is presented is decided with its record.
    fn lock_of(&self, resource: &Resource) -> Result<Judged, WrongResource> {
        Ok(Judged { guarded: self.resource(resource)?, presented: None, access: Access::Claim })
    }

    /// Number of waiters for locks.
    pub fn waiters(&self) -> usize {
        self.locks.waiters()
    }

    /// Ends all waiting for locks: current and future waiters are rejected.
    pub fn stop_waiting(&self) {
        self.locks.close();
    }

    /// Adds the remaining time and the number of waiters, which only this side knows.
    fn with_times(&self, resource: &Resource, outcome: AcquireOutcome, waiting: usize) -> AcquireOutcome {
        match outcome {
            AcquireOutcome::Held(held) => {
                let remaining_ms = held.by.as_ref().map_or(0, |by| self.remaining_ms(resource, by));
                AcquireOutcome::Held(Box::new(Holding { remaining_ms, waiting, ..*held }))
            }
            other => other,
        }
    }

    /// The remaining milliseconds, rounded up: 0 means that the lease may be taken over.
    pub(crate) fn remaining_ms(&self, resource: &Resource, held: &Held) -> u64 {
        let remaining = self.locks.runs_out(resource, held).saturating_duration_since(Instant::now());
        u64::try_from(remaining.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
    }
}

/// The receiver of an attempt's outcome. If it is dropped early, a grant that its caller never received is released.
struct Attempt {
    answer: Option<oneshot::Receiver<Result<AcquireOutcome, Failure>>>,
    give_back: Option<(Entry, Judged, LeaseId)>,
}

impl Attempt {
    async fn outcome(mut self) -> Result<AcquireOutcome, Failure> {
        let Some(answer) = &mut self.answer else { unreachable!("taken only here and when dropped") };
        let ended = answer.await;
        self.answer = None;
        ended.unwrap_or_else(|_| Err(Failure::Unknown("the attempt was given up".into())))
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        let (Some(answer), Some((entry, judged, lease)), Ok(runtime)) =
            (self.answer.take(), self.give_back.take(), Handle::try_current())
        else {
            return;
        };
        runtime.spawn(async move {
            if let Ok(Ok(AcquireOutcome::Granted(_))) = answer.await {
                // If this fails too, the lease expires by itself.
                let _ = release(&entry, judged, lease).await;
            }
        });
    }
}

async fn release(entry: &Entry, judged: Judged, lease: LeaseId) -> Result<ReleaseOutcome, Failure> {
    entry.submit(vec![judged], None, |reply| Action::Release { lease, reply }).await
}

pub(crate) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
