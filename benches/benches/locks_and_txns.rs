//! Transactions over several resources, and the built-in lock service, with one caller at a time and with many.
#![allow(missing_docs, reason = "criterion's macros make public functions")]
#![allow(clippy::unwrap_used, reason = "a bench fails loudly")]

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use fencepost_core::{Guards, Holder, Key, Presented, Resource, Token};
use fencepost_store::engines::{ENGINES, EngineOptions, Place};
use fencepost_store::{
    AcquireLock, AcquireOutcome, CallerId, NoObserver, Operation, ReleaseOutcome, RenewOutcome, Store, StoreOptions,
    TransactOutcome, Transaction,
};
use tokio::runtime::{Builder, Runtime};

const TTL: Duration = Duration::from_secs(3600);

/// Four keys on four resources: two values, a number and a read.
fn transaction(number: usize) -> Transaction {
    let name = |part: &str| format!("t/{number}/{part}");
    let put = || Operation::Put { content_type: None, body: Bytes::from_static(&[b'x'; 256]) };
    let add = Operation::Add { by: 1, min: 0, max: i64::MAX };
    let operations = [("a", put()), ("b", put()), ("n", add), ("r", Operation::Get)];
    let token = Presented { token: Token::new(0, 34).unwrap(), holder: None, issuer: None };
    Transaction {
        tokens: ["a", "b", "n", "r"].map(|part| (Resource::new(&name(part)).unwrap(), token.clone())).into(),
        conditions: Vec::new(),
        operations: operations.map(|(part, operation)| (Key::new(&name(part)).unwrap(), operation)).into(),
        max_bytes: 1 << 10,
        body: Bytes::new(),
        once: None,
    }
}

fn lock(number: usize) -> Resource {
    Resource::new(&format!("l/{number}")).unwrap()
}

async fn acquire(store: &Store, number: usize) -> fencepost_store::Grant {
    let holder = Holder::new("bench#1").unwrap();
    let (wait, caller) = (Duration::ZERO, CallerId::default());
    let wanted = AcquireLock { resource: lock(number), holder, ttl: TTL, wait, once: None, caller };
    match store.acquire(wanted).await.unwrap() {
        AcquireOutcome::Granted(grant) => *grant,
        other => panic!("{other:?}"),
    }
}

/// The operation that each caller repeats.
#[derive(Clone, Copy)]
enum Work {
    Transaction,
    AcquireAndRelease,
    /// Renewal of a lock that the caller holds.
    Renew,
}

/// Runs this many callers at once, each on resources of its own.
async fn run(store: &Arc<Store>, work: Work, grants: &Arc<Vec<fencepost_store::Grant>>, callers: usize) {
    let tasks: Vec<_> = (0..callers)
        .map(|number| {
            let (store, grants) = (store.clone(), grants.clone());
            tokio::spawn(async move {
                match work {
                    Work::Transaction => {
                        let done = store.transact(transaction(number)).await.unwrap();
                        assert!(matches!(done, TransactOutcome::Transacted(_)), "{done:?}");
                    }
                    Work::AcquireAndRelease => {
                        let grant = acquire(&store, number).await;
                        let done = store.release(&lock(number), grant.lease).await.unwrap();
                        assert_eq!(done, ReleaseOutcome::Released);
                    }
                    Work::Renew => {
                        let renewed = store.renew(&lock(number), grants[number].lease, TTL).await.unwrap();
                        assert!(matches!(renewed, RenewOutcome::Renewed(_)), "{renewed:?}");
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
}

fn bench(c: &mut Criterion, runtime: &Runtime, engine: &str, store: &Arc<Store>) {
    for (name, work) in
        [("txn of 4", Work::Transaction), ("acquire+release", Work::AcquireAndRelease), ("renew", Work::Renew)]
    {
        let mut group = c.benchmark_group(format!("{name}/{engine}"));
        for callers in [1, 64] {
            let mut grants = Vec::new();
            if matches!(work, Work::Renew) {
                runtime.block_on(async {
                    for number in 0..callers {
                        grants.push(acquire(store, number).await);
                    }
                });
            }
            let grants = Arc::new(grants);
            group.throughput(Throughput::Elements(callers as u64));
            group.bench_function(BenchmarkId::from_parameter(callers), |b| {
                b.iter(|| runtime.block_on(run(store, work, &grants, callers)));
            });
            for (number, grant) in grants.iter().enumerate() {
                let done = runtime.block_on(store.release(&lock(number), grant.lease)).unwrap();
                assert_eq!(done, ReleaseOutcome::Released);
            }
        }
        group.finish();
    }
}

fn stores(c: &mut Criterion) {
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    for kind in ENGINES.iter().filter(|kind| !kind.is_shared()) {
        let directory = tempfile::tempdir().unwrap();
        let place = Place::Directory(directory.path().to_owned());
        let engine = runtime.block_on((kind.open)(&place, &EngineOptions::default())).unwrap();
        let open = Store::open(engine, Guards::default(), StoreOptions::default(), Arc::new(NoObserver));
        let store = Arc::new(runtime.block_on(open).unwrap());
        bench(c, &runtime, kind.name, &store);
        if let Ok(store) = Arc::try_unwrap(store) {
            runtime.block_on(store.close());
        }
    }
}

criterion_group!(benches, stores);
criterion_main!(benches);
