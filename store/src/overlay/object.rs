//! Changes to the records about objects: judged, checked against their requirements, then applied, all or nothing.

use bytes::Bytes;
use fencepost_core::{Access, Verdict};

use super::Overlay;
use crate::command::{Judged, ObjectChange, ObjectCondition, Requirement};
use crate::engine::Change;
use crate::outcome::{ChangeOutcome, Changed};
use crate::record::{ObjectRecord, Pending, RecordKey};
use crate::reply::Draft;

impl Overlay {
    pub(super) fn change_objects(&mut self, judged: &[Judged], change: &ObjectChange) -> Draft<ChangeOutcome> {
        let verdicts = match self.pass(judged) {
            Ok(verdicts) => verdicts,
            Err(refused) => return refused.draft(ChangeOutcome::Refused),
        };
        let observed = self.admit(judged, &verdicts);
        let fence = self.first_token(judged);
        // The fence stays raised even if a requirement fails: a newer holder exists.
        if let Some(at) = change.require.iter().position(|(key, requirement)| !self.meets(key, requirement)) {
            return Draft::Pending(ChangeOutcome::Unmet { at, fence });
        }
        for (key, edit) in &change.edits {
            let at = self.change(key.clone(), edit.clone());
            if let Some(slot) = self.objects.get_mut(key) {
                *slot = match edit {
                    Change::Put(bytes) => Some((Pending::Change(at), bytes.clone())),
                    Change::Delete => None,
                };
            }
        }
        for (judged, verdict) in judged.iter().zip(&verdicts) {
            if judged.access == Access::Write && matches!(verdict, Verdict::Admit(_)) {
                self.spend(&judged.guarded.resource);
            }
        }
        Draft::Pending(ChangeOutcome::Changed(Changed { fence, observed }))
    }

    fn meets(&self, key: &RecordKey, requirement: &Requirement) -> bool {
        let found = self.objects.get(key).and_then(Option::as_ref);
        match requirement {
            Requirement::Absent => found.is_none(),
            Requirement::Present => found.is_some(),
            Requirement::Exactly(bytes) => found.is_some_and(|(_, found)| found == bytes),
            Requirement::Condition(condition) => condition.holds(found.map(|(_, bytes)| bytes)),
        }
    }
}

impl ObjectCondition {
    /// An index entry that cannot be decoded meets no condition.
    fn holds(&self, found: Option<&Bytes>) -> bool {
        let found = found.map(ObjectRecord::decode);
        match (self, found) {
            (_, Some(Err(_))) => false,
            (condition, found) => condition.met_by(found.and_then(Result::ok).as_ref()),
        }
    }
}
