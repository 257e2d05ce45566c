//! Compaction: etcd keeps every old revision until it is told to forget them.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use fencepost_remote::etcd::messages::CompactionRequest;
use fencepost_remote::etcd::{Channel, Refusal};
use tokio::task::AbortHandle;

/// The pause between two compactions of one gateway.
const EVERY: Duration = Duration::from_secs(60);

/// How many of the latest revisions are kept: more than go by while a load or a scan is under way.
const KEPT: i64 = 10_000;

/// The time limit of a request.
const LIMIT: Duration = Duration::from_secs(5);

/// The most bytes of an answer.
const ANSWER_BYTES: usize = 64 << 10;

/// Compacts from time to time, until it is dropped.
pub(super) struct Compactor(AbortHandle);

impl Compactor {
    /// `seen` is the latest revision.
    pub(super) fn start(channel: Arc<Channel>, seen: Arc<AtomicI64>) -> Compactor {
        Compactor(tokio::spawn(compact(channel, seen)).abort_handle())
    }
}

impl Drop for Compactor {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn compact(channel: Arc<Channel>, seen: Arc<AtomicI64>) {
    let (mut done, mut warned) = (0, false);
    loop {
        tokio::time::sleep(EVERY).await;
        let Some(revision) = due(seen.load(Ordering::Acquire), done) else { continue };
        match channel.call(&CompactionRequest { revision }, LIMIT, ANSWER_BYTES).await {
            Ok(_) => done = revision,
            // Another gateway was faster, or etcd itself.
            Err(trouble) if trouble.is(Refusal::Revision) => done = revision,
            Err(trouble) if !warned && trouble.is(Refusal::Permission) => {
                warned = true;
                tracing::warn!(
                    %trouble,
                    "etcd lets only its root user compact: set its --auto-compaction-mode and -retention, and compaction=server \
                     in the URL"
                );
            }
            Err(trouble) => tracing::debug!(%trouble, "etcd was not compacted; it is tried again"),
        }
    }
}

/// The revision up to which history can go, if that is more than was done.
fn due(seen: i64, done: i64) -> Option<i64> {
    Some(seen - KEPT).filter(|revision| *revision > done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_revisions_are_kept() {
        assert_eq!((due(0, 0), due(10_000, 0), due(10_001, 0)), (None, None, Some(1)));
        assert_eq!((due(10_001, 1), due(15_000, 1)), (None, Some(5_000)));
    }
}
