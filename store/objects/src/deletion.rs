//! The removal of objects.

use std::sync::Arc;

use fencepost_core::{Key, Presented};
use fencepost_store::record::{Act, Intent};
use fencepost_store::{Changed, DeleteObjects, ObjectCondition};

use crate::error::{ObjectError, done};
use crate::layout::Ref;
use crate::service::{Objects, to_its_end};
use crate::settlement::Settling;

/// The names to remove, all or none.
#[derive(Clone, Debug, Default)]
pub struct Removal {
    /// Objects to remove.
    pub keys: Vec<(Key, ObjectCondition)>,
    /// Folder markers to remove, by the names of their folders.
    pub folders: Vec<(Key, ObjectCondition)>,
    /// Names that are judged in place of names that cannot exist. Nothing is removed under them.
    pub judged: Vec<Key>,
}

impl Removal {
    fn first(&self) -> Option<&Key> {
        let named = self.keys.iter().chain(&self.folders).map(|(key, _)| key);
        named.chain(&self.judged).next()
    }
}

impl Objects {
    /// Removes objects, all or none. Absent objects count as removed.
    pub async fn delete(
        self: &Arc<Self>,
        presented: Option<Presented>,
        removal: Removal,
    ) -> Result<Changed, ObjectError> {
        let Some(first) = removal.first() else { return Ok(Changed::default()) };
        self.foresee(first, presented.as_ref()).await?;
        let Removal { keys, folders, judged } = removal;
        let under_way = self.under_way().await?;
        let objects = self.clone();
        to_its_end(async move {
            let _bucket = objects.buckets.read().await;
            let lock = objects.locks.write(keys.iter().map(|(key, _)| key)).await;
            let mut there = Vec::with_capacity(keys.len());
            for (key, _) in &keys {
                objects.unblock(key).await?;
                // The key's lock is held, so this cannot change before the commit.
                there.push(objects.store.object(key).await?.is_some());
            }
            let needed = there.iter().filter(|there| **there).count();
            let mut ids = objects.refs.several_to_remove(&objects.store, needed).await?.into_iter();
            let wanted: Vec<_> = keys
                .into_iter()
                .zip(there)
                .map(|((key, condition), there)| (key, condition, there.then(|| ids.next()).flatten().map(|id| id.0)))
                .collect();
            let delete = DeleteObjects { presented, keys: wanted.clone(), folders, judged };
            let changed = done(objects.store.delete_objects(delete).await?)?;
            let (mut settled, mut unshown) = (Vec::with_capacity(wanted.len()), None);
            for (key, _, id) in wanted {
                let Some(id) = id else { continue };
                let intent = Intent { key: key.clone(), act: Act::Remove };
                match objects.redo(Ref(id), &intent).await {
                    Ok(()) => settled.push(id),
                    Err(error) => {
                        let why = error.to_string();
                        objects.block(Ref(id), intent, why.clone(), None);
                        unshown = Some(ObjectError::Unshown { key, why });
                    }
                }
            }
            let settling = Settling { ids: settled, _places: Vec::new(), _lock: lock, _under_way: under_way };
            let _ = objects.settling.send(settling).await;
            unshown.map_or(Ok(changed), Err)
        })
        .await
    }
}
