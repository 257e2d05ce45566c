//! The queue of a lock: a key under a lease of its own, created once, and a watch on the preceding key.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fencepost_core::Issuer;
use tokio::time::sleep_until;

use super::calls::{Calls, NOT_FOUND, Trouble, patience};
use super::held::Held;
use super::identity::{create_incarnation, new_lease_id};
use super::keys::Keys;
use super::wire::{created_by, exists, get, get_newest_before, get_oldest, put};
use crate::Moment;
use crate::locks::cleanup::Cleanup;
use crate::locks::{Kept, Lease, LockError, Wanted};

/// How often creating the incarnation and the key is repeated, if the incarnation keeps vanishing.
const CREATIONS: usize = 3;

/// The pause after a failure while waiting.
const PAUSE: Duration = Duration::from_millis(100);

/// How long a watch is trusted: a member that is cut off from the others sends nothing.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

/// A place in the queue. If it is dropped, it is given up in the background.
pub(super) struct Place {
    calls: Arc<Calls>,
    held: Held,
    range: (String, String),
    issuer: Issuer,
    since: Moment,
    /// No other key preceded ours when it was created.
    first: bool,
    undo: Cleanup,
}

/// The result of waiting.
pub(super) enum Turn {
    /// It is our turn.
    Ours,
    /// The time is up, and it is not our turn.
    Late,
    /// Our lease ended in the meantime, and our place with it.
    Gone,
}

/// Revokes a lease when it is dropped, unless it was disarmed.
fn revocation(calls: &Arc<Calls>, lease: i64, limit: Duration) -> Cleanup {
    let calls = calls.clone();
    Cleanup::new(async move {
        if let Err(trouble) = calls.revoke(lease, limit).await {
            tracing::debug!(?trouble, "a place in line could not be given up; it ends with its ttl");
        }
    })
}

impl Place {
    /// Joins the queue. The number is fixed from here on: it is the revision that created our key.
    pub(super) async fn take(calls: &Arc<Calls>, keys: &Keys, wanted: &Wanted<'_>) -> Result<Place, LockError> {
        let limit = patience(wanted.ttl);
        let error = |trouble| calls.error(trouble);
        let (since, lease) = (Moment::now(), new_lease_id()?);
        // Armed before the lease is requested, so that a grant whose answer is lost is revoked too.
        let mut undo = revocation(calls, lease, limit);
        let granted = calls.grant(lease, wanted.ttl.as_secs(), limit).await.map_err(error)?;
        if u64::try_from(granted) != Ok(wanted.ttl.as_secs()) {
            return Err(LockError::Invalid(format!(
                "a ttl of {} s is not kept by this etcd, which makes it {granted} s",
                wanted.ttl.as_secs()
            )));
        }
        let (key, range, incarnation) =
            (keys.contender(wanted.name, wanted.holder), keys.contenders(wanted.name), keys.incarnation());
        let reads = [get(&key), get(&incarnation), get_oldest(&range)];
        let create = [&[put(&key, wanted.holder.as_str(), lease)], &reads[..]].concat();
        for _ in 0..CREATIONS {
            let compare = [created_by(&key, 0), exists(&incarnation)];
            let answer = match calls.txn(&compare, &create, &reads, limit).await {
                Err(Trouble::Refused { code: NOT_FOUND, .. }) => {
                    return Err(error(Trouble::Unreachable("it was so slow that the lease ran out".into())));
                }
                answer => answer.map_err(error)?,
            };
            let Some([own, incarnation, oldest]) = answer.found() else {
                return Err(calls.nonsense("its answer to a transaction has not the parts that were asked for"));
            };
            let Some(incarnation) = incarnation else {
                create_incarnation(calls, keys, limit).await?;
                continue;
            };
            let Some(own) = own else { return Err(calls.nonsense("a key that was just created is not there")) };
            if own.lease == 0 {
                return Err(calls.nonsense(&format!("the key `{key}` was written by another program; delete it")));
            }
            // A key under another lease was left by an earlier call of this holder whose answer was lost (5).
            let ours = own.lease == lease;
            if !ours {
                undo = revocation(calls, own.lease, limit);
            }
            let issuer = Issuer::new(&format!("etcd:{}", incarnation.value));
            let issuer = issuer.map_err(|_| calls.nonsense("its incarnation is no UUID"))?;
            return Ok(Place {
                calls: calls.clone(),
                held: Held { lease: own.lease, key, revision: own.create_revision, ttl: wanted.ttl },
                range,
                issuer,
                since,
                first: ours && oldest.is_some_and(|oldest| oldest.create_revision == own.create_revision),
                undo,
            });
        }
        Err(calls.nonsense("its incarnation is deleted again and again"))
    }

    /// Waits until no other key precedes ours, keeping our lease alive. Errors in between are retried until the
    /// deadline.
    pub(super) async fn turn(&mut self, deadline: Instant) -> Result<Turn, LockError> {
        if self.first {
            return Ok(Turn::Ours);
        }
        let mut next_renewal = self.next_renewal();
        loop {
            let late = Instant::now() >= deadline;
            match self.step(late, deadline, &mut next_renewal).await {
                Ok(Some(turn)) => return Ok(turn),
                Ok(None) => {}
                Err(error) if late || !error.is_transient() => return Err(error),
                Err(error) => {
                    tracing::debug!(%error, "trouble while waiting for a lock");
                    sleep_until((Instant::now() + PAUSE).min(deadline).into()).await;
                }
            }
        }
    }

    /// Reads the queue once, and waits for a change.
    async fn step(&mut self, late: bool, deadline: Instant, next: &mut Instant) -> Result<Option<Turn>, LockError> {
        let calls = self.calls.clone();
        let reads = [get(&self.held.key), get_newest_before(&self.range, self.held.revision)];
        let answer =
            calls.txn(&[], &reads, &[], patience(self.held.ttl)).await.map_err(|trouble| calls.error(trouble))?;
        let revision = answer.header.revision;
        let Some([own, before]) = answer.found() else {
            return Err(calls.nonsense("its answer to a transaction has not the parts that were asked for"));
        };
        if own.is_none_or(|own| own.create_revision != self.held.revision) {
            return Ok(Some(Turn::Gone));
        }
        let Some(before) = before else {
            // Renew only now: a lease that is about to end is worth nothing (T23).
            return Ok(Some(if self.renewed().await? { Turn::Ours } else { Turn::Gone }));
        };
        if late {
            return Ok(Some(Turn::Late));
        }
        let watched = tokio::select! {
            watched = calls.deletion(&before.key, revision + 1) => watched,
            () = sleep_until(deadline.min(*next).min(Instant::now() + LOOK_AGAIN).into()) => Ok(()),
        };
        if Instant::now() >= *next {
            if !self.renewed().await? {
                return Ok(Some(Turn::Gone));
            }
            *next = self.next_renewal();
        }
        watched.map_err(|trouble| calls.error(trouble))?;
        Ok(None)
    }

    /// After a third of the ttl.
    fn next_renewal(&self) -> Instant {
        Instant::now() + (self.held.ttl / 3).saturating_sub(self.since.elapsed())
    }

    async fn renewed(&mut self) -> Result<bool, LockError> {
        let asked = Moment::now();
        let kept = self.held.renew(&self.calls).await? == Kept::Kept;
        if kept {
            self.since = asked;
        }
        Ok(kept)
    }

    /// Gives the place up.
    pub(super) async fn leave(self) -> Result<(), LockError> {
        let left = self.calls.revoke(self.held.lease, patience(self.held.ttl)).await;
        self.undo.disarm();
        left.map_err(|trouble| self.calls.error(trouble))
    }

    /// Turns the place into a held lock.
    pub(super) fn keep(self, wanted: &Wanted<'_>) -> Result<Lease, LockError> {
        let number = u64::try_from(self.held.revision).ok().and_then(NonZeroU64::new);
        let Some(number) = number else { return Err(self.calls.nonsense("a key was created by no revision")) };
        self.undo.disarm();
        Ok(Lease {
            name: wanted.name.clone(),
            holder: wanted.holder.clone(),
            number,
            generation: None,
            issuer: self.issuer.clone(),
            ttl: self.held.ttl,
            since: self.since,
            handle: self.held.handle(),
            session: None,
        })
    }
}
