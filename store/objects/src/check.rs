//! Comparison of the index with the storage, and the search for leftover bytes.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use fencepost_core::{Key, Timestamp};
use fencepost_store::Listed;
use fencepost_store::record::ObjectRecord;

use crate::error::ObjectError;
use crate::layout::{Foreign, Found, LayoutError, Ref, Walked};
use crate::name::bucket_of;
use crate::service::Objects;

/// How index and storage differ for one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Difference {
    /// In the index, but not in the storage.
    Missing(Key),
    /// In the storage, but not in the index.
    Unknown(Key),
    /// The file is not the one recorded in the index.
    Changed {
        /// The object's name.
        key: Key,
        /// What is different.
        how: String,
    },
    /// Committed, but not yet published by the storage.
    Unshown {
        /// The object's name.
        key: Key,
        /// Why it could not be published.
        why: String,
    },
    /// A file system entry that cannot be an object.
    Foreign {
        /// The path below the root.
        path: String,
        /// Why it cannot be an object.
        why: String,
    },
}

/// The result of one run of a check.
#[derive(Clone, Debug, Default)]
pub struct Checked {
    /// The number of names compared.
    pub looked_at: usize,
    /// The differences found.
    pub differences: Vec<Difference>,
    /// The number of differences repaired.
    pub repaired: usize,
    /// The next run begins after this key. `None`: the bucket is finished.
    pub next: Option<Key>,
}

/// Staged bytes that no record refers to.
#[derive(Clone, Debug, Default)]
pub struct Leftovers {
    /// How many have been unreferenced since before the given time.
    pub refs: usize,
    /// How many of them were removed; zero in a dry run.
    pub removed: usize,
}

/// Names compared in one run.
const RUN: usize = 1000;

impl Objects {
    /// Compares index and storage for one run of names of a bucket, and retries publications that failed earlier.
    /// With `adopt`, unknown and changed files are recorded in the index as they are, and missing ones are removed
    /// from it. That includes objects that were committed but lost their bytes before publication. Fences do not
    /// change.
    pub async fn check(&self, bucket: &str, after: Option<&Key>, adopt: bool) -> Result<Checked, ObjectError> {
        let prefix = format!("{bucket}/");
        let Walked { found, foreign, next } = match self.layout.walk(bucket, after, RUN).await {
            Err(LayoutError::NoBucket(_)) => Walked::default(),
            walked => walked?,
        };
        let indexed = self.store.objects(&prefix, after.map(Key::as_str), RUN).await?;
        // Both lists have the same order. Names after the end of the shorter list are left to the next run.
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
                // Compare again under the key's lock: a write may have been under way.
                if let Some(difference) = self.differs_still(&key, difference, adopt, &mut checked).await? {
                    checked.differences.push(difference);
                }
            }
        }
        let strange = |Foreign { path, why }| Difference::Foreign { path, why };
        checked.differences.extend(foreign.into_iter().map(strange));
        Ok(checked)
    }

    /// Like [`Objects::check`], over all buckets or one. `after` is the name to continue after; a bucket's own name
    /// starts at the beginning of that bucket.
    pub async fn check_next(
        &self,
        only: Option<&str>,
        after: Option<&str>,
        adopt: bool,
    ) -> Result<(Checked, Option<String>), ObjectError> {
        let mut buckets: BTreeSet<String> = self.buckets().await?.into_iter().map(|bucket| bucket.name).collect();
        // Include buckets whose directory is gone.
        let mut behind = None;
        loop {
            let page = self.store.list_objects("", Some("/"), behind.as_deref(), RUN).await?;
            for entry in &page.entries {
                if let Listed::Prefix(prefix) = entry {
                    buckets.insert(prefix.trim_end_matches('/').to_owned());
                }
            }
            match page.next {
                Some(next) => behind = Some(next),
                None => break,
            }
        }
        if let Some(only) = only {
            if !buckets.contains(only) {
                return Err(LayoutError::NoBucket(only.to_owned()).into());
            }
            buckets.retain(|bucket| bucket == only);
        }
        let after = after.map(Key::new).transpose().map_err(|error| ObjectError::Name(error.to_string()))?;
        let from = after.as_ref().map_or("", |after| bucket_of(after));
        let mut rest = buckets.range(from.to_owned()..);
        let Some(bucket) = rest.next() else { return Ok((Checked::default(), None)) };
        let within = after.as_ref().filter(|after| after.as_str().starts_with(&format!("{bucket}/")));
        let checked = self.check(bucket, within, adopt).await?;
        let next = checked.next.as_ref().map(Key::to_string).or_else(|| rest.next().cloned());
        Ok((checked, next))
    }

    async fn differs_still(
        &self,
        key: &Key,
        seen: Difference,
        adopt: bool,
        checked: &mut Checked,
    ) -> Result<Option<Difference>, ObjectError> {
        let _alone = self.locks.write([key]).await;
        let unshown = self.unshown(key);
        if let Some((id, intent)) = &unshown {
            let lost = match self.redo(*id, intent).await {
                Ok(()) => {
                    self.unblocked(key, *id).await?;
                    return Ok(None);
                }
                Err(ObjectError::Layout(LayoutError::Missing(_))) => true,
                Err(_) => false,
            };
            if !(lost && adopt) {
                let why = self.blocked().get(key).map(|unshown| unshown.why.clone()).unwrap_or_default();
                return Ok(Some(Difference::Unshown { key: key.clone(), why }));
            }
            // The bytes are lost for good, so the index follows the storage.
        }
        let object = self.store.object(key).await?;
        let found = match self.layout.open(key).await {
            Ok(opened) => Some(Found { key: key.clone(), mark: opened.mark(), modified_ms: opened.modified_ms() }),
            Err(LayoutError::Missing(_) | LayoutError::NoBucket(_)) => None,
            // The file may exist; that cannot be determined now, so nothing is repaired.
            Err(error) => {
                let how = format!("it cannot be looked at: {error}");
                return Ok(Some(Difference::Changed { key: key.clone(), how }));
            }
        };
        let pair = (found, object);
        let Some(difference) = differs(key, &pair) else { return Ok(None) };
        if adopt {
            let repaired = match pair {
                (Some(found), before) => self.take_in(vec![(found, before)]).await? == 1,
                (None, Some(object)) => self.store.disown_object(key, &object).await?,
                (None, None) => false,
            };
            checked.repaired += usize::from(repaired);
            if let (true, Some((id, _))) = (repaired, unshown) {
                self.unblocked(key, id).await?;
            }
        }
        // Report the current difference, which may not be the one seen before.
        drop(seen);
        Ok(Some(difference))
    }

    /// Counts the bytes that have been unreferenced since `before`, and removes them unless it is a dry run.
    pub async fn leftovers(&self, before: Timestamp, dry_run: bool) -> Result<Leftovers, ObjectError> {
        let staged: HashSet<Ref> = self.layout.staged().await?.into_iter().collect();
        let (mut after, mut refs) = (None, 0);
        loop {
            let page = self.store.pending_refs(after, RUN).await?;
            after = page.entries.last().map(|(id, _)| *id);
            refs += page.entries.iter().filter(|(id, since)| *since < before && staged.contains(&Ref(*id))).count();
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
