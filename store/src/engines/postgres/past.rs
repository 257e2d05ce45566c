//! What this process has seen of the history of the records, so that a server without it is refused (trap 46).

use fencepost_remote::postgres::{Session, Trouble, Type};
use parking_lot::Mutex;

use super::connection::History;
use crate::engine::Version;
use crate::record::RecordKey;

/// The newest history that was used, and the last commit that was confirmed.
#[derive(Default)]
pub(super) struct Past {
    seen: Mutex<Seen>,
}

#[derive(Clone, Default)]
struct Seen {
    history: Option<History>,
    /// A record that the last confirmed commit wrote, and its version. The last change of a batch is that of the lane,
    /// which only this process writes.
    confirmed: Option<(RecordKey, Version)>,
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

    /// A commit was confirmed that wrote this record last.
    pub(super) fn confirmed(&self, key: &RecordKey, version: Version) {
        self.seen.lock().confirmed = Some((key.clone(), version));
    }

    /// Whether this is a server from before a promotion that was already seen.
    pub(super) fn is_after(&self, found: &History) -> bool {
        let seen = self.seen.lock();
        // Timelines are eight hexadecimal digits.
        seen.history.as_ref().is_some_and(|seen| seen.cluster == found.cluster && seen.timeline > found.timeline)
    }

    /// Whether a server has the last confirmed commit. `None`: nothing was confirmed to this process.
    pub(super) async fn is_had_by(&self, session: &Session, schema: &str) -> Result<Option<bool>, Trouble> {
        let Some((key, version)) = self.seen.lock().confirmed.clone() else { return Ok(None) };
        let statement = format!("SELECT version FROM {schema}.records WHERE key = $1");
        let rows = session.query(&statement, &[(&key.as_bytes(), Type::BYTEA)]).await?;
        let found = rows.first().map(|row| row.get::<_, i64>(0).unsigned_abs());
        Ok(Some(found.is_some_and(|found| found >= version.0)))
    }
}
