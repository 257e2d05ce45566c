//! An object open for reading: its index entry, and the bytes that belong to it.

use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use fencepost_core::Key;
use fencepost_store::Page;
use fencepost_store::record::Act;
use futures_util::Stream;
use sync_wrapper::SyncStream;

use crate::error::ObjectError;
use crate::layout::{LayoutError, Mark, Opened};
use crate::name::bucket_of;
use crate::object::{Listed, Object};
use crate::service::Objects;

/// Bytes read at a time.
const CHUNK: u64 = 256 << 10;

/// An open object: its index entry, and the bytes that belong to it.
pub struct OpenObject {
    /// The index entry.
    pub object: Object,
    opened: Arc<dyn Opened>,
}

impl Objects {
    /// Reads the index entry of an object.
    pub async fn head(&self, key: &Key) -> Result<Object, ObjectError> {
        if let Some(object) = self.store.object(key).await? {
            return Ok(object.into());
        }
        // The bucket may be new, with files that are not in the index yet.
        self.need_bucket(bucket_of(key)).await?;
        let object = self.store.object(key).await?;
        object.map(Object::from).ok_or_else(|| ObjectError::NoObject(key.to_string()))
    }

    /// Opens an object.
    pub async fn read(&self, key: &Key) -> Result<OpenObject, ObjectError> {
        // While this is held, no writer of the key is between its commit and its rename.
        let mut _reading = self.locks.read(key).await;
        let object = match self.store.object(key).await? {
            Some(object) => object,
            None => {
                // The bucket may have to be adopted, which takes the locks of its files.
                drop(_reading);
                self.head(key).await?;
                _reading = self.locks.read(key).await;
                self.store.object(key).await?.ok_or_else(|| ObjectError::NoObject(key.to_string()))?
            }
        };
        let unshown = self.unshown(key).map(|(id, intent)| (id, intent.act));
        let opened = match unshown {
            Some((id, Act::Publish { .. })) => match self.layout.open_staged(id).await {
                // It was renamed already, but the rename is not known to be durable.
                Err(LayoutError::Missing(_)) => self.layout.open(key).await,
                staged => staged,
            },
            _ => self.layout.open(key).await,
        };
        let changed = |why: String| ObjectError::Changed { key: key.clone(), why };
        let opened: Arc<dyn Opened> = match opened {
            Ok(opened) => opened.into(),
            Err(LayoutError::Missing(_) | LayoutError::NoBucket(_)) => return Err(changed("it is gone".to_owned())),
            Err(error) => return Err(error.into()),
        };
        let mark = opened.mark();
        if mark.size != object.size {
            return Err(changed(format!("it has {} bytes instead of {}", mark.size, object.size)));
        }
        if mark.inode != object.inode {
            return Err(changed("it is another file".to_owned()));
        }
        Ok(OpenObject { object: object.into(), opened })
    }

    /// Lists objects; see [`fencepost_store::Store::list_objects`].
    pub async fn list(
        &self,
        prefix: &str,
        delimiter: Option<&str>,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Page<Listed>, ObjectError> {
        let Page { entries, next } = self.store.list_objects(prefix, delimiter, after, limit).await?;
        Ok(Page { entries: entries.into_iter().map(Listed::from).collect(), next })
    }
}

/// The bytes of an empty object.
struct Nothing;

#[async_trait]
impl Opened for Nothing {
    fn mark(&self) -> Mark {
        Mark { size: 0, inode: 0 }
    }

    fn modified_ms(&self) -> u64 {
        0
    }

    async fn read(&self, _: u64, _: usize) -> Result<Bytes, LayoutError> {
        Ok(Bytes::new())
    }

    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
}

impl OpenObject {
    /// Opens an object without bytes.
    pub(crate) fn of_nothing(object: Object) -> OpenObject {
        OpenObject { object, opened: Arc::new(Nothing) }
    }

    /// The opened bytes, for a copy.
    pub(crate) fn opened(&self) -> &dyn Opened {
        self.opened.as_ref()
    }

    /// Streams the bytes of a range in chunks.
    pub fn stream(
        self,
        range: Range<u64>,
    ) -> impl Stream<Item = Result<Bytes, std::io::Error>> + Send + Sync + 'static {
        let chunks =
            futures_util::stream::try_unfold((self.opened, range), |(opened, range)| next_chunk(opened, range));
        SyncStream::new(Box::pin(chunks))
    }
}

type Rest = (Arc<dyn Opened>, Range<u64>);

async fn next_chunk(opened: Arc<dyn Opened>, range: Range<u64>) -> Result<Option<(Bytes, Rest)>, std::io::Error> {
    if range.is_empty() {
        return Ok(None);
    }
    let length = (range.end - range.start).min(CHUNK);
    let chunk = opened.read(range.start, length as usize).await.map_err(std::io::Error::other)?;
    if chunk.is_empty() {
        return Err(std::io::Error::other("the file is shorter than it was when it was opened"));
    }
    let rest = range.start + chunk.len() as u64..range.end;
    Ok(Some((chunk, (opened, rest))))
}
