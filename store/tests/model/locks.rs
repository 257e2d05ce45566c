//! The model's locks: numbers that only grow, and at most one lease each.

use fencepost_core::{Access, Holder, Presented, Resource, Token};
use fencepost_store::Store;

use super::command::{GrantId, LockVerb};
use super::expected::Expected;
use super::reference::Model;

#[derive(Clone, Debug)]
pub(crate) struct Lock {
    /// The last token that was granted or used up.
    given: Token,
    lease: Option<Lease>,
}

#[derive(Clone, Debug)]
struct Lease {
    id: GrantId,
    holder: Holder,
    token: Token,
}

impl Model {
    pub(super) fn lock(&mut self, resource: &Resource, verb: &LockVerb) -> Expected {
        match verb {
            LockVerb::Acquire { id, holder, retry } => {
                let holder = Holder::new(holder).unwrap();
                self.once(*retry, LockVerb::KIND, Some(resource), |model| {
                    let expected = model.acquire(resource, *id, holder);
                    let granted = matches!(expected, Expected::Granted { .. });
                    (expected, granted)
                })
            }
            LockVerb::Renew(id) => self.renew(resource, *id),
            LockVerb::Release(id) => match self.locks.get_mut(resource) {
                Some(lock) if lock.lease.as_ref().is_some_and(|lease| lease.id == *id) => {
                    lock.lease = None;
                    Expected::Released
                }
                _ => self.lease_lost(resource),
            },
            LockVerb::ForceRelease => self.force_release(resource),
        }
    }

    fn lease(&self, resource: &Resource) -> Option<&Lease> {
        self.locks.get(resource)?.lease.as_ref()
    }

    pub(super) fn lease_id(&self, resource: &Resource) -> Option<GrantId> {
        self.lease(resource).map(|lease| lease.id)
    }

    pub(super) fn holds_lease(&self, resource: &Resource, id: GrantId) -> bool {
        self.lease(resource).is_some_and(|lease| lease.id == id && !self.is_over(resource, lease))
    }

    /// A lease whose token the fence refuses is over.
    fn is_over(&self, resource: &Resource, lease: &Lease) -> bool {
        let presented = self.presented(lease.token, Some(lease.holder.clone()));
        self.judge(&[(resource.clone(), Some(&presented), Access::Claim)]).is_err()
    }

    pub(super) fn lease_lost(&self, resource: &Resource) -> Expected {
        let holder = self.lease(resource).filter(|lease| !self.is_over(resource, lease));
        let holder = holder.map(|lease| lease.holder.clone());
        Expected::LeaseLost { holder, fence: self.fence(resource).token() }
    }

    /// One above every number granted or seen in this generation.
    fn next(&self, resource: &Resource) -> Result<Token, Expected> {
        let state = self.fence(resource);
        let given = self.locks.get(resource).map(|lock| lock.given);
        let given =
            given.filter(|token| token.generation() == state.generation).map_or(0, |token| token.number().get());
        let highest = given.max(state.high.map_or(0, |high| high.get()));
        let next = highest.checked_add(1).and_then(|number| Token::new(state.generation, number));
        next.ok_or(Expected::Exhausted { fence: state.token(), generation: state.generation })
    }

    fn presented(&self, token: Token, holder: Option<Holder>) -> Presented {
        Presented { token, holder, issuer: Some(self.issuer.clone()) }
    }

    fn acquire(&mut self, resource: &Resource, id: GrantId, holder: Holder) -> Expected {
        if let Some(Lease { holder, token, .. }) = self.lease(resource).filter(|lease| !self.is_over(resource, lease)) {
            return Expected::Held { holder: holder.clone(), token: *token };
        }
        let token = match self.next(resource) {
            Ok(token) => token,
            Err(exhausted) => return exhausted,
        };
        let presented = self.presented(token, Some(holder.clone()));
        let admitted = match self.judge(&[(resource.clone(), Some(&presented), Access::Claim)]) {
            Ok(admitted) => admitted,
            Err(refused) => return refused,
        };
        self.raise(&admitted);
        let lease = Lease { id, holder: holder.clone(), token };
        self.locks.insert(resource.clone(), Lock { given: token, lease: Some(lease) });
        Expected::Granted { id, token, holder, observed: admitted.states[0].2 }
    }

    fn renew(&mut self, resource: &Resource, id: GrantId) -> Expected {
        let Some(Lease { holder, token, .. }) = self.lease(resource).filter(|lease| lease.id == id).cloned() else {
            return self.lease_lost(resource);
        };
        let presented = self.presented(token, Some(holder.clone()));
        match self.judge(&[(resource.clone(), Some(&presented), Access::Claim)]) {
            Ok(admitted) => {
                self.raise(&admitted);
                Expected::Granted { id, token, holder, observed: admitted.states[0].2 }
            }
            Err(_) => self.lease_lost(resource),
        }
    }

    fn force_release(&mut self, resource: &Resource) -> Expected {
        let Some(Lease { holder, token, .. }) = self.lease(resource).cloned() else { return Expected::NotHeld };
        let state = self.fence(resource);
        if state.generation > token.generation() || state.token() > Some(token) {
            // The fence already refuses the holder.
            let lock = self.locks.get_mut(resource).unwrap();
            lock.lease = None;
            return Expected::ForceReleased { holder, token, fence: self.fence(resource).token() };
        }
        let above = match self.next(resource) {
            Ok(above) => above,
            Err(exhausted) => return exhausted,
        };
        let presented = self.presented(above, None);
        match self.judge(&[(resource.clone(), Some(&presented), Access::Claim)]) {
            Ok(admitted) => self.raise(&admitted),
            Err(refused) => return refused,
        }
        self.locks.insert(resource.clone(), Lock { given: above, lease: None });
        Expected::ForceReleased { holder, token, fence: self.fence(resource).token() }
    }

    pub(super) async fn matches_locks(&self, store: &Store) -> Result<(), String> {
        let listed = store.locks("", None, usize::MAX).await.map_err(|error| error.to_string())?.entries;
        let found: Vec<_> = listed.into_iter().map(|lock| (lock.resource, lock.holder, lock.token)).collect();
        let held = self.locks.iter().filter_map(|(resource, lock)| Some((resource.clone(), lock.lease.clone()?)));
        let expected: Vec<_> = held.map(|(resource, lease)| (resource, lease.holder, lease.token)).collect();
        if found == expected { Ok(()) } else { Err(format!("locks are {found:?}, the model has {expected:?}")) }
    }
}
