//! Records as a shared engine last had them, so that a batch can be judged without a load.
//!
//! Another gateway may have changed them since, so they prove nothing: the commit compares every record that was judged on,
//! and a conflict removes what was compared. Only the sequencer uses them. They are bounded by bytes.

use bytes::Bytes;
use quick_cache::Weighter;
use quick_cache::unsync::Cache;

use crate::engine::{AsOf, Batch, Change, Loaded, Record, Version, Wanted};
use crate::record::RecordKey;

/// Bytes that an entry takes beside its key and its bytes, estimated.
const OVERHEAD: usize = 192;

/// Bytes of a typical entry: a fence with its names.
const TYPICAL: usize = 320;

/// A record; `None` if it is absent.
type State = Option<Record>;

#[derive(Clone)]
struct Weight;

impl Weighter<RecordKey, State> for Weight {
    fn weight(&self, key: &RecordKey, state: &State) -> u64 {
        (OVERHEAD + key.as_bytes().len() + state.as_ref().map_or(0, |record| record.bytes.len())) as u64
    }
}

/// Fences and the store's own record. Values are not kept: few commands read them before they write, and they are large.
/// Locks are not, because they are what gateways contend for: a lock that is out of date costs more than a load.
pub(crate) struct KnownRecords {
    records: Cache<RecordKey, State, Weight>,
}

/// What a batch changes of the records that are kept here: the place in the batch, and the new bytes.
pub(crate) type Changed = Vec<(usize, RecordKey, Option<Bytes>)>;

impl KnownRecords {
    pub(crate) fn new(bytes: usize) -> KnownRecords {
        KnownRecords { records: Cache::with_weighter((bytes / TYPICAL).max(1), bytes as u64, Weight) }
    }

    /// All these records; `None` if one of them is not known. Recorded outcomes are assumed to be absent: the key of a
    /// request is new unless the request is a retry, and then the commit conflicts.
    pub(crate) fn all(&self, wanted: &[Wanted]) -> Option<Loaded> {
        let state = |wanted: &Wanted| match wanted.key.is_outcome() {
            true => Some(None),
            false => self.records.get(&wanted.key).cloned(),
        };
        let records = wanted.iter().map(state).collect::<Option<_>>()?;
        Some(Loaded { records, as_of: AsOf(0) })
    }

    /// Keeps what was loaded.
    pub(crate) fn loaded(&mut self, wanted: &[Wanted], loaded: &Loaded) {
        for (Wanted { key, .. }, state) in wanted.iter().zip(&loaded.records) {
            if key.is_judged_on() && state.as_ref().is_none_or(Record::is_whole) {
                self.records.insert(key.clone(), state.clone());
            }
        }
    }

    /// The compared records of a batch that are kept here, for [`KnownRecords::forget`].
    pub(crate) fn compared_by(batch: &Batch) -> Vec<RecordKey> {
        batch.compared().map(|(key, _)| key).filter(|key| key.is_judged_on()).cloned().collect()
    }

    /// What a batch changes of these records, for [`KnownRecords::committed`].
    pub(crate) fn changed_by(batch: &Batch) -> Changed {
        let of_change = |(at, (key, change)): (usize, &(RecordKey, Change))| {
            key.is_judged_on().then(|| match change {
                Change::Put(bytes) => (at, key.clone(), Some(bytes.clone())),
                Change::Delete => (at, key.clone(), None),
            })
        };
        batch.changes.iter().enumerate().filter_map(of_change).collect()
    }

    /// Keeps what was committed.
    pub(crate) fn committed(&mut self, first: Version, changed: Changed) {
        for (at, key, bytes) in changed {
            self.records.insert(key, bytes.map(|bytes| Record::whole(Version(first.0 + at as u64), bytes)));
        }
    }

    /// Removes what was compared, because one of these records has changed or may have changed.
    pub(crate) fn forget(&mut self, compared: &[RecordKey]) {
        for key in compared {
            self.records.remove(key);
        }
    }
}
