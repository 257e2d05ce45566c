//! Does the index agree with the storage? And what is left over?

use std::collections::BTreeMap;

use fencepost_core::{Key, Timestamp};
use fencepost_store::record::ObjectRecord;

use super::Objects;
use super::error::ObjectError;
use super::layout::{Foreign, Found, Walked};

/// How index and storage differ about one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Difference {
    /// The index has it, the storage has not.
    Missing(Key),
    /// The storage has a file that the index does not know.
    Unknown(Key),
    /// The file is not the one that the index knows.
    Changed {
        /// Which.
        key: Key,
        /// How.
        how: String,
    },
    /// It is committed, but the storage could not show it yet.
    Unshown {
        /// Which.
        key: Key,
        /// Why not.
        why: String,
    },
    /// Something that cannot be an object.
    Foreign {
        /// Its path below the root.
        path: String,
        /// Why not.
        why: String,
    },
}

/// A run of a check.
#[derive(Clone, Debug, Default)]
pub struct Checked {
    /// How many names were looked at.
    pub looked_at: usize,
    /// Where they differ.
    pub differences: Vec<Difference>,
    /// How many were mended.
    pub mended: usize,
    /// Where the next run begins: after this. `None`: this was the last of the bucket.
    pub next: Option<Key>,
}

/// Bytes that belong to nothing.
#[derive(Clone, Debug, Default)]
pub struct Leftovers {
    /// How many refs are pending since before the time asked for.
    pub refs: usize,
    /// How many of them were removed; none in a dry run.
    pub removed: usize,
}

/// Names that are looked at in one run.
const RUN: usize = 1000;

impl Objects {
    /// Compares index and storage for a run of names of a bucket. With `adopt`, unknown and changed files are taken into
    /// the index as they are, and what is missing is taken out of it; fences stay as they are.
    pub async fn check(&self, bucket: &str, after: Option<&Key>, adopt: bool) -> Result<Checked, ObjectError> {
        let prefix = format!("{bucket}/");
        let Walked { found, foreign, next } = self.layout.walk(bucket, after, RUN).await?;
        let indexed = self.store.objects(&prefix, after.map(Key::as_str), RUN).await?;
        // Both are in one order: what lies behind the end of the shorter one is for the next run.
        let ends = [next, indexed.next.as_deref().and_then(|next| Key::new(next).ok())];
        let end = ends.into_iter().flatten().min();
        let within = |key: &Key| end.as_ref().is_none_or(|end| key <= end);
        let mut names: BTreeMap<Key, (Option<Found>, Option<ObjectRecord>)> = BTreeMap::new();
        for found in found.into_iter().filter(|found| within(&found.key)) {
            let key = found.key.clone();
            names.entry(key).or_default().0 = Some(found);
        }
        for (key, object) in indexed.entries.into_iter().filter(|(key, _)| within(key)) {
            names.entry(key).or_default().1 = Some(object);
        }
        let mut checked = Checked { looked_at: names.len(), next: end, ..Checked::default() };
        for (key, pair) in names {
            if let Some(difference) = differs(&key, &pair) {
                // Again, with nobody in between: a write may have been under way.
                if let Some(difference) = self.differs_still(&key, difference, adopt, &mut checked).await? {
                    checked.differences.push(difference);
                }
            }
        }
        let strange = |Foreign { path, why }| Difference::Foreign { path, why };
        checked.differences.extend(foreign.into_iter().map(strange));
        Ok(checked)
    }

    async fn differs_still(
        &self,
        key: &Key,
        seen: Difference,
        adopt: bool,
        checked: &mut Checked,
    ) -> Result<Option<Difference>, ObjectError> {
        let _alone = self.locks.write([key]).await;
        if let Some((.., why)) = self.blocked().get(key).cloned() {
            return Ok(Some(Difference::Unshown { key: key.clone(), why }));
        }
        let object = self.store.object(key).await?;
        let found = self.layout.open(key).await.ok().map(|opened| Found {
            key: key.clone(),
            mark: opened.mark(),
            modified_ms: opened.modified_ms(),
        });
        let pair = (found, object);
        let Some(difference) = differs(key, &pair) else { return Ok(None) };
        if adopt {
            let mended = match pair {
                (Some(found), before) => self.take_in(vec![(found, before)]).await? == 1,
                (None, Some(object)) => self.store.disown_object(key, &object).await?,
                (None, None) => false,
            };
            checked.mended += usize::from(mended);
        }
        // As it is now; it may differ otherwise than before.
        drop(seen);
        Ok(Some(difference))
    }

    /// Bytes that belong to nothing since before: counted, and removed unless it is a dry run.
    pub async fn leftovers(&self, before: Timestamp, dry_run: bool) -> Result<Leftovers, ObjectError> {
        let (mut after, mut refs) = (None, 0);
        loop {
            let page = self.store.pending_refs(after, RUN).await?;
            after = page.entries.last().map(|(id, _)| *id);
            refs += page.entries.iter().filter(|(_, since)| *since < before).count();
            if page.next.is_none() {
                break;
            }
        }
        let removed = if dry_run { 0 } else { self.collect_leftovers(Some(before)).await? };
        Ok(Leftovers { refs, removed })
    }
}

fn differs(key: &Key, pair: &(Option<Found>, Option<ObjectRecord>)) -> Option<Difference> {
    let key = key.clone();
    match pair {
        (None, None) => None,
        (None, Some(_)) => Some(Difference::Missing(key)),
        (Some(_), None) => Some(Difference::Unknown(key)),
        (Some(found), Some(object)) if found.mark.size != object.size => {
            let how = format!("it has {} bytes instead of {}", found.mark.size, object.size);
            Some(Difference::Changed { key, how })
        }
        (Some(found), Some(object)) if found.mark.inode != object.inode => {
            Some(Difference::Changed { key, how: "it is another file".to_owned() })
        }
        (Some(_), Some(_)) => None,
    }
}
