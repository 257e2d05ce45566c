//! One batch: commands judged in order against the records loaded for them and each other's effects.

use std::collections::HashMap;

use fencepost_core::{FenceState, Key, Refusal, Resource, Timestamp, Token, Verdict, decide};

use crate::command::{Action, Applied, Claimed, Command, Condition, Outcome};
use crate::engine::{Change, Loaded, Record, Version};
use crate::record::{self, RecordKey, Undecodable, Value};

/// Which records a batch needs, each once. The store's own record comes first.
pub(crate) struct Plan {
    pub(crate) keys: Vec<RecordKey>,
    fences: HashMap<Resource, usize>,
    values: HashMap<Key, usize>,
}

impl Plan {
    pub(crate) fn of(commands: &[Command]) -> Plan {
        let mut plan = Plan {
            keys: vec![RecordKey::meta()],
            fences: HashMap::with_capacity(commands.len()),
            values: HashMap::new(),
        };
        for command in commands {
            let keys = &mut plan.keys;
            let resource = &command.guarded.resource;
            if !plan.fences.contains_key(resource) {
                plan.fences.insert(resource.clone(), keys.len());
                keys.push(RecordKey::fence(resource));
            }
            for key in command.reads() {
                if !plan.values.contains_key(key) {
                    plan.values.insert(key.clone(), keys.len());
                    keys.push(RecordKey::value(key));
                }
            }
        }
        plan
    }
}

/// A version that is stored, or that this batch's commit will give.
#[derive(Clone, Copy)]
enum Pending {
    Stored(Version),
    Change(usize),
}

impl Pending {
    fn settle(self, first: Option<Version>) -> Option<Version> {
        match self {
            Pending::Stored(version) => Some(version),
            Pending::Change(at) => first.map(|first| Version(first.0 + at as u64)),
        }
    }
}

struct FenceSlot {
    state: FenceState,
    /// Differs from what is stored: whatever depends on it must wait for the commit.
    dirty: bool,
}

type ValueSlot = Option<(Pending, Value)>;

/// An outcome that may still need the versions of its commit.
pub(crate) enum Draft {
    /// Justified by durable records alone: may be answered before the commit.
    Settled(Outcome),
    /// Depends on the commit.
    Pending(PendingOutcome),
}

pub(crate) enum PendingOutcome {
    Known(Outcome),
    Applied { change: Option<usize>, applied: Applied },
    Claimed(PendingClaim),
    ConditionFailed { current: Option<PendingVersion>, fence: Option<Token> },
}

pub(crate) struct PendingClaim {
    claimed: Box<Claimed>,
    values: Vec<(Key, ValueSlot)>,
}

pub(crate) struct PendingVersion(Pending);

impl PendingOutcome {
    /// The outcome, once the commit gave its first change this version.
    pub(crate) fn settle(self, first: Option<Version>) -> Outcome {
        match self {
            PendingOutcome::Known(outcome) => outcome,
            PendingOutcome::Applied { change, applied } => {
                let version = change.and_then(|at| Pending::Change(at).settle(first));
                Outcome::Applied(Applied { version, ..applied })
            }
            PendingOutcome::Claimed(PendingClaim { mut claimed, values }) => {
                claimed.values = values
                    .into_iter()
                    .map(|(key, slot)| {
                        (key, slot.and_then(|(version, value)| version.settle(first).map(|version| (version, value))))
                    })
                    .collect();
                Outcome::Claimed(claimed)
            }
            PendingOutcome::ConditionFailed { current, fence } => {
                Outcome::ConditionFailed { current: current.and_then(|version| version.0.settle(first)), fence }
            }
        }
    }
}

/// The records of a batch, as the commands so far leave them.
pub(crate) struct Overlay {
    fences: HashMap<Resource, FenceSlot>,
    values: HashMap<Key, ValueSlot>,
    changes: Vec<(RecordKey, Change)>,
    now: Timestamp,
}

impl Overlay {
    pub(crate) fn new(
        plan: &Plan,
        loaded: &Loaded,
        base_generation: u32,
        now: Timestamp,
    ) -> Result<Overlay, Undecodable> {
        let record = |at: &usize| -> Option<&Record> { loaded.records.get(*at).and_then(Option::as_ref) };
        let mut fences = HashMap::with_capacity(plan.fences.len());
        for (resource, at) in &plan.fences {
            let stored = record(at).map(|record| record::decode_fence(&record.bytes)).transpose()?;
            let state = FenceState::under(stored.as_ref(), base_generation).into_owned();
            fences.insert(resource.clone(), FenceSlot { state, dirty: false });
        }
        let mut values = HashMap::with_capacity(plan.values.len());
        for (key, at) in &plan.values {
            let slot = match record(at) {
                Some(record) => Some((Pending::Stored(record.version), Value::decode(&record.bytes)?)),
                None => None,
            };
            values.insert(key.clone(), slot);
        }
        Ok(Overlay { fences, values, changes: Vec::with_capacity(2 * plan.fences.len()), now })
    }

    /// Judges one command and applies it.
    pub(crate) fn apply(&mut self, command: &Command) -> Draft {
        let resource = &command.guarded.resource;
        let Some(slot) = self.fences.get_mut(resource) else {
            unreachable!("the plan names the fence of every command")
        };
        let presented = command.presented.as_ref();
        let verdict = decide(&slot.state, presented, command.access(), &command.guarded.policy);
        if let Verdict::Refuse(reason) = verdict {
            let refused = Outcome::Refused(Box::new(Refusal {
                reason,
                resource: resource.clone(),
                presented: command.presented.clone(),
                found: slot.state.clone(),
            }));
            // A refusal justified by this batch stands or falls with it (G4).
            return if slot.dirty { Draft::Pending(PendingOutcome::Known(refused)) } else { Draft::Settled(refused) };
        }
        if let Action::Claim { keys, max_bytes } = &command.action {
            let bytes =
                keys.iter().filter_map(|key| self.values.get(key)?.as_ref()).map(|(_, value)| value.body.len()).sum();
            if bytes > *max_bytes {
                return Draft::Pending(PendingOutcome::Known(Outcome::TooLarge { bytes, limit: *max_bytes }));
            }
        }
        let (admitted, observed) = match (verdict, presented) {
            (Verdict::Admit(step), Some(presented)) => {
                if let Some(next) = slot.state.after(step, presented, self.now) {
                    slot.state = next;
                    slot.dirty = true;
                }
                (true, None)
            }
            (Verdict::Observe(reason) | Verdict::Refuse(reason), _) => (false, Some(reason)),
            (Verdict::Admit(_), None) => unreachable!("nothing is admitted without a token"),
        };
        let fence = slot.state.token();
        Draft::Pending(match &command.action {
            Action::Put { key, condition, content_type, body } => match self.failed(key, condition) {
                Some(current) => PendingOutcome::ConditionFailed { current, fence },
                None => {
                    let token = presented.map(|presented| presented.token);
                    let value = Value { token, content_type: content_type.clone(), body: body.clone() };
                    let change = self.write(resource, key, Some(value), admitted);
                    PendingOutcome::Applied {
                        change: Some(change),
                        applied: Applied { version: None, fence, observed },
                    }
                }
            },
            Action::Delete { key, condition } => match self.failed(key, condition) {
                Some(current) => PendingOutcome::ConditionFailed { current, fence },
                None => {
                    self.write(resource, key, None, admitted);
                    PendingOutcome::Applied { change: None, applied: Applied { version: None, fence, observed } }
                }
            },
            Action::Claim { keys, .. } => PendingOutcome::Claimed(PendingClaim {
                claimed: Box::new(Claimed { state: slot.state.clone(), values: Vec::new(), observed }),
                values: keys.iter().map(|key| (key.clone(), self.values.get(key).cloned().flatten())).collect(),
            }),
        })
    }

    /// The current version, if the condition does not hold.
    fn failed(&self, key: &Key, condition: &Condition) -> Option<Option<PendingVersion>> {
        let current = self.values.get(key).and_then(Option::as_ref).map(|(version, _)| *version);
        let holds = match (condition, current) {
            (Condition::Always, _) | (Condition::Absent, None) | (Condition::Exists, Some(_)) => true,
            // A version that this batch gives is known to nobody yet.
            (Condition::AnyOf(versions), Some(Pending::Stored(version))) => versions.contains(&version),
            (Condition::AnyOf(_), _) | (Condition::Absent, Some(_)) | (Condition::Exists, None) => false,
        };
        if holds { None } else { Some(current.map(PendingVersion)) }
    }

    fn write(&mut self, resource: &Resource, key: &Key, value: Option<Value>, admitted: bool) -> usize {
        let at = self.changes.len();
        let change = value.as_ref().map_or(Change::Delete, |value| Change::Put(value.encode()));
        self.changes.push((RecordKey::value(key), change));
        if let Some(slot) = self.values.get_mut(key) {
            *slot = value.map(|value| (Pending::Change(at), value));
        }
        if admitted
            && let Some(slot) = self.fences.get_mut(resource)
            && !slot.state.spent
        {
            slot.state.spent = true;
            slot.dirty = true;
        }
        at
    }

    /// What to commit: the data, then each fence that changed, once. A delete leaves the fence (G1).
    pub(crate) fn changes(&mut self) -> Vec<(RecordKey, Change)> {
        let mut changes = std::mem::take(&mut self.changes);
        for (resource, slot) in self.fences.iter().filter(|(_, slot)| slot.dirty) {
            changes.push((RecordKey::fence(resource), Change::Put(record::encode_fence(&slot.state))));
        }
        changes
    }

    /// Every fence as it is now.
    pub(crate) fn fences(&self) -> impl Iterator<Item = (&Resource, &FenceState)> {
        self.fences.iter().map(|(resource, slot)| (resource, &slot.state))
    }
}
