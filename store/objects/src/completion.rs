//! The completion of an upload: its parts are put together, and written as one object.

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

/// A completion.
pub struct Completion {
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

/// The parts of an upload, one after the other.
struct Parts {
    selected: Vec<PartRecord>,
    promised: Promised,
    composite: Vec<(Algorithm, String)>,
    /// Which checksum the whole will have, made from those of the parts.
    checksum: Option<UploadChecksum>,
    /// The upload, with every part that it has.
    completes: Complete,
}

impl Source for Parts {
    async fn stage(self, objects: &Objects) -> Result<Staged, ObjectError> {
        let (bytes, mark) = objects.join(&self.selected).await?;
        self.promised.fits(mark.size)?;
        let mut attributes = Attributes::new();
        // The parts were measured when they came; the whole is read again only if something was promised of it.
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
    /// Puts the parts of an upload together, as a write of the object. That may take longer than a client waits, so it
    /// goes on without its caller, and a retry of the same waits for it.
    pub async fn complete(self: &Arc<Self>, completion: Completion) -> Result<Written, ObjectError> {
        match self.foresee(&completion.key, completion.presented.as_ref()).await {
            // A retry of a completion that was applied learns so, whatever token has come since (T04).
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
                // What is committed by now comes to its end without us.
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

    /// A retry of a completion whose answer was lost, with the same parts.
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

    /// New bytes that are those of parts, one after the other. One at a time is open: there may be thousands.
    async fn join(&self, parts: &[PartRecord]) -> Result<(Unclaimed, Mark), ObjectError> {
        // No length is announced: the storage may be able to share the bytes instead of copying them.
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
