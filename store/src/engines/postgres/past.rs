//! What this process has seen of the history of the records, so that a server without it is refused (trap 46).

use std::collections::BTreeMap;

use bytes::Bytes;
use fencepost_remote::postgres::{Session, Trouble, Type};
use parking_lot::Mutex;

use super::connection::History;
use crate::engine::Change;
use crate::record::{RecordKey, decode_lane};

/// The newest history that was used, and the last commit of each lane that was confirmed.
#[derive(Default)]
pub(super) struct Past {
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    history: Option<History>,
    /// The records of the lanes, which only this process writes, and their numbers. Several commits may be under way, so the
    /// last one that was confirmed need not be the last one that was made.
    confirmed: BTreeMap<RecordKey, u64>,
}

impl Past {
    /// The history that was used last.
    pub(super) fn history(&self) -> Option<History> {
        self.seen.lock().history.clone()
    }

    /// A server with this history is used from now on, unless a later one is.
    pub(super) fn uses(&self, history: &History) {
        let mut seen = self.seen.lock();
        if !is_after(seen.history.as_ref(), history) {
            seen.history = Some(history.clone());
        }
    }

    /// A commit was confirmed. Its change of its lane comes last.
    pub(super) fn confirmed(&self, changes: &[(RecordKey, Change)]) {
        match changes.last() {
            Some((lane, Change::Put(bytes))) if lane.is_lane() => {
                if let Ok(number) = decode_lane(bytes) {
                    self.seen.lock().confirmed.insert(lane.clone(), number);
                }
            }
            Some((lane, Change::Delete)) if lane.is_lane() => {
                self.seen.lock().confirmed.remove(lane);
            }
            _ => {}
        }
    }

    /// Whether this is a server from before a promotion that was already seen.
    pub(super) fn is_after(&self, found: &History) -> bool {
        is_after(self.seen.lock().history.as_ref(), found)
    }

    /// Whether a server has every confirmed commit. `None`: nothing was confirmed to this process.
    pub(super) async fn is_had_by(&self, session: &Session, schema: &str) -> Result<Option<bool>, Trouble> {
        let confirmed = self.seen.lock().confirmed.clone();
        if confirmed.is_empty() {
            return Ok(None);
        }
        let statement = format!("SELECT key, bytes FROM {schema}.records WHERE key = ANY ($1)");
        let keys: Vec<&[u8]> = confirmed.keys().map(RecordKey::as_bytes).collect();
        let rows = session.query(&statement, &[(&keys, Type::BYTEA_ARRAY)]).await?;
        let number = |bytes: &[u8]| decode_lane(&Bytes::copy_from_slice(bytes)).unwrap_or(0);
        let found: BTreeMap<&[u8], u64> = rows.iter().map(|row| (row.get::<_, &[u8]>(0), number(row.get(1)))).collect();
        let has = |(key, number): (&RecordKey, &u64)| found.get(key.as_bytes()).is_some_and(|found| found >= number);
        Ok(Some(confirmed.iter().all(has)))
    }
}

/// Whether what was seen is later than what is found, in one cluster. Timelines are eight hexadecimal digits.
fn is_after(seen: Option<&History>, found: &History) -> bool {
    seen.is_some_and(|seen| seen.cluster == found.cluster && seen.timeline > found.timeline)
}
