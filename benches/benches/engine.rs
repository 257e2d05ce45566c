//! The engines alone: one durable commit, and one load.
#![allow(missing_docs, reason = "criterion's macros make public functions")]
#![allow(clippy::unwrap_used, reason = "a bench fails loudly")]

use std::hint::black_box;

use bytes::Bytes;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use fencepost_core::Key;
use fencepost_store::engine::{Batch, Change, Purpose};
use fencepost_store::engines::{ENGINES, EngineOptions, Place};
use fencepost_store::record::RecordKey;
use tokio::runtime::Builder;

fn key(number: usize) -> RecordKey {
    RecordKey::value(&Key::new(&format!("r/{number}")).unwrap())
}

fn engines(c: &mut Criterion) {
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let value = Bytes::from(vec![b'x'; 256]);
    for kind in ENGINES.iter().filter(|kind| !kind.is_shared()) {
        let directory = tempfile::tempdir().unwrap();
        let place = Place::Directory(directory.path().to_owned());
        let engine = runtime.block_on((kind.open)(&place, &EngineOptions::default())).unwrap();
        let mut group = c.benchmark_group(format!("engine/{}", kind.name));
        for records in [1_usize, 64] {
            let keys: Vec<_> = (0..records).map(key).collect();
            group.throughput(Throughput::Elements(records as u64));
            group.bench_function(BenchmarkId::new("commit", records), |b| {
                b.iter(|| {
                    runtime.block_on(async {
                        let loaded = engine.load(&keys).await.unwrap();
                        let versions = loaded.records.iter().map(|record| record.as_ref().map(|record| record.version));
                        let compare = keys.iter().cloned().zip(versions).collect();
                        let changes = keys.iter().map(|key| (key.clone(), Change::Put(value.clone()))).collect();
                        let purpose = Purpose::Store;
                        engine
                            .commit(Batch { as_of: loaded.as_of, shared: Vec::new(), compare, changes, purpose })
                            .await
                            .unwrap()
                    })
                });
            });
            group.bench_function(BenchmarkId::new("load", records), |b| {
                b.iter(|| runtime.block_on(async { black_box(engine.load(&keys).await.unwrap()) }));
            });
        }
        group.finish();
    }
}

criterion_group!(benches, engines);
criterion_main!(benches);
