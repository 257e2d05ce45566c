//! The completion of an upload: its parts are joined and written as one object.

use std::sync::Arc;

use fencepost_core::{Key, Presented};
use fencepost_store::record::{ObjectRecord, PartRecord, UploadId};
use fencepost_store::{Changed, Complete, ObjectCondition};

use crate::checksum::Algorithm;
use crate::composition::{COMPLETED_BY, Composition};
use crate::digest::{Promised, etag_of_parts};
use crate::error::ObjectError;
use crate::layout::{LayoutError, Mark, Ref};
use crate::object::Attributes;
use crate::put::{Grant, Put, Written};
use crate::selection::{GivenPart, check_composite, select};
use crate::service::{Objects, to_its_end};
use crate::source::Source;
use crate::staged::{Staged, Unclaimed};
use crate::upload_checksum::UploadChecksum;

/// A request to complete an upload.
pub struct Completion {
    /// The object to write.
    pub key: Key,
    /// The token presented by the caller.
    pub presented: Option<Presented>,
    /// The write is applied only if this holds.
    pub condition: ObjectCondition,
    /// The upload to complete.
    pub upload: UploadId,
    /// The parts to join, as the client lists them.
    pub parts: Vec<GivenPart>,
    /// What the client promised about the whole object.
    pub promised: Promised,
    /// Composite checksums to verify: checksums of the parts' checksums.
    pub composite: Vec<(Algorithm, String)>,
    /// Checked again before the commit: whether the caller may still write.
    pub grant: Grant,
}

/// The parts of an upload, in order.
struct Parts {
    selected: Vec<PartRecord>,
    promised: Promised,
    composite: Vec<(Algorithm, String)>,
    /// The checksum of the whole, computed from those of the parts.
    checksum: Option<UploadChecksum>,
    /// The upload, with all parts that it has, listed by the client or not.
    completes: Complete,
}

impl Source for Parts {
    async fn stage(self, objects: &Objects) -> Result<Staged, ObjectError> {
        let (bytes, mark) = objects.join(&self.selected).await?;
        self.promised.fits(mark.size)?;
        let mut attributes = Attributes::new();
        // The parts were measured on arrival. The whole is read again only to verify a promised checksum.
        if !self.promised.checksums.is_empty() {
            let measured = objects.measure(bytes.id(), mark.size, self.promised.algorithms()).await?;
            measured.keeps(&self.promised)?;
            attributes.extend(measured.checksums.into_attributes());
        }
        let composite = self.composite.into_iter().map(|(algorithm, sum)| (algorithm, Some(sum)));
        let made = self.checksum.map(|checksum| (checksum.algorithm, checksum.of(&self.selected)));
        for (algorithm, sum) in composite.chain(made) {
            let is_kept = attributes.iter().any(|(name, _)| name == algorithm.header());
            if let (Some(sum), false) = (sum, is_kept) {
                attributes.push((algorithm.header().to_owned(), sum));
            }
        }
        Composition::keep(&mut attributes, self.selected.iter().map(|part| part.size));
        attributes.push((COMPLETED_BY.to_owned(), self.completes.id.to_string()));
        let etags: Vec<String> = self.selected.into_iter().map(|part| part.etag).collect();
        let etag = etag_of_parts(&etags);
        Ok(Staged { bytes, mark, etag, attributes, completes: Some(self.completes) })
    }
}

impl Objects {
    /// Joins the parts of an upload and writes the result as the object. This may take longer than a client waits, so
    /// it continues without its caller; a retry of the same completion waits for it.
    pub async fn complete(self: &Arc<Self>, completion: Completion) -> Result<Written, ObjectError> {
        match self.foresee(&completion.key, completion.presented.as_ref()).await {
            // A retry of a completion that was applied is answered so, even if a newer token was claimed since (T04).
            Err(refused @ ObjectError::Refused(_)) => {
                let token = completion.presented.map(|presented| presented.token);
                return match self.completed_before(&completion.key, completion.upload, &completion.parts).await {
                    Ok(before) if before.object.token == token => Ok(before),
                    _ => Err(refused),
                };
            }
            foreseen => foreseen?,
        }
        let lock = self.completing.write([&completion.upload.0]).await;
        let place = self.joining.clone().acquire_owned().await;
        let place = place.map_err(|error| ObjectError::Unknown(error.to_string()))?;
        let objects = self.clone();
        to_its_end(async move {
            let mut closing = objects.closing.subscribe();
            let written = tokio::select! {
                written = objects.put_parts(completion) => written,
                // A change that is already committed finishes in its own task.
                _ = closing.wait_for(|closing| *closing) => Err(ObjectError::Unknown("the gateway stops".to_owned())),
            };
            drop((lock, place));
            written
        })
        .await
    }

    async fn put_parts(self: &Arc<Self>, completion: Completion) -> Result<Written, ObjectError> {
        let Completion { key, presented, condition, upload, parts: given, promised, composite, grant } = completion;
        let begun = match self.begun_upload(&key, upload).await {
            Ok(begun) => begun,
            Err(ObjectError::NoUpload) => return self.completed_before(&key, upload, &given).await,
            Err(error) => return Err(error),
        };
        let parts = self.all_parts(upload).await?;
        let selected = select(&parts, &given)?;
        check_composite(&selected, &composite)?;
        let refs: Vec<Ref> = parts.iter().map(|(_, part)| Ref(part.id)).collect();
        let mut attributes = begun.record.attributes;
        let checksum = UploadChecksum::take(&mut attributes);
        let put = Put { key, presented, condition, attributes, grant };
        let completes = Complete { id: upload, parts };
        let written = self.put(put, Parts { selected, promised, composite, checksum, completes }).await?;
        self.release(&refs).await;
        self.forget_parts_that_came_late(upload).await;
        Ok(written)
    }

    /// Answers the retry of a completion whose answer was lost, if it lists the same parts.
    async fn completed_before(&self, key: &Key, upload: UploadId, given: &[GivenPart]) -> Result<Written, ObjectError> {
        let by = (COMPLETED_BY.to_owned(), upload.to_string());
        let etags: Option<Vec<String>> = given.iter().map(|part| part.etag.clone()).collect();
        let is_same = |object: &ObjectRecord| etags.is_none_or(|etags| etag_of_parts(&etags) == object.etag);
        match self.store.object(key).await? {
            Some(object) if object.attributes.contains(&by) && is_same(&object) => {
                Ok(Written { object: object.into(), changed: Changed::default() })
            }
            _ => Err(ObjectError::NoUpload),
        }
    }

    /// Stages the concatenation of the parts. There may be thousands, so only one is open at a time.
    async fn join(&self, parts: &[PartRecord]) -> Result<(Unclaimed, Mark), ObjectError> {
        // No length is announced, because the storage may share the bytes instead of copying them.
        let (bytes, mut staging) = self.fresh_staging(None).await?;
        for part in parts {
            let opened = match self.layout.open_staged(Ref(part.id)).await {
                Err(LayoutError::Missing(_)) => return Err(ObjectError::part_changed()),
                opened => opened?,
            };
            staging.append(opened.as_ref(), 0, part.size).await?;
        }
        Ok((bytes, staging.seal().await?))
    }
}
