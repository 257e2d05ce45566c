//! Queues of waiters and expiry of leases: the part of the lock service that needs a clock.
//!
//! Each lock has one queue: first come, first served. The sequencer reports every change of a lease here, in commit
//! order, even if the caller that requested it is gone.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use fencepost_core::{FenceState, Resource, Token};
use indexmap::IndexMap;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::engine::{Ownership, Version};
use crate::failure::{Rejected, WaiterBound};
use crate::outcome::{Grant, Held};

/// What an outcome shows of a lock.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Sighting {
    /// Its lease, in this version of the lock's record.
    Lease { version: Version, token: Token, ttl_ms: u64 },
    /// It is not held.
    Free,
}

impl Sighting {
    pub(crate) fn of(grant: &Grant) -> Sighting {
        Sighting::Lease { version: grant.version, token: grant.token, ttl_ms: grant.ttl_ms }
    }
}

/// How many waiters there may be at once, over all locks.
pub const MAX_WAITERS: usize = 16_384;

/// How many waiters one lock may have at once.
pub const MAX_WAITERS_PER_LOCK: usize = 1_024;

/// How many waiters one caller may have at once: a quarter of all.
pub const MAX_WAITERS_PER_CALLER: usize = MAX_WAITERS / 4;

/// How many leases are watched at once. A lease that was dropped from the table is watched again from when it is next
/// seen.
const MAX_WATCHED: usize = 65_536;

/// On a shared engine, every this many-th time a lock becomes free its first waiter here is not woken at once, so that
/// waiters at other gateways, who have to look, get a turn.
const TURNS: u8 = 8;

/// A year, for durations that an `Instant` cannot hold.
const FOREVER: Duration = Duration::from_secs(365 * 86_400);

/// Identifies a caller for its share of the waiter limits. The front end chooses the text: an address, or an identity.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct CallerId(Arc<str>);

impl CallerId {
    /// The caller with this text.
    pub fn new(caller: impl fmt::Display) -> CallerId {
        CallerId(caller.to_string().into())
    }
}

/// Queues and watched leases.
pub(crate) struct Locks {
    table: Mutex<Table>,
    closing: watch::Sender<bool>,
    /// Added to every TTL before a lease may be taken over.
    delay: Duration,
    /// Whether there may be waiters at other gateways.
    shared: bool,
    /// Notified when a waiter enters a queue.
    entered: Notify,
}

#[derive(Default)]
struct Table {
    locks: IndexMap<Resource, Lock>,
    waiters: usize,
    /// Number of waiters per caller; callers without waiters are absent.
    callers: HashMap<CallerId, usize>,
    next_ticket: u64,
    evictions: u64,
}

impl Table {
    /// The limit that leaves no place for one more waiter, if any.
    fn full(&self, resource: &Resource, caller: &CallerId) -> Option<Rejected> {
        let queued = self.locks.get(resource).map_or(0, |lock| lock.queue.len());
        let own = self.callers.get(caller).copied().unwrap_or(0);
        let bounds = [
            (queued, MAX_WAITERS_PER_LOCK, WaiterBound::Lock),
            (own, MAX_WAITERS_PER_CALLER, WaiterBound::Caller),
            (self.waiters, MAX_WAITERS, WaiterBound::All),
        ];
        let reached = bounds.into_iter().find(|(count, limit, _)| count >= limit);
        reached.map(|(_, limit, bound)| Rejected::TooManyWaiters { bound, limit })
    }

    /// Makes room for one more lock by removing a random one that has no waiters. A fixed order could remove the same
    /// leases forever.
    fn make_room(&mut self) {
        for _ in 0..16 {
            self.evictions = self.evictions.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            let at = usize::try_from((self.evictions >> 33) % self.locks.len() as u64).unwrap_or(0);
            if self.locks.get_index(at).is_some_and(|(_, lock)| lock.queue.is_empty()) {
                self.locks.swap_remove_index(at);
                return;
            }
        }
    }
}

#[derive(Default)]
struct Lock {
    watched: Option<Watched>,
    queue: BTreeMap<u64, Arc<Notify>>,
    /// How often it became free while it was waited for here.
    turns: u8,
}

/// A version of a lease's record, timed from when it was first seen.
#[derive(Clone, Copy)]
struct Watched {
    version: Version,
    token: Token,
    runs_out: Instant,
}

impl Locks {
    pub(crate) fn new(delay: Duration, ownership: Ownership) -> Locks {
        let (table, closing, entered) = (Mutex::default(), watch::Sender::new(false), Notify::new());
        Locks { table, closing, delay, shared: ownership == Ownership::Shared, entered }
    }

    /// Ends all waiting.
    pub(crate) fn close(&self) {
        self.closing.send_replace(true);
    }

    /// Notifies when all waiting has ended.
    pub(crate) fn closing(&self) -> watch::Receiver<bool> {
        self.closing.subscribe()
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock()
    }

    /// Records what a commit or a read of durable records shows about a lock. Only the sequencer calls this, so an
    /// older state never follows a newer one.
    pub(crate) fn note(&self, resource: &Resource, sighting: Sighting) {
        match sighting {
            Sighting::Lease { version, token, ttl_ms } => self.saw(resource, version, token, ttl_ms),
            Sighting::Free => self.freed(resource),
        }
    }

    /// Records that a lease was seen with this version. Its time is counted from when that version was first seen.
    fn saw(&self, resource: &Resource, version: Version, token: Token, ttl_ms: u64) {
        let mut table = self.table();
        if table.locks.len() >= MAX_WATCHED && !table.locks.contains_key(resource) {
            table.make_room();
        }
        let Lock { watched, queue, .. } = table.locks.entry(resource.clone()).or_default();
        if watched.is_none_or(|seen| seen.version != version) {
            let runs_out = self.after(ttl_ms);
            // The first waiter may have to wake earlier than it planned.
            if let (Some(before), Some((_, head))) = (*watched, queue.first_key_value())
                && runs_out < before.runs_out
            {
                head.notify_one();
            }
            *watched = Some(Watched { version, token, runs_out });
        }
    }

    /// Called when fences were raised or rotated. A lease whose token is now refused is over, so the first waiter may
    /// try.
    pub(crate) fn fences_changed<'f>(&self, fences: impl Iterator<Item = (&'f Resource, &'f FenceState)>) {
        let table = self.table();
        if table.waiters == 0 {
            return;
        }
        for (resource, state) in fences {
            let Some(Lock { watched: Some(watched), queue, .. }) = table.locks.get(resource) else { continue };
            let overtaken = state.generation > watched.token.generation()
                || state.token().is_some_and(|fence| fence > watched.token);
            if let (true, Some((_, head))) = (overtaken, queue.first_key_value()) {
                head.notify_one();
            }
        }
    }

    /// Called when every generation below `base` has ended, and the leases in them with it.
    pub(crate) fn base_changed(&self, base: u32) {
        for lock in self.table().locks.values() {
            let ended = lock.watched.is_some_and(|watched| watched.token.generation() < base);
            if let (true, Some((_, head))) = (ended, lock.queue.first_key_value()) {
                head.notify_one();
            }
        }
    }

    /// When a lease that is first seen now expires.
    fn after(&self, ttl_ms: u64) -> Instant {
        let (now, ttl) = (Instant::now(), Duration::from_millis(ttl_ms));
        now.checked_add(ttl.saturating_add(self.delay)).unwrap_or(now + FOREVER)
    }

    /// The lock is free: the first waiter may try.
    fn freed(&self, resource: &Resource) {
        let mut table = self.table();
        if let Some(lock) = table.locks.get_mut(resource) {
            lock.watched = None;
            lock.turns = (lock.turns + 1) % TURNS;
            match lock.queue.first_key_value() {
                // The watch over other gateways wakes it, and those who wait there, soon.
                Some(_) if self.shared && lock.turns == 0 => {}
                Some((_, head)) => head.notify_one(),
                None => drop(table.locks.swap_remove(resource)),
            }
        }
    }

    /// Waits until there is a waiter.
    pub(crate) async fn waited_for(&self) {
        while self.waiters() == 0 {
            self.entered.notified().await;
        }
    }

    /// The locks that are waited for.
    pub(crate) fn waited_for_now(&self) -> Vec<Resource> {
        let table = self.table();
        let waited_for = table.locks.iter().filter(|(_, lock)| !lock.queue.is_empty());
        waited_for.map(|(resource, _)| resource.clone()).collect()
    }

    /// Something that concerns a lock has changed: its first waiter may try.
    pub(crate) fn may_try(&self, resource: &Resource) {
        if let Some((_, head)) = self.table().locks.get(resource).and_then(|lock| lock.queue.first_key_value()) {
            head.notify_one();
        }
    }

    /// The watched version, if its lease has expired.
    pub(crate) fn run_out(&self, resource: &Resource) -> Option<Version> {
        let watched = self.table().locks.get(resource)?.watched?;
        (watched.runs_out <= Instant::now()).then_some(watched.version)
    }

    /// When a lease may be taken over, unless it is renewed. A lease that is not watched has its full TTL left.
    pub(crate) fn runs_out(&self, resource: &Resource, held: &Held) -> Instant {
        let watched = self.table().locks.get(resource).and_then(|lock| lock.watched);
        match watched.filter(|watched| watched.version == held.version) {
            Some(watched) => watched.runs_out,
            None => self.after(held.ttl_ms),
        }
    }

    pub(crate) fn waiting(&self, resource: &Resource) -> usize {
        self.table().locks.get(resource).map_or(0, |lock| lock.queue.len())
    }

    /// Number of waiters, over all locks.
    pub(crate) fn waiters(&self) -> usize {
        self.table().waiters
    }

    /// Takes the last place in the queue.
    pub(crate) fn enter(&self, resource: &Resource, caller: &CallerId) -> Result<Place<'_>, Rejected> {
        let mut table = self.table();
        if let Some(full) = table.full(resource, caller) {
            return Err(full);
        }
        let (ticket, turn) = (table.next_ticket, Arc::new(Notify::new()));
        table.next_ticket += 1;
        table.waiters += 1;
        *table.callers.entry(caller.clone()).or_default() += 1;
        table.locks.entry(resource.clone()).or_default().queue.insert(ticket, turn.clone());
        self.entered.notify_one();
        Ok(Place { locks: self, resource: resource.clone(), caller: caller.clone(), ticket, turn })
    }
}

/// A place in a queue. Dropping it lets the next waiter try.
pub(crate) struct Place<'l> {
    locks: &'l Locks,
    resource: Resource,
    caller: CallerId,
    ticket: u64,
    turn: Arc<Notify>,
}

impl Place<'_> {
    pub(crate) fn is_head(&self) -> bool {
        let table = self.locks.table();
        let head = table.locks.get(&self.resource).and_then(|lock| lock.queue.first_key_value());
        head.is_some_and(|(ticket, _)| *ticket == self.ticket)
    }

    /// Waits until another attempt may succeed.
    pub(crate) async fn turn(&self) {
        self.turn.notified().await;
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut table = self.locks.table();
        table.waiters -= 1;
        if let Some(count) = table.callers.get_mut(&self.caller) {
            *count -= 1;
            if *count == 0 {
                table.callers.remove(&self.caller);
            }
        }
        let Some(lock) = table.locks.get_mut(&self.resource) else { return };
        let was_head = lock.queue.first_key_value().is_some_and(|(head, _)| *head == self.ticket);
        lock.queue.remove(&self.ticket);
        match lock.queue.first_key_value() {
            Some((_, head)) if was_head => head.notify_one(),
            None if lock.watched.is_none() => drop(table.locks.swap_remove(&self.resource)),
            Some(_) | None => {}
        }
    }
}

#[cfg(test)]
#[path = "lock_queue_tests.rs"]
mod tests;
