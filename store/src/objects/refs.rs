//! Refs: reserved before the first byte is written, pending until they belong to an object or a part, otherwise
//! collected.
//!
//! The commit that gives the bytes to an object or a part requires and removes the pending record. The collector first
//! removes the record, in a commit of its own, and only then the bytes. So exactly one of the two succeeds, and bytes
//! that an object refers to are never collected, however slow its upload was (trap 34).

use std::ops::Range;

use bytes::Bytes;
use fencepost_core::{Key, Timestamp};

use super::{Draft, ObjectOutcome, Why};
use crate::command::Requirement;
use crate::engine::Purpose;
use crate::failure::{Failure, Rejected};
use crate::reads::{Page, ReadError};
use crate::record::{self, Intent, ObjectRecord, RecordKey, decode_number, encode_number};
use crate::store::Store;

/// How often a reservation is tried when there are concurrent ones.
const ATTEMPTS: usize = 16;

impl Store {
    /// Reserves refs, which are then pending.
    pub async fn reserve_refs(&self, count: u64) -> Result<Range<u64>, Failure> {
        self.reserve(count, Purpose::Store).await
    }

    /// Like [`Store::reserve_refs`], for objects to be removed: allowed below the free-space floor, like their removal.
    pub async fn reserve_refs_to_remove(&self, count: u64) -> Result<Range<u64>, Failure> {
        self.reserve(count, Purpose::Free).await
    }

    async fn reserve(&self, count: u64, purpose: Purpose) -> Result<Range<u64>, Failure> {
        for _ in 0..ATTEMPTS {
            let found = self.record(&RecordKey::refs()).await.map_err(unavailable)?;
            let first = found.as_ref().map_or(Ok(1), decode_number).map_err(|error| unavailable(error.into()))?;
            let refs = first..first.saturating_add(count);
            let mut draft = match purpose {
                Purpose::Store => Draft::default(),
                Purpose::Free => Draft::freeing(),
            };
            let same = found.map_or(Requirement::Absent, Requirement::Exactly);
            draft.require(RecordKey::refs(), same, Why::Condition);
            draft.put(RecordKey::refs(), encode_number(refs.end));
            let now = Timestamp::now();
            for id in refs.clone() {
                draft.drop_ref(id, now);
            }
            if let ObjectOutcome::Done(_) = self.change(Vec::new(), draft).await? {
                return Ok(refs);
            }
        }
        Err(Rejected::Contended { attempts: ATTEMPTS }.into())
    }

    /// Pending refs and the times since which they are pending, in order, after the given one.
    pub async fn pending_refs(&self, after: Option<u64>, limit: usize) -> Result<Page<(u64, Timestamp)>, ReadError> {
        let after = after.map(|id| format!("{id:016x}"));
        self.page(record::pending_prefix, "", after.as_deref(), limit, |name, found| {
            Ok((record::id_of(name)?, Timestamp(decode_number(&found.bytes)?)))
        })
        .await
    }

    /// Gives up refs that are still pending since the given times, so that their bytes can be removed. Returns those
    /// that were given up.
    pub async fn collect_refs(&self, refs: &[(u64, Timestamp)]) -> Result<Vec<u64>, Failure> {
        if self.collect(refs).await? {
            return Ok(refs.iter().map(|(id, _)| *id).collect());
        }
        // At least one is in use by now, so try them one by one.
        let mut given_up = Vec::new();
        for one in refs {
            if self.collect(std::slice::from_ref(one)).await? {
                given_up.push(one.0);
            }
        }
        Ok(given_up)
    }

    async fn collect(&self, refs: &[(u64, Timestamp)]) -> Result<bool, Failure> {
        let mut draft = Draft::freeing();
        for (id, since) in refs {
            draft.require(RecordKey::pending(*id), Requirement::Exactly(encode_number(since.0)), Why::Collected);
            draft.delete(RecordKey::pending(*id));
        }
        Ok(matches!(self.change(Vec::new(), draft).await?, ObjectOutcome::Done(_)))
    }

    /// Removes the records of refs whose bytes are known to be gone, unconditionally.
    pub async fn forget_refs(&self, refs: &[u64]) -> Result<(), Failure> {
        let mut draft = Draft::freeing();
        for id in refs {
            draft.delete(RecordKey::pending(*id));
        }
        self.change(Vec::new(), draft).await.map(|_| ())
    }

    /// Intents that the storage has to carry out, in order of refs, after the given one.
    pub async fn intents(&self, after: Option<u64>, limit: usize) -> Result<Page<(u64, Intent)>, ReadError> {
        let after = after.map(|id| format!("{id:016x}"));
        self.page(record::intent_prefix, "", after.as_deref(), limit, |name, found| {
            Ok((record::id_of(name)?, Intent::decode(&found.bytes)?))
        })
        .await
    }

    /// Records that intents were carried out.
    pub async fn settle_intents(&self, ids: &[u64]) -> Result<(), Failure> {
        let mut draft = Draft::freeing();
        for id in ids {
            draft.delete(RecordKey::intent(*id));
        }
        self.change(Vec::new(), draft).await.map(|_| ())
    }

    /// Adds files to the index, all or none. Each must currently be in the index as given, `None` meaning absent;
    /// otherwise returns `false`.
    pub async fn adopt_objects(
        &self,
        objects: Vec<(Key, Option<ObjectRecord>, ObjectRecord)>,
    ) -> Result<bool, Failure> {
        let mut draft = Draft::default();
        for (key, before, object) in objects {
            let same = before.map_or(Requirement::Absent, |before| Requirement::Exactly(before.encode()));
            draft.require(RecordKey::object(&key), same, Why::Condition);
            draft.put(RecordKey::object(&key), object.encode());
        }
        Ok(matches!(self.change(Vec::new(), draft).await?, ObjectOutcome::Done(_)))
    }

    /// Removes an object whose bytes are gone from the index, if its entry is still the given one.
    pub async fn disown_object(&self, key: &Key, object: &ObjectRecord) -> Result<bool, Failure> {
        let mut draft = Draft::freeing();
        draft.require(RecordKey::object(key), Requirement::Exactly(object.encode()), Why::Condition);
        draft.delete(RecordKey::object(key));
        Ok(matches!(self.change(Vec::new(), draft).await?, ObjectOutcome::Done(_)))
    }

    /// Returns whether the files of a bucket were added to the index.
    pub async fn is_adopted(&self, bucket: &str) -> Result<bool, ReadError> {
        Ok(self.record(&RecordKey::adopted(bucket)).await?.is_some())
    }

    /// Records that the files of a bucket were added to the index, or that the bucket is gone.
    pub async fn set_adopted(&self, bucket: &str, adopted: bool) -> Result<(), Failure> {
        let mut draft = if adopted { Draft::default() } else { Draft::freeing() };
        match adopted {
            true => draft.put(RecordKey::adopted(bucket), encode_number(Timestamp::now().0)),
            false => draft.delete(RecordKey::adopted(bucket)),
        }
        self.change(Vec::new(), draft).await.map(|_| ())
    }

    pub(super) async fn record(&self, key: &RecordKey) -> Result<Option<Bytes>, ReadError> {
        let loaded = self.engine.load(std::slice::from_ref(key)).await.map_err(|error| self.failed(error))?;
        Ok(loaded.records.into_iter().next().flatten().map(|record| record.bytes))
    }
}

pub(super) fn unavailable(error: ReadError) -> Failure {
    Rejected::Unavailable(error.to_string()).into()
}
