//! Writing an object: stage, commit, publish, answer, settle.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fencepost_core::{Key, Presented, Timestamp};
use fencepost_store::record::{Act, Attributes, Intent, ObjectRecord};
use fencepost_store::{Changed, Complete, ObjectCondition, PutObject, Store};
use futures_util::{Stream, StreamExt};
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use super::digest::{Algorithm, Measure, Measured, Promised};
use super::error::{ObjectError, done};
use super::key_locks::Writing;
use super::layout::{Layout, LayoutError, Mark, Place, Ref};
use super::{Objects, bucket_of};

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
    /// What the index says of the object.
    pub object: ObjectRecord,
    /// The fence after it, and who would have been refused.
    pub changed: Changed,
}

/// A change whose intent can be dropped, with what is to be let go then.
pub(super) struct Settling {
    pub(super) ids: Vec<u64>,
    /// Let go before the lock: whoever waits for that finds no place taken.
    pub(super) _places: Vec<Box<dyn Place>>,
    pub(super) _lock: Writing,
    pub(super) _acting: OwnedSemaphorePermit,
}

/// A body of which nothing comes for so long gives its memory back.
const PAUSE: Duration = Duration::from_millis(100);

/// Staging writes as soon as it has about this much.
const GATHERED: usize = 256 * 1024;

/// How many changes are settled in one commit at the most.
const SETTLE_AT_ONCE: usize = 128;

/// Drops the intents of what has happened, many in one commit.
pub(super) async fn settle(store: Arc<Store>, mut settled: mpsc::Receiver<Settling>) {
    let mut batch = Vec::with_capacity(SETTLE_AT_ONCE);
    while settled.recv_many(&mut batch, SETTLE_AT_ONCE).await > 0 {
        let ids: Vec<u64> = batch.iter().flat_map(|settling| settling.ids.iter().copied()).collect();
        if let Err(error) = store.settle_intents(&ids).await {
            // Done again at the next start, which changes nothing.
            tracing::warn!(%error, intents = ids.len(), "intents stay until the next start");
        }
        batch.clear();
    }
}

/// Bytes that are staged, and what they are. Dropped, they are removed: nothing points to them.
pub(super) struct Staged {
    pub(super) mark: Mark,
    pub(super) measured: Measured,
    pub(super) bytes: Staying,
}

impl Staged {
    /// What the index will say.
    pub(super) fn record(&self, etag: String, attributes: Attributes) -> ObjectRecord {
        record(self.bytes.id(), self.mark, etag, attributes)
    }
}

/// Staged bytes that are removed when this is dropped, unless they are kept: whoever waits for an upload may go away at
/// any moment.
pub(super) struct Staying {
    id: Ref,
    layout: Option<Arc<dyn Layout>>,
}

impl Staying {
    pub(super) fn new(id: Ref, layout: &Arc<dyn Layout>) -> Staying {
        Staying { id, layout: Some(layout.clone()) }
    }

    pub(super) fn id(&self) -> Ref {
        self.id
    }

    /// Something may point to them from now on. If it turns out that nothing does, they are removed by their ref.
    pub(super) fn keep(mut self) -> Ref {
        self.layout = None;
        self.id
    }
}

impl Drop for Staying {
    fn drop(&mut self) {
        let (id, layout) = (self.id, self.layout.take());
        if let (Some(layout), Ok(runtime)) = (layout, tokio::runtime::Handle::try_current()) {
            runtime.spawn(async move {
                // What cannot be removed now, the collector takes later.
                if let Err(error) = layout.discard(id).await {
                    tracing::debug!(%error, %id, "staged bytes are collected later");
                }
            });
        }
    }
}

impl Objects {
    /// Writes an object from a stream. `trailer` is asked for what was promised after the body.
    pub async fn put(
        self: &Arc<Self>,
        put: Put,
        promised: Promised,
        body: impl Stream<Item = Result<Bytes, ObjectError>> + Send + Unpin,
        trailer: impl FnOnce() -> Vec<(Algorithm, String)> + Send,
    ) -> Result<Written, ObjectError> {
        self.foresee(&put.key, put.presented.as_ref()).await?;
        let staged = self.stage(promised, body, trailer).await?;
        let mut attributes = put.attributes;
        keep_checksums(&mut attributes, &staged.measured);
        let object = staged.record(staged.measured.etag(), attributes);
        self.commit(Put { attributes: Vec::new(), ..put }, object, staged.bytes, None).await
    }

    /// The early look, before any byte of the body is taken: cheap, and never the one that counts.
    pub async fn foresee(&self, key: &Key, presented: Option<&Presented>) -> Result<(), ObjectError> {
        match self.store.foresee(key, presented).await?? {
            Ok(_) => self.need_bucket(bucket_of(key)).await,
            Err(refusal) => Err(ObjectError::Refused(vec![*refusal])),
        }
    }

    /// Takes a body into fresh staging, and sees to it that it is what was promised.
    pub(super) async fn stage(
        &self,
        mut promised: Promised,
        mut body: impl Stream<Item = Result<Bytes, ObjectError>> + Send + Unpin,
        trailer: impl FnOnce() -> Vec<(Algorithm, String)> + Send,
    ) -> Result<Staged, ObjectError> {
        let bytes = Staying::new(self.refs.next(&self.store).await?, &self.layout);
        let mut staging = self.layout.stage(bytes.id(), promised.length).await?;
        let algorithms = promised.checksums.iter().map(|(algorithm, _)| *algorithm).chain(promised.announced.clone());
        let mut measure = Measure::new(algorithms);
        // What is gathered counts against its sender's share of memory as long as it is held here.
        let (mut held, mut gathered) = (Vec::new(), 0);
        loop {
            let chunk = match tokio::time::timeout(PAUSE, body.next()).await {
                Ok(next) => next,
                // Others may need the memory before this one goes on; it may even wait for them.
                Err(_) => {
                    staging.rest().await?;
                    (held, gathered) = (Vec::new(), 0);
                    body.next().await
                }
            };
            let Some(chunk) = chunk.transpose()? else { break };
            measure.update(&chunk);
            gathered += chunk.len();
            held.push(chunk.clone());
            if gathered >= GATHERED {
                (held, gathered) = (Vec::new(), 0);
            }
            if measure.length() > promised.limit {
                return Err(ObjectError::TooLarge { limit: promised.limit });
            }
            staging.write(chunk).await?;
        }
        let measured = measure.finish();
        promised.checksums.extend(trailer());
        promised.complete()?;
        measured.keeps(&promised)?;
        Ok(Staged { mark: staging.seal().await?, measured, bytes })
    }

    /// Removes staged bytes that nothing will point to. What cannot be removed now, the collector takes later.
    pub(super) async fn give_up(&self, id: Ref) {
        if let Err(error) = self.layout.discard(id).await {
            tracing::debug!(%error, %id, "staged bytes are collected later");
        }
    }

    /// Commits what is staged, and shows it. Once begun it comes to its end, whether its caller waits or not.
    pub(super) async fn commit(
        self: &Arc<Self>,
        put: Put,
        object: ObjectRecord,
        bytes: Staying,
        completes: Option<Complete>,
    ) -> Result<Written, ObjectError> {
        let acting = self.act().await?;
        let objects = self.clone();
        let committing = tokio::spawn(async move {
            // Before the commit: if this task panics after it, the index points to them.
            let id = bytes.keep();
            let committed = objects.commit_and_publish(put, object, completes, acting).await;
            if committed.as_ref().is_err_and(ObjectError::is_surely_not_applied) {
                objects.give_up(id).await;
            }
            committed
        });
        committing.await.unwrap_or_else(|error| Err(ObjectError::Unknown(error.to_string())))
    }

    /// A place among the changes under way.
    pub(super) async fn act(&self) -> Result<OwnedSemaphorePermit, ObjectError> {
        self.acting.clone().acquire_owned().await.map_err(|error| ObjectError::Unknown(error.to_string()))
    }

    async fn commit_and_publish(
        &self,
        put: Put,
        object: ObjectRecord,
        completes: Option<Complete>,
        acting: OwnedSemaphorePermit,
    ) -> Result<Written, ObjectError> {
        let Put { key, presented, condition, grant, .. } = put;
        let _bucket = self.buckets.read().await;
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
        let put = PutObject { key: key.clone(), presented, condition, object: object.clone(), completes };
        let token = put.presented.as_ref().map(|presented| presented.token);
        let changed = done(self.store.put_object(put).await?)?;
        let act = Act::Publish { size: object.size, inode: object.inode };
        let intent = Intent { key: key.clone(), act };
        if let Err(error) = self.redo(Ref(object.id), &intent).await {
            let why = error.to_string();
            self.block(Ref(object.id), intent, why.clone(), Some(place));
            return Err(ObjectError::Unshown { key, why });
        }
        let settling = Settling { ids: vec![object.id], _places: vec![place], _lock: lock, _acting: acting };
        // The receiver outlives everything that acts.
        let _ = self.settling.send(settling).await;
        Ok(Written { object: ObjectRecord { token, ..object }, changed })
    }
}

/// What the index will say.
pub(super) fn record(id: Ref, mark: Mark, etag: String, attributes: Attributes) -> ObjectRecord {
    ObjectRecord {
        id: id.0,
        size: mark.size,
        inode: mark.inode,
        etag,
        modified: Timestamp::now(),
        token: None,
        attributes,
    }
}

/// Checksums that were verified are kept with the object.
pub(super) fn keep_checksums(attributes: &mut Attributes, measured: &Measured) {
    for algorithm in Algorithm::ALL {
        if let Some(value) = algorithm.of(&measured.checksums) {
            attributes.push((algorithm.header().to_owned(), value.to_owned()));
        }
    }
}
