//! Multipart uploads whose holder was fenced off. The fence refuses even an abort by that holder, and its successor
//! need not abort them, so they are ended after a retention time and their parts are removed.

use std::sync::Weak;
use std::time::Duration;

use fencepost_core::{Key, Timestamp};
use fencepost_store::record::UploadId;
use fencepost_store::{Complete, Upload};

use crate::error::ObjectError;
use crate::layout::Ref;
use crate::service::Objects;

/// Uploads examined in one step.
const PAGE: usize = 1000;

/// The longest interval between two searches for abandoned uploads.
const LOOK_EVERY: Duration = Duration::from_secs(3600);

/// Ends uploads of fenced-off holders that were idle for the retention time. Runs as long as the objects are open.
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
    /// Ends the uploads of fenced-off holders that have been idle since `before`, and returns their number. A dry run
    /// only counts them.
    ///
    /// No judgement is needed: an upload changes no object, and completing an ended upload fails with "no such
    /// upload".
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

    /// Returns whether the token that began the upload is older than the fence.
    async fn is_fenced_off(&self, upload: &Upload) -> Result<bool, ObjectError> {
        let Some(token) = upload.record.token else { return Ok(false) };
        let guarded = self.store.guards().of_key(&upload.key).map_err(|error| ObjectError::Name(error.to_string()))?;
        let fence = self.store.fence(&guarded.resource).await?;
        Ok(fence.generation > token.generation() || fence.token() > Some(token))
    }

    async fn end(&self, upload: &Upload, before: Timestamp, dry_run: bool) -> Result<bool, ObjectError> {
        // A successor may be completing it. Once that completion has finished, there is nothing left to end.
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
