//! New generations: an administrator declares that numbers are no longer comparable.

use fencepost_core::{FenceState, Issuer};

use super::Overlay;
use crate::command::Judged;
use crate::outcome::{Exhausted, RotateOutcome};
use crate::reply::Draft;

impl Overlay {
    /// Ends one resource's generation. Compares the generation first, so that a retry does not rotate twice.
    pub(super) fn rotate(&mut self, judged: &Judged, from: u32, issuer: Option<&Issuer>) -> Draft<RotateOutcome> {
        let slot = self.fence_mut(&judged.guarded.resource);
        if slot.state.generation != from {
            return Draft::Pending(RotateOutcome::OtherGeneration { found: slot.state.generation });
        }
        let Some(generation) = from.checked_add(1) else {
            return Draft::Pending(RotateOutcome::Exhausted(Exhausted { fence: None, generation: from }));
        };
        slot.state = FenceState { issuer: issuer.cloned(), ..FenceState::unseen(generation) };
        slot.dirty = true;
        if generation > self.meta.highest_generation {
            (self.meta.highest_generation, self.meta_changed) = (generation, true);
        }
        Draft::Pending(RotateOutcome::Rotated { generation })
    }

    /// Ends the generation of every resource, seen or not. The base is set above every generation that this store
    /// knows, and to at least `at_least`, because a restored store does not know them all.
    pub(super) fn rotate_all(&mut self, from: u32, at_least: u32) -> Draft<RotateOutcome> {
        if self.meta.base_generation != from {
            return Draft::Pending(RotateOutcome::OtherGeneration { found: self.meta.base_generation });
        }
        let Some(generation) = self.meta.highest_generation.max(from).checked_add(1) else {
            return Draft::Pending(RotateOutcome::Exhausted(Exhausted { fence: None, generation: from }));
        };
        let generation = generation.max(at_least);
        self.meta.base_generation = generation;
        self.meta.highest_generation = generation;
        self.meta_changed = true;
        for slot in self.fences.values_mut() {
            slot.state = FenceState::unseen(generation);
            slot.dirty = true;
        }
        Draft::Pending(RotateOutcome::Rotated { generation })
    }
}
