//! Conditions, then operations, all or nothing.

use bytes::Bytes;
use fencepost_core::wire::Integer;
use fencepost_core::{Access, Key, Resource, Token, Verdict};

use super::once::Earlier;
use super::{Content, Overlay};
use crate::command::{Condition, Judged, Once, Operation, Step, Write, WriteOne};
use crate::engine::Change;
use crate::outcome::{
    Applied, Done, FailedCondition, FinalOutcome, Impossible, ImpossibleAddition, RecordedTransaction, RecordedWrite,
    TransactOutcome, Transacted, WriteOutcome,
};
use crate::record::{MAX_NUMBER_BYTES, Pending, RecordKey, Value};
use crate::reply::Draft;

/// The media type of a number that an addition created.
const NUMBER: &str = "text/plain";

impl Overlay {
    /// A put or a delete.
    pub(super) fn write_one(
        &mut self,
        judged: &Judged,
        once: Option<&Once>,
        write: &WriteOne,
    ) -> Draft<WriteOutcome<Pending>> {
        if let Some(earlier) = self.earlier(once) {
            return Draft::Pending(self.replay_one(judged, earlier));
        }
        let verdict = match self.pass_one(judged) {
            Ok(verdict) => verdict,
            Err(refused) => return refused.draft(WriteOutcome::Refused),
        };
        let observed = self.admit_one(judged, verdict);
        let WriteOne { key, condition, value } = write;
        // The fence stays raised even if a condition fails: a newer holder exists.
        if !self.holds(key, condition) {
            let failed = self.failed(0, key, self.token(judged));
            if let Some(once) = once {
                self.record(once, FinalOutcome::ConditionFailed(failed.clone()));
            }
            return Draft::Pending(WriteOutcome::ConditionFailed(failed));
        }
        let version = match value {
            Some(new) => {
                let token = judged.presented.as_ref().map(|presented| presented.token);
                let (content_type, body) = (new.content_type.clone(), new.body.clone());
                Some(self.put(key, Value { token, content_type, body }))
            }
            None => {
                self.delete(key);
                None
            }
        };
        if matches!(verdict, Verdict::Admit(_)) {
            self.spend(&judged.guarded.resource);
        }
        let fence = self.token(judged);
        if let Some(once) = once {
            let results = vec![(key.clone(), version.map_or(Done::Absent, Done::Put))];
            let observed = observed.map(|reason| (judged.guarded.resource.clone(), reason)).into_iter().collect();
            self.record(once, FinalOutcome::Transacted(Box::new(Transacted { results, fence, observed })));
        }
        Draft::Pending(WriteOutcome::Applied(Applied { version, fence, observed }))
    }

    fn replay_one(&self, judged: &Judged, earlier: Earlier<'_>) -> WriteOutcome<Pending> {
        let recorded = match earlier {
            Earlier::Abandoned => return WriteOutcome::Abandoned,
            Earlier::Same(FinalOutcome::Transacted(transacted)) => RecordedWrite::Applied(transacted.of_one()),
            Earlier::Same(FinalOutcome::ConditionFailed(failed)) => RecordedWrite::ConditionFailed(failed.clone()),
            Earlier::Other | Earlier::Same(_) => return WriteOutcome::KeyReused,
        };
        WriteOutcome::Replayed(recorded, self.token(judged))
    }

    /// A transaction.
    pub(super) fn write(
        &mut self,
        judged: &[Judged],
        once: Option<&Once>,
        write: &Write,
    ) -> Draft<TransactOutcome<Pending>> {
        if let Some(earlier) = self.earlier(once) {
            return Draft::Pending(self.replay(judged, earlier));
        }
        let verdicts = match self.pass(judged) {
            Ok(verdicts) => verdicts,
            Err(refused) => return refused.draft(TransactOutcome::Refused),
        };
        let read = write.operations.iter().filter(|step| step.operation == Operation::Get).map(|step| &step.key);
        if let Some(too_large) = self.too_large(read, write.max_bytes) {
            return Draft::Pending(TransactOutcome::TooLarge(too_large));
        }
        let observed = self.admit(judged, &verdicts);
        // The fence stays raised even if a condition fails: a newer holder exists.
        if let Some(failed) = self.failed_condition(judged, write) {
            if let Some(once) = once {
                self.record(once, FinalOutcome::ConditionFailed(failed.clone()));
            }
            return Draft::Pending(TransactOutcome::ConditionFailed(failed));
        }
        let sums = match self.sums(write) {
            Ok(sums) => sums,
            Err(impossible) => {
                if let Some(once) = once {
                    self.record(once, FinalOutcome::Impossible(impossible.clone()));
                }
                return Draft::Pending(TransactOutcome::Impossible(impossible));
            }
        };
        let results = write.operations.iter().zip(sums).map(|(step, sum)| {
            let token = step.judged.and_then(|at| judged[at].presented.as_ref()).map(|given| given.token);
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
        for (judged, verdict) in judged.iter().zip(&verdicts) {
            if judged.access == Access::Write && matches!(verdict, Verdict::Admit(_)) {
                self.spend(&judged.guarded.resource);
            }
        }
        let transacted = Box::new(Transacted { results, fence: self.first_token(judged), observed });
        if let Some(once) = once {
            self.record(once, FinalOutcome::Transacted(transacted.clone()));
        }
        Draft::Pending(TransactOutcome::Transacted(transacted))
    }

    fn replay(&self, judged: &[Judged], earlier: Earlier<'_>) -> TransactOutcome<Pending> {
        let recorded = match earlier {
            Earlier::Abandoned => return TransactOutcome::Abandoned,
            Earlier::Same(FinalOutcome::Transacted(transacted)) => RecordedTransaction::Transacted(transacted.clone()),
            Earlier::Same(FinalOutcome::ConditionFailed(failed)) => {
                RecordedTransaction::ConditionFailed(failed.clone())
            }
            Earlier::Same(FinalOutcome::Impossible(addition)) => RecordedTransaction::Impossible(addition.clone()),
            Earlier::Other | Earlier::Same(_) => return TransactOutcome::KeyReused,
        };
        TransactOutcome::Replayed(recorded, self.fences_now(judged))
    }

    /// Marks the fence's token as spent: a write with it was applied.
    pub(super) fn spend(&mut self, resource: &Resource) {
        let slot = self.fence_mut(resource);
        if !slot.state.spent {
            (slot.state.spent, slot.dirty) = (true, true);
        }
    }

    /// The first condition that does not hold.
    fn failed_condition(&self, judged: &[Judged], write: &Write) -> Option<FailedCondition<Pending>> {
        let (at, (key, _)) =
            write.conditions.iter().enumerate().find(|(_, (key, condition))| !self.holds(key, condition))?;
        Some(self.failed(at, key, self.only_token(judged)))
    }

    fn failed(&self, at: usize, key: &Key, fence: Option<Token>) -> FailedCondition<Pending> {
        let current = self.value(key).map(|(version, _)| *version);
        FailedCondition { at, key: key.clone(), current, fence }
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
    fn sums(&self, write: &Write) -> Result<Vec<i64>, ImpossibleAddition> {
        let sum = |(at, step): (usize, &Step)| {
            let Operation::Add { by, min, max } = step.operation else { return Ok(0) };
            let impossible = |why| ImpossibleAddition { at, key: step.key.clone(), why };
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
