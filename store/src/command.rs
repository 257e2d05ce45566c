//! Commands to the store.

use bytes::Bytes;
use fencepost_core::{Access, Guarded, Holder, IdempotencyKey, Issuer, Key, Mode, Presented, Resource};

use crate::engine::{Change, Purpose, Version, Want};
use crate::entry::UnderWay;
use crate::failure::Failure;
use crate::lock_queue::Locks;
use crate::outcome::{
    AcquireOutcome, ChangeOutcome, ClaimOutcome, FinalOutcome, ForceReleaseOutcome, ReleaseOutcome, RenewOutcome,
    RotateOutcome, TransactOutcome, WriteOutcome,
};
use crate::record::{LeaseId, MAX_HEAD_BYTES, MAX_NUMBER_BYTES, ObjectRecord, OutcomeKey, Pending, RecordKey};
use crate::reply::{AnyReply, Reply};

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
pub(crate) fn answered(max_bytes: usize) -> Want {
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
pub(crate) struct Command {
    /// Each resource occurs once.
    pub(crate) judged: Vec<Judged>,
    pub(crate) once: Option<Once>,
    pub(crate) action: Action,
    /// Counts the command until it is dropped, which is after its answer.
    pub(crate) _under_way: Option<UnderWay>,
}

/// One resource and the token presented to it.
#[derive(Clone, Debug)]
pub(crate) struct Judged {
    pub(crate) guarded: Guarded,
    pub(crate) presented: Option<Presented>,
    pub(crate) access: Access,
}

/// What is done, and the reply that its outcome fits.
pub(crate) enum Action {
    WriteOne(WriteOne, Reply<WriteOutcome<Pending>>),
    Write(Write, Reply<TransactOutcome<Pending>>),
    Claim(Claim, Reply<ClaimOutcome<Pending>>),
    Acquire(Acquire, Reply<AcquireOutcome<Pending>>),
    Renew { lease: LeaseId, ttl_ms: u64, reply: Reply<RenewOutcome<Pending>> },
    Release { lease: LeaseId, reply: Reply<ReleaseOutcome> },
    ForceRelease { reply: Reply<ForceReleaseOutcome> },
    Rotate { from: u32, issuer: Option<Issuer>, reply: Reply<RotateOutcome> },
    RotateAll { from: u32, at_least: u32, reply: Reply<RotateOutcome> },
    Objects(ObjectChange, Reply<ChangeOutcome>),
    Abandon(OutcomeKey, Reply<FinalOutcome<Pending>>),
    Forget { index: RecordKey, outcomes: Vec<OutcomeKey>, reply: Reply<()> },
}

impl Action {
    fn reply(&mut self) -> &mut dyn AnyReply {
        match self {
            Action::WriteOne(_, reply) => reply,
            Action::Write(_, reply) => reply,
            Action::Claim(_, reply) => reply,
            Action::Acquire(_, reply) => reply,
            Action::Renew { reply, .. } => reply,
            Action::Release { reply, .. } => reply,
            Action::ForceRelease { reply } => reply,
            Action::Rotate { reply, .. } | Action::RotateAll { reply, .. } => reply,
            Action::Objects(_, reply) => reply,
            Action::Abandon(_, reply) => reply,
            Action::Forget { reply, .. } => reply,
        }
    }

    fn is_about_a_lock(&self) -> bool {
        matches!(
            self,
            Action::Acquire(..) | Action::Renew { .. } | Action::Release { .. } | Action::ForceRelease { .. }
        )
    }
}

/// A put or a delete.
#[derive(Clone, Debug)]
pub(crate) struct WriteOne {
    pub(crate) key: Key,
    pub(crate) condition: Condition,
    /// `None`: the key is to have no value.
    pub(crate) value: Option<NewValue>,
}

/// A value to be written.
#[derive(Clone, Debug)]
pub(crate) struct NewValue {
    pub(crate) content_type: Option<String>,
    pub(crate) body: Bytes,
}

/// What a claim reads.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    pub(crate) keys: Vec<Key>,
    pub(crate) max_bytes: usize,
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

impl Write {
    /// Returns whether it can never change anything. Without a token and an idempotency key, its place in the order
    /// does not matter then.
    pub(crate) fn only_reads(&self) -> bool {
        self.operations.iter().all(|step| !step.operation.writes())
    }
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
    /// The keys whose values affect the outcome, and how much of each is needed.
    pub(crate) fn reads(&self) -> impl Iterator<Item = (&Key, Want)> {
        let one = match &self.action {
            Action::WriteOne(write, _) => match &write.condition {
                Condition::Always => None,
                condition => Some((&write.key, condition.want())),
            },
            _ => None,
        };
        let (conditions, steps): (&[(Key, Condition)], &[Step]) = match &self.action {
            Action::Write(write, _) => (&write.conditions, &write.operations),
            _ => (&[], &[]),
        };
        let (claimed, max_bytes): (&[Key], usize) = match &self.action {
            Action::Write(write, _) => (&[], write.max_bytes),
            Action::Claim(claim, _) => (&claim.keys, claim.max_bytes),
            _ => (&[], 0),
        };
        let conditions = conditions.iter().map(|(key, condition)| (key, condition.want()));
        let steps = steps.iter().filter_map(move |step| Some((&step.key, step.operation.want(max_bytes)?)));
        one.into_iter().chain(conditions).chain(steps).chain(claimed.iter().map(move |key| (key, answered(max_bytes))))
    }

    /// The most bytes of records that the command's reads can need together. An answer that does not fit would exceed
    /// its limit anyway.
    pub(crate) fn read_bytes(&self) -> usize {
        let compared = |condition: &Condition| match condition {
            Condition::Equals(bytes) => bytes.len(),
            _ => 0,
        };
        let (answered, compared) = match &self.action {
            Action::WriteOne(write, _) => (0, compared(&write.condition)),
            Action::Write(write, _) => {
                (write.max_bytes, write.conditions.iter().map(|(_, condition)| compared(condition)).sum())
            }
            Action::Claim(claim, _) => (claim.max_bytes, 0),
            _ => return 0,
        };
        let each = MAX_HEAD_BYTES + MAX_NUMBER_BYTES;
        answered.saturating_add(compared).saturating_add(self.reads().count() * each)
    }

    /// The lock whose record affects the outcome.
    pub(crate) fn lock(&self) -> Option<&Resource> {
        self.judged.first().filter(|_| self.action.is_about_a_lock()).map(|judged| &judged.guarded.resource)
    }

    /// The recorded outcome that may replace this command's own.
    pub(crate) fn outcome(&self) -> Option<OutcomeKey> {
        match (&self.action, &self.once) {
            (Action::Abandon(key, _), _) => Some(key.clone()),
            (_, once) => once.as_ref().map(Once::record),
        }
    }

    /// The bytes that the command adds to a commit.
    pub(crate) fn bytes(&self) -> usize {
        match &self.action {
            Action::WriteOne(write, _) => write.value.as_ref().map_or(0, |value| value.body.len()),
            Action::Write(write, _) => {
                let body = |step: &Step| match &step.operation {
                    Operation::Put { body, .. } => body.len(),
                    Operation::Delete | Operation::Add { .. } | Operation::Get => 0,
                };
                write.operations.iter().map(body).sum()
            }
            Action::Objects(change, _) => {
                let size = |(_, edit): &(RecordKey, Change)| match edit {
                    Change::Put(bytes) => bytes.len(),
                    Change::Delete => 0,
                };
                change.edits.iter().map(size).sum()
            }
            _ => 0,
        }
    }

    /// The most records that the command compares or changes in a commit, whichever are more.
    pub(crate) fn records(&self) -> usize {
        let (compared, changed) = match &self.action {
            Action::WriteOne(..) => (0, 1),
            Action::Write(write, _) => (0, write.operations.iter().filter(|step| step.operation.writes()).count()),
            Action::Objects(change, _) => (change.require.len(), change.edits.len()),
            Action::Forget { outcomes, .. } => (1, outcomes.len() + 1),
            Action::Rotate { .. } | Action::RotateAll { .. } => (0, 1),
            Action::Abandon(..) => (1, 2),
            Action::Claim(..)
            | Action::Acquire(..)
            | Action::Renew { .. }
            | Action::Release { .. }
            | Action::ForceRelease { .. } => (0, 0),
        };
        let lock = usize::from(self.action.is_about_a_lock());
        // An outcome is compared with its absence, and comes with its index.
        let once = usize::from(self.once.is_some());
        // Every fence is compared, and may be raised.
        let fences = self.judged.len();
        (fences + self.reads().count() + compared + lock + once).max(fences + changed + lock + 2 * once)
    }

    /// The purpose of the commit. Removals are allowed below the free-space floor, see [`Purpose::Free`].
    pub(crate) fn purpose(&self) -> Purpose {
        let frees = match &self.action {
            Action::WriteOne(write, _) => write.value.is_none(),
            Action::Write(write, _) => {
                let mut operations = write.operations.iter().map(|step| &step.operation).filter(|step| step.writes());
                let removes = |operation: &Operation| matches!(operation, Operation::Delete);
                operations.next().is_some_and(removes) && operations.all(removes)
            }
            Action::Objects(change, _) => change.frees,
            Action::Release { .. } | Action::ForceRelease { .. } | Action::Forget { .. } => true,
            Action::Claim(..)
            | Action::Acquire(..)
            | Action::Renew { .. }
            | Action::Rotate { .. }
            | Action::RotateAll { .. }
            | Action::Abandon(..) => false,
        };
        if frees { Purpose::Free } else { Purpose::Store }
    }

    /// Returns whether it has not been answered yet.
    pub(crate) fn is_awaited(&mut self) -> bool {
        self.action.reply().is_awaited()
    }

    /// Drops the outcome of an attempt that did not commit.
    pub(crate) fn forget_outcome(&mut self) {
        self.action.reply().forget_outcome();
    }

    /// Answers it without an outcome.
    pub(crate) fn fail(&mut self, failure: &Failure) {
        self.action.reply().fail(failure);
    }

    /// Answers the outcome that waited for the commit, which gave its first change this version.
    pub(crate) fn settle(&mut self, first: Option<Version>, locks: &Locks) {
        let lock = self.judged.first().filter(|_| self.action.is_about_a_lock());
        let lock = lock.map(|judged| (locks, &judged.guarded.resource));
        self.action.reply().settle(first, lock);
    }

    /// Returns whether the guard of any of its resources is in observe mode.
    pub(crate) fn is_observed(&self) -> bool {
        self.judged.iter().any(|judged| judged.guarded.policy.mode == Mode::Observe)
    }
}
