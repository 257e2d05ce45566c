//! The life of a write of an object. [`Objects::put`] tells it from top to bottom.

use std::sync::Arc;

use fencepost_core::{Key, Presented};
use fencepost_store::record::{Act, Intent, ObjectRecord};
use fencepost_store::{Changed, ObjectCondition, PutObject};
use tokio::sync::{OwnedSemaphorePermit, RwLockReadGuard};

use crate::error::{ObjectError, done};
use crate::key_locks::Writing;
use crate::layout::{LayoutError, Place, Ref};
use crate::name::bucket_of;
use crate::object::{Attributes, Object};
use crate::service::{Objects, to_its_end};
use crate::settlement::Settling;
use crate::source::Source;
use crate::staged::{Staged, discard};

/// A write of an object.
pub struct Put {
    /// Which one.
    pub key: Key,
    /// By which token.
    pub presented: Option<Presented>,
    /// Only if this holds.
    pub condition: ObjectCondition,
    /// What its writer says of it.
    pub attributes: Attributes,
    /// Whether its writer may still write.
    pub grant: Grant,
}

/// Whether a caller may still write. A body takes a while to arrive, so it is asked again just before the commit.
#[derive(Clone)]
pub struct Grant(Arc<dyn Fn() -> Result<(), ObjectError> + Send + Sync>);

impl Grant {
    /// A grant that lasts as long as this says so.
    pub fn new(check: impl Fn() -> Result<(), ObjectError> + Send + Sync + 'static) -> Grant {
        Grant(Arc::new(check))
    }

    /// Refuses if it has ended.
    pub fn check(&self) -> Result<(), ObjectError> {
        (self.0)()
    }
}

/// A write that is durable, and shown.
#[derive(Clone, Debug)]
pub struct Written {
    /// The object as it is now.
    pub object: Object,
    /// The fence after it, and who would have been refused.
    pub changed: Changed,
}

/// A write that is committed, with what it holds until it is settled.
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
        // Foresee: a token that is stale already is refused before any of its bytes is taken. This is never the check
        // that counts.
        self.foresee(&put.key, put.presented.as_ref()).await?;
        // Stage: the bytes become durable under a fresh ref, and nothing points to them.
        let staged = source.stage(self).await?;
        let under_way = self.under_way().await?;
        let objects = self.clone();
        // From here on the write comes to its end, whether its caller waits or not.
        to_its_end(async move {
            // Commit: judge, condition, fence, index and intent, all or nothing. This decides.
            let committed = objects.commit(put, staged, under_way).await?;
            // Show: the bytes take their place in the storage, before the next change of the same key.
            let shown = objects.show(committed).await?;
            // Answer, and drop the intent later, together with others.
            Ok(objects.settle(shown).await)
        })
        .await
    }

    /// The early look, before any byte of the body is taken: cheap, and never the one that counts.
    pub async fn foresee(&self, key: &Key, presented: Option<&Presented>) -> Result<(), ObjectError> {
        self.foresee_fence(key, presented).await?;
        self.need_bucket(bucket_of(key)).await
    }

    /// The same, of the fence alone.
    pub async fn foresee_fence(&self, key: &Key, presented: Option<&Presented>) -> Result<(), ObjectError> {
        match self.store.foresee(key, presented).await?? {
            Ok(_) => Ok(()),
            Err(refusal) => Err(ObjectError::Refused(vec![*refusal])),
        }
    }

    /// A place among the changes under way.
    pub(crate) async fn under_way(&self) -> Result<OwnedSemaphorePermit, ObjectError> {
        self.under_way.clone().acquire_owned().await.map_err(|error| ObjectError::Unknown(error.to_string()))
    }

    /// Commits what is staged. The bytes of a write that was surely not applied are removed.
    async fn commit(
        &self,
        mut put: Put,
        staged: Staged,
        under_way: OwnedSemaphorePermit,
    ) -> Result<Committed<'_>, ObjectError> {
        let object = staged.object(std::mem::take(&mut put.attributes));
        let Staged { bytes, completes, .. } = staged;
        // Before the commit: if this task panics after it, the index points to them.
        let id = bytes.keep();
        let Put { key, presented, condition, grant, .. } = put;
        let put = PutObject { key, presented, condition, object, completes };
        let committed = self.commit_in_turn(put, &grant, under_way).await;
        if committed.as_ref().is_err_and(ObjectError::is_surely_not_applied) {
            discard(self.layout.as_ref(), id).await;
        }
        committed
    }

    /// Waits for the key's turn, makes sure that the storage will be able to show the object, and commits it.
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
                "`{key}` would replace a file that the index does not know: somebody put it there without the gateway. \
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

    /// Publishes what is committed. If the storage cannot, the object is read from staging, and nothing else is done with
    /// its key before the storage can.
    async fn show<'o>(&self, committed: Committed<'o>) -> Result<Committed<'o>, ObjectError> {
        let Committed { key, object, .. } = &committed;
        let act = Act::Publish { size: object.size, inode: object.inode };
        let (id, intent) = (Ref(object.id), Intent { key: key.clone(), act });
        match self.redo(id, &intent).await {
            Ok(()) => Ok(committed),
            Err(error) => {
                let why = error.to_string();
                self.block(id, intent, why.clone(), Some(committed.place));
                Err(ObjectError::Unshown { key: committed.key, why })
            }
        }
    }

    /// Hands what the write holds to the settler, which drops its intent.
    async fn settle(&self, committed: Committed<'_>) -> Written {
        let Committed { object, changed, place, lock, under_way, .. } = committed;
        let settling = Settling { ids: vec![object.id], _places: vec![place], _lock: lock, _under_way: under_way };
        // The receiver outlives every change under way.
        let _ = self.settling.send(settling).await;
        Written { object: object.into(), changed }
    }
}
