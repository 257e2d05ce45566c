//! Multipart uploads, until they are completed or aborted.

use std::ops::Range;
use std::sync::Arc;

use fencepost_core::{Key, Presented, Timestamp};
use fencepost_store::record::{PartRecord, UploadId, UploadRecord};
use fencepost_store::{Changed, Complete, ObjectOutcome, Page};

use crate::error::{ObjectError, done};
use crate::layout::Ref;
use crate::object::{Attributes, Part, Upload};
use crate::open_object::OpenObject;
use crate::put::Grant;
use crate::service::{Objects, to_its_end};
use crate::source::{ObjectCopy, Source};
use crate::staged::{Staged, discard};
use crate::upload_checksum::UploadChecksum;

/// S3 allows at most this many parts in an upload.
pub(crate) const MAX_PARTS: usize = 10_000;

/// Attempts to add a part that other requests keep replacing.
const MAX_REPLACED: usize = 8;

/// A request to add a part.
pub struct PutPart {
    /// The object of the upload.
    pub key: Key,
    /// The token presented by the caller.
    pub presented: Option<Presented>,
    /// The upload that gets the part.
    pub upload: UploadId,
    /// The part's number, starting at 1.
    pub number: u16,
    /// Checked again before the commit: whether the caller may still write.
    pub grant: Grant,
}

impl Objects {
    /// Begins an upload under a new random id.
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

    /// Adds a part from a body.
    pub async fn put_part(
        self: &Arc<Self>,
        part: PutPart,
        source: impl Source,
    ) -> Result<(Part, Changed), ObjectError> {
        self.foresee(&part.key, part.presented.as_ref()).await?;
        self.need_upload(&part.key, part.upload).await?;
        let staged = source.stage(self).await?;
        self.add_part(part, staged).await
    }

    /// Adds a part copied from an object.
    pub async fn copy_part(
        self: &Arc<Self>,
        part: PutPart,
        from: OpenObject,
        range: Range<u64>,
    ) -> Result<(Part, Changed), ObjectError> {
        self.foresee(&part.key, part.presented.as_ref()).await?;
        let mut begun = self.begun_upload(&part.key, part.upload).await?.record.attributes;
        // The checksum of the whole is computed from those of the parts, so this part needs one too.
        let algorithm = UploadChecksum::take(&mut begun).map(|checksum| checksum.algorithm);
        let staged = ObjectCopy::part(from, range, algorithm).stage(self).await?;
        self.add_part(part, staged).await
    }

    async fn add_part(self: &Arc<Self>, part: PutPart, staged: Staged) -> Result<(Part, Changed), ObjectError> {
        let PutPart { key, presented, upload, number, grant } = part;
        grant.check()?;
        let objects = self.clone();
        // Once staged, the part is added even if the caller stops waiting.
        to_its_end(async move {
            let part = staged.part();
            // Keep the bytes before the commit: if this task panics after it, the part refers to them.
            let id = staged.bytes.keep();
            let added = objects.commit_part(&key, presented.as_ref(), upload, number, &part).await;
            if added.as_ref().is_err_and(ObjectError::is_surely_not_applied) {
                discard(objects.layout.as_ref(), id).await;
            }
            Ok((Part::new(number, part), added?))
        })
        .await
    }

    /// Commits a part whose bytes are staged. A client that retries early sends the same part twice at once; the
    /// later one replaces the earlier.
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
            if added != ObjectOutcome::PartChanged || tries == MAX_REPLACED {
                let changed = done(added)?;
                self.release(before.as_slice()).await;
                return Ok(changed);
            }
        }
    }

    /// Checks that the upload is under way.
    pub async fn need_upload(&self, key: &Key, id: UploadId) -> Result<(), ObjectError> {
        self.begun_upload(key, id).await.map(|_| ())
    }

    /// Returns an upload that is under way.
    pub(crate) async fn begun_upload(&self, key: &Key, id: UploadId) -> Result<fencepost_store::Upload, ObjectError> {
        self.store.upload(key, id).await?.ok_or(ObjectError::NoUpload)
    }

    /// Lists uploads that are under way.
    pub async fn uploads(
        &self,
        prefix: &str,
        after: Option<(&Key, Option<UploadId>)>,
        limit: usize,
    ) -> Result<Page<Upload>, ObjectError> {
        let Page { entries, next } = self.store.uploads(prefix, after, limit).await?;
        Ok(Page { entries: entries.into_iter().map(Upload::from).collect(), next })
    }

    /// Lists the parts of an upload.
    pub async fn parts(&self, id: UploadId, after: Option<u16>, limit: usize) -> Result<Page<Part>, ObjectError> {
        let Page { entries, next } = self.store.parts(id, after, limit).await?;
        Ok(Page { entries: entries.into_iter().map(|(number, part)| Part::new(number, part)).collect(), next })
    }

    /// Ends an upload without writing an object.
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

    pub(crate) async fn all_parts(&self, id: UploadId) -> Result<Vec<(u16, PartRecord)>, ObjectError> {
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

    /// Removes bytes that our own commit has released. If that fails, the collector removes them later.
    pub(crate) async fn release(&self, refs: &[Ref]) {
        for id in refs {
            discard(self.layout.as_ref(), *id).await;
        }
        let ids: Vec<u64> = refs.iter().map(|id| id.0).collect();
        if let Err(error) = self.store.forget_refs(&ids).await {
            tracing::debug!(%error, "refs are collected later");
        }
    }

    /// Removes parts that were added between reading the list of parts and the end of their upload. No more can be
    /// added now. If this fails, the next start removes them.
    pub(crate) async fn forget_parts_that_came_late(&self, upload: UploadId) {
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
}
