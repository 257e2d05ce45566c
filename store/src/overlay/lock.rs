//! The built-in lock service: leases are records like any other, and a grant raises the fence in the same commit.
//!
//! No clock is read here. A caller that sees a lease expire names the version of the record that it watched.

use std::num::NonZeroU64;

use fencepost_core::{Access, FenceState, Holder, Presented, Reason, Resource, Token};

use super::{Draft, Overlay, Passed};
use crate::command::{Acquire, Command, Judged, Take};
use crate::engine::Change;
use crate::outcome::{Grant, Held, Holding, Outcome};
use crate::record::{Lease, LeaseId, LockRecord, Pending, RecordKey};

impl Overlay {
    pub(super) fn acquire(&mut self, command: &Command, acquire: &Acquire) -> Draft {
        let resource = resource(command);
        if let Some(by) = self.in_the_way(command, acquire.take) {
            return held(Some(by));
        }
        let Some(token) = self.next_token(resource) else { return Draft::Pending(self.exhausted(resource)) };
        let passed = match self.pass_own(command, token, Some(&acquire.holder)) {
            Ok(passed) => passed,
            Err(refused) => return refused,
        };
        // Checked after the judge: a refusal by the fence is answered at once, because waiting would not change it.
        if acquire.take == Take::Never {
            return held(None);
        }
        let observed = self.admit_own(&passed);
        let lease = Lease { id: acquire.lease, holder: acquire.holder.clone(), token, ttl_ms: acquire.ttl_ms };
        let version = self.put_lock(resource, LockRecord { last: token, lease: Some(lease.clone()) });
        self.granted(lease, observed, version)
    }

    pub(super) fn renew(&mut self, command: &Command, lease: LeaseId, ttl_ms: u64) -> Draft {
        let resource = resource(command);
        let Some((last, held)) = self.current(resource, lease) else { return Draft::Pending(self.lost(command)) };
        // A lease whose token the fence refuses is useless, so its holder is informed.
        let presented = Presented { token: held.token, holder: Some(held.holder.clone()), issuer: Some(self.issuer()) };
        let judged = [self.judged(command, presented)];
        let passed = match self.pass(&judged) {
            Ok(passed) => passed,
            Err(Draft::Settled(_)) => return Draft::Settled(super::settle(self.lost(command), None)),
            Err(Draft::Pending(_)) => return Draft::Pending(self.lost(command)),
        };
        let observed = self.admit(&judged, &passed).into_iter().next().map(|(_, reason)| reason);
        let lease = Lease { ttl_ms, ..held };
        let version = self.put_lock(resource, LockRecord { last, lease: Some(lease.clone()) });
        self.granted(lease, observed, version)
    }

    pub(super) fn release(&mut self, command: &Command, lease: LeaseId) -> Draft {
        let resource = resource(command);
        let Some((last, _)) = self.current(resource, lease) else { return Draft::Pending(self.lost(command)) };
        self.free_lock(resource, last);
        Draft::Pending(Outcome::Released)
    }

    /// Takes the lock from its holder, and raises the fence above the holder's token.
    pub(super) fn force_release(&mut self, command: &Command) -> Draft {
        let resource = resource(command);
        let Some((last, held)) = self.lock(resource).and_then(|(_, lock)| Some((lock.last, lock.lease.clone()?)))
        else {
            return Draft::Pending(Outcome::NotHeld);
        };
        let state = &self.fence(resource).state;
        let fenced = state.generation > held.token.generation() || state.token() > Some(held.token);
        // If the fence already refuses the holder, for example after a rotation, it need not be raised.
        let mut last = last;
        if !fenced {
            let Some(token) = self.next_token(resource) else { return Draft::Pending(self.exhausted(resource)) };
            match self.pass_own(command, token, None) {
                Ok(passed) => {
                    self.admit_own(&passed);
                }
                Err(refused) => return refused,
            }
            last = token;
        }
        self.free_lock(resource, last);
        let fence = self.fence(resource).state.token();
        Draft::Pending(Outcome::ForceReleased { holder: held.holder, token: held.token, fence })
    }

    /// The lease that blocks the lock, unless the lock may be taken.
    fn in_the_way(&self, command: &Command, take: Take) -> Option<Held<Pending>> {
        let (version, lock) = self.lock(resource(command))?;
        let lease = lock.lease.as_ref()?;
        let ran_out =
            matches!((version, take), (Pending::Stored(stored), Take::Expired(watched)) if *stored == watched);
        if ran_out || self.is_over(command, lease) {
            return None;
        }
        Some(Held { holder: lease.holder.clone(), token: lease.token, ttl_ms: lease.ttl_ms, version: *version })
    }

    /// Returns whether the fence refuses the lease's token. Then its holder can neither write nor renew, and the lease
    /// protects nothing.
    fn is_over(&self, command: &Command, lease: &Lease) -> bool {
        let presented =
            Presented { token: lease.token, holder: Some(lease.holder.clone()), issuer: Some(self.issuer()) };
        self.pass(&[self.judged(command, presented)]).is_err()
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
        command: &Command,
        token: Token,
        holder: Option<&Holder>,
    ) -> Result<([Judged; 1], Passed), Draft> {
        let presented = Presented { token, holder: holder.cloned(), issuer: Some(self.issuer()) };
        let judged = [self.judged(command, presented)];
        let passed = self.pass(&judged)?;
        Ok((judged, passed))
    }

    /// Raises the fence to a token of the built-in lock service that passed.
    fn admit_own(&mut self, (judged, passed): &([Judged; 1], Passed)) -> Option<Reason> {
        self.admit(judged, passed).into_iter().next().map(|(_, reason)| reason)
    }

    fn judged(&self, command: &Command, presented: Presented) -> Judged {
        let Some(judged) = command.judged.first() else { unreachable!("a lock is a resource") };
        Judged { guarded: judged.guarded.clone(), presented: Some(presented), access: Access::Claim }
    }

    fn issuer(&self) -> fencepost_core::Issuer {
        self.meta.issuer()
    }

    fn granted(&self, lease: Lease, observed: Option<Reason>, version: Pending) -> Draft {
        let Lease { id, holder, token, ttl_ms } = lease;
        let issuer = self.issuer();
        Draft::Pending(Outcome::Granted(Box::new(Grant {
            lease: id,
            token,
            holder,
            issuer,
            ttl_ms,
            observed,
            version,
        })))
    }

    fn exhausted(&self, resource: &Resource) -> Outcome<Pending> {
        let state = &self.fence(resource).state;
        Outcome::Exhausted { fence: state.token(), generation: state.generation }
    }

    pub(super) fn lost(&self, command: &Command) -> Outcome<Pending> {
        let resource = resource(command);
        let held = self.lock(resource).and_then(|(_, lock)| lock.lease.as_ref());
        let held = held.filter(|lease| !self.is_over(command, lease));
        Outcome::LeaseLost { holder: held.map(|lease| lease.holder.clone()), fence: self.fence(resource).state.token() }
    }

    pub(super) fn is_current(&self, command: &Command, lease: LeaseId) -> bool {
        self.current(resource(command), lease).is_some_and(|(_, held)| !self.is_over(command, &held))
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
fn held(by: Option<Held<Pending>>) -> Draft {
    Draft::Pending(Outcome::Held(Box::new(Holding { by, remaining_ms: 0, waiting: 0 })))
}

fn resource(command: &Command) -> &Resource {
    match command.judged.first() {
        Some(judged) => &judged.guarded.resource,
        None => unreachable!("a lock is a resource"),
    }
}
