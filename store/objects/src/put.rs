//! The life of a write of an object. [`Objects::put`] shows it from top to bottom.

use std::sync::Arc;

use fencepost_core::{Key, Presented};
use fencepost_store::record::{Act, Intent, ObjectRecord};
use fencepost_store::{Changed, ObjectCondition, PutObject};
use tokio::sync::{OwnedSemaphorePermit, RwLockReadGuard};

use crate::error::{ObjectError, done};
use crate::key_locks::Writing;
use crate::layout::{LayoutError, Mark, Place, Ref};
use crate::name::bucket_of;
use crate::object::{Attributes, Object};
use crate::service::{Objects, to_its_end};
use crate::settlement::Settling;
use crate::source::Source;
use crate::staged::{Staged, discard};

/// A write of an object.
pub struct Put {
    /// The object to write.
    pub key: Key,
    /// The token presented by the caller.
    pub presented: Option<Presented>,
    /// The write is applied only if this holds.
    pub condition: ObjectCondition,
    /// The metadata given by the writer.
    pub attributes: Attributes,
    /// Checked again before the commit: whether the caller may still write.
    pub grant: Grant,
}

/// Whether a caller may still write. A body takes a while to arrive, so this is checked again just before the commit.
#[derive(Clone)]
pub struct Grant(Arc<dyn Fn() -> Result<(), ObjectError> + Send + Sync>);

impl Grant {
    /// Creates a grant that lasts as long as `check` returns `Ok`.
    pub fn new(check: impl Fn() -> Result<(), ObjectError> + Send + Sync + 'static) -> Grant {
        Grant(Arc::new(check))
    }

    /// Returns an error if the grant has ended.
    pub fn check(&self) -> Result<(), ObjectError> {
        (self.0)()
    }
}

/// A write that is durable and published.
#[derive(Clone, Debug)]
pub struct Written {
    /// The object after the write.
    pub object: Object,
    /// The fence after the write, and the refusals that observing guards did not enforce.
    pub changed: Changed,
}

/// A committed write, with what it holds until it is settled.
struct Committed<'o> {
    key: Key,
    object: ObjectRecord,
    changed: Changed,
    place: Box<dyn Place>,
    lock: Writing,
    under_way: OwnedSemaphorePermit,
    _bucket: RwLockReadGuard<'o, ()>,
}

impl Objects {
    /// Writes an object: foresee → stage → commit → show → answer.
    pub async fn put(self: &Arc<Self>, put: Put, source: impl Source) -> Result<Written, ObjectError> {
        // Foresee: refuse a token that is already stale before accepting any bytes. This early check is never
        // decisive.
        self.foresee_fence(&put.key, put.presented.as_ref()).await?;
        let bucket = bucket_of(&put.key);
        // A bucket that is known is not looked for: should it be gone, there is no place to commit to.
        if !self.is_adopted(bucket).await {
            self.need_bucket(bucket).await?;
        }
        // Stage: the bytes become durable under a fresh ref. No record refers to them yet.
        let staged = source.stage(self).await?;
        let under_way = self.under_way().await?;
        let objects = self.clone();
        // From here on the write runs to completion, even if its caller stops waiting.
        to_its_end(async move {
            // Commit: judge, condition, fence, index and intent, all or nothing. This is the decisive check.
            let committed = objects.commit(put, staged, under_way).await?;
            // Show: publish the bytes in the storage, before the next change of the same key.
            let shown = objects.show(committed).await?;
            // Answer. The intent is dropped later, together with others.
            Ok(objects.settle(shown).await)
        })
        .await
    }

    /// The early check, before any byte of the body is accepted: cheap, and never decisive.
    pub async fn foresee(&self, key: &Key, presented: Option<&Presented>) -> Result<(), ObjectError> {
        self.foresee_fence(key, presented).await?;
        self.need_bucket(bucket_of(key)).await
    }

    /// Like [`Objects::foresee`], of the fence alone.
    pub async fn foresee_fence(&self, key: &Key, presented: Option<&Presented>) -> Result<(), ObjectError> {
        match self.store.foresee(key, presented).await? {
            Ok(_) => Ok(()),
            Err(refusal) => Err(ObjectError::Refused(vec![*refusal])),
        }
    }

    /// Takes a permit for a change under way.
    pub(crate) async fn under_way(&self) -> Result<OwnedSemaphorePermit, ObjectError> {
        self.under_way.clone().acquire_owned().await.map_err(|error| ObjectError::Unknown(error.to_string()))
    }

    /// Commits the staged bytes. If the write was certainly not applied, they are removed.
    async fn commit(
        &self,
        mut put: Put,
        staged: Staged,
        under_way: OwnedSemaphorePermit,
    ) -> Result<Committed<'_>, ObjectError> {
        let object = staged.object(std::mem::take(&mut put.attributes));
        let Staged { bytes, completes, .. } = staged;
        // Keep the bytes before the commit: if this task panics after it, the index refers to them.
        let id = bytes.keep();
        let Put { key, presented, condition, grant, .. } = put;
        let put = PutObject { key, presented, condition, object, completes };
        let committed = self.commit_in_turn(put, &grant, under_way).await;
        if committed.as_ref().is_err_and(ObjectError::is_surely_not_applied) {
            discard(self.layout.as_ref(), id).await;
        }
        committed
    }

    /// Waits for the key's lock, makes sure that the storage can publish the object, and commits it.
    async fn commit_in_turn(
        &self,
        put: PutObject,
        grant: &Grant,
        under_way: OwnedSemaphorePermit,
    ) -> Result<Committed<'_>, ObjectError> {
        let key = put.key.clone();
        let bucket = self.buckets.read().await;
        let lock = self.locks.write([&key]).await;
        self.unblock(&key).await?;
        let place = self.layout.prepare(&key).await?;
        if place.is_taken() && self.store.object(&key).await?.is_none() {
            return Err(LayoutError::Clash(format!(
                "`{key}` would replace a file that the index does not know: another program put it there. \
                 `fencepost objects check --adopt` takes it in"
            ))
            .into());
        }
        grant.check()?;
        let token = put.presented.as_ref().map(|presented| presented.token);
        let object = ObjectRecord { token, ..put.object.clone() };
        let changed = done(self.store.put_object(put).await?)?;
        Ok(Committed { key, object, changed, place, lock, under_way, _bucket: bucket })
    }

    /// Publishes a committed object. If the storage fails, the object is read from staging, and no other change of
    /// the key is made until it is published.
    async fn show<'o>(&self, committed: Committed<'o>) -> Result<Committed<'o>, ObjectError> {
        let Committed { key, object, .. } = &committed;
        let (id, mark) = (Ref(object.id), Mark { size: object.size, inode: object.inode });
        // The key has been locked since before the commit, so the index still names these bytes.
        let Err(error) = self.layout.publish(key, id, mark).await else { return Ok(committed) };
        let why = error.to_string();
        let act = Act::Publish { size: mark.size, inode: mark.inode };
        let intent = Intent { key: key.clone(), act };
        self.block(id, intent, why.clone(), Some(committed.place));
        Err(ObjectError::Unshown { key: committed.key, why })
    }

    /// Hands the locks and permits of the write to the settler, which drops the intent.
    async fn settle(&self, committed: Committed<'_>) -> Written {
        let Committed { object, changed, place, lock, under_way, .. } = committed;
        let settling = Settling { ids: vec![object.id], _places: vec![place], _lock: lock, _under_way: under_way };
        // The receiver outlives every change under way.
        let _ = self.settling.send(settling).await;
        Written { object: object.into(), changed }
    }
}
