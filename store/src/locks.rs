//! Waiting for locks, and watching leases run out: everything about locks that needs a clock or patience.
//!
//! One queue per lock, first come, first served. Only its head asks the sequencer, when the lock was released or the
//! lease in the way was seen to run out; so a thousand waiters cost no more than one.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fencepost_core::{Access, Holder, Resource};
use tokio::sync::{Notify, oneshot, watch};
use tokio::time::Instant;

use crate::command::{Acquire, Action, Command, Judged, Once, Take};
use crate::engine::Version;
use crate::outcome::{Failure, Held, Holding, Outcome, Rejected};
use crate::record::LeaseId;
use crate::store::{Store, WrongResource};

/// How many may wait for locks at once, over all locks.
pub const MAX_WAITERS: usize = 16_384;

/// Leases that are watched at once. One that is forgotten is watched anew, from its next sight.
const MAX_WATCHED: usize = 65_536;

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

/// Queues and watched leases.
pub(crate) struct Locks {
    table: Mutex<Table>,
    closing: watch::Sender<bool>,
    /// Added to every ttl before a lease may be taken over.
    delay: Duration,
}

#[derive(Default)]
struct Table {
    locks: HashMap<Resource, Lock>,
    waiters: usize,
    next_ticket: u64,
}

#[derive(Default)]
struct Lock {
    watched: Option<Watched>,
    queue: BTreeMap<u64, Arc<Notify>>,
}

/// A lease's record as it was first seen.
#[derive(Clone, Copy)]
struct Watched {
    version: Version,
    runs_out: Instant,
}

impl Locks {
    pub(crate) fn new(delay: Duration) -> Locks {
        Locks { table: Mutex::default(), closing: watch::Sender::new(false), delay }
    }

    /// Nobody waits any more.
    pub(crate) fn close(&self) {
        self.closing.send_replace(true);
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A lease's record was seen with this version. When it may be taken over, counted from the first such sight.
    pub(crate) fn saw(&self, resource: &Resource, version: Version, ttl_ms: u64) -> Instant {
        let mut table = self.table();
        if table.locks.len() >= MAX_WATCHED && !table.locks.contains_key(resource) {
            let idle = table.locks.iter().find(|(_, lock)| lock.queue.is_empty()).map(|(resource, _)| resource.clone());
            idle.and_then(|idle| table.locks.remove(&idle));
        }
        let watched = &mut table.locks.entry(resource.clone()).or_default().watched;
        match *watched {
            Some(Watched { version: seen, runs_out }) if seen == version => runs_out,
            _ => {
                let runs_out = Instant::now() + Duration::from_millis(ttl_ms) + self.delay;
                *watched = Some(Watched { version, runs_out });
                runs_out
            }
        }
    }

    /// The lock is free: whoever is first may try.
    pub(crate) fn freed(&self, resource: &Resource) {
        let mut table = self.table();
        if let Some(lock) = table.locks.get_mut(resource) {
            lock.watched = None;
            match lock.queue.first_key_value() {
                Some((_, head)) => head.notify_one(),
                None => drop(table.locks.remove(resource)),
            }
        }
    }

    /// The version whose lease has run out, if one was watched that long.
    fn run_out(&self, resource: &Resource) -> Option<Version> {
        let watched = self.table().locks.get(resource)?.watched?;
        (watched.runs_out <= Instant::now()).then_some(watched.version)
    }

    pub(crate) fn waiting(&self, resource: &Resource) -> usize {
        self.table().locks.get(resource).map_or(0, |lock| lock.queue.len())
    }

    /// Takes the last place in the queue.
    fn enter(&self, resource: &Resource) -> Result<Place<'_>, Rejected> {
        let mut table = self.table();
        if table.waiters >= MAX_WAITERS {
            return Err(Rejected::TooManyWaiters { limit: MAX_WAITERS });
        }
        let (ticket, turn) = (table.next_ticket, Arc::new(Notify::new()));
        table.next_ticket += 1;
        table.waiters += 1;
        table.locks.entry(resource.clone()).or_default().queue.insert(ticket, turn.clone());
        Ok(Place { locks: self, resource: resource.clone(), ticket, turn })
    }
}

/// A place in a queue; whoever leaves lets the next one try.
struct Place<'l> {
    locks: &'l Locks,
    resource: Resource,
    ticket: u64,
    turn: Arc<Notify>,
}

impl Place<'_> {
    fn is_head(&self) -> bool {
        let table = self.locks.table();
        let head = table.locks.get(&self.resource).and_then(|lock| lock.queue.first_key_value());
        head.is_some_and(|(ticket, _)| *ticket == self.ticket)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut table = self.locks.table();
        table.waiters -= 1;
        let Some(lock) = table.locks.get_mut(&self.resource) else { return };
        lock.queue.remove(&self.ticket);
        match lock.queue.first_key_value() {
            Some((_, head)) => head.notify_one(),
            None if lock.watched.is_none() => drop(table.locks.remove(&self.resource)),
            None => {}
        }
    }
}

impl Store {
    /// Acquires a lock, and waits for it if that is asked for. Dropping the future leaves the queue.
    pub async fn acquire(&self, wanted: AcquireLock) -> Result<Result<Outcome, WrongResource>, Failure> {
        if let Err(wrong) = self.resource(&wanted.resource) {
            return Ok(Err(wrong));
        }
        let deadline = Instant::now() + wanted.wait;
        let place = self.locks.enter(&wanted.resource)?;
        let mut closing = self.locks.closing.subscribe();
        let mut last = None;
        // A retry finds its grant, however many are before it. Who does not wait hears at once what is in the way.
        if !place.is_head() && (wanted.wait.is_zero() || wanted.once.is_some()) {
            match self.attempt(&wanted, Take::Never).await? {
                Outcome::Held(held) if !wanted.wait.is_zero() => last = Some(held),
                outcome => return Ok(Ok(self.seen(&wanted.resource, outcome))),
            }
        }
        loop {
            let mut runs_out = None;
            if place.is_head() {
                let take = self.locks.run_out(&wanted.resource).map_or(Take::Free, Take::Expired);
                match self.attempt(&wanted, take).await? {
                    Outcome::Held(held) => {
                        let by = held.by.as_ref();
                        runs_out = by.map(|by| self.locks.saw(&wanted.resource, by.version, by.ttl_ms));
                        last = Some(held);
                    }
                    outcome => return Ok(Ok(self.seen(&wanted.resource, outcome))),
                }
            }
            let now = Instant::now();
            if *closing.borrow() {
                return Err(Rejected::Closing.into());
            }
            if now >= deadline {
                let held = match last {
                    Some(held) => Outcome::Held(held),
                    None => self.attempt(&wanted, Take::Never).await?,
                };
                return Ok(Ok(self.seen(&wanted.resource, held)));
            }
            tokio::select! {
                () = place.turn.notified() => {}
                () = tokio::time::sleep_until(runs_out.unwrap_or(deadline).min(deadline)) => {}
                _ = closing.changed() => {}
            }
        }
    }

    /// Asks the sequencer once. If nobody is left to hear of a grant, it is given back.
    async fn attempt(&self, wanted: &AcquireLock, take: Take) -> Result<Outcome, Failure> {
        let lease = LeaseId::random().map_err(Rejected::Unavailable)?;
        let (holder, ttl_ms) = (wanted.holder.clone(), millis(wanted.ttl));
        let command =
            match self.lock_command(&wanted.resource, Action::Acquire(Acquire { lease, holder, ttl_ms, take })) {
                Ok(command) => Command { once: wanted.once.clone(), ..command },
                Err(_) => return Err(Rejected::Unavailable("the guards have changed".into()).into()),
            };
        let release = Command { action: Action::Release { lease }, once: None, ..command.clone() };
        let (door, locks) = (self.door.clone(), self.locks.clone());
        let (resource, keeps) = (wanted.resource.clone(), wanted.once.is_some());
        let (reply, answer) = oneshot::channel();
        tokio::spawn(async move {
            let unheard = reply.send(door.submit(command).await);
            // With an idempotency key the caller may still come back for it.
            if let Err(Ok(Outcome::Granted(_))) = unheard
                && !keeps
                && matches!(door.submit(release).await, Ok(Outcome::Released))
            {
                locks.freed(&resource);
            }
        });
        answer.await.unwrap_or_else(|_| Err(Failure::Unknown("the attempt was given up".into())))
    }

    /// Renews a lease, also late, if nobody took the lock.
    pub async fn renew(
        &self,
        resource: &Resource,
        lease: LeaseId,
        ttl: Duration,
    ) -> Result<Result<Outcome, WrongResource>, Failure> {
        let command = match self.lock_command(resource, Action::Renew { lease, ttl_ms: millis(ttl) }) {
            Ok(command) => command,
            Err(wrong) => return Ok(Err(wrong)),
        };
        let outcome = self.door.submit(command).await?;
        Ok(Ok(self.seen(resource, outcome)))
    }

    /// Gives a lock back.
    pub async fn release(
        &self,
        resource: &Resource,
        lease: LeaseId,
    ) -> Result<Result<Outcome, WrongResource>, Failure> {
        let command = match self.lock_command(resource, Action::Release { lease }) {
            Ok(command) => command,
            Err(wrong) => return Ok(Err(wrong)),
        };
        let outcome = self.door.submit(command).await?;
        Ok(Ok(self.seen(resource, outcome)))
    }

    /// Takes a lock from its holder, and raises the fence above the holder's token.
    pub async fn force_release(&self, resource: &Resource) -> Result<Result<Outcome, WrongResource>, Failure> {
        let command = match self.lock_command(resource, Action::ForceRelease) {
            Ok(command) => command,
            Err(wrong) => return Ok(Err(wrong)),
        };
        let outcome = self.door.submit(command).await?;
        Ok(Ok(self.seen(resource, outcome)))
    }

    /// How many wait for locks now.
    pub fn waiters(&self) -> usize {
        self.locks.table().waiters
    }

    /// From now on nobody waits for a lock; whoever does is rejected.
    pub fn stop_waiting(&self) {
        self.locks.close();
    }

    fn lock_command(&self, resource: &Resource, action: Action) -> Result<Command, WrongResource> {
        let guarded = self.resource(resource)?;
        Ok(Command::new(Judged { guarded, presented: None, access: Access::Claim }, action))
    }

    /// Notes what an outcome tells about the lock, and adds what only the watching side knows.
    fn seen(&self, resource: &Resource, outcome: Outcome) -> Outcome {
        match &outcome {
            Outcome::Granted(grant) => drop(self.locks.saw(resource, grant.version, grant.ttl_ms)),
            Outcome::Released | Outcome::ForceReleased { .. } => self.locks.freed(resource),
            _ => {}
        }
        match outcome {
            Outcome::Held(held) => {
                let remaining_ms = held.by.as_ref().map_or(0, |by| self.remaining_ms(resource, by));
                let waiting = self.locks.waiting(resource).saturating_sub(1);
                Outcome::Held(Box::new(Holding { remaining_ms, waiting, ..*held }))
            }
            other => other,
        }
    }

    pub(crate) fn remaining_ms(&self, resource: &Resource, by: &Held) -> u64 {
        let runs_out = self.locks.saw(resource, by.version, by.ttl_ms);
        millis(runs_out.saturating_duration_since(Instant::now()))
    }
}

pub(crate) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
