//! Who waits for which lock, and when the leases in their way run out: everything about locks that needs a clock.
//!
//! One queue per lock, first come, first served. What happens to leases is noted by the sequencer, in the order of its
//! commits, whoever asked for it and whether or not they still listen.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fencepost_core::Resource;
use indexmap::IndexMap;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::engine::Version;
use crate::outcome::{Held, Outcome, Rejected};

/// How many may wait for locks at once, over all locks.
pub const MAX_WAITERS: usize = 16_384;

/// Leases that are watched at once. One that is forgotten is watched anew, from its next sight.
const MAX_WATCHED: usize = 65_536;

/// A year, for what no clock can hold.
const FOREVER: Duration = Duration::from_secs(365 * 86_400);

/// Queues and watched leases.
pub(crate) struct Locks {
    table: Mutex<Table>,
    closing: watch::Sender<bool>,
    /// Added to every ttl before a lease may be taken over.
    delay: Duration,
}

#[derive(Default)]
struct Table {
    locks: IndexMap<Resource, Lock>,
    waiters: usize,
    next_ticket: u64,
    evictions: u64,
}

impl Table {
    /// Makes room for one more lock, by chance and never at the cost of one that somebody waits for: any other order
    /// could forget the same leases for ever.
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

    /// Told when nobody waits any more.
    pub(crate) fn closing(&self) -> watch::Receiver<bool> {
        self.closing.subscribe()
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes what a commit, or a look at durable records, tells about a lock. Only the sequencer calls this, so an older
    /// sight never follows a newer one.
    pub(crate) fn note(&self, resource: &Resource, outcome: &Outcome) {
        match outcome {
            Outcome::Granted(grant) => self.saw(resource, grant.version, grant.ttl_ms),
            Outcome::Held(holding) => match &holding.by {
                Some(Held { version, ttl_ms, .. }) => self.saw(resource, *version, *ttl_ms),
                None => self.freed(resource),
            },
            Outcome::Released | Outcome::ForceReleased { .. } | Outcome::NotHeld => self.freed(resource),
            _ => {}
        }
    }

    /// A lease's record was seen with this version; its time is counted from the first such sight.
    fn saw(&self, resource: &Resource, version: Version, ttl_ms: u64) {
        let mut table = self.table();
        if table.locks.len() >= MAX_WATCHED && !table.locks.contains_key(resource) {
            table.make_room();
        }
        let Lock { watched, queue } = table.locks.entry(resource.clone()).or_default();
        if watched.is_none_or(|seen| seen.version != version) {
            let runs_out = self.after(ttl_ms);
            // Whoever waits for the end of this lease may have to wake earlier than it thought.
            if let (Some(before), Some((_, head))) = (*watched, queue.first_key_value())
                && runs_out < before.runs_out
            {
                head.notify_one();
            }
            *watched = Some(Watched { version, runs_out });
        }
    }

    /// When a lease that is first seen now runs out.
    fn after(&self, ttl_ms: u64) -> Instant {
        let (now, ttl) = (Instant::now(), Duration::from_millis(ttl_ms));
        now.checked_add(ttl.saturating_add(self.delay)).unwrap_or(now + FOREVER)
    }

    /// The lock is free: whoever is first may try.
    fn freed(&self, resource: &Resource) {
        let mut table = self.table();
        if let Some(lock) = table.locks.get_mut(resource) {
            lock.watched = None;
            match lock.queue.first_key_value() {
                Some((_, head)) => head.notify_one(),
                None => drop(table.locks.swap_remove(resource)),
            }
        }
    }

    /// The version whose lease has run out, if one was watched that long.
    pub(crate) fn run_out(&self, resource: &Resource) -> Option<Version> {
        let watched = self.table().locks.get(resource)?.watched?;
        (watched.runs_out <= Instant::now()).then_some(watched.version)
    }

    /// When a lease may be taken over, unless it is renewed. One that is not watched has all its time before it.
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

    /// How many wait, over all locks.
    pub(crate) fn waiters(&self) -> usize {
        self.table().waiters
    }

    /// Takes the last place in the queue.
    pub(crate) fn enter(&self, resource: &Resource) -> Result<Place<'_>, Rejected> {
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
pub(crate) struct Place<'l> {
    locks: &'l Locks,
    resource: Resource,
    ticket: u64,
    turn: Arc<Notify>,
}

impl Place<'_> {
    pub(crate) fn is_head(&self) -> bool {
        let table = self.locks.table();
        let head = table.locks.get(&self.resource).and_then(|lock| lock.queue.first_key_value());
        head.is_some_and(|(ticket, _)| *ticket == self.ticket)
    }

    /// Waits until there may be something to try.
    pub(crate) async fn turn(&self) {
        self.turn.notified().await;
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut table = self.locks.table();
        table.waiters -= 1;
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
mod tests {
    use super::*;
    use crate::outcome::{Grant, Holding};
    use crate::record::LeaseId;
    use fencepost_core::{Holder, Issuer, Token};

    const TTL_MS: u64 = 20;

    fn lock() -> Resource {
        Resource::new("lock").unwrap()
    }

    fn holder() -> Holder {
        Holder::new("a#1").unwrap()
    }

    fn held(version: u64) -> Held {
        Held { holder: holder(), token: Token::new(0, 1).unwrap(), ttl_ms: TTL_MS, version: Version(version) }
    }

    fn granted(version: u64) -> Outcome {
        let Held { holder, token, ttl_ms, version } = held(version);
        let issuer = Issuer::new("fencepost:1").unwrap();
        let lease = LeaseId([0; 16]);
        Outcome::Granted(Box::new(Grant { lease, token, holder, issuer, ttl_ms, observed: None, version }))
    }

    fn in_the_way(version: u64) -> Outcome {
        Outcome::Held(Box::new(Holding { by: Some(held(version)), remaining_ms: 0, waiting: 0 }))
    }

    #[tokio::test]
    async fn a_lease_runs_out_when_one_version_was_seen_for_its_ttl() {
        let locks = Locks::new(Duration::from_millis(5));
        let before = Instant::now();
        locks.note(&lock(), &granted(1));
        let runs_out = locks.runs_out(&lock(), &held(1));
        assert!(runs_out >= before + Duration::from_millis(TTL_MS + 5), "ttl and delay");
        locks.note(&lock(), &in_the_way(1));
        assert_eq!(locks.runs_out(&lock(), &held(1)), runs_out, "counted from the first sight");
        tokio::time::sleep_until(runs_out).await;
        assert_eq!(locks.run_out(&lock()), Some(Version(1)));
        let renewed = Instant::now();
        locks.note(&lock(), &granted(2));
        assert!(locks.runs_out(&lock(), &held(2)) > renewed, "a renewal starts anew");
    }

    #[tokio::test]
    async fn a_look_at_an_older_record_does_not_lengthen_a_lease() {
        let locks = Locks::new(Duration::ZERO);
        locks.note(&lock(), &granted(2));
        let runs_out = locks.runs_out(&lock(), &held(2));
        let _ = locks.runs_out(&lock(), &held(1));
        assert_eq!(locks.runs_out(&lock(), &held(2)), runs_out);
    }

    #[tokio::test]
    async fn whoever_leaves_lets_the_next_one_try_and_leaves_nothing_behind() {
        let locks = Locks::new(Duration::ZERO);
        let (first, second) = (locks.enter(&lock()).unwrap(), locks.enter(&lock()).unwrap());
        assert!(first.is_head() && !second.is_head());
        assert_eq!((locks.waiting(&lock()), locks.waiters()), (2, 2));
        drop(first);
        assert!(second.is_head());
        second.turn().await;
        locks.note(&lock(), &Outcome::Released);
        second.turn().await;
        drop(second);
        assert_eq!(locks.waiters(), 0);
        assert!(locks.table().locks.is_empty(), "a lock that nobody holds or wants takes no memory");
    }

    #[tokio::test]
    async fn only_so_many_leases_are_watched_and_those_with_waiters_stay() {
        let locks = Locks::new(Duration::ZERO);
        let name = |number: usize| Resource::new(&format!("lock/{number}")).unwrap();
        let place = locks.enter(&name(0)).unwrap();
        for number in 0..=MAX_WATCHED {
            locks.note(&name(number), &granted(1));
        }
        assert_eq!(locks.table().locks.len(), MAX_WATCHED);
        assert!(place.is_head());
    }

    #[tokio::test]
    async fn a_lease_that_is_renewed_for_less_time_wakes_whoever_waits_for_it() {
        let locks = Locks::new(Duration::ZERO);
        let place = locks.enter(&lock()).unwrap();
        let with_ttl = |version, ttl_ms| match granted(version) {
            Outcome::Granted(grant) => Outcome::Granted(Box::new(Grant { ttl_ms, ..*grant })),
            other => other,
        };
        locks.note(&lock(), &with_ttl(1, 3_600_000));
        locks.note(&lock(), &with_ttl(2, 1_000));
        place.turn().await;
    }

    #[tokio::test]
    async fn no_time_is_too_long() {
        let locks = Locks::new(Duration::MAX);
        locks.note(&lock(), &granted(1));
        assert!(locks.run_out(&lock()).is_none());
    }

    #[tokio::test]
    async fn there_are_only_so_many_places() {
        let locks = Locks::new(Duration::ZERO);
        let places: Vec<_> = (0..MAX_WAITERS).map(|_| locks.enter(&lock()).unwrap()).collect();
        assert!(matches!(locks.enter(&lock()), Err(Rejected::TooManyWaiters { limit: MAX_WAITERS })));
        drop(places);
        assert!(locks.enter(&lock()).is_ok());
    }
}
