//! Objects: an index beside the fences, for bytes that are stored elsewhere.
//!
//! Bytes are first written under a fresh ref, and are immutable from then on. One commit then writes the object: it
//! covers the judge's verdict, the caller's condition, the fence, the index entry, an intent for the storage, and the
//! removal of the ref from the pending ones. So a write whose token is below the fence changes nothing, however late
//! its bytes arrive (G2, G3).

mod reads;
mod refs;
mod uploads;

use fencepost_core::{Access, FenceState, Key, Presented, Refusal, Timestamp, Token, Verdict, decide};

use crate::command::{Action, Judged, ObjectChange, ObjectCondition, Requirement};
use crate::engine::Change;
use crate::failure::Failure;
use crate::outcome::{ChangeOutcome, Changed};
use crate::reads::ReadError;
use crate::record::{Act, Intent, ObjectRecord, RecordKey, encode_number};
use crate::store::Store;

pub use reads::Listed;
pub use uploads::{Complete, Upload};

/// The outcome of a change to objects. A refusal is one of them, not an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObjectOutcome {
    /// The change is durable.
    Done(Changed),
    /// Fences refused, and the state that caused it is durable (G4).
    Refused(Vec<Refusal>),
    /// The caller's condition does not hold.
    ConditionFailed {
        /// The current fence.
        fence: Option<Token>,
    },
    /// The collector gave up the bytes before they were published: write them again.
    Collected,
    /// The upload was completed or aborted meanwhile.
    NoUpload,
    /// A part was replaced meanwhile.
    PartChanged,
}

/// A write of an object whose bytes are staged.
#[derive(Clone, Debug)]
pub struct PutObject {
    /// The key of the object.
    pub key: Key,
    /// The token, with its holder and issuer.
    pub presented: Option<Presented>,
    /// Must hold for the write to apply.
    pub condition: ObjectCondition,
    /// The new index entry; its token is set to the presented one.
    pub object: ObjectRecord,
    /// The upload that this write completes.
    pub completes: Option<Complete>,
}

/// A removal of objects, all or none.
#[derive(Clone, Debug, Default)]
pub struct DeleteObjects {
    /// The token, with its holder and issuer.
    pub presented: Option<Presented>,
    /// The objects to remove, each with the ref for its intent if it is in the index.
    pub keys: Vec<(Key, ObjectCondition, Option<u64>)>,
    /// The folder markers to remove, by the names of their folders.
    pub folders: Vec<(Key, ObjectCondition)>,
    /// Keys that are judged but not changed. They stand in for names that cannot exist.
    pub judged: Vec<Key>,
}

/// What an unmet requirement means.
#[derive(Clone, Copy)]
enum Why {
    Condition,
    Collected,
    NoUpload,
    PartChanged,
}

/// A change, and the meaning of each requirement if it is not met.
#[derive(Default)]
struct Draft {
    change: ObjectChange,
    why: Vec<Why>,
}

impl Draft {
    fn require(&mut self, key: RecordKey, requirement: Requirement, why: Why) {
        self.change.require.push((key, requirement));
        self.why.push(why);
    }

    fn put(&mut self, key: RecordKey, bytes: bytes::Bytes) {
        self.change.edits.push((key, Change::Put(bytes)));
    }

    fn delete(&mut self, key: RecordKey) {
        self.change.edits.push((key, Change::Delete));
    }

    /// A change that removes something, so it is allowed below the free-space floor.
    fn freeing() -> Draft {
        Draft { change: ObjectChange { frees: true, ..ObjectChange::default() }, why: Vec::new() }
    }

    /// Requires a pending ref, whose bytes now belong to an object or a part.
    fn use_ref(&mut self, id: u64) {
        self.require(RecordKey::pending(id), Requirement::Present, Why::Collected);
        self.delete(RecordKey::pending(id));
    }

    /// Makes a ref pending again: its bytes belong to nothing, so the collector removes them.
    fn drop_ref(&mut self, id: u64, now: Timestamp) {
        self.put(RecordKey::pending(id), encode_number(now.0));
    }
}

impl Store {
    /// Writes an object, if the fence admits it.
    pub async fn put_object(&self, put: PutObject) -> Result<ObjectOutcome, Failure> {
        let PutObject { key, presented, condition, mut object, completes } = put;
        object.token = presented.as_ref().map(|presented| presented.token);
        let mut draft = Draft::default();
        draft.use_ref(object.id);
        draft.require(RecordKey::object(&key), Requirement::Condition(condition), Why::Condition);
        if let Some(completes) = completes {
            completes.into_draft(&key, &mut draft);
        }
        let act = Act::Publish { size: object.size, inode: object.inode };
        draft.put(RecordKey::intent(object.id), Intent { key: key.clone(), act }.encode());
        draft.put(RecordKey::object(&key), object.encode());
        self.change_of([&key], presented.as_ref(), Access::Write, draft).await
    }

    /// Removes objects, if every fence admits it. The fences stay.
    pub async fn delete_objects(&self, delete: DeleteObjects) -> Result<ObjectOutcome, Failure> {
        let DeleteObjects { presented, keys, folders, judged } = delete;
        let mut draft = Draft::freeing();
        for (key, condition, id) in &keys {
            draft.require(RecordKey::object(key), Requirement::Condition(condition.clone()), Why::Condition);
            if let Some(id) = *id {
                draft.use_ref(id);
                draft.put(RecordKey::intent(id), Intent { key: key.clone(), act: Act::Remove }.encode());
                draft.delete(RecordKey::object(key));
            }
        }
        for (folder, condition) in &folders {
            draft.require(RecordKey::folder(folder), Requirement::Condition(condition.clone()), Why::Condition);
            draft.delete(RecordKey::folder(folder));
        }
        let names = keys.iter().map(|(key, ..)| key).chain(folders.iter().map(|(folder, _)| folder)).chain(&judged);
        self.change_of(names, presented.as_ref(), Access::Write, draft).await
    }

    /// Writes the marker of a folder, if the fence of the folder's name admits it. A marker has no bytes, so this
    /// commit is the whole write: there is nothing to stage, publish or redo.
    pub async fn put_folder(
        &self,
        folder: &Key,
        presented: Option<&Presented>,
        condition: ObjectCondition,
        mut marker: ObjectRecord,
    ) -> Result<ObjectOutcome, Failure> {
        marker.token = presented.map(|presented| presented.token);
        let mut draft = Draft::default();
        draft.require(RecordKey::folder(folder), Requirement::Condition(condition), Why::Condition);
        draft.put(RecordKey::folder(folder), marker.encode());
        self.change_of([folder], presented, Access::Write, draft).await
    }

    /// Judges a request and raises the fence without changing an object: for other operations of a storage, such as on
    /// buckets.
    pub async fn judge_object(&self, key: &Key, presented: Option<&Presented>) -> Result<ObjectOutcome, Failure> {
        self.change_of([key], presented, Access::Claim, Draft::default()).await
    }

    /// Predicts whether a write would be admitted now. Only a hint: the write is judged again when it commits.
    pub async fn foresee(
        &self,
        key: &Key,
        presented: Option<&Presented>,
    ) -> Result<Result<FenceState, Box<Refusal>>, ReadError> {
        let guarded = self.guards().of_key(key)?;
        let state = self.fence(&guarded.resource).await?;
        Ok(match decide(&state, presented, Access::Write, &guarded.policy) {
            Verdict::Admit(_) | Verdict::Observe(_) => Ok(state),
            Verdict::Refuse(reason) => Err(Box::new(Refusal {
                reason,
                resource: guarded.resource,
                presented: presented.cloned(),
                found: state,
                at_least: false,
            })),
        })
    }

    /// Judges a change on the resources of all these keys, then applies it.
    async fn change_of<'k>(
        &self,
        keys: impl IntoIterator<Item = &'k Key>,
        presented: Option<&Presented>,
        access: Access,
        draft: Draft,
    ) -> Result<ObjectOutcome, Failure> {
        let guards = self.guards();
        let mut judged: Vec<Judged> = Vec::new();
        for key in keys {
            let guarded = guards.of_key(key)?;
            if !judged.iter().any(|judged| judged.guarded.resource == guarded.resource) {
                judged.push(Judged { guarded, presented: presented.cloned(), access });
            }
        }
        self.change(judged, draft).await
    }

    async fn change(&self, judged: Vec<Judged>, draft: Draft) -> Result<ObjectOutcome, Failure> {
        let Draft { change, why } = draft;
        if judged.is_empty() && change.require.is_empty() && change.edits.is_empty() {
            return Ok(ObjectOutcome::Done(Changed::default()));
        }
        if let Some(refusal) = self.entry.known_refusal(&judged, None)? {
            return Ok(ObjectOutcome::Refused(vec![refusal]));
        }
        Ok(match self.entry.submit(judged, None, |reply| Action::Objects(change, reply)).await? {
            ChangeOutcome::Changed(changed) => ObjectOutcome::Done(changed),
            ChangeOutcome::Refused(refusals) => ObjectOutcome::Refused(refusals),
            ChangeOutcome::Unmet { at, fence } => match why[at] {
                Why::Condition => ObjectOutcome::ConditionFailed { fence },
                Why::Collected => ObjectOutcome::Collected,
                Why::NoUpload => ObjectOutcome::NoUpload,
                Why::PartChanged => ObjectOutcome::PartChanged,
            },
        })
    }
}
