//! The built-in lock service: leases are records like any other, and a grant raises the fence in the same commit.
//!
//! No clock is read here. A caller that sees a lease expire names the version of the record that it watched.

use std::num::NonZeroU64;

use fencepost_core::{Access, FenceState, Holder, Presented, Reason, Refusal, Resource, Token, Verdict};

use super::once::Earlier;
use super::{Overlay, Refused};
use crate::command::{Acquire, Judged, Once, Take};
use crate::engine::Change;
use crate::outcome::{
    AcquireOutcome, Exhausted, FinalOutcome, ForceReleaseOutcome, Grant, Held, Holding, LeaseLost, RecordedGrant,
    ReleaseOutcome, RenewOutcome,
};
use crate::record::{Lease, LeaseId, LockRecord, Pending, RecordKey};
use crate::reply::Draft;

impl Overlay {
    pub(super) fn acquire(
        &mut self,
        lock: &Judged,
        once: Option<&Once>,
        acquire: &Acquire,
    ) -> Draft<AcquireOutcome<Pending>> {
        if let Some(earlier) = self.earlier(once) {
            return Draft::Pending(self.replay_grant(lock, earlier));
        }
        let resource = &lock.guarded.resource;
        if let Some(by) = self.in_the_way(lock, acquire.take) {
            return held(Some(by));
        }
        let Some(token) = self.next_token(resource) else {
            return Draft::Pending(AcquireOutcome::Exhausted(self.exhausted(resource)));
        };
        let (own, verdict) = match self.pass_own(lock, token, Some(&acquire.holder)) {
            Ok(passed) => passed,
            Err(refused) => return refused.draft(AcquireOutcome::Refused),
        };
        // Checked after the judge: a refusal by the fence is answered at once, because waiting would not change it.
        if acquire.take == Take::Never {
            return held(None);
        }
        let observed = self.admit_one(&own, verdict);
        let lease = Lease { id: acquire.lease, holder: acquire.holder.clone(), token, ttl_ms: acquire.ttl_ms };
        let version = self.put_lock(resource, LockRecord { last: token, lease: Some(lease.clone()) });
        let grant = self.grant(lease, observed, version);
        if let Some(once) = once {
            self.record(once, FinalOutcome::Granted(grant.clone()));
        }
        Draft::Pending(AcquireOutcome::Granted(grant))
    }

    fn replay_grant(&self, lock: &Judged, earlier: Earlier<'_>) -> AcquireOutcome<Pending> {
        let recorded = match earlier {
            Earlier::Abandoned => return AcquireOutcome::Abandoned,
            Earlier::Same(FinalOutcome::Granted(grant)) if self.is_current(lock, grant.lease) => {
                RecordedGrant::Granted(grant.clone())
            }
            // Never return a lease that is no longer current: another holder may have the lock.
            Earlier::Same(FinalOutcome::Granted(_)) => RecordedGrant::Lost(self.lost(lock)),
            Earlier::Other | Earlier::Same(_) => return AcquireOutcome::KeyReused,
        };
        AcquireOutcome::Replayed(recorded, self.token(lock))
    }

    pub(super) fn renew(&mut self, lock: &Judged, lease: LeaseId, ttl_ms: u64) -> Draft<RenewOutcome<Pending>> {
        let resource = &lock.guarded.resource;
        let Some((last, held)) = self.current(resource, lease) else {
            return Draft::Pending(RenewOutcome::Lost(self.lost(lock)));
        };
        // A lease whose token the fence refuses is useless, so its holder is informed.
        let (own, verdict) = match self.pass_own(lock, held.token, Some(&held.holder)) {
            Ok(passed) => passed,
            Err(refused) => return refused.draft(|_| RenewOutcome::Lost(self.lost(lock))),
        };
        let observed = self.admit_one(&own, verdict);
        let lease = Lease { ttl_ms, ..held };
        let version = self.put_lock(resource, LockRecord { last, lease: Some(lease.clone()) });
        Draft::Pending(RenewOutcome::Renewed(self.grant(lease, observed, version)))
    }

    pub(super) fn release(&mut self, lock: &Judged, lease: LeaseId) -> Draft<ReleaseOutcome> {
        let resource = &lock.guarded.resource;
        let Some((last, _)) = self.current(resource, lease) else {
            return Draft::Pending(ReleaseOutcome::Lost(self.lost(lock)));
        };
        self.free_lock(resource, last);
        Draft::Pending(ReleaseOutcome::Released)
    }

    /// Takes the lock from its holder, and raises the fence above the holder's token.
    pub(super) fn force_release(&mut self, lock: &Judged) -> Draft<ForceReleaseOutcome> {
        let resource = &lock.guarded.resource;
        let Some((last, held)) = self.lock(resource).and_then(|(_, lock)| Some((lock.last, lock.lease.clone()?)))
        else {
            return Draft::Pending(ForceReleaseOutcome::NotHeld);
        };
        let state = &self.fence(resource).state;
        let fenced = state.generation > held.token.generation() || state.token() > Some(held.token);
        // If the fence already refuses the holder, for example after a rotation, it need not be raised.
        let mut last = last;
        if !fenced {
            let Some(token) = self.next_token(resource) else {
                return Draft::Pending(ForceReleaseOutcome::Exhausted(self.exhausted(resource)));
            };
            match self.pass_own(lock, token, None) {
                Ok((own, verdict)) => {
                    self.admit_one(&own, verdict);
                }
                Err(refused) => return refused.draft(ForceReleaseOutcome::Refused),
            }
            last = token;
        }
        self.free_lock(resource, last);
        let fence = self.token(lock);
        Draft::Pending(ForceReleaseOutcome::Released { holder: held.holder, token: held.token, fence })
    }

    /// The lease that blocks the lock, unless the lock may be taken.
    fn in_the_way(&self, lock: &Judged, take: Take) -> Option<Held<Pending>> {
        let (version, record) = self.lock(&lock.guarded.resource)?;
        let lease = record.lease.as_ref()?;
        let ran_out =
            matches!((version, take), (Pending::Stored(stored), Take::Expired(watched)) if *stored == watched);
        if ran_out || self.is_over(lock, lease) {
            return None;
        }
        Some(Held { holder: lease.holder.clone(), token: lease.token, ttl_ms: lease.ttl_ms, version: *version })
    }

    /// Returns whether the fence refuses the lease's token. Then its holder can neither write nor renew, and the lease
    /// protects nothing.
    fn is_over(&self, lock: &Judged, lease: &Lease) -> bool {
        self.pass_own(lock, lease.token, Some(&lease.holder)).is_err()
    }

    /// One above every number granted or seen in the resource's generation; `None` if there is no higher number.
    fn next_token(&self, resource: &Resource) -> Option<Token> {
        let FenceState { generation, high, .. } = &self.fence(resource).state;
        let last = self.lock(resource).map(|(_, lock)| lock.last);
        let given = last.filter(|last| last.generation() == *generation).map(Token::number);
        let highest = given.max(*high).map_or(0, NonZeroU64::get);
        highest.checked_add(1).and_then(|number| Token::new(*generation, number))
    }

    /// Judges a token of the built-in lock service, like any other token.
    fn pass_own(
        &self,
        lock: &Judged,
        token: Token,
        holder: Option<&Holder>,
    ) -> Result<(Judged, Verdict), Refused<Box<Refusal>>> {
        let presented = Presented { token, holder: holder.cloned(), issuer: Some(self.issuer()) };
        let own = Judged { guarded: lock.guarded.clone(), presented: Some(presented), access: Access::Claim };
        let verdict = self.pass_one(&own)?;
        Ok((own, verdict))
    }

    fn issuer(&self) -> fencepost_core::Issuer {
        self.meta.issuer()
    }

    fn grant(&self, lease: Lease, observed: Option<Reason>, version: Pending) -> Box<Grant<Pending>> {
        let Lease { id, holder, token, ttl_ms } = lease;
        Box::new(Grant { lease: id, token, holder, issuer: self.issuer(), ttl_ms, observed, version })
    }

    fn exhausted(&self, resource: &Resource) -> Exhausted {
        let state = &self.fence(resource).state;
        Exhausted { fence: state.token(), generation: state.generation }
    }

    fn lost(&self, lock: &Judged) -> LeaseLost {
        let held = self.lock(&lock.guarded.resource).and_then(|(_, record)| record.lease.as_ref());
        let held = held.filter(|lease| !self.is_over(lock, lease));
        LeaseLost { holder: held.map(|lease| lease.holder.clone()), fence: self.token(lock) }
    }

    fn is_current(&self, lock: &Judged, lease: LeaseId) -> bool {
        self.current(&lock.guarded.resource, lease).is_some_and(|(_, held)| !self.is_over(lock, &held))
    }

    fn current(&self, resource: &Resource, lease: LeaseId) -> Option<(Token, Lease)> {
        let (_, lock) = self.lock(resource)?;
        lock.lease.as_ref().filter(|held| held.id == lease).map(|held| (lock.last, held.clone()))
    }

    fn lock(&self, resource: &Resource) -> Option<&(Pending, LockRecord)> {
        self.locks.get(resource).and_then(Option::as_ref)
    }

    fn put_lock(&mut self, resource: &Resource, lock: LockRecord) -> Pending {
        let version = Pending::Change(self.change(RecordKey::lock(resource), Change::Put(lock.encode())));
        self.locks.insert(resource.clone(), Some((version, lock)));
        version
    }

    /// Frees the lock. Its record is kept only if the fence is below the last number that it granted.
    fn free_lock(&mut self, resource: &Resource, last: Token) {
        let FenceState { generation, .. } = self.fence(resource).state;
        if generation > last.generation() || self.fence(resource).state.token() >= Some(last) {
            self.change(RecordKey::lock(resource), Change::Delete);
            self.locks.insert(resource.clone(), None);
        } else {
            self.put_lock(resource, LockRecord { last, lease: None });
        }
    }
}

/// The lock cannot be taken now. `by` is `None` if it is free but others wait for it.
fn held(by: Option<Held<Pending>>) -> Draft<AcquireOutcome<Pending>> {
    Draft::Pending(AcquireOutcome::Held(Box::new(Holding { by, remaining_ms: 0, waiting: 0 })))
}
