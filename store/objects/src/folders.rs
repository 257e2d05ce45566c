//! Folder markers: empty objects whose names end in `/`. Some clients write one for each folder and remove it again.
//!
//! A marker has no bytes, so it exists only in the index. No directory is created or kept for it, and a file and a
//! marker never clash. Writing or removing a marker is a single commit.

use std::sync::Arc;

use bytes::Bytes;
use fencepost_core::{Key, Timestamp};
use fencepost_store::record::ObjectRecord;
use futures_util::{Stream, StreamExt};

use crate::digest::{Measure, Measured};
use crate::error::{ObjectError, done};
use crate::layout::LayoutError;
use crate::name::bucket_of;
use crate::object::Object;
use crate::open_object::OpenObject;
use crate::put::{Put, Written};
use crate::service::{Objects, to_its_end};
use crate::source::Body;

impl Objects {
    /// Reads the index entry of a folder marker.
    pub async fn folder(&self, folder: &Key) -> Result<Object, ObjectError> {
        self.need_bucket(bucket_of(folder)).await?;
        let marker = self.store.folder(folder).await?;
        marker.map(Object::from).ok_or_else(|| ObjectError::NoObject(format!("{folder}/")))
    }

    /// Opens a folder marker, which has no bytes.
    pub async fn read_folder(&self, folder: &Key) -> Result<OpenObject, ObjectError> {
        Ok(OpenObject::of_nothing(self.folder(folder).await?))
    }

    /// Writes a folder marker. A body that is not empty is refused.
    pub async fn put_folder(
        self: &Arc<Self>,
        put: Put,
        body: Body<impl Stream<Item = Result<Bytes, ObjectError>> + Send + Unpin>,
    ) -> Result<Written, ObjectError> {
        self.foresee(&put.key, put.presented.as_ref()).await?;
        let measured = nothing(&put.key, body).await?;
        let Put { key, presented, condition, mut attributes, grant } = put;
        let etag = measured.etag();
        attributes.extend(measured.checksums.into_attributes());
        let token = presented.as_ref().map(|presented| presented.token);
        let marker = ObjectRecord { id: 0, size: 0, inode: 0, etag, modified: Timestamp::now(), token, attributes };
        let objects = self.clone();
        to_its_end(async move {
            // Held so that the bucket exists until the marker is in it.
            let _bucket = objects.buckets.read().await;
            let bucket = bucket_of(&key);
            if !objects.layout.has_bucket(bucket).await? {
                return Err(LayoutError::NoBucket(bucket.to_owned()).into());
            }
            grant.check()?;
            let written = objects.store.put_folder(&key, presented.as_ref(), condition, marker.clone()).await?;
            Ok(Written { object: marker.into(), changed: done(written)? })
        })
        .await
    }
}

/// Reads a body, which must be empty.
async fn nothing(
    folder: &Key,
    body: Body<impl Stream<Item = Result<Bytes, ObjectError>> + Send + Unpin>,
) -> Result<Measured, ObjectError> {
    let Body { mut promised, mut bytes, trailer } = body;
    let has_bytes = || {
        let advice = "it is the marker of a folder and has no bytes; leave the `/` out to write an object";
        ObjectError::Name(format!("`{folder}/` ends in `/`, so {advice}"))
    };
    if promised.length.is_some_and(|length| length > 0) {
        return Err(has_bytes());
    }
    while let Some(chunk) = bytes.next().await {
        if !chunk?.is_empty() {
            return Err(has_bytes());
        }
    }
    let measured = Measure::new(promised.algorithms()).finish();
    promised.checksums.extend(trailer());
    promised.complete()?;
    measured.keeps(&promised)?;
    Ok(measured)
}
