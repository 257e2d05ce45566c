//! Locks across gateways: notices what other gateways do to a lock that is waited for here.
//!
//! The first waiter of each queue is watched, by its lock, its fence and the store's own record, all in one load. When one
//! of them changes, the waiter tries again, and the sequencer decides. Nothing is loaded while there are no waiters.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use fencepost_core::Resource;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::engine::{Engine, Record, Version, Want, Wanted};
use crate::lock_queue::Locks;
use crate::record::RecordKey;

/// The pause between two looks, up to half of it longer: gateways should not look in step.
const PAUSE: Duration = Duration::from_millis(50);

/// How many locks one look covers. With more, looks take turns.
const AT_ONCE: usize = 1_024;

/// The versions of what decides whether a lock may be had: its record, its fence, and the store's own record.
type Seen = [Option<Version>; 3];

/// The background task. It ends by itself when this is dropped.
pub(crate) struct LockWatch {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl LockWatch {
    /// Starts the task. Its reference to the engine is weak, so that it does not keep a closed store open.
    pub(crate) fn start(engine: &Arc<dyn Engine>, locks: &Arc<Locks>) -> LockWatch {
        let (engine, locks) = (Arc::downgrade(engine), locks.clone());
        let (stop, mut stopped) = oneshot::channel();
        let task = tokio::spawn(async move {
            let mut watching = Watching { engine, locks, seen: HashMap::new(), after: 0 };
            loop {
                tokio::select! {
                    () = watching.locks.waited_for() => {}
                    _ = &mut stopped => return,
                }
                // Never cancelled halfway: a read that continues without its reader would keep the engine open.
                watching.look().await;
                let longer = f64::from(getrandom::u32().unwrap_or(0)) / f64::from(u32::MAX) / 2.0;
                tokio::select! {
                    () = tokio::time::sleep(PAUSE.mul_f64(1.0 + longer)) => {}
                    _ = &mut stopped => return,
                }
            }
        });
        LockWatch { stop, task }
    }

    /// Stops the task, and waits until it has released the engine.
    pub(crate) async fn stop(self) {
        drop(self.stop);
        let _ = self.task.await;
    }
}

struct Watching {
    engine: Weak<dyn Engine>,
    locks: Arc<Locks>,
    /// What the last look at each lock found.
    seen: HashMap<Resource, Seen>,
    /// Where the next look begins among the locks that are waited for.
    after: usize,
}

impl Watching {
    async fn look(&mut self) {
        let Some(engine) = self.engine.upgrade() else { return };
        let mut heads = self.locks.waited_for_now();
        let waited_for: HashSet<&Resource> = heads.iter().collect();
        self.seen.retain(|resource, _| waited_for.contains(resource));
        if heads.len() > AT_ONCE {
            let start = self.after % heads.len();
            heads.rotate_left(start);
            heads.truncate(AT_ONCE);
            self.after = self.after.wrapping_add(AT_ONCE);
        }
        let keys = heads.iter().flat_map(|resource| [RecordKey::lock(resource), RecordKey::fence(resource)]);
        let wanted = [RecordKey::meta()].into_iter().chain(keys).map(|key| Wanted { key, want: Want::Version });
        let wanted: Vec<Wanted> = wanted.collect();
        let records = match engine.load_wanted(&wanted, 0).await {
            Ok(loaded) => loaded.records,
            Err(error) => {
                tracing::debug!(%error, "locks of other gateways cannot be looked at");
                return;
            }
        };
        let version = |record: &Option<Record>| record.as_ref().map(|record| record.version);
        let Some((meta, of_heads)) = records.split_first() else { return };
        for (resource, found) in heads.into_iter().zip(of_heads.chunks(2)) {
            let [lock, fence] = found else { continue };
            let now = [version(lock), version(fence), version(meta)];
            // What happened between the waiter's attempt and the first look is not known, so it tries once more.
            if self.seen.insert(resource.clone(), now) != Some(now) {
                self.locks.may_try(&resource);
            }
        }
    }
}
