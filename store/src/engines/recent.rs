//! Committed records in memory, in front of an engine's tables.
//!
//! A record is in one of three groups, which are searched in this order:
//!
//! - *fresh*: committed, and not in the tables yet. After a crash the journal has it.
//! - *leaving*: being written to the tables.
//! - *clean*: a copy of what the tables have, or the fact that they have nothing. Bounded by bytes; a scan does not flush it.
//!
//! So a record that is written again and again reaches the tables once in a while, in its last version. Three rules keep the
//! engine's contract:
//!
//! - A commit is published between two steps of a counter. A load that saw the counter move may have mixed two instants, and
//!   is repeated (E1).
//! - A record leaves only after the tables have it. So a reader that does not find it here finds it there, or finds a newer
//!   one here (E5).
//! - What a reader found in the tables is kept only if no commit has touched that part of the memory since.

use std::collections::BTreeMap;
use std::hash::BuildHasher;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use foldhash::HashMap;
use foldhash::fast::RandomState;
use parking_lot::{Mutex, MutexGuard};
use quick_cache::Weighter;
use quick_cache::unsync::Cache;

use crate::engine::{Change, Record, Scan, Version};
use crate::record::RecordKey;

/// The number of parts, each with a lock of its own.
const SHARDS: usize = 64;

/// Larger records are not kept once they are in tables, so that a few of them do not displace everything else.
const MAX_CLEAN_BYTES: usize = 16 << 10;

/// Bytes that an entry takes beside its key and its bytes, estimated: slots of the map, allocations and their headers.
const OVERHEAD: usize = 256;

/// A record as it was committed; `None` if it was removed, or is absent.
type State = Option<Record>;

/// Records by key.
pub(super) type Records = HashMap<RecordKey, State>;

/// Committed records in memory.
pub(super) struct Recent {
    shards: Box<[Mutex<Shard>]>,
    hasher: RandomState,
    /// Odd while the changes of a commit are being published.
    published: AtomicU64,
    /// Held while a commit is being published.
    publishing: Mutex<Positions>,
    fresh_bytes: AtomicUsize,
    fresh_records: AtomicUsize,
    leaving_records: AtomicUsize,
}

#[derive(Default)]
struct Positions {
    /// The last position of the fresh records.
    fresh: u64,
    /// The last position of the leaving ones, if there are any.
    leaving: Option<u64>,
}

struct Shard {
    fresh: Records,
    leaving: Arc<Records>,
    clean: Cache<RecordKey, State, Weight, RandomState>,
    /// How often records of this part were published.
    changes: u64,
}

#[derive(Clone)]
struct Weight;

impl Weighter<RecordKey, State> for Weight {
    fn weight(&self, key: &RecordKey, state: &State) -> u64 {
        weight(key, state) as u64
    }
}

fn weight(key: &RecordKey, state: &State) -> usize {
    OVERHEAD + key.as_bytes().len() + state.as_ref().map_or(0, |record| record.bytes.len())
}

/// What is known of a record without the tables.
pub(super) enum Found {
    /// Its state.
    Here(State),
    /// Nothing. The number says whether the part of the memory changes until the tables have answered.
    Missing(u64),
}

/// The records that are being written to the tables.
pub(super) struct Leaving {
    parts: Vec<Arc<Records>>,
    /// The position that the tables have reached when they have these records.
    pub(super) last: u64,
}

impl Leaving {
    /// The records, ordered by key.
    pub(super) fn sorted(&self) -> Vec<(&RecordKey, &State)> {
        let mut records: Vec<_> = self.parts.iter().flat_map(|part| part.iter()).collect();
        records.sort_unstable_by_key(|(key, _)| *key);
        records
    }
}

impl Recent {
    /// Keeps up to about `clean_bytes` bytes of what the tables have. The tables have everything up to `last`.
    pub(super) fn new(clean_bytes: usize, last: u64) -> Recent {
        let share = clean_bytes / SHARDS;
        Recent {
            shards: (0..SHARDS).map(|_| Mutex::new(Shard::new(share))).collect(),
            hasher: RandomState::default(),
            // Not the instant of a load that looked at nothing, which callers write as 0.
            published: AtomicU64::new(2),
            publishing: Mutex::new(Positions { fresh: last, leaving: None }),
            fresh_bytes: AtomicUsize::new(0),
            fresh_records: AtomicUsize::new(0),
            leaving_records: AtomicUsize::new(0),
        }
    }

    fn shard(&self, key: &RecordKey) -> MutexGuard<'_, Shard> {
        let at = usize::try_from(self.hasher.hash_one(key) % SHARDS as u64).unwrap_or(0);
        self.shards[at].lock()
    }

    /// Counts the commits. `None` while one is being published.
    pub(super) fn instant(&self) -> Option<u64> {
        let published = self.published.load(Ordering::Acquire);
        published.is_multiple_of(2).then_some(published)
    }

    /// Finds a record without the tables.
    pub(super) fn find(&self, key: &RecordKey) -> Found {
        let shard = self.shard(key);
        match shard.fresh.get(key).or_else(|| shard.leaving.get(key)).or_else(|| shard.clean.get(key)) {
            Some(state) => Found::Here(state.clone()),
            None => Found::Missing(shard.changes),
        }
    }

    /// Keeps what the tables have under a key that was missing, unless a commit came between.
    pub(super) fn keep(&self, key: &RecordKey, state: &State, changes: u64) {
        // A record without its bytes says too little.
        if state.as_ref().is_none_or(Record::is_whole) && key.is_read_often() {
            let mut shard = self.shard(key);
            if shard.changes == changes {
                shard.keep(key.clone(), state.clone());
            }
        }
    }

    /// Makes a durable commit visible. Its changes have the versions from `first` on.
    pub(super) fn publish(&self, changes: Vec<(RecordKey, Change)>, first: Version) {
        let mut positions = self.publishing.lock();
        self.published.fetch_add(1, Ordering::AcqRel);
        let (mut bytes, mut records) = (self.fresh_bytes.load(Ordering::Relaxed), 0);
        positions.fresh += changes.len() as u64;
        for (version, (key, change)) in (first.0..).zip(changes) {
            let state = match change {
                Change::Put(bytes) => Some(Record::whole(Version(version), bytes)),
                Change::Delete => None,
            };
            let size = |state: &State| state.as_ref().map_or(0, |record| record.bytes.len());
            let (added, new) = (weight(&key, &state), size(&state));
            let mut shard = self.shard(&key);
            shard.changes += 1;
            match shard.fresh.insert(key, state) {
                Some(replaced) => bytes = bytes + new - size(&replaced),
                None => (bytes, records) = (bytes + added, records + 1),
            }
        }
        self.fresh_bytes.store(bytes, Ordering::Relaxed);
        self.fresh_records.fetch_add(records, Ordering::Relaxed);
        self.published.fetch_add(1, Ordering::AcqRel);
    }

    /// The bytes of the fresh records, with an estimate of what keeping them costs.
    pub(super) fn fresh_bytes(&self) -> usize {
        self.fresh_bytes.load(Ordering::Relaxed)
    }

    fn fresh_records(&self) -> usize {
        self.fresh_records.load(Ordering::Relaxed)
    }

    /// The number of records that the tables may not have.
    pub(super) fn unsaved_records(&self) -> usize {
        self.fresh_records() + self.leaving_records.load(Ordering::Relaxed)
    }

    /// The records to be written to the tables; `None` if there are none. If those of the last call have not left, it returns
    /// them again.
    pub(super) fn leave(&self) -> Option<Leaving> {
        let mut positions = self.publishing.lock();
        let last = match positions.leaving {
            Some(last) => last,
            None if self.fresh_records() == 0 => return None,
            None => {
                for shard in &self.shards {
                    let shard = &mut *shard.lock();
                    // It will probably have as many again.
                    let next = HashMap::with_capacity_and_hasher(shard.fresh.len(), Default::default());
                    shard.leaving = Arc::new(mem::replace(&mut shard.fresh, next));
                }
                self.fresh_bytes.store(0, Ordering::Relaxed);
                let records = self.fresh_records.swap(0, Ordering::Relaxed);
                self.leaving_records.store(records, Ordering::Relaxed);
                positions.leaving = Some(positions.fresh);
                positions.fresh
            }
        };
        drop(positions);
        let parts = self.shards.iter().map(|shard| shard.lock().leaving.clone()).collect();
        Some(Leaving { parts, last })
    }

    /// The tables have these records now.
    pub(super) fn left(&self, leaving: Leaving) {
        drop(leaving);
        for shard in &self.shards {
            let shard = &mut *shard.lock();
            let left = Arc::unwrap_or_clone(mem::take(&mut shard.leaving));
            left.into_iter().for_each(|(key, state)| shard.keep(key, state));
        }
        self.publishing.lock().leaving = None;
        self.leaving_records.store(0, Ordering::Relaxed);
    }

    /// Looks at something while no commit is being published.
    pub(super) fn between_commits<T>(&self, look: impl FnOnce() -> T) -> T {
        let _publishing = self.publishing.lock();
        look()
    }

    /// The records of a scan's range that the tables may not have. Called between commits, so it copies only fresh ones.
    pub(super) fn unsaved(&self, scan: &Scan) -> Unsaved {
        let mut unsaved = Unsaved { leaving: Vec::with_capacity(SHARDS), fresh: BTreeMap::new() };
        for shard in &self.shards {
            let shard = shard.lock();
            unsaved.leaving.push(shard.leaving.clone());
            unsaved.fresh.extend(of_range(&shard.fresh, scan));
        }
        unsaved
    }
}

/// Records that the tables may not have, as of one instant.
pub(super) struct Unsaved {
    leaving: Vec<Arc<Records>>,
    fresh: BTreeMap<RecordKey, State>,
}

impl Unsaved {
    /// The records of the scan's range, ordered by key.
    pub(super) fn into_ordered(self, scan: &Scan) -> BTreeMap<RecordKey, State> {
        let mut ordered = self.fresh;
        for (key, state) in self.leaving.iter().flat_map(|part| of_range(part, scan)) {
            // A fresh record replaces a leaving one.
            ordered.entry(key).or_insert(state);
        }
        ordered
    }
}

fn of_range(records: &Records, scan: &Scan) -> impl Iterator<Item = (RecordKey, State)> {
    let found = records.iter().filter(|(key, _)| scan.has(key.as_bytes()));
    found.map(|(key, state)| (key.clone(), state.clone()))
}

impl Shard {
    fn new(clean_bytes: usize) -> Shard {
        let estimated = (clean_bytes / (4 * OVERHEAD)).max(1);
        let clean = Cache::with(estimated, clean_bytes as u64, Weight, RandomState::default(), Default::default());
        Shard { fresh: Records::default(), leaving: Arc::default(), clean, changes: 0 }
    }

    /// Keeps what the tables have, and nothing older.
    fn keep(&mut self, key: RecordKey, state: State) {
        let small = state.as_ref().is_none_or(|record| record.is_whole() && record.size <= MAX_CLEAN_BYTES);
        match small && key.is_read_often() {
            true => self.clean.insert(key, state),
            false => drop(self.clean.remove(&key)),
        }
    }
}

#[cfg(test)]
mod tests;
