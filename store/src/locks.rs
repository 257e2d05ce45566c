//! The built-in lock service as its callers see it: acquire, wait, renew, release.
//!
//! Only the head of a queue asks the sequencer, when the lock was released or the lease in the way was seen to run out;
//! so a thousand waiters cost no more than one.

use std::time::Duration;

use fencepost_core::{Access, Holder, Resource};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::command::{Acquire, Action, Command, Judged, Once, Take};
use crate::door::Door;
use crate::outcome::{Failure, Held, Holding, Outcome, Rejected};
use crate::record::LeaseId;
use crate::store::{Store, WrongResource};

/// A lock that somebody wants.
#[derive(Clone, Debug)]
pub struct AcquireLock {
    /// The lock, which is also the resource.
    pub resource: Resource,
    /// Who wants it, unique per acquisition.
    pub holder: Holder,
    /// How long the lease lasts unless it is renewed.
    pub ttl: Duration,
    /// How long to wait for it.
    pub wait: Duration,
    /// Makes a retry safe.
    pub once: Option<Once>,
}

impl Store {
    /// Acquires a lock, and waits for it if that is asked for. Dropping the future leaves the queue.
    pub async fn acquire(&self, wanted: AcquireLock) -> Result<Result<Outcome, WrongResource>, Failure> {
        let AcquireLock { resource, wait, once, .. } = &wanted;
        if let Err(wrong) = self.resource(resource) {
            return Ok(Err(wrong));
        }
        let deadline = Instant::now() + *wait;
        let place = self.locks.enter(resource)?;
        let mut closing = self.locks.closing();
        // A retry finds its grant, however many are before it. Who does not wait hears at once what is in the way.
        if !place.is_head() && (wait.is_zero() || once.is_some()) {
            match self.attempt(&wanted, Take::Never).await? {
                Outcome::Held(_) if !wait.is_zero() => {}
                outcome => return Ok(Ok(self.with_times(resource, outcome))),
            }
        }
        loop {
            let mut wake_at = deadline;
            if place.is_head() {
                let take = self.locks.run_out(resource).map_or(Take::Free, Take::Expired);
                match self.attempt(&wanted, take).await? {
                    Outcome::Held(holding) if Instant::now() < deadline => {
                        let runs_out = holding.by.as_ref().map(|held| self.locks.runs_out(resource, held));
                        wake_at = deadline.min(runs_out.unwrap_or(deadline));
                    }
                    outcome => return Ok(Ok(self.with_times(resource, outcome))),
                }
            } else if Instant::now() >= deadline {
                let held = self.attempt(&wanted, Take::Never).await?;
                return Ok(Ok(self.with_times(resource, held)));
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

    /// Asks the sequencer once.
    async fn attempt(&self, wanted: &AcquireLock, take: Take) -> Result<Outcome, Failure> {
        let lease = LeaseId::random().map_err(Rejected::Unavailable)?;
        let AcquireLock { resource, holder, ttl, once, .. } = wanted;
        let acquire = Acquire { lease, holder: holder.clone(), ttl_ms: millis(*ttl), take };
        let Ok(command) = self.lock_command(resource, Action::Acquire(acquire)) else {
            return Err(Rejected::Unavailable("the guards have changed".into()).into());
        };
        let release = Command { action: Action::Release { lease }, ..command.clone() };
        let command = Command { once: once.clone(), ..command };
        let (reply, answer) = oneshot::channel();
        let door = self.door.clone();
        tokio::spawn(async move { reply.send(door.submit(command).await) });
        // With an idempotency key the caller may still come back for it.
        let give_back = once.is_none().then(|| (self.door.clone(), release));
        Hearing { answer: Some(answer), give_back }.hear().await
    }

    /// Renews a lease, also late, if nobody took the lock.
    pub async fn renew(
        &self,
        resource: &Resource,
        lease: LeaseId,
        ttl: Duration,
    ) -> Result<Result<Outcome, WrongResource>, Failure> {
        self.submit_lock(resource, Action::Renew { lease, ttl_ms: millis(ttl) }).await
    }

    /// Gives a lock back.
    pub async fn release(
        &self,
        resource: &Resource,
        lease: LeaseId,
    ) -> Result<Result<Outcome, WrongResource>, Failure> {
        self.submit_lock(resource, Action::Release { lease }).await
    }

    /// Takes a lock from its holder, and raises the fence above the holder's token.
    pub async fn force_release(&self, resource: &Resource) -> Result<Result<Outcome, WrongResource>, Failure> {
        self.submit_lock(resource, Action::ForceRelease).await
    }

    async fn submit_lock(
        &self,
        resource: &Resource,
        action: Action,
    ) -> Result<Result<Outcome, WrongResource>, Failure> {
        match self.lock_command(resource, action) {
            Ok(command) => self.door.submit(command).await.map(Ok),
            Err(wrong) => Ok(Err(wrong)),
        }
    }

    fn lock_command(&self, resource: &Resource, action: Action) -> Result<Command, WrongResource> {
        let guarded = self.resource(resource)?;
        Ok(Command::new(Judged { guarded, presented: None, access: Access::Claim }, action))
    }

    /// How many wait for locks now.
    pub fn waiters(&self) -> usize {
        self.locks.waiters()
    }

    /// From now on nobody waits for a lock; whoever does is rejected.
    pub fn stop_waiting(&self) {
        self.locks.close();
    }

    /// Adds what only the watching side knows.
    fn with_times(&self, resource: &Resource, outcome: Outcome) -> Outcome {
        match outcome {
            Outcome::Held(held) => {
                let remaining_ms = held.by.as_ref().map_or(0, |by| self.remaining_ms(resource, by));
                // Whoever asks has a place too.
                let waiting = self.locks.waiting(resource).saturating_sub(1);
                Outcome::Held(Box::new(Holding { remaining_ms, waiting, ..*held }))
            }
            other => other,
        }
    }

    /// Rounded up: 0 means that it may be taken over.
    pub(crate) fn remaining_ms(&self, resource: &Resource, held: &Held) -> u64 {
        let remaining = self.locks.runs_out(resource, held).saturating_duration_since(Instant::now());
        u64::try_from(remaining.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
    }
}

/// Somebody who listens for the end of an attempt. If they go away, a grant that nobody hears of is given back.
struct Hearing {
    answer: Option<oneshot::Receiver<Result<Outcome, Failure>>>,
    give_back: Option<(Door, Command)>,
}

impl Hearing {
    async fn hear(mut self) -> Result<Outcome, Failure> {
        let Some(answer) = &mut self.answer else { unreachable!("taken only here and when dropped") };
        let ended = answer.await;
        self.answer = None;
        ended.unwrap_or_else(|_| Err(Failure::Unknown("the attempt was given up".into())))
    }
}

impl Drop for Hearing {
    fn drop(&mut self) {
        let (Some(answer), Some((door, release)), Ok(runtime)) =
            (self.answer.take(), self.give_back.take(), Handle::try_current())
        else {
            return;
        };
        runtime.spawn(async move {
            if let Ok(Ok(Outcome::Granted(_))) = answer.await {
                // If even that fails, the lease runs out by itself.
                let _ = door.submit(release).await;
            }
        });
    }
}

pub(crate) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
