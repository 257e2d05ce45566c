//! A cache of records in front of an engine that only this process writes.
//!
//! It holds what is committed, and that a record is absent. A load whose records are all here does not reach the engine.
//! Three rules keep the contract:
//!
//! - Before a commit, the records that it changes are removed, and they stay out until the commit has ended. So no reader
//!   sees an old record here after another reader has seen the new one in the engine.
//! - After a commit, its changes are published between two steps of a counter. A load that saw the counter move may have
//!   mixed two instants, and is repeated by the engine (E1).
//! - What a reader loaded from the engine is kept only if no commit has touched that part of the cache since.
//!
//! A commit whose outcome is unknown leaves its records out: from then on the engine alone knows them. It writes nothing
//! after it has ended, so a later commit of the same records may put them back.

use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use foldhash::HashSet;
use foldhash::fast::RandomState;
use parking_lot::Mutex;
use quick_cache::Weighter;
use quick_cache::unsync::Cache;

use crate::engine::{
    AsOf, Batch, Change, Commit, Engine, EngineError, Loaded, Ownership, Record, Scan, Scanned, Version, Want, Wanted,
};
use crate::record::RecordKey;

/// The number of parts, each with a lock of its own.
const SHARDS: usize = 64;

/// Larger records stay out, so that a few of them do not displace everything else.
const MAX_BYTES: usize = 16 << 10;

/// An instant before every commit, so that a commit which is given it compares versions.
const LONG_AGO: AsOf = AsOf(0);

/// Bytes that an entry takes beside its key and its bytes, estimated: slots of the cache, allocations and their headers.
const OVERHEAD: u64 = 256;

/// Records of an engine, kept at hand.
pub struct Cached<E> {
    inner: E,
    shards: Box<[Mutex<Shard>]>,
    hasher: RandomState,
    /// Odd while the changes of a commit are being published.
    published: AtomicU64,
    /// One commit at a time, from the removal of its records to their publication; and none during `load_to_change`, which
    /// may therefore take some records from here and others from the engine.
    committing: tokio::sync::Mutex<()>,
}

struct Shard {
    /// `None`: the record is absent.
    records: Cache<RecordKey, Option<Record>, Weight, RandomState>,
    /// Records that a commit may be changing, and those of commits with an unknown outcome.
    changing: HashSet<RecordKey>,
    /// How often records of this part were removed or published.
    changes: u64,
}

#[derive(Clone)]
struct Weight;

impl Weighter<RecordKey, Option<Record>> for Weight {
    fn weight(&self, key: &RecordKey, record: &Option<Record>) -> u64 {
        OVERHEAD + (key.as_bytes().len() + record.as_ref().map_or(0, |record| record.bytes.len())) as u64
    }
}

impl Shard {
    fn new(bytes: u64) -> Shard {
        let estimated = usize::try_from(bytes / (4 * OVERHEAD)).unwrap_or(usize::MAX).max(1);
        let records = Cache::with(estimated, bytes, Weight, RandomState::default(), Default::default());
        Shard { records, changing: HashSet::default(), changes: 0 }
    }

    fn keep(&mut self, key: RecordKey, record: Option<Record>) {
        let small = record.as_ref().is_none_or(|record| record.is_whole() && record.size <= MAX_BYTES);
        match small && !self.changing.contains(&key) {
            true => self.records.insert(key, record),
            false => drop(self.records.remove(&key)),
        }
    }
}

/// What a reader saw of the parts of the cache before it asked the engine.
type Seen = Vec<u64>;

impl<E: Engine> Cached<E> {
    /// Keeps up to about `bytes` bytes of an engine's records at hand.
    ///
    /// # Panics
    ///
    /// If other processes may write the engine: then nothing here could be relied on.
    pub fn new(inner: E, bytes: usize) -> Cached<E> {
        assert_eq!(inner.ownership(), Ownership::Exclusive, "only this process may write a cached engine");
        let share = (bytes / SHARDS) as u64;
        Cached {
            inner,
            shards: (0..SHARDS).map(|_| Mutex::new(Shard::new(share))).collect(),
            hasher: RandomState::default(),
            published: AtomicU64::new(0),
            committing: tokio::sync::Mutex::new(()),
        }
    }

    fn shard(&self, key: &RecordKey) -> &Mutex<Shard> {
        let at = usize::try_from(self.hasher.hash_one(key) % SHARDS as u64).unwrap_or(0);
        &self.shards[at]
    }

    /// The record, if it is known: `Some(None)` means that it is absent.
    fn find(&self, key: &RecordKey) -> Option<Option<Record>> {
        self.shard(key).lock().records.get(key).cloned()
    }

    /// The records, if all are here and none was published meanwhile.
    fn find_all(&self, wanted: &[Wanted], mut spare: usize) -> Option<Vec<Option<Record>>> {
        let before = self.published.load(Ordering::Acquire);
        if before % 2 == 1 {
            return None;
        }
        let mut found = Vec::with_capacity(wanted.len());
        for wanted in wanted {
            found.push(self.find(&wanted.key)?.map(|record| as_wanted(record, wanted, &mut spare)));
        }
        (self.published.load(Ordering::Acquire) == before).then_some(found)
    }

    fn seen(&self, wanted: &[Wanted]) -> Seen {
        wanted.iter().map(|wanted| self.shard(&wanted.key).lock().changes).collect()
    }

    /// Keeps what the engine returned, where no commit came between.
    fn keep_unchanged(&self, wanted: &[Wanted], seen: &Seen, loaded: &Loaded) {
        for ((wanted, changes), record) in wanted.iter().zip(seen).zip(&loaded.records) {
            // A head says nothing that a whole record here would not.
            let whole = record.as_ref().is_none_or(Record::is_whole);
            let mut shard = self.shard(&wanted.key).lock();
            if wanted.key.is_read_often() && whole && shard.changes == *changes {
                shard.keep(wanted.key.clone(), record.clone());
            }
        }
    }

    /// Takes out the records that a commit may change.
    fn withdraw(&self, changes: &[(RecordKey, Change)]) {
        for (key, _) in changes.iter().filter(|(key, _)| key.is_read_often()) {
            let mut shard = self.shard(key).lock();
            shard.changes += 1;
            shard.records.remove(key);
            shard.changing.insert(key.clone());
        }
    }

    /// Nothing was written: the records may be loaded again.
    fn restore(&self, changes: &[(RecordKey, Change)]) {
        for (key, _) in changes.iter().filter(|(key, _)| key.is_read_often()) {
            self.shard(key).lock().changing.remove(key);
        }
    }

    fn publish(&self, changes: Vec<(RecordKey, Change)>, first: Version) {
        self.published.fetch_add(1, Ordering::AcqRel);
        let changes = (first.0..).zip(changes).filter(|(_, (key, _))| key.is_read_often());
        for (version, (key, change)) in changes {
            let record = match change {
                Change::Put(bytes) => Some(Record::whole(Version(version), bytes)),
                Change::Delete => None,
            };
            let mut shard = self.shard(&key).lock();
            shard.changes += 1;
            shard.changing.remove(&key);
            shard.keep(key, record);
        }
        self.published.fetch_add(1, Ordering::AcqRel);
    }
}

/// A record as far as it is wanted (E6).
fn as_wanted(record: Record, wanted: &Wanted, spare: &mut usize) -> Record {
    match wanted.want.takes(record.size, spare) {
        true => record,
        false => Record::head(record.version, record.size),
    }
}

#[async_trait]
impl<E: Engine> Engine for Cached<E> {
    async fn load_wanted(&self, wanted: &[Wanted], spare: usize) -> Result<Loaded, EngineError> {
        if let Some(records) = self.find_all(wanted, spare) {
            return Ok(Loaded { records, as_of: LONG_AGO });
        }
        let seen = self.seen(wanted);
        let loaded = self.inner.load_wanted(wanted, spare).await?;
        self.keep_unchanged(wanted, &seen, &loaded);
        Ok(loaded)
    }

    async fn load_to_change(&self, wanted: &[Wanted], spare: usize) -> Result<Loaded, EngineError> {
        // Nothing is committed meanwhile, so records of the cache and of the engine are of one instant.
        let _no_commit = self.committing.lock().await;
        let (mut left, mut missing) = (spare, Vec::new());
        let mut records: Vec<Option<Record>> = Vec::with_capacity(wanted.len());
        for (at, wanted) in wanted.iter().enumerate() {
            let found = self.find(&wanted.key).unwrap_or_else(|| {
                missing.push(at);
                None
            });
            records.push(found.map(|record| as_wanted(record, wanted, &mut left)));
        }
        // `spare` is assigned in the order of the request, which only one load keeps.
        if missing.iter().any(|at| matches!(wanted[*at].want, Want::UpTo(_))) {
            missing = (0..wanted.len()).collect();
        }
        let from_engine: Vec<Wanted> = missing.iter().map(|at| wanted[*at].clone()).collect();
        let seen = self.seen(&from_engine);
        let loaded = self.inner.load_to_change(&from_engine, spare).await?;
        self.keep_unchanged(&from_engine, &seen, &loaded);
        for (at, record) in missing.into_iter().zip(loaded.records) {
            records[at] = record;
        }
        Ok(Loaded { records, as_of: loaded.as_of })
    }

    async fn scan(&self, scan: Scan) -> Result<Scanned, EngineError> {
        self.inner.scan(scan).await
    }

    async fn commit(&self, batch: Batch) -> Result<Commit, EngineError> {
        let _one_at_a_time = self.committing.lock().await;
        let changes = batch.changes.clone();
        self.withdraw(&changes);
        match self.inner.commit(batch).await? {
            Commit::Done { first } => {
                self.publish(changes, first);
                Ok(Commit::Done { first })
            }
            nothing_written => {
                self.restore(&changes);
                Ok(nothing_written)
            }
        }
    }

    fn fault(&self) -> Option<String> {
        self.inner.fault()
    }

    fn ownership(&self) -> Ownership {
        self.inner.ownership()
    }

    fn position(&self) -> Option<u64> {
        self.inner.position()
    }
}

#[cfg(test)]
mod tests;
