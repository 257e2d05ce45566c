//! The small answers that an HTTP/2 client has not taken yet, and for how long.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// The untaken small answers of one connection, oldest first.
#[derive(Default)]
pub(super) struct Untaken(Mutex<Parts>);

#[derive(Default)]
struct Parts {
    since: BTreeMap<u64, Instant>,
    given: u64,
}

impl Untaken {
    /// Counts an answer as untaken until the guard is dropped.
    pub(super) fn give(self: &Arc<Self>) -> Given {
        let parts = &mut *self.0.lock();
        parts.given += 1;
        parts.since.insert(parts.given, Instant::now());
        Given { number: parts.given, untaken: self.clone() }
    }

    /// How long the oldest one has been waiting.
    pub(super) fn oldest(&self) -> Option<Duration> {
        self.0.lock().since.first_key_value().map(|(_, since)| since.elapsed())
    }
}

/// An answer that was given to hyper. It is dropped when it is written.
pub(super) struct Given {
    number: u64,
    untaken: Arc<Untaken>,
}

impl Drop for Given {
    fn drop(&mut self) {
        self.untaken.0.lock().since.remove(&self.number);
    }
}
