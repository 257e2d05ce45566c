//! Recorded outcomes: replayed, written with the changes they describe, abandoned, removed (G7).

use fencepost_core::{Resource, Token};

use super::{Draft, Overlay};
use crate::command::{Command, Once};
use crate::engine::Change;
use crate::outcome::Outcome;
use crate::record::{OutcomeKey, Pending, RecordKey, Recorded};

impl Overlay {
    /// The outcome of an earlier request with the same key, if there is one.
    pub(super) fn replay(&self, command: &Command) -> Option<Draft> {
        let once = command.once.as_ref()?;
        let recorded = self.outcomes.get(&once.record())?.as_ref()?;
        let outcome = match &recorded.outcome {
            Outcome::Abandoned => Outcome::Abandoned,
            _ if recorded.fingerprint != once.fingerprint => Outcome::KeyReused,
            // Never return a lease that is no longer current: another holder may have the lock.
            Outcome::Granted(grant) if !self.is_current(command, grant.lease) => {
                Outcome::Replayed(Box::new(self.lost(command)), self.fences_now(command))
            }
            outcome => Outcome::Replayed(Box::new(outcome.clone()), self.fences_now(command)),
        };
        Some(Draft::Pending(outcome))
    }

    /// The current fences. A recorded outcome has the fences of its time; a caller that was overtaken since must see
    /// the new ones.
    fn fences_now(&self, command: &Command) -> Vec<(Resource, Option<Token>)> {
        let now = |resource: &Resource| (resource.clone(), self.fence(resource).state.token());
        command.judged.iter().map(|judged| now(&judged.guarded.resource)).collect()
    }

    /// Records an outcome that commits: a success, or a failure that raised a fence. Everything else is judged again
    /// when it is retried.
    pub(super) fn record(&mut self, once: &Once, outcome: &Outcome<Pending>) {
        let commits = match outcome {
            Outcome::Transacted(_) | Outcome::Granted(_) => true,
            Outcome::ConditionFailed { .. } | Outcome::Impossible { .. } => self.raised,
            _ => false,
        };
        if commits {
            self.keep(once.record(), once.fingerprint, outcome.clone());
        }
    }

    fn keep(&mut self, key: OutcomeKey, fingerprint: [u8; 32], outcome: Outcome<Pending>) {
        let recorded = Recorded { fingerprint, at: self.now, outcome };
        let Some(bytes) = recorded.encode(self.changes.len()) else { return };
        self.change(RecordKey::outcome(&key), Change::Put(bytes));
        self.outcomes.insert(key.clone(), Some(recorded));
        self.recorded.push(key);
    }

    /// Ensures that a key can never apply, unless it already has.
    pub(super) fn abandon(&mut self, key: &OutcomeKey) -> Draft {
        if let Some(Some(recorded)) = self.outcomes.get(key) {
            return Draft::Pending(recorded.outcome.clone());
        }
        self.keep(key.clone(), [0; 32], Outcome::Abandoned);
        Draft::Pending(Outcome::Abandoned)
    }

    /// Removes outcomes and the index that lists them. It can delete nothing else, because the record kind is fixed.
    pub(super) fn forget(&mut self, index: &RecordKey, outcomes: &[OutcomeKey]) -> Draft {
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
        Draft::Pending(Outcome::Forgotten)
    }
}
