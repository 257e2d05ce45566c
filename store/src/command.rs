//! Commands to the store.

use bytes::Bytes;
use fencepost_core::{Access, Guarded, Holder, IdempotencyKey, Issuer, Key, Mode, Presented, Resource};
use tokio::sync::oneshot;

use crate::engine::{Change, Purpose, Version, Want};
use crate::outcome::{Failure, Outcome};
use crate::record::{LeaseId, MAX_HEAD_BYTES, MAX_NUMBER_BYTES, ObjectRecord, OutcomeKey, RecordKey};

/// A condition on the current version of a key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Condition {
    /// No condition.
    #[default]
    Always,
    /// The key has no value (`If-None-Match: *`).
    Absent,
    /// The key has a value (`If-Match: *`).
    Exists,
    /// The key has one of these versions (`If-Match`).
    AnyOf(Vec<Version>),
    /// The key's value is exactly this.
    Equals(Bytes),
    /// The key's value is a number, at least this one; an absent value counts as 0.
    AtLeast(i64),
    /// The key's value is a number, at most this one; an absent value counts as 0.
    AtMost(i64),
}

impl Condition {
    /// How much of the value's record is needed to evaluate the condition.
    fn want(&self) -> Want {
        match self {
            Condition::Always | Condition::Absent | Condition::Exists | Condition::AnyOf(_) => Want::Version,
            // Values of different lengths cannot be equal, so a longer record need not be read.
            Condition::Equals(bytes) => Want::UpTo(bytes.len() + MAX_HEAD_BYTES),
            Condition::AtLeast(_) | Condition::AtMost(_) => NUMBER,
        }
    }
}

/// Enough of a record to hold any value that can be a number.
const NUMBER: Want = Want::UpTo(MAX_NUMBER_BYTES + MAX_HEAD_BYTES);

/// An operation on one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Write a value.
    Put {
        /// Its media type.
        content_type: Option<String>,
        /// The value's bytes.
        body: Bytes,
    },
    /// Remove the value; the fence stays.
    Delete,
    /// Add to a number; an absent value counts as 0.
    Add {
        /// The amount to add.
        by: i64,
        /// The sum must not be below this.
        min: i64,
        /// The sum must not be above this.
        max: i64,
    },
    /// Read the value.
    Get,
}

impl Operation {
    pub(crate) fn writes(&self) -> bool {
        !matches!(self, Operation::Get)
    }

    /// How much of the value's record is needed, in a transaction whose answer may have at most `max_bytes` bytes.
    fn want(&self, max_bytes: usize) -> Option<Want> {
        match self {
            Operation::Put { .. } | Operation::Delete => None,
            Operation::Add { .. } => Some(NUMBER),
            Operation::Get => Some(answered(max_bytes)),
        }
    }
}

/// How much of a record is needed for an answer of at most `max_bytes` bytes.
fn answered(max_bytes: usize) -> Want {
    Want::UpTo(max_bytes.saturating_add(MAX_HEAD_BYTES))
}

/// Makes a request apply at most once, over all its retries (G7).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Once {
    /// The caller. Equal keys of different callers are distinct.
    pub caller: String,
    /// The caller's name for the request.
    pub key: IdempotencyKey,
    /// Hash of everything that identifies the request, except the token.
    pub fingerprint: [u8; 32],
}

impl Once {
    pub(crate) fn record(&self) -> OutcomeKey {
        OutcomeKey::new(&self.caller, &self.key)
    }
}

/// A request: judged on its resources, then applied or refused.
#[derive(Clone, Debug)]
pub(crate) struct Command {
    /// Each resource occurs once.
    pub(crate) judged: Vec<Judged>,
    pub(crate) once: Option<Once>,
    pub(crate) action: Action,
}

/// One resource and the token presented to it.
#[derive(Clone, Debug)]
pub(crate) struct Judged {
    pub(crate) guarded: Guarded,
    pub(crate) presented: Option<Presented>,
    pub(crate) access: Access,
}

#[derive(Clone, Debug)]
pub(crate) enum Action {
    Write(Write),
    Claim { keys: Vec<Key>, max_bytes: usize },
    Acquire(Acquire),
    Renew { lease: LeaseId, ttl_ms: u64 },
    Release { lease: LeaseId },
    ForceRelease,
    Rotate { from: u32, issuer: Option<Issuer> },
    RotateAll { from: u32, at_least: u32 },
    Objects(ObjectChange),
    Abandon(OutcomeKey),
    Forget { index: RecordKey, outcomes: Vec<OutcomeKey> },
}

/// Conditions, then operations: all or nothing.
#[derive(Clone, Debug)]
pub(crate) struct Write {
    pub(crate) conditions: Vec<(Key, Condition)>,
    pub(crate) operations: Vec<Step>,
    /// The most bytes that `Get` operations may return.
    pub(crate) max_bytes: usize,
    /// The request body that the command was parsed from, kept alive as long as the command.
    pub(crate) _body: Bytes,
}

/// One operation of a write.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) key: Key,
    pub(crate) operation: Operation,
    /// Index in `judged` of the key's resource.
    pub(crate) judged: Option<usize>,
}

/// Changes to the records about objects.
#[derive(Clone, Debug, Default)]
pub(crate) struct ObjectChange {
    /// All of these must hold.
    pub(crate) require: Vec<(RecordKey, Requirement)>,
    pub(crate) edits: Vec<(RecordKey, Change)>,
    /// The change removes something, and puts only the records that accompany a removal.
    pub(crate) frees: bool,
}

/// What a record must be for a change to apply.
#[derive(Clone, Debug)]
pub(crate) enum Requirement {
    Absent,
    Present,
    Exactly(Bytes),
    Condition(ObjectCondition),
}

/// A caller's condition on the current object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ObjectCondition {
    /// No condition.
    #[default]
    Always,
    /// The object does not exist (`If-None-Match: *`).
    Absent,
    /// The object exists (`If-Match: *`).
    Exists,
    /// The object has this ETag (`If-Match`).
    ETag(String),
    /// The object does not have this ETag (`If-None-Match`).
    NotETag(String),
}

impl ObjectCondition {
    /// Returns whether the condition holds for this object.
    pub fn met_by(&self, object: Option<&ObjectRecord>) -> bool {
        match self {
            ObjectCondition::Always => true,
            ObjectCondition::Absent => object.is_none(),
            ObjectCondition::Exists => object.is_some(),
            ObjectCondition::ETag(etag) => object.is_some_and(|object| object.etag == *etag),
            ObjectCondition::NotETag(etag) => object.is_none_or(|object| object.etag != *etag),
        }
    }
}

/// A request to acquire a lock.
#[derive(Clone, Debug)]
pub(crate) struct Acquire {
    pub(crate) lease: LeaseId,
    pub(crate) holder: Holder,
    pub(crate) ttl_ms: u64,
    pub(crate) take: Take,
}

/// When a lock may be taken. The caller evaluates time beforehand; the sequencer uses no clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Take {
    /// Not at all, because others wait in front. A recorded grant is still found.
    Never,
    /// If it is not held.
    Free,
    /// If it is not held, or if its record still has this version, whose lease the caller saw expire.
    Expired(Version),
}

impl Command {
    pub(crate) fn new(judged: Judged, action: Action) -> Command {
        Command { judged: vec![judged], once: None, action }
    }

    /// A command that concerns no resource.
    pub(crate) fn of_store(action: Action) -> Command {
        Command { judged: Vec::new(), once: None, action }
    }

    /// The keys whose values affect the outcome, and how much of each is needed.
    pub(crate) fn reads(&self) -> impl Iterator<Item = (&Key, Want)> {
        let (conditions, steps): (&[(Key, Condition)], &[Step]) = match &self.action {
            Action::Write(write) => (&write.conditions, &write.operations),
            _ => (&[], &[]),
        };
        let (claimed, max_bytes): (&[Key], usize) = match &self.action {
            Action::Write(write) => (&[], write.max_bytes),
            Action::Claim { keys, max_bytes } => (keys, *max_bytes),
            _ => (&[], 0),
        };
        let conditions = conditions.iter().map(|(key, condition)| (key, condition.want()));
        let steps = steps.iter().filter_map(move |step| Some((&step.key, step.operation.want(max_bytes)?)));
        conditions.chain(steps).chain(claimed.iter().map(move |key| (key, answered(max_bytes))))
    }

    /// The most bytes of records that the command's reads can need together. An answer that does not fit would exceed
    /// its limit anyway.
    pub(crate) fn read_bytes(&self) -> usize {
        let (answered, compared) = match &self.action {
            Action::Write(write) => {
                let compared = write.conditions.iter().map(|(_, condition)| match condition {
                    Condition::Equals(bytes) => bytes.len(),
                    _ => 0,
                });
                (write.max_bytes, compared.sum())
            }
            Action::Claim { max_bytes, .. } => (*max_bytes, 0),
            _ => return 0,
        };
        let each = MAX_HEAD_BYTES + MAX_NUMBER_BYTES;
        answered.saturating_add(compared).saturating_add(self.reads().count() * each)
    }

    /// Returns whether the command can never change anything. Then its place in the order does not matter.
    pub(crate) fn only_reads(&self) -> bool {
        let reads = match &self.action {
            Action::Write(write) => write.operations.iter().all(|step| !step.operation.writes()),
            _ => false,
        };
        reads && self.judged.is_empty() && self.once.is_none()
    }

    /// The lock whose record affects the outcome.
    pub(crate) fn lock(&self) -> Option<&Resource> {
        match self.action {
            Action::Acquire(_) | Action::Renew { .. } | Action::Release { .. } | Action::ForceRelease => {
                self.judged.first().map(|judged| &judged.guarded.resource)
            }
            _ => None,
        }
    }

    /// The recorded outcome that may replace this command's own.
    pub(crate) fn outcome(&self) -> Option<OutcomeKey> {
        match (&self.action, &self.once) {
            (Action::Abandon(key), _) => Some(key.clone()),
            (_, once) => once.as_ref().map(Once::record),
        }
    }

    /// The bytes that the command adds to a commit.
    pub(crate) fn bytes(&self) -> usize {
        let write = match &self.action {
            Action::Write(write) => write,
            Action::Objects(change) => {
                let size = |(_, edit): &(RecordKey, Change)| match edit {
                    Change::Put(bytes) => bytes.len(),
                    Change::Delete => 0,
                };
                return change.edits.iter().map(size).sum();
            }
            _ => return 0,
        };
        let body = |step: &Step| match &step.operation {
            Operation::Put { body, .. } => body.len(),
            Operation::Delete | Operation::Add { .. } | Operation::Get => 0,
        };
        write.operations.iter().map(body).sum()
    }

    /// The purpose of the commit. Removals are allowed below the free-space floor, see [`Purpose::Free`].
    pub(crate) fn purpose(&self) -> Purpose {
        let frees = match &self.action {
            Action::Write(write) => {
                let mut operations = write.operations.iter().map(|step| &step.operation).filter(|step| step.writes());
                let removes = |operation: &Operation| matches!(operation, Operation::Delete);
                operations.next().is_some_and(removes) && operations.all(removes)
            }
            Action::Objects(change) => change.frees,
            Action::Release { .. } | Action::ForceRelease | Action::Forget { .. } => true,
            Action::Claim { .. }
            | Action::Acquire(_)
            | Action::Renew { .. }
            | Action::Rotate { .. }
            | Action::RotateAll { .. }
            | Action::Abandon(_) => false,
        };
        if frees { Purpose::Free } else { Purpose::Store }
    }

    /// Returns whether the guard of any of its resources is in observe mode.
    pub(crate) fn is_observed(&self) -> bool {
        self.judged.iter().any(|judged| judged.guarded.policy.mode == Mode::Observe)
    }
}

pub(crate) type Reply = oneshot::Sender<Result<Outcome, Failure>>;
