//! What this process has seen of the history of the records, so that a server without it is refused (trap 46).

use std::collections::BTreeMap;

use fencepost_remote::postgres::{Session, Trouble, Type};
use parking_lot::Mutex;

use super::connection::History;
use crate::engine::{Change, Version};
use crate::record::RecordKey;

/// The newest history that was used, and the last commit of each lane that was confirmed.
#[derive(Default)]
pub(super) struct Past {
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    history: Option<History>,
    /// The records of the lanes, which only this process writes, and their versions. Several commits may be under way, so the
    /// last one that was confirmed need not be the last one that was made.
    confirmed: BTreeMap<RecordKey, Version>,
}

impl Past {
    /// The history that was used last.
    pub(super) fn history(&self) -> Option<History> {
        self.seen.lock().history.clone()
    }

    /// A server with this history is used from now on.
    pub(super) fn uses(&self, history: &History) {
        self.seen.lock().history = Some(history.clone());
    }

    /// A commit was confirmed. Its change of its lane comes last, and has this version.
    pub(super) fn confirmed(&self, changes: &[(RecordKey, Change)], last: Version) {
        match changes.last() {
            Some((lane, Change::Put(_))) if lane.is_lane() => {
                self.seen.lock().confirmed.insert(lane.clone(), last);
            }
            Some((lane, Change::Delete)) if lane.is_lane() => {
                self.seen.lock().confirmed.remove(lane);
            }
            _ => {}
        }
    }

    /// Whether this is a server from before a promotion that was already seen.
    pub(super) fn is_after(&self, found: &History) -> bool {
        let seen = self.seen.lock();
        // Timelines are eight hexadecimal digits.
        seen.history.as_ref().is_some_and(|seen| seen.cluster == found.cluster && seen.timeline > found.timeline)
    }

    /// Whether a server has every confirmed commit. `None`: nothing was confirmed to this process.
    pub(super) async fn is_had_by(&self, session: &Session, schema: &str) -> Result<Option<bool>, Trouble> {
        let confirmed = self.seen.lock().confirmed.clone();
        if confirmed.is_empty() {
            return Ok(None);
        }
        let statement = format!("SELECT key, version FROM {schema}.records WHERE key = ANY ($1)");
        let keys: Vec<&[u8]> = confirmed.keys().map(RecordKey::as_bytes).collect();
        let rows = session.query(&statement, &[(&keys, Type::BYTEA_ARRAY)]).await?;
        let found: BTreeMap<&[u8], u64> =
            rows.iter().map(|row| (row.get::<_, &[u8]>(0), row.get::<_, i64>(1).unsigned_abs())).collect();
        let has =
            |(key, version): (&RecordKey, &Version)| found.get(key.as_bytes()).is_some_and(|found| *found >= version.0);
        Ok(Some(confirmed.iter().all(has)))
    }
}
