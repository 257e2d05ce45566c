//! Recorded outcomes: replayed, written with the changes they describe, abandoned, removed (G7).

use fencepost_core::{Resource, Token};

use super::Overlay;
use crate::command::{Judged, Once};
use crate::engine::Change;
use crate::outcome::{Applied, Done, FinalOutcome, Transacted};
use crate::record::{OutcomeKey, Pending, RecordKey, Recorded};
use crate::reply::Draft;

/// What is recorded under the key of a request.
pub(super) enum Earlier<'o> {
    /// The key can never apply.
    Abandoned,
    /// The outcome of another request.
    Other,
    /// The outcome of this request.
    Same(&'o FinalOutcome<Pending>),
}

impl Overlay {
    /// The outcome of an earlier request with the same key, if there is one.
    pub(super) fn earlier(&self, once: Option<&Once>) -> Option<Earlier<'_>> {
        let once = once?;
        let recorded = self.outcomes.get(&once.record())?.as_ref()?;
        Some(match &recorded.outcome {
            FinalOutcome::Abandoned => Earlier::Abandoned,
            _ if recorded.fingerprint != once.fingerprint => Earlier::Other,
            outcome => Earlier::Same(outcome),
        })
    }

    /// The current fences. A recorded outcome has the fences of its time; a caller that was overtaken since must see
    /// the new ones.
    pub(super) fn fences_now(&self, judged: &[Judged]) -> Vec<(Resource, Option<Token>)> {
        judged.iter().map(|judged| (judged.guarded.resource.clone(), self.token(judged))).collect()
    }

    /// Records an outcome that commits: a success, or a failure that raised a fence. Everything else is judged again
    /// when it is retried.
    pub(super) fn record(&mut self, once: &Once, outcome: FinalOutcome<Pending>) {
        let commits = match outcome {
            FinalOutcome::Transacted(_) | FinalOutcome::Granted(_) => true,
            FinalOutcome::ConditionFailed(_) | FinalOutcome::Impossible(_) => self.raised,
            FinalOutcome::Abandoned => false,
        };
        if commits {
            self.keep(once.record(), once.fingerprint, outcome);
        }
    }

    fn keep(&mut self, key: OutcomeKey, fingerprint: [u8; 32], outcome: FinalOutcome<Pending>) {
        let recorded = Recorded { fingerprint, at: self.now, outcome };
        let bytes = recorded.encode(self.changes.len());
        self.change(RecordKey::outcome(&key), Change::Put(bytes));
        self.outcomes.insert(key.clone(), Some(recorded));
        self.recorded.push(key);
    }

    /// Ensures that a key can never apply, unless it already has.
    pub(super) fn abandon(&mut self, key: &OutcomeKey) -> Draft<FinalOutcome<Pending>> {
        if let Some(Some(recorded)) = self.outcomes.get(key) {
            return Draft::Pending(recorded.outcome.clone());
        }
        self.keep(key.clone(), [0; 32], FinalOutcome::Abandoned);
        Draft::Pending(FinalOutcome::Abandoned)
    }

    /// Removes outcomes and the index that lists them. It can delete nothing else, because the record kind is fixed.
    pub(super) fn forget(&mut self, index: &RecordKey, outcomes: &[OutcomeKey]) -> Draft<()> {
        // Without its index, the outcomes are already removed, and may have been recorded again.
        if self.indexes.remove(index) {
            for outcome in outcomes {
                self.change(RecordKey::outcome(outcome), Change::Delete);
                if let Some(slot) = self.outcomes.get_mut(outcome) {
                    *slot = None;
                }
            }
            self.change(index.clone(), Change::Delete);
        }
        Draft::Pending(())
    }
}

impl Transacted<Pending> {
    /// A transaction of one put or delete, as which these are recorded, as their callers know it.
    pub(super) fn of_one(&self) -> Applied<Pending> {
        let version = self.results.first().and_then(|(_, done)| match done {
            Done::Put(version) | Done::Sum(version, _) | Done::Read(version, _) => Some(*version),
            Done::Absent => None,
        });
        Applied { version, fence: self.fence, observed: self.observed.first().map(|(_, reason)| *reason) }
    }
}
