//! Uploads in parts, and copies. Both put new bytes together from bytes at rest, before the commit.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use fencepost_core::{Key, Presented, Timestamp};
use fencepost_store::record::{Attributes, ObjectRecord, PartRecord, UploadId, UploadRecord};
use fencepost_store::{Changed, Complete, ObjectCondition, ObjectOutcome, Page, Upload};
use futures_util::Stream;

use super::choosing::{GivenPart, check_composite, choose};
use super::composition::{COMPLETED_BY, Composition};
use super::digest::{Algorithm, Measure, Measured, Promised, etag_of_parts};
use super::error::{ObjectError, done};
use super::layout::{LayoutError, Mark, Ref};
use super::reading::Reading;
use super::upload_checksums::UploadChecksum;
use super::writing::{Grant, Put, Staged, Staying, Written, keep_checksums, record};
use super::{MAX_PARTS, Objects};

/// How often a part is replaced by others while it is being added, before it is given up.
const MAX_REPLACED: usize = 8;

/// Bytes that are read at a time to measure what was put together.
const CHUNK: u64 = 1 << 20;

/// Where a part goes.
pub struct PutPart {
    /// Of which object.
    pub key: Key,
    /// By which token.
    pub presented: Option<Presented>,
    /// Of which upload.
    pub upload: UploadId,
    /// Counted from 1.
    pub number: u16,
    /// Whether its writer may still write.
    pub grant: Grant,
}

/// Bytes to copy.
pub struct Source {
    /// From where.
    pub reading: Reading,
    /// Which of them.
    pub range: Range<u64>,
}

/// A completion.
pub struct Completed {
    /// Of which object.
    pub key: Key,
    /// By which token.
    pub presented: Option<Presented>,
    /// Only if this holds.
    pub condition: ObjectCondition,
    /// Of which upload.
    pub upload: UploadId,
    /// Which of its parts.
    pub parts: Vec<GivenPart>,
    /// What the whole should be.
    pub promised: Promised,
    /// Checksums of the parts' checksums.
    pub composite: Vec<(Algorithm, String)>,
    /// Whether its writer may still write.
    pub grant: Grant,
}

impl Objects {
    /// Begins an upload.
    pub async fn begin_upload(
        &self,
        key: &Key,
        presented: Option<&Presented>,
        attributes: Attributes,
    ) -> Result<(UploadId, Changed), ObjectError> {
        self.foresee(key, presented).await?;
        let mut id = [0; 16];
        getrandom::fill(&mut id).map_err(|error| ObjectError::Unknown(error.to_string()))?;
        let record = UploadRecord { started: Timestamp::now(), token: None, attributes };
        let _bucket = self.buckets.read().await;
        let changed = done(self.store.begin_upload(key, presented, UploadId(id), record).await?)?;
        Ok((UploadId(id), changed))
    }

    /// Takes a part from a stream.
    pub async fn put_part(
        self: &Arc<Self>,
        part: PutPart,
        promised: Promised,
        body: impl Stream<Item = Result<Bytes, ObjectError>> + Send + Unpin,
        trailer: impl FnOnce() -> Vec<(Algorithm, String)> + Send,
    ) -> Result<(PartRecord, Changed), ObjectError> {
        self.foresee(&part.key, part.presented.as_ref()).await?;
        self.need_upload(&part.key, part.upload).await?;
        let staged = self.stage(promised, body, trailer).await?;
        self.add_part(part, staged).await
    }

    /// Takes a part from an object.
    pub async fn copy_part(
        self: &Arc<Self>,
        part: PutPart,
        source: Source,
    ) -> Result<(PartRecord, Changed), ObjectError> {
        self.foresee(&part.key, part.presented.as_ref()).await?;
        let mut begun = self.need_upload(&part.key, part.upload).await?.record.attributes;
        // The checksum of the whole is made from those of the parts, so this one gets one, too.
        let algorithm = UploadChecksum::take(&mut begun).map(|checksum| checksum.algorithm);
        let staged = self.copied(source, algorithm.as_slice()).await?;
        self.add_part(part, staged).await
    }

    async fn add_part(self: &Arc<Self>, part: PutPart, staged: Staged) -> Result<(PartRecord, Changed), ObjectError> {
        let PutPart { key, presented, upload, number, grant } = part;
        grant.check()?;
        let mut attributes = Vec::new();
        keep_checksums(&mut attributes, &staged.measured);
        let record = PartRecord {
            id: staged.bytes.id().0,
            size: staged.mark.size,
            etag: staged.measured.etag(),
            modified: Timestamp::now(),
            attributes,
        };
        // Once it is sent, it comes to its end, whether its caller waits or not.
        let (objects, part) = (self.clone(), record.clone());
        let adding = tokio::spawn(async move {
            // Before the commit: if this task panics after it, the part points to them.
            let id = staged.bytes.keep();
            let added = objects.commit_part(&key, presented.as_ref(), upload, number, &part).await;
            if added.as_ref().is_err_and(ObjectError::is_surely_not_applied) {
                objects.give_up(id).await;
            }
            added
        });
        let changed = adding.await.unwrap_or_else(|error| Err(ObjectError::Unknown(error.to_string())))?;
        Ok((record, changed))
    }

    /// Commits a part whose bytes are staged. A client that lost patience sends the same part twice at once; the later one
    /// takes its place.
    async fn commit_part(
        &self,
        key: &Key,
        presented: Option<&Presented>,
        upload: UploadId,
        number: u16,
        part: &PartRecord,
    ) -> Result<Changed, ObjectError> {
        let mut tries = 0;
        loop {
            tries += 1;
            let replaced = self.store.part(upload, number).await?;
            let before = replaced.as_ref().map(|part| Ref(part.id));
            let added = self.store.put_part(key, presented, upload, number, part.clone(), replaced).await?;
            if !matches!(added, Ok(ObjectOutcome::PartChanged)) || tries == MAX_REPLACED {
                let changed = done(added)?;
                self.release(before.as_slice()).await;
                return Ok(changed);
            }
        }
    }

    /// Copies an object, as a write of the destination. It gets a checksum by the algorithm asked for, or by those of its
    /// source.
    pub async fn copy(
        self: &Arc<Self>,
        put: Put,
        source: Source,
        asked: Option<Algorithm>,
    ) -> Result<Written, ObjectError> {
        self.foresee(&put.key, put.presented.as_ref()).await?;
        let has =
            |algorithm: &Algorithm| source.reading.object.attributes.iter().any(|(name, _)| name == algorithm.header());
        let algorithms = match asked {
            Some(algorithm) => vec![algorithm],
            None => Algorithm::ALL.into_iter().filter(has).collect(),
        };
        let staged = self.copied(source, &algorithms).await?;
        let mut attributes = put.attributes.clone();
        keep_checksums(&mut attributes, &staged.measured);
        let object = staged.record(staged.measured.etag(), attributes);
        self.commit(put, object, staged.bytes, None).await
    }

    /// An upload that is under way.
    pub async fn need_upload(&self, key: &Key, id: UploadId) -> Result<Upload, ObjectError> {
        self.store.upload(key, id).await?.ok_or(ObjectError::NoUpload)
    }

    /// Uploads that are under way.
    pub async fn uploads(
        &self,
        prefix: &str,
        after: Option<(&Key, Option<UploadId>)>,
        limit: usize,
    ) -> Result<Page<Upload>, ObjectError> {
        Ok(self.store.uploads(prefix, after, limit).await?)
    }

    /// Parts of an upload.
    pub async fn parts(
        &self,
        id: UploadId,
        after: Option<u16>,
        limit: usize,
    ) -> Result<Page<(u16, PartRecord)>, ObjectError> {
        Ok(self.store.parts(id, after, limit).await?)
    }

    /// Ends an upload without an object.
    pub async fn abort(&self, key: &Key, presented: Option<&Presented>, id: UploadId) -> Result<Changed, ObjectError> {
        self.foresee(key, presented).await?;
        self.need_upload(key, id).await?;
        let parts = self.all_parts(id).await?;
        let refs: Vec<Ref> = parts.iter().map(|(_, part)| Ref(part.id)).collect();
        let changed = done(self.store.abort_upload(key, presented, Complete { id, parts }).await?)?;
        self.release(&refs).await;
        self.forget_parts_that_came_late(id).await;
        Ok(changed)
    }

    /// Puts the parts of an upload together, as a write of the object. That may take longer than a client waits, so it
    /// goes on without its caller, and whoever asks for the same again waits for it.
    pub async fn complete(self: &Arc<Self>, completed: Completed) -> Result<Written, ObjectError> {
        match self.foresee(&completed.key, completed.presented.as_ref()).await {
            // A retry of a completion that was applied is told so, whoever has come since (T04).
            Err(refused @ ObjectError::Refused(_)) => {
                let token = completed.presented.map(|presented| presented.token);
                return match self.completed_before(&completed.key, completed.upload, &completed.parts).await {
                    Ok(before) if before.object.token == token => Ok(before),
                    _ => Err(refused),
                };
            }
            foreseen => foreseen?,
        }
        let lock = self.completing.write([&completed.upload.0]).await;
        let place = self.joining.clone().acquire_owned().await;
        let place = place.map_err(|error| ObjectError::Unknown(error.to_string()))?;
        let objects = self.clone();
        let completing = tokio::spawn(async move {
            let mut closing = objects.closing.subscribe();
            let written = tokio::select! {
                written = objects.join_and_commit(completed) => written,
                // What is committed by now comes to its end without us.
                _ = closing.wait_for(|closing| *closing) => Err(ObjectError::Unknown("the gateway stops".to_owned())),
            };
            drop((lock, place));
            written
        });
        completing.await.unwrap_or_else(|error| Err(ObjectError::Unknown(error.to_string())))
    }

    async fn join_and_commit(self: &Arc<Self>, completed: Completed) -> Result<Written, ObjectError> {
        let Completed { key, presented, condition, upload, parts: given, promised, composite, grant } = completed;
        let begun = match self.need_upload(&key, upload).await {
            Ok(begun) => begun,
            Err(ObjectError::NoUpload) => return self.completed_before(&key, upload, &given).await,
            Err(error) => return Err(error),
        };
        let parts = self.all_parts(upload).await?;
        let chosen = choose(&parts, &given)?;
        check_composite(&chosen, &composite)?;
        let (bytes, mark) = self.join(&chosen).await?;
        promised.fits(mark.size)?;
        let mut attributes = begun.record.attributes;
        let checksum = UploadChecksum::take(&mut attributes);
        // The parts were measured when they came; the whole is read again only if something was promised of it.
        if !promised.checksums.is_empty() {
            let wanted = promised.checksums.iter().map(|(algorithm, _)| *algorithm);
            let measured = self.measure(bytes.id(), mark.size, wanted).await?;
            measured.keeps(&promised)?;
            keep_checksums(&mut attributes, &measured);
        }
        let composite = composite.into_iter().map(|(algorithm, sum)| (algorithm, Some(sum)));
        let made = checksum.map(|checksum| (checksum.algorithm, checksum.of(&chosen)));
        for (algorithm, sum) in composite.chain(made) {
            let is_kept = attributes.iter().any(|(name, _)| name == algorithm.header());
            if let (Some(sum), false) = (sum, is_kept) {
                attributes.push((algorithm.header().to_owned(), sum));
            }
        }
        Composition::keep(&mut attributes, chosen.iter().map(|part| part.size));
        attributes.push((COMPLETED_BY.to_owned(), upload.to_string()));
        let etags: Vec<String> = chosen.iter().map(|part| part.etag.clone()).collect();
        let object = record(bytes.id(), mark, etag_of_parts(&etags), attributes);
        let refs: Vec<Ref> = parts.iter().map(|(_, part)| Ref(part.id)).collect();
        let put = Put { key, presented, condition, attributes: Vec::new(), grant };
        let written = self.commit(put, object, bytes, Some(Complete { id: upload, parts })).await?;
        self.release(&refs).await;
        self.forget_parts_that_came_late(upload).await;
        Ok(written)
    }

    /// A retry of a completion whose answer was lost, with the same parts.
    async fn completed_before(&self, key: &Key, upload: UploadId, given: &[GivenPart]) -> Result<Written, ObjectError> {
        let by = (COMPLETED_BY.to_owned(), upload.to_string());
        let etags: Option<Vec<String>> = given.iter().map(|part| part.etag.clone()).collect();
        let is_same = |object: &ObjectRecord| etags.is_none_or(|etags| etag_of_parts(&etags) == object.etag);
        match self.store.object(key).await? {
            Some(object) if object.attributes.contains(&by) && is_same(&object) => {
                Ok(Written { object, changed: Changed::default() })
            }
            _ => Err(ObjectError::NoUpload),
        }
    }

    pub(super) async fn all_parts(&self, id: UploadId) -> Result<Vec<(u16, PartRecord)>, ObjectError> {
        let (mut parts, mut after) = (Vec::new(), None);
        loop {
            let page = self.store.parts(id, after, MAX_PARTS).await?;
            after = page.entries.last().map(|(number, _)| *number);
            parts.extend(page.entries);
            if page.next.is_none() {
                return Ok(parts);
            }
        }
    }

    /// Bytes that went back to the collector by a commit of our own are removed at once; what fails here, it does later.
    pub(super) async fn release(&self, refs: &[Ref]) {
        for id in refs {
            self.give_up(*id).await;
        }
        let ids: Vec<u64> = refs.iter().map(|id| id.0).collect();
        if let Err(error) = self.store.forget_refs(&ids).await {
            tracing::debug!(%error, "refs are collected later");
        }
    }

    /// Parts that were added after the list of them was read and before their upload was over. Now no more can come. What
    /// fails here, the next start does.
    pub(super) async fn forget_parts_that_came_late(&self, upload: UploadId) {
        let late = match self.all_parts(upload).await {
            Ok(late) if late.is_empty() => return,
            Ok(late) => late,
            Err(error) => return tracing::debug!(%error, "parts that came late are forgotten later"),
        };
        let refs: Vec<Ref> = late.iter().map(|(_, part)| Ref(part.id)).collect();
        match self.store.forget_parts(upload, late).await {
            Ok(()) => self.release(&refs).await,
            Err(error) => tracing::debug!(%error, "parts that came late are forgotten later"),
        }
    }

    /// New bytes that are those of an object.
    async fn copied(&self, source: Source, algorithms: &[Algorithm]) -> Result<Staged, ObjectError> {
        let bytes = Staying::new(self.refs.next(&self.store).await?, &self.layout);
        // Nothing is announced: the storage may be able to share the bytes instead of copying them.
        let mut staging = self.layout.stage(bytes.id(), None).await?;
        let Range { start, end } = source.range;
        if start < end {
            staging.append(source.reading.opened(), start, end - start).await?;
        }
        let mark = staging.seal().await?;
        let measured = self.measure(bytes.id(), mark.size, algorithms.iter().copied()).await?;
        Ok(Staged { mark, measured, bytes })
    }

    /// New bytes that are those of parts, one after the other. One at a time is open: there may be thousands.
    async fn join(&self, parts: &[PartRecord]) -> Result<(Staying, Mark), ObjectError> {
        let bytes = Staying::new(self.refs.next(&self.store).await?, &self.layout);
        // Nothing is announced: the storage may be able to share the bytes instead of copying them.
        let mut staging = self.layout.stage(bytes.id(), None).await?;
        for part in parts {
            let opened = match self.layout.open_staged(Ref(part.id)).await {
                Err(LayoutError::Missing(_)) => return Err(ObjectError::part_changed()),
                opened => opened?,
            };
            staging.append(opened.as_ref(), 0, part.size).await?;
        }
        let mark = staging.seal().await?;
        Ok((bytes, mark))
    }

    /// Reads what was put together, once: what is published is what was measured.
    async fn measure(
        &self,
        id: Ref,
        size: u64,
        algorithms: impl IntoIterator<Item = Algorithm>,
    ) -> Result<Measured, ObjectError> {
        let opened = self.layout.open_staged(id).await?;
        let mut measure = Measure::new(algorithms.into_iter());
        while measure.length() < size {
            let bytes = opened.read(measure.length(), CHUNK.min(size - measure.length()) as usize).await?;
            if bytes.is_empty() {
                return Err(ObjectError::Incomplete { expected: size, found: measure.length() });
            }
            measure.update(&bytes);
        }
        Ok(measure.finish())
    }
}
