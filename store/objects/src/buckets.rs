//! Creation and removal of buckets. Both are judged by the fence of the bucket's name, and both run to completion
//! even if the caller stops waiting.

use std::sync::Arc;

use fencepost_core::{Key, Presented};
use fencepost_store::Changed;

use crate::error::{ObjectError, done};
use crate::layout::BucketFound;
use crate::service::{Objects, to_its_end};

impl Objects {
    /// All buckets, in order of name.
    pub async fn buckets(&self) -> Result<Vec<BucketFound>, ObjectError> {
        Ok(self.layout.buckets().await?)
    }

    /// Creates a bucket, if the fence of its name admits it. `None`: it existed already.
    pub async fn create_bucket(
        self: &Arc<Self>,
        bucket: Key,
        presented: Option<Presented>,
    ) -> Result<Option<Changed>, ObjectError> {
        // The fences of its objects would be elsewhere, so they could not change in one commit.
        if let Some((number, _)) = self.guards().named_engine_under(bucket.as_str()) {
            let why = format!("`{bucket}` cannot be a bucket: guard {number} keeps names in it on a named engine");
            return Err(ObjectError::Name(why));
        }
        let objects = self.clone();
        to_its_end(async move {
            let _alone = objects.buckets.write().await;
            if objects.layout.has_bucket(bucket.as_str()).await? {
                return Ok(None);
            }
            let changed = done(objects.store.judge_object(&bucket, presented.as_ref()).await?)?;
            let made = objects.layout.create_bucket(bucket.as_str()).await?;
            Ok(made.then_some(changed))
        })
        .await
    }

    /// Removes an empty bucket, if the fence of its name admits it.
    pub async fn delete_bucket(
        self: &Arc<Self>,
        bucket: Key,
        presented: Option<Presented>,
    ) -> Result<Changed, ObjectError> {
        let objects = self.clone();
        to_its_end(async move {
            // Adopt the bucket, if necessary, before the lock below stops all writers.
            objects.need_bucket(bucket.as_str()).await?;
            let _alone = objects.buckets.write().await;
            let changed = done(objects.store.judge_object(&bucket, presented.as_ref()).await?)?;
            let prefix = format!("{bucket}/");
            // Folder markers count as content too, although they have no files.
            let there = objects.store.list_objects(&prefix, None, None, 1).await?;
            let uploads = objects.store.uploads(&prefix, None, 1).await?;
            if !there.entries.is_empty()
                || !uploads.entries.is_empty()
                || !objects.layout.delete_bucket(bucket.as_str()).await?
            {
                return Err(ObjectError::NotEmpty);
            }
            // If a directory of that name is created later, its files are adopted again.
            objects.store.set_adopted(bucket.as_str(), false).await?;
            objects.adopted.write().await.remove(bucket.as_str());
            Ok(changed)
        })
        .await
    }
}
