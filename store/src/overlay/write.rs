//! Conditions, then operations, all or nothing.

use bytes::Bytes;
use fencepost_core::wire::Integer;
use fencepost_core::{Access, FenceState, Key, Resource, Verdict};

use super::{Content, Draft, Overlay};
use crate::command::{Command, Condition, Operation, Step, Write};
use crate::engine::Change;
use crate::outcome::{Done, Impossible, Outcome, Transacted};
use crate::record::{MAX_NUMBER_BYTES, Pending, RecordKey, Value};

/// The media type of a number that an addition created.
const NUMBER: &str = "text/plain";

impl Overlay {
    pub(super) fn write(&mut self, command: &Command, write: &Write) -> Draft {
        let passed = match self.pass(&command.judged) {
            Ok(passed) => passed,
            Err(refused) => return refused,
        };
        let read = write.operations.iter().filter(|step| step.operation == Operation::Get).map(|step| &step.key);
        if let Some(too_large) = self.too_large(read, write.max_bytes) {
            return too_large;
        }
        let observed = self.admit(&command.judged, &passed);
        // The fence stays raised even if a condition fails: a newer holder exists.
        let sums = match self.failed_condition(command, write).map_or_else(|| self.sums(write), Err) {
            Ok(sums) => sums,
            Err(failed) => return Draft::Pending(failed),
        };
        let results = write.operations.iter().zip(sums).map(|(step, sum)| {
            let token = step.judged.and_then(|at| command.judged[at].presented.as_ref()).map(|given| given.token);
            let done = match &step.operation {
                Operation::Put { content_type, body } => {
                    let value = Value { token, content_type: content_type.clone(), body: body.clone() };
                    Done::Put(self.put(&step.key, value))
                }
                Operation::Delete => {
                    self.delete(&step.key);
                    Done::Absent
                }
                Operation::Add { .. } => {
                    let content_type = match self.value(&step.key) {
                        Some((_, content)) => content.value().and_then(|value| value.content_type.clone()),
                        None => Some(NUMBER.to_owned()),
                    };
                    let body = Bytes::from(sum.to_string());
                    Done::Sum(self.put(&step.key, Value { token, content_type, body }), sum)
                }
                Operation::Get => match self.whole(&step.key) {
                    Some((version, value)) => Done::Read(version, value),
                    None => Done::Absent,
                },
            };
            (step.key.clone(), done)
        });
        let results = results.collect();
        for (judged, verdict) in command.judged.iter().zip(&passed.verdicts) {
            if judged.access == Access::Write && matches!(verdict, Verdict::Admit(_)) {
                self.spend(&judged.guarded.resource);
            }
        }
        let fence = self.first_fence(command).and_then(FenceState::token);
        Draft::Pending(Outcome::Transacted(Box::new(Transacted { results, fence, observed })))
    }

    /// Marks the fence's token as spent: a write with it was applied.
    pub(super) fn spend(&mut self, resource: &Resource) {
        let slot = self.fence_mut(resource);
        if !slot.state.spent {
            (slot.state.spent, slot.dirty) = (true, true);
        }
    }

    /// The first condition that does not hold.
    fn failed_condition(&self, command: &Command, write: &Write) -> Option<Outcome<Pending>> {
        let (at, (key, _)) =
            write.conditions.iter().enumerate().find(|(_, (key, condition))| !self.holds(key, condition))?;
        let current = self.value(key).map(|(version, _)| *version);
        Some(Outcome::ConditionFailed { at, key: key.clone(), current, fence: self.only_token(command) })
    }

    fn holds(&self, key: &Key, condition: &Condition) -> bool {
        let current = self.value(key);
        match condition {
            Condition::Always => true,
            Condition::Absent => current.is_none(),
            Condition::Exists => current.is_some(),
            // No client can know a version that this batch has yet to assign.
            Condition::AnyOf(versions) => {
                matches!(current, Some((Pending::Stored(version), _)) if versions.contains(version))
            }
            Condition::Equals(bytes) => {
                current.and_then(|(_, content)| content.value()).is_some_and(|value| value.body == bytes)
            }
            Condition::AtLeast(least) => self.number(key).is_some_and(|number| number >= *least),
            Condition::AtMost(most) => self.number(key).is_some_and(|number| number <= *most),
        }
    }

    /// The results of the additions, one entry per operation, or the first that is impossible.
    fn sums(&self, write: &Write) -> Result<Vec<i64>, Outcome<Pending>> {
        let sum = |(at, step): (usize, &Step)| {
            let Operation::Add { by, min, max } = step.operation else { return Ok(0) };
            let impossible = |why| Outcome::Impossible { at, key: step.key.clone(), why };
            let value = self.number(&step.key).ok_or_else(|| impossible(Impossible::NotANumber))?;
            match value.checked_add(by) {
                Some(sum) if (min..=max).contains(&sum) => Ok(sum),
                _ => Err(impossible(Impossible::OutOfBounds { value, by, min, max })),
            }
        };
        write.operations.iter().enumerate().map(sum).collect()
    }

    /// The value as a number: absent counts as 0, and `None` means that it is not a whole number.
    fn number(&self, key: &Key) -> Option<i64> {
        let Some((_, content)) = self.value(key) else { return Some(0) };
        let value = content.value().filter(|value| value.body.len() <= MAX_NUMBER_BYTES)?;
        Integer::parse(&value.body).map(|number| number.0)
    }

    fn value(&self, key: &Key) -> Option<&(Pending, Content)> {
        self.values.get(key).and_then(Option::as_ref)
    }

    fn put(&mut self, key: &Key, value: Value) -> Pending {
        let version = Pending::Change(self.change(RecordKey::value(key), Change::Put(value.encode())));
        if let Some(slot) = self.values.get_mut(key) {
            *slot = Some((version, Content::Whole(value)));
        }
        version
    }

    fn delete(&mut self, key: &Key) {
        self.change(RecordKey::value(key), Change::Delete);
        if let Some(slot) = self.values.get_mut(key) {
            *slot = None;
        }
    }
}
