//! A cache of durable fences, to refuse stale writers without using the sequencer.
//!
//! A cached fence can only be too low. So it may be used to refuse a token below it, and for nothing else: an
//! admission, or a refusal for any other reason, needs the records themselves. The cache is bounded by its number of
//! slots.

use std::hash::BuildHasher;

use fencepost_core::{FenceState, Guarded, Refusal, Resource, Verdict, decide};
use foldhash::fast::RandomState;
use parking_lot::{Mutex, MutexGuard};

use crate::command::Judged;

type Slot = Mutex<Option<(Resource, FenceState)>>;

/// One slot per hash value; a new entry replaces the one in its slot.
pub(crate) struct FenceCache {
    slots: Box<[Slot]>,
    hasher: RandomState,
}

impl FenceCache {
    pub(crate) fn new(slots: usize) -> FenceCache {
        FenceCache { slots: (0..slots.max(1)).map(|_| Mutex::new(None)).collect(), hasher: RandomState::default() }
    }

    /// Notes a state that was committed, or read from the engine. An older one, which a load of a shared engine may return,
    /// changes nothing.
    pub(crate) fn note(&self, resource: &Resource, state: &FenceState) {
        let mut slot = self.slot(resource);
        // Most writes leave the fence as it is.
        let is_known = slot.as_ref().is_some_and(|(cached, known)| {
            cached == resource && (known == state || (known.generation, known.high) > (state.generation, state.high))
        });
        if !is_known {
            *slot = Some((resource.clone(), state.clone()));
        }
    }

    /// Removes a fence that is about to change. Readers see a commit before the sequencer does; from then on, a refusal
    /// that names the old fence would contradict what they read.
    pub(crate) fn forget(&self, resource: &Resource) {
        let mut slot = self.slot(resource);
        if slot.as_ref().is_some_and(|(cached, _)| cached == resource) {
            *slot = None;
        }
    }

    /// Removes all entries.
    pub(crate) fn clear(&self) {
        for slot in &self.slots {
            *slot.lock() = None;
        }
    }

    /// Returns a refusal if the token is below a durable fence. Such a refusal is final, whatever happened since.
    pub(crate) fn refuse(&self, judged: &Judged) -> Option<Refusal> {
        let Judged { guarded: Guarded { resource, policy }, presented, access } = judged;
        let presented = presented.as_ref();
        let slot = self.slot(resource);
        let (_, state) = slot.as_ref().filter(|(cached, _)| cached == resource)?;
        match decide(state, presented, *access, policy) {
            Verdict::Refuse(reason) if reason.is_final() => Some(Refusal {
                reason,
                resource: resource.clone(),
                presented: presented.cloned(),
                found: state.clone(),
                at_least: false,
            }),
            Verdict::Refuse(_) | Verdict::Observe(_) | Verdict::Admit(_) => None,
        }
    }

    /// Returns whether the token is the fence, as far as is known.
    pub(crate) fn holds(&self, judged: &Judged) -> bool {
        let Some(presented) = &judged.presented else { return false };
        let slot = self.slot(&judged.guarded.resource);
        let known = slot.as_ref().filter(|(cached, _)| *cached == judged.guarded.resource);
        known.is_some_and(|(_, state)| state.token() == Some(presented.token))
    }

    fn slot(&self, resource: &Resource) -> MutexGuard<'_, Option<(Resource, FenceState)>> {
        let at = usize::try_from(self.hasher.hash_one(resource.as_str()) % self.slots.len() as u64).unwrap_or(0);
        self.slots[at].lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fencepost_core::{Access, Claim, Holder, Mode, Policy, Presented, Reason};
    use std::num::NonZeroU64;

    fn asked(name: &str, presented: Option<Presented>, policy: &Policy) -> Judged {
        let guarded = Guarded { resource: Resource::new(name).unwrap(), policy: *policy };
        Judged { guarded, presented, access: Access::Write }
    }

    fn presented(token: &str) -> Presented {
        Presented { token: token.parse().unwrap(), holder: Some(Holder::new("a#1").unwrap()), issuer: None }
    }

    #[test]
    fn t29_the_cache_refuses_only_what_stays_refused() {
        let cache = FenceCache::new(8);
        let resource = Resource::new("r").unwrap();
        let state = FenceState {
            generation: 1,
            high: NonZeroU64::new(34),
            spent: true,
            holder: Some(Holder::new("b#1").unwrap()),
            ..FenceState::default()
        };
        let policy = Policy {
            max_jump: NonZeroU64::new(1),
            equal: fencepost_core::Equal::Reject,
            claim: Claim::Required,
            ..Policy::default()
        };
        let reason = |token: &str, policy: &Policy| {
            cache.refuse(&asked("r", Some(presented(token)), policy)).map(|refusal| refusal.reason)
        };
        assert_eq!(reason("1:33", &policy), None, "nothing is cached yet");
        cache.note(&resource, &state);
        assert_eq!(reason("1:33", &policy), Some(Reason::Stale));
        assert_eq!(reason("99", &policy), Some(Reason::RetiredGeneration));
        for undecided in ["1:34", "1:35", "1:99", "2:1"] {
            assert_eq!(reason(undecided, &policy), None, "{undecided} needs the records");
        }
        assert_eq!(reason("1:33", &Policy { mode: Mode::Observe, ..policy }), None);
        assert!(cache.refuse(&asked("r", None, &policy)).is_none());
    }

    #[test]
    fn names_that_share_a_slot_do_not_share_a_fence() {
        let cache = FenceCache::new(1);
        let state = FenceState { high: NonZeroU64::new(34), ..FenceState::default() };
        cache.note(&Resource::new("a").unwrap(), &state);
        assert!(cache.refuse(&asked("b", Some(presented("1")), &Policy::default())).is_none());
        assert!(cache.refuse(&asked("a", Some(presented("1")), &Policy::default())).is_some());
    }
}
