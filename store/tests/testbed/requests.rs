//! Helpers for transactions, retries and locks.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fencepost_core::{Guards, Holder, IdempotencyKey, Presented};
use fencepost_store::engines::memory::Memory;
use fencepost_store::{
    AcquireLock, BatchReport, CallerId, Condition, Done, Grant, Held, Impossible, Observer, Once, Operation, Store,
    StoreOptions, Transacted, Transaction,
};

use super::{Ended, Outcome, ended, key, resource};
use parking_lot::Mutex;

/// A request of an anonymous caller with this idempotency key and fingerprint.
pub(crate) fn once(name: &str, fingerprint: u8) -> Once {
    once_by("anonymous", name, fingerprint)
}

pub(crate) fn once_by(caller: &str, name: &str, fingerprint: u8) -> Once {
    Once { caller: caller.into(), key: IdempotencyKey::new(name).unwrap(), fingerprint: [fingerprint; 32] }
}

pub(crate) fn idempotency_key(name: &str) -> IdempotencyKey {
    IdempotencyKey::new(name).unwrap()
}

/// A builder for transactions.
#[derive(Clone)]
pub(crate) struct Txn(pub(crate) Transaction);

pub(crate) fn txn() -> Txn {
    Txn(Transaction {
        tokens: Vec::new(),
        conditions: Vec::new(),
        operations: Vec::new(),
        max_bytes: 1 << 20,
        body: Bytes::new(),
        once: None,
    })
}

impl Txn {
    pub(crate) fn token(mut self, name: &str, presented: Presented) -> Txn {
        self.0.tokens.push((resource(name), presented));
        self
    }

    pub(crate) fn when(mut self, name: &str, condition: Condition) -> Txn {
        self.0.conditions.push((key(name), condition));
        self
    }

    fn step(mut self, name: &str, operation: Operation) -> Txn {
        self.0.operations.push((key(name), operation));
        self
    }

    pub(crate) fn put(self, name: &str, body: &str) -> Txn {
        let body = Bytes::copy_from_slice(body.as_bytes());
        self.step(name, Operation::Put { content_type: Some("text/x-note".into()), body })
    }

    pub(crate) fn delete(self, name: &str) -> Txn {
        self.step(name, Operation::Delete)
    }

    pub(crate) fn add(self, name: &str, by: i64) -> Txn {
        self.add_within(name, by, i64::MIN, i64::MAX)
    }

    pub(crate) fn add_within(self, name: &str, by: i64, min: i64, max: i64) -> Txn {
        self.step(name, Operation::Add { by, min, max })
    }

    pub(crate) fn get(self, name: &str) -> Txn {
        self.step(name, Operation::Get)
    }

    pub(crate) fn once(mut self, once: Once) -> Txn {
        self.0.once = Some(once);
        self
    }

    pub(crate) fn max_bytes(mut self, max_bytes: usize) -> Txn {
        self.0.max_bytes = max_bytes;
        self
    }

    pub(crate) async fn send(self, store: &Store) -> Ended {
        ended(store.transact(self.0).await)
    }
}

#[track_caller]
pub(crate) fn transacted(ended: Ended) -> Transacted {
    match ended {
        Ok(Outcome::Transacted(transacted)) => *transacted,
        other => panic!("expected it to be done: {other:?}"),
    }
}

/// The index of the condition that failed.
#[track_caller]
pub(crate) fn failed_at(ended: Ended) -> usize {
    match ended {
        Ok(Outcome::ConditionFailed { at, .. }) => at,
        other => panic!("expected a condition to fail: {other:?}"),
    }
}

#[track_caller]
pub(crate) fn impossible(ended: Ended) -> (usize, Impossible) {
    match ended {
        Ok(Outcome::Impossible { at, why, .. }) => (at, why),
        other => panic!("expected it to be impossible: {other:?}"),
    }
}

/// The results of a transaction's operations.
#[track_caller]
pub(crate) fn done(ended: Ended) -> Vec<Done> {
    transacted(ended).results.into_iter().map(|(_, done)| done).collect()
}

/// The outcome that was recorded earlier.
#[track_caller]
pub(crate) fn replayed(ended: Ended) -> Outcome {
    match ended {
        Ok(Outcome::Replayed(outcome)) => *outcome,
        other => panic!("expected a replay: {other:?}"),
    }
}

/// A request for a lock that does not wait.
pub(crate) fn wanted(name: &str, holder: &str, ttl_ms: u64) -> AcquireLock {
    AcquireLock {
        resource: resource(name),
        holder: Holder::new(holder).unwrap(),
        ttl: Duration::from_millis(ttl_ms),
        wait: Duration::ZERO,
        once: None,
        caller: CallerId::default(),
    }
}

/// A request for a lock that waits.
pub(crate) fn awaited(name: &str, holder: &str, ttl_ms: u64) -> AcquireLock {
    AcquireLock { wait: Duration::from_secs(30), ..wanted(name, holder, ttl_ms) }
}

pub(crate) async fn acquire(store: &Store, wanted: AcquireLock) -> Ended {
    ended(store.acquire(wanted).await)
}

#[track_caller]
pub(crate) fn granted(ended: Ended) -> Grant {
    match ended {
        Ok(Outcome::Granted(grant)) => *grant,
        other => panic!("expected it to be granted: {other:?}"),
    }
}

/// The blocking holder, and its remaining milliseconds at most.
#[track_caller]
pub(crate) fn in_the_way(ended: Ended) -> (Held, u64) {
    match ended {
        Ok(Outcome::Held(holding)) => (holding.by.unwrap(), holding.remaining_ms),
        other => panic!("expected it to be held: {other:?}"),
    }
}

pub(crate) async fn renew(store: &Store, name: &str, grant: &Grant, ttl_ms: u64) -> Ended {
    ended(store.renew(&resource(name), grant.lease, Duration::from_millis(ttl_ms)).await)
}

pub(crate) async fn release(store: &Store, name: &str, grant: &Grant) -> Ended {
    ended(store.release(&resource(name), grant.lease).await)
}

pub(crate) async fn force_release(store: &Store, name: &str) -> Ended {
    ended(store.force_release(&resource(name)).await)
}

/// Collects the reports of all batches.
#[derive(Default)]
pub(crate) struct Reports(pub(crate) Mutex<Vec<BatchReport>>);

impl Observer for Reports {
    fn batch(&self, report: BatchReport) {
        self.0.lock().push(report);
    }
}

impl Reports {
    pub(crate) fn commands(&self) -> usize {
        self.0.lock().iter().map(|report| report.commands).sum()
    }
}

/// A store over a memory engine whose batches are reported.
pub(crate) async fn reported(guards: Guards, options: StoreOptions) -> (Store, Memory, Arc<Reports>) {
    let (memory, reports) = (Memory::default(), Arc::new(Reports::default()));
    let store = Store::open(Arc::new(memory.clone()), guards, options, reports.clone()).await.unwrap();
    (store, memory, reports)
}

/// Long enough to outlast a test.
pub(crate) const LONG: u64 = 600_000;

/// Milliseconds, short enough to wait for.
pub(crate) const SHORT: u64 = 150;

pub(crate) fn number(grant: &Grant) -> u64 {
    grant.token.number().get()
}

/// Acquires a lock that is free.
pub(crate) async fn grant(store: &Store, name: &str, holder: &str) -> Grant {
    granted(acquire(store, wanted(name, holder, LONG)).await)
}

/// The new holder of a lock whose lease was lost.
#[track_caller]
pub(crate) fn lost(ended: Ended) -> Option<String> {
    match ended {
        Ok(Outcome::LeaseLost { holder, .. }) => holder.map(|holder| holder.to_string()),
        other => panic!("expected the lease to be lost: {other:?}"),
    }
}
