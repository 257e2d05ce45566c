//! Changes that are committed but not published by the storage. No other change of their keys is made until they are.

use fencepost_core::Key;
use fencepost_store::record::{Act, Intent};

use crate::error::ObjectError;
use crate::layout::{LayoutError, Mark, Place, Ref};
use crate::service::Objects;
use crate::staged::discard;

/// A committed change that the storage has not published.
pub(crate) struct Unshown {
    pub(crate) id: Ref,
    pub(crate) intent: Intent,
    pub(crate) why: String,
    /// Keeps other writers from blocking the name.
    _place: Option<Box<dyn Place>>,
}

impl Objects {
    /// Executes an intent if the index still matches it.
    pub(crate) async fn redo(&self, id: Ref, intent: &Intent) -> Result<(), ObjectError> {
        let now = self.store.object(&intent.key).await?;
        match intent.act {
            Act::Publish { size, inode } if now.as_ref().is_some_and(|object| object.id == id.0) => {
                Ok(self.layout.publish(&intent.key, id, Mark { size, inode }).await?)
            }
            Act::Remove if now.is_none() => match self.layout.remove(&intent.key).await {
                Err(LayoutError::NoBucket(_)) => Ok(()),
                removed => Ok(removed?),
            },
            // A later change was committed, and has an intent of its own. The bytes staged for this one are not
            // needed.
            Act::Publish { .. } => {
                discard(self.layout.as_ref(), id).await;
                Ok(())
            }
            Act::Remove => Ok(()),
        }
    }

    /// Records that a committed change is not published.
    pub(crate) fn block(&self, id: Ref, intent: Intent, why: String, place: Option<Box<dyn Place>>) {
        tracing::error!(key = %intent.key, %why, "committed, but the storage does not show it");
        self.blocked().insert(intent.key.clone(), Unshown { id, intent, why, _place: place });
    }

    /// Retries the publication of a key. The caller holds the key's lock.
    pub(crate) async fn unblock(&self, key: &Key) -> Result<(), ObjectError> {
        let Some((id, intent)) = self.unshown(key) else { return Ok(()) };
        if let Err(error) = self.redo(id, &intent).await {
            return Err(ObjectError::Blocked { key: key.clone(), why: error.to_string() });
        }
        self.unblocked(key, id).await
    }

    /// The unpublished change of a key.
    pub(crate) fn unshown(&self, key: &Key) -> Option<(Ref, Intent)> {
        self.blocked().get(key).map(|unshown| (unshown.id, unshown.intent.clone()))
    }

    /// Forgets an unpublished change: it is published now, or never will be.
    pub(crate) async fn unblocked(&self, key: &Key, id: Ref) -> Result<(), ObjectError> {
        self.blocked().remove(key);
        Ok(self.store.settle_intents(&[id.0]).await?)
    }
}
