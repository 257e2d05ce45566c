//! Recovery after a crash: committed changes are published, and unreferenced bytes are removed.

use std::collections::HashSet;
use std::sync::Weak;
use std::time::Duration;

use fencepost_core::{Key, Timestamp};
use fencepost_store::record::{Act, ObjectRecord, UploadId};
use fencepost_store::{Failure, Rejected};

use crate::error::ObjectError;
use crate::layout::{Found, LayoutError, Mark, Ref};
use crate::name::tellable;
use crate::service::Objects;

/// Records examined in one step.
const PAGE: usize = 1000;

/// Files adopted by one commit. A write of an object that shares a lock with one of them waits for that commit.
const ADOPT_AT_ONCE: usize = 64;

/// The interval between two searches for leftovers.
const COLLECT_EVERY: Duration = Duration::from_secs(3600);

/// Bytes that were unreferenced for this long are leftovers. An upload that takes longer has to start again, with no
/// other consequence.
const GRACE: Duration = Duration::from_secs(24 * 3600);

/// The interval between retries of a collection that was postponed at the start.
const RETRY_EVERY: Duration = Duration::from_secs(60);

/// What the start did with the leftovers of the previous run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Recovered {
    /// All of them were removed.
    Fully,
    /// The store rejected the commit, for lack of space or because it is overloaded. Leftovers from before this time
    /// are collected later.
    PutOff(Timestamp),
}

/// Collects leftovers as long as the objects are open, starting with those that were postponed at the start.
pub(crate) async fn collect_now_and_then(objects: Weak<Objects>, mut recovered: Recovered) {
    loop {
        let pause = if recovered == Recovered::Fully { COLLECT_EVERY } else { RETRY_EVERY };
        tokio::time::sleep(pause).await;
        let Some(objects) = objects.upgrade() else { return };
        if let Recovered::PutOff(started) = recovered {
            match objects.collect_what_was_put_off(started).await {
                Ok(collected) => {
                    tracing::info!(collected, "removed leftovers of the last run");
                    recovered = Recovered::Fully;
                }
                Err(error) => tracing::warn!(%error, "leftovers of the last run stay for now"),
            }
            continue;
        }
        let grace = u64::try_from(GRACE.as_millis()).unwrap_or(u64::MAX);
        let before = Timestamp(Timestamp::now().0.saturating_sub(grace));
        match objects.collect_leftovers(Some(before)).await {
            Ok(0) => {}
            Ok(collected) => tracing::info!(collected, "removed leftovers of uploads"),
            Err(error) => tracing::warn!(%error, "leftovers of uploads stay for now"),
        }
    }
}

impl Objects {
    /// Completes the changes of the previous run. A commit that the store rejects, for example below the free-space
    /// floor, is postponed: objects can be served without it.
    pub(crate) async fn recover(&self) -> Result<Recovered, ObjectError> {
        let started = Timestamp::now();
        self.redo_all().await?;
        // This needs no commit, and may free the space that the commits below need.
        self.discard_strangers().await?;
        let mut recovered = Recovered::Fully;
        for cleaned in [self.forget_stray_parts().await, self.collect_leftovers(None).await.map(|_| ())] {
            if let Some(rejected) = put_off(cleaned)? {
                let staging = self.layout.staging_place();
                tracing::warn!(error = %rejected, staging, "leftovers of uploads are collected later");
                recovered = Recovered::PutOff(started);
            }
        }
        for bucket in self.layout.buckets().await? {
            // If this fails, the first use of the bucket adopts it.
            if let Some(rejected) = put_off(self.take_in_bucket(&bucket.name).await)? {
                tracing::warn!(bucket = bucket.name, error = %rejected, "its files are taken in when it is first used");
            }
        }
        Ok(recovered)
    }

    async fn collect_what_was_put_off(&self, started: Timestamp) -> Result<usize, ObjectError> {
        self.forget_stray_parts().await?;
        self.collect_leftovers(Some(started)).await
    }

    /// Adopts the files of a bucket into the index, if that has never been done.
    pub(crate) async fn take_in_bucket(&self, bucket: &str) -> Result<(), ObjectError> {
        if !self.store.is_adopted(bucket).await? {
            let files = self.adopt(bucket).await?;
            self.store.set_adopted(bucket, true).await?;
            if files > 0 {
                tracing::info!(bucket, files, "took in files that were there before");
            }
        }
        self.adopted.write().await.insert(bucket.to_owned());
        Ok(())
    }

    /// Executes the intents that were not recorded as done, in order, each only if the index still matches.
    async fn redo_all(&self) -> Result<(), ObjectError> {
        let mut after = None;
        loop {
            let page = self.store.intents(after, PAGE).await?;
            let mut settled = Vec::with_capacity(page.entries.len());
            for (id, intent) in page.entries {
                after = Some(id);
                match self.redo(Ref(id), &intent).await {
                    Ok(()) => settled.push(id),
                    Err(error) => {
                        let place = match intent.act {
                            Act::Publish { .. } => self.layout.prepare(&intent.key).await.ok(),
                            Act::Remove => None,
                        };
                        self.block(Ref(id), intent, error.to_string(), place);
                    }
                }
            }
            if !settled.is_empty() {
                tracing::info!(changes = settled.len(), "finished what was committed before the last stop");
                if let Some(rejected) = put_off(self.store.settle_intents(&settled).await.map_err(ObjectError::from))? {
                    // The next start repeats these intents, which changes nothing.
                    tracing::warn!(error = %rejected, intents = settled.len(), "intents stay until the next start");
                }
            }
            if page.next.is_none() {
                return Ok(());
            }
        }
    }

    /// Removes bytes that have been unreferenced since `before`, and returns their number. Without a time, all of
    /// them are removed; this is only for when nothing else runs. Refs without bytes are removed too, but not
    /// counted.
    pub(crate) async fn collect_leftovers(&self, before: Option<Timestamp>) -> Result<usize, ObjectError> {
        let (mut after, mut collected) = (None, 0);
        let staged: HashSet<Ref> = self.layout.staged().await?.into_iter().collect();
        // These refs are reserved but not handed out yet; their future users need them.
        let unused = self.refs.unused().await;
        loop {
            let page = self.store.pending_refs(after, PAGE).await?;
            after = page.entries.last().map(|(id, _)| *id);
            let is_old =
                |(id, since): &(u64, Timestamp)| !unused.contains(id) && before.is_none_or(|before| *since < before);
            let old: Vec<(u64, Timestamp)> = page.entries.into_iter().filter(is_old).collect();
            // Remove the record first: from then on the bytes cannot be published.
            for id in self.store.collect_refs(&old).await? {
                self.layout.discard(Ref(id)).await?;
                collected += usize::from(staged.contains(&Ref(id)));
            }
            if page.next.is_none() {
                return Ok(collected);
            }
        }
    }

    /// Removes parts whose upload has ended: they were added while it was completed or aborted.
    async fn forget_stray_parts(&self) -> Result<(), ObjectError> {
        let mut after = None;
        loop {
            let page = self.store.all_parts(after, PAGE).await?;
            after = page.entries.last().map(|(upload, number, _)| (*upload, *number));
            // Read the uploads after the parts. An upload exists before its parts, so one that is absent now has
            // ended.
            let uploads: HashSet<UploadId> = self.all_uploads().await?.into_iter().collect();
            for (upload, number, part) in page.entries.into_iter().filter(|(upload, ..)| !uploads.contains(upload)) {
                self.store.forget_parts(upload, vec![(number, part)]).await?;
            }
            if page.next.is_none() {
                return Ok(());
            }
        }
    }

    async fn all_uploads(&self) -> Result<Vec<UploadId>, ObjectError> {
        let (mut uploads, mut after) = (Vec::new(), None);
        loop {
            let page = self.store.uploads("", after.as_ref().map(|(key, id)| (key, Some(*id))), PAGE).await?;
            after = page.entries.last().map(|upload| (upload.key.clone(), upload.id));
            uploads.extend(page.entries.into_iter().map(|upload| upload.id));
            if page.next.is_none() {
                return Ok(uploads);
            }
        }
    }

    /// Removes staged files without a record: the process ended between the removal of the record and that of the
    /// file.
    async fn discard_strangers(&self) -> Result<(), ObjectError> {
        let staged = self.layout.staged().await?;
        if staged.is_empty() {
            return Ok(());
        }
        let known = self.known_refs().await?;
        for id in staged.into_iter().filter(|id| !known.contains(id)) {
            self.layout.discard(id).await?;
        }
        Ok(())
    }

    /// All refs that a part or an intent refers to.
    pub(crate) async fn known_refs(&self) -> Result<HashSet<Ref>, ObjectError> {
        let mut known: HashSet<Ref> = self.blocked().values().map(|unshown| unshown.id).collect();
        for upload in self.all_uploads().await? {
            known.extend(self.all_parts(upload).await?.into_iter().map(|(_, part)| Ref(part.id)));
        }
        Ok(known)
    }

    /// Adopts files that still exist and are not in the index. Their locks are held from the comparison until the
    /// commit: a delete that was admitted earlier may be under way and must not be undone.
    async fn adopt_files(&self, files: &[Found]) -> Result<usize, ObjectError> {
        let _alone = self.locks.write(files.iter().map(|found| &found.key)).await;
        let mut fresh = Vec::with_capacity(files.len());
        for seen in files {
            if self.unshown(&seen.key).is_some() || self.store.object(&seen.key).await?.is_some() {
                continue;
            }
            let (mark, modified_ms) = match self.layout.open(&seen.key).await {
                Ok(file) => (file.mark(), file.modified_ms()),
                Err(LayoutError::Missing(_) | LayoutError::NoBucket(_)) => continue,
                // It exists, but this process may not read it.
                Err(_) => (seen.mark, seen.modified_ms),
            };
            fresh.push((Found { key: seen.key.clone(), mark, modified_ms }, None));
        }
        self.take_in(fresh).await
    }

    /// Adopts the files of a bucket that are not in the index, and returns their number.
    pub(crate) async fn adopt(&self, bucket: &str) -> Result<usize, ObjectError> {
        let (mut after, mut adopted) = (None, 0);
        loop {
            let walked = self.layout.walk(bucket, after.as_ref(), PAGE).await?;
            for foreign in &walked.foreign {
                tracing::warn!(path = foreign.path, why = foreign.why, "not taken in");
            }
            let (files, untellable): (Vec<_>, Vec<_>) =
                walked.found.into_iter().partition(|found| tellable(found.key.as_str()));
            for found in untellable {
                tracing::warn!(name = ?found.key.as_str(), "not taken in: its name cannot be told in XML");
            }
            for files in files.chunks(ADOPT_AT_ONCE) {
                adopted += self.adopt_files(files).await?;
            }
            match walked.next {
                Some(next) => after = Some(next),
                None => return Ok(adopted),
            }
        }
    }
}

/// Extracts a rejection, which a start can postpone. Any other error is returned as such.
fn put_off(result: Result<(), ObjectError>) -> Result<Option<Rejected>, ObjectError> {
    match result {
        Ok(()) => Ok(None),
        // A poisoned store takes no further commits, so postponing does not help.
        Err(ObjectError::Failure(Failure::Rejected(rejected))) if !matches!(rejected, Rejected::Poisoned(_)) => {
            Ok(Some(rejected))
        }
        Err(error) => Err(error),
    }
}

impl Objects {
    /// Adopts files, each with its previous index entry if it had one, and returns their number.
    pub(crate) async fn take_in(&self, files: Vec<(Found, Option<ObjectRecord>)>) -> Result<usize, ObjectError> {
        let ids = self.refs.several(&self.store, files.len()).await?;
        let used: Vec<u64> = ids.iter().map(|id| id.0).collect();
        let objects = files.into_iter().zip(ids).map(|((found, before), id)| {
            let (key, object) = adopted_record(&found, id);
            (key, before, object)
        });
        let taken = self.store.adopt_objects(objects.collect()).await?;
        self.store.forget_refs(&used).await?;
        Ok(if taken { used.len() } else { 0 })
    }
}

/// The index entry of an adopted file. Its ETag is not an MD5 and does not look like one.
pub(crate) fn adopted_record(found: &Found, id: Ref) -> (Key, ObjectRecord) {
    let Mark { size, inode } = found.mark;
    let etag = format!("{inode:016x}{:016x}-1", found.modified_ms ^ size.rotate_left(40));
    let object = ObjectRecord {
        id: id.0,
        size,
        inode,
        etag,
        modified: Timestamp(found.modified_ms),
        token: None,
        attributes: Vec::new(),
    };
    (found.key.clone(), object)
}
