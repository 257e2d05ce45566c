//! Bytes that are durable, but that no record refers to yet.

use std::sync::Arc;

use fencepost_core::Timestamp;
use fencepost_store::Complete;
use fencepost_store::record::{ObjectRecord, PartRecord};

use crate::digest::Measured;
use crate::layout::{Layout, Mark, Ref};
use crate::object::Attributes;

/// Bytes staged by a [`crate::Source`], and their properties. If it is dropped, the bytes are removed.
pub struct Staged {
    pub(crate) bytes: Unclaimed,
    pub(crate) mark: Mark,
    pub(crate) etag: String,
    /// Properties found while staging: the checksums, and how the bytes were composed.
    pub(crate) attributes: Attributes,
    /// The upload that a write of these bytes completes.
    pub(crate) completes: Option<Complete>,
}

impl Staged {
    /// Creates it from measured bytes, with the computed checksums.
    pub(crate) fn measured(bytes: Unclaimed, mark: Mark, measured: Measured) -> Staged {
        let etag = measured.etag();
        Staged { bytes, mark, etag, attributes: measured.checksums.into_attributes().collect(), completes: None }
    }

    /// The index entry of an object with these bytes.
    pub(crate) fn object(&self, mut described: Attributes) -> ObjectRecord {
        described.extend(self.attributes.iter().cloned());
        ObjectRecord {
            id: self.bytes.id().0,
            size: self.mark.size,
            inode: self.mark.inode,
            etag: self.etag.clone(),
            modified: Timestamp::now(),
            token: None,
            attributes: described,
        }
    }

    /// The index entry of a part with these bytes.
    pub(crate) fn part(&self) -> PartRecord {
        PartRecord {
            id: self.bytes.id().0,
            size: self.mark.size,
            etag: self.etag.clone(),
            modified: Timestamp::now(),
            attributes: self.attributes.clone(),
        }
    }
}

/// Staged bytes that are removed on drop unless they are kept, because a client may give up its upload at any moment.
pub(crate) struct Unclaimed {
    id: Ref,
    layout: Option<Arc<dyn Layout>>,
}

impl Unclaimed {
    pub(crate) fn new(id: Ref, layout: &Arc<dyn Layout>) -> Unclaimed {
        Unclaimed { id, layout: Some(layout.clone()) }
    }

    pub(crate) fn id(&self) -> Ref {
        self.id
    }

    /// Keeps the bytes, because a record may refer to them from now on. If none does in the end, they are removed by
    /// their ref.
    pub(crate) fn keep(mut self) -> Ref {
        self.layout = None;
        self.id
    }
}

impl Drop for Unclaimed {
    fn drop(&mut self) {
        let (id, layout) = (self.id, self.layout.take());
        if let (Some(layout), Ok(runtime)) = (layout, tokio::runtime::Handle::try_current()) {
            runtime.spawn(async move { discard(layout.as_ref(), id).await });
        }
    }
}

/// Removes staged bytes that no record will refer to. If that fails, the collector removes them later.
pub(crate) async fn discard(layout: &dyn Layout, id: Ref) {
    if let Err(error) = layout.discard(id).await {
        tracing::debug!(%error, %id, "staged bytes are collected later");
    }
}
