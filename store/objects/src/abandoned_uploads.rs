//! Uploads in parts whose holder was fenced off. It may not even abort them, and nothing says that its successor will:
//! after a time they are ended, and their parts removed.

use std::sync::Weak;
use std::time::Duration;

use fencepost_core::{Key, Timestamp};
use fencepost_store::record::UploadId;
use fencepost_store::{Complete, Upload};

use crate::error::ObjectError;
use crate::layout::Ref;
use crate::service::Objects;

/// Uploads that are looked at in one step.
const PAGE: usize = 1000;

/// How often they are looked for, at the most.
const LOOK_EVERY: Duration = Duration::from_secs(3600);

/// Ends such uploads as long as the objects are open, once nothing was done with them for the retention.
pub async fn collect_abandoned_uploads(objects: Weak<Objects>, retention: Duration) {
    loop {
        tokio::time::sleep(retention.clamp(Duration::from_secs(1), LOOK_EVERY)).await;
        let Some(objects) = objects.upgrade() else { return };
        let retained = u64::try_from(retention.as_millis()).unwrap_or(u64::MAX);
        let before = Timestamp(Timestamp::now().0.saturating_sub(retained));
        match objects.abandoned_uploads(before, false).await {
            Ok(0) => {}
            Ok(uploads) => tracing::info!(uploads, "ended unfinished uploads of holders that were fenced off"),
            Err(error) => tracing::warn!(%error, "unfinished uploads of holders that were fenced off stay for now"),
        }
    }
}

impl Objects {
    /// Ends uploads of holders that were fenced off, if nothing was done with them since before. How many; in a dry run
    /// they are only counted.
    ///
    /// Nothing is judged: an upload changes no object, and completing an ended one fails as an upload that does not exist.
    pub async fn abandoned_uploads(&self, before: Timestamp, dry_run: bool) -> Result<usize, ObjectError> {
        let (mut ended, mut after): (usize, Option<(Key, UploadId)>) = (0, None);
        loop {
            let page = self.store.uploads("", after.as_ref().map(|(key, id)| (key, Some(*id))), PAGE).await?;
            after = page.entries.last().map(|upload| (upload.key.clone(), upload.id));
            for upload in page.entries.iter().filter(|upload| upload.record.started < before) {
                if self.is_fenced_off(upload).await? && self.end(upload, before, dry_run).await? {
                    ended += 1;
                }
            }
            if page.next.is_none() {
                return Ok(ended);
            }
        }
    }

    /// Is the token that began the upload older than the fence?
    async fn is_fenced_off(&self, upload: &Upload) -> Result<bool, ObjectError> {
        let Some(token) = upload.record.token else { return Ok(false) };
        let guarded = self.store.guards().of_key(&upload.key).map_err(|error| ObjectError::Name(error.to_string()))?;
        let fence = self.store.fence(&guarded.resource).await??;
        Ok(fence.generation > token.generation() || fence.token() > Some(token))
    }

    async fn end(&self, upload: &Upload, before: Timestamp, dry_run: bool) -> Result<bool, ObjectError> {
        // A successor may be completing it. Once that has ended, there is nothing left to end.
        let _alone = self.completing.write([&upload.id.0]).await;
        let parts = self.all_parts(upload.id).await?;
        if parts.iter().any(|(_, part)| part.modified >= before) {
            return Ok(false);
        }
        if dry_run {
            return Ok(self.store.upload(&upload.key, upload.id).await?.is_some());
        }
        let refs: Vec<Ref> = parts.iter().map(|(_, part)| Ref(part.id)).collect();
        if !self.store.end_upload(&upload.key, Complete { id: upload.id, parts }).await? {
            return Ok(false);
        }
        self.release(&refs).await;
        self.forget_parts_that_came_late(upload.id).await;
        Ok(true)
    }
}
