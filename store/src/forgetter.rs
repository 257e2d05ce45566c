//! Removal of outcomes whose retention has passed.
//!
//! Each commit that records outcomes lists them in an index record whose key starts with the time. So the oldest are
//! found without a search. They are removed through the sequencer like any other change, a few at a time.

use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use fencepost_core::{IdempotencyKey, Timestamp};
use tokio::sync::oneshot::error::TryRecvError;
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinHandle, JoinSet};

use crate::command::{Action, Command};
use crate::engine::{Engine, Scan};
use crate::entry::Entry;
use crate::failure::Failure;
use crate::fence_cache::FenceCache;
use crate::outcome::FinalOutcome;
use crate::poison::Poison;
use crate::record::{self, OutcomeKey, RecordKey};
use crate::retention::Retention;
use crate::store::Store;

/// How many indexes are read and removed at a time, and so may share a commit with writes.
const AT_ONCE: usize = 8;

/// Its references to the engine and the queue are weak, so that it does not keep a closed store open.
struct Forgetting {
    engine: Weak<dyn Engine>,
    queue: mpsc::WeakSender<Command>,
    cache: Arc<FenceCache>,
    poison: Poison,
    under_way: Arc<AtomicUsize>,
    retention: Retention,
    started: Instant,
    /// Everything before this key has been examined.
    from: Vec<u8>,
}

/// The background task that removes old outcomes. It ends by itself when this is dropped.
pub(crate) struct Forgetter {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Forgetter {
    /// Stops the task, and waits until it has released the engine.
    pub(crate) async fn stop(self) {
        drop(self.stop);
        let _ = self.task.await;
    }
}

/// Starts the task.
pub(crate) fn start(engine: &Arc<dyn Engine>, entry: &Entry, retention: Duration) -> Forgetter {
    let mut forgetting = Forgetting {
        engine: Arc::downgrade(engine),
        queue: entry.queue.downgrade(),
        cache: entry.cache.clone(),
        poison: entry.poison.clone(),
        under_way: entry.under_way.clone(),
        retention: Retention::new(retention, Timestamp::now()),
        started: Instant::now(),
        from: record::index_prefix(),
    };
    let pause = (retention / 100).clamp(Duration::from_millis(50), Duration::from_secs(60));
    let (stop, mut stopped) = oneshot::channel();
    let task = tokio::spawn(async move {
        // Never cancelled halfway: a read that continues without its reader would keep the engine open.
        while let (Some(forgotten), Err(TryRecvError::Empty)) = (forgetting.oldest().await, stopped.try_recv()) {
            if forgotten == 0 {
                // Start over next time: something may have been left, or the clock set back.
                forgetting.from = record::index_prefix();
                tokio::select! {
                    () = tokio::time::sleep(pause) => {}
                    _ = &mut stopped => return,
                }
            }
        }
    });
    Forgetter { stop, task }
}

impl Forgetting {
    /// Removes the oldest outcomes. Returns the number of indexes removed; `None` if the store is closed.
    async fn oldest(&mut self) -> Option<usize> {
        let Some(before) = self.retention.forget_before(self.started.elapsed(), Timestamp::now()) else {
            return self.engine.upgrade().map(|_| 0);
        };
        let scan = Scan {
            from: self.from.clone(),
            inclusive: true,
            prefix: record::index_prefix(),
            limit: AT_ONCE,
            max_bytes: 1 << 20,
        };
        let scanned = match self.engine.upgrade()?.scan(scan).await {
            Ok(scanned) => scanned.records,
            Err(error) => {
                tracing::warn!(%error, "cannot look for outcomes to forget");
                return Some(0);
            }
        };
        let end = record::index_at(before);
        let mut removing = JoinSet::new();
        let mut last = None;
        for (key, found) in scanned.into_iter().take_while(|(key, _)| *key < end) {
            let outcomes = match record::decode_index(&found.bytes) {
                Ok(outcomes) => outcomes,
                Err(error) => {
                    tracing::error!(%error, "an index of outcomes cannot be read; what it lists stays");
                    self.from = [key.as_slice(), &[0]].concat();
                    continue;
                }
            };
            last = Some(key.clone());
            let index = RecordKey::scanned(key);
            let queue = self.queue.upgrade()?;
            let (cache, poison, under_way) = (self.cache.clone(), self.poison.clone(), self.under_way.clone());
            let entry = Entry { queue, cache, poison, under_way, is_shared: false };
            removing.spawn(async move {
                entry.submit(Vec::new(), None, |reply| Action::Forget { index, outcomes, reply }).await
            });
        }
        let mut removed = 0;
        while let Some(ended) = removing.join_next().await {
            match ended {
                Ok(Ok(())) => removed += 1,
                Ok(Err(Failure::Rejected(error))) => tracing::debug!(%error, "outcomes are forgotten later"),
                other => tracing::debug!(?other, "outcomes are forgotten later"),
            }
        }
        if let Some(last) = last {
            self.from = last;
        }
        Some(removed)
    }
}

impl Store {
    /// Ensures that a request with this key is never applied. If it was applied already, returns that outcome.
    pub async fn abandon(&self, caller: &str, key: &IdempotencyKey) -> Result<FinalOutcome, Failure> {
        let key = OutcomeKey::new(caller, key);
        self.entry.submit(Vec::new(), None, |reply| Action::Abandon(key, reply)).await
    }
}
