//! The store as the gateway uses it: with 64 concurrent writers, and with one.
#![allow(missing_docs, reason = "criterion's macros make public functions")]
#![allow(clippy::unwrap_used, reason = "a bench fails loudly")]

use std::sync::Arc;

use bytes::Bytes;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use fencepost_core::{Guards, Key, Presented, Token};
use fencepost_store::engines::{ENGINES, EngineOptions, Place};
use fencepost_store::{Condition, NoObserver, Put, Store, StoreOptions, WriteOutcome};
use tokio::runtime::Builder;

fn put(number: usize, token: u64) -> Put {
    Put {
        key: Key::new(&format!("r/{number}")).unwrap(),
        presented: Some(Presented { token: Token::new(0, token).unwrap(), holder: None, issuer: None }),
        condition: Condition::Always,
        content_type: None,
        body: Bytes::from_static(&[b'x'; 256]),
        once: None,
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
        let mut group = c.benchmark_group(format!("sequencer/{}", kind.name));
        for writers in [1, 64] {
            group.throughput(Throughput::Elements(writers as u64));
            for (name, token) in [("put", 34), ("stale", 33)] {
                group.bench_function(BenchmarkId::new(name, writers), |b| {
                    b.iter(|| {
                        runtime.block_on(async {
                            let tasks: Vec<_> = (0..writers)
                                .map(|number| {
                                    let store = store.clone();
                                    tokio::spawn(async move { store.put(put(number, token)).await })
                                })
                                .collect();
                            for task in tasks {
                                let outcome = task.await.unwrap().unwrap();
                                assert_eq!(matches!(outcome, WriteOutcome::Applied(_)), token == 34, "{outcome:?}");
                            }
                        });
                    });
                });
            }
        }
        group.finish();
        if let Ok(store) = Arc::try_unwrap(store) {
            runtime.block_on(store.close());
        }
    }
}

criterion_group!(benches, stores);
criterion_main!(benches);
