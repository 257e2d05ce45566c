//! An engine under test, in a directory of its own, with helpers to use it.

use std::sync::Arc;

use bytes::Bytes;
use fencepost_core::Key;
use fencepost_store::engine::{Batch, Change, Commit, Engine, Loaded, Purpose, Record, Scan, Scanned, Version};
use fencepost_store::engines::{EngineKind, EngineOptions};
use fencepost_store::record::RecordKey;
use tempfile::TempDir;

pub(crate) struct Bench {
    kind: &'static EngineKind,
    dir: TempDir,
}

impl Bench {
    pub(crate) fn of(kind: &'static EngineKind) -> Bench {
        Bench { kind, dir: TempDir::new().unwrap() }
    }

    /// Opens the engine. A durable one still has its earlier contents.
    pub(crate) fn open(&self) -> Arc<dyn Engine> {
        let options = EngineOptions { cache_bytes: 1 << 20, write_buffer_bytes: 4 << 20, free_space_floor: 0 };
        self.open_with(&options)
    }

    pub(crate) fn open_with(&self, options: &EngineOptions) -> Arc<dyn Engine> {
        (self.kind.open)(self.dir.path(), options).unwrap()
    }
}

/// A record's key.
pub(crate) fn at(name: &str) -> RecordKey {
    RecordKey::value(&Key::new(name).unwrap())
}

/// A change that writes this text.
pub(crate) fn write(name: &str, text: impl AsRef<[u8]>) -> (RecordKey, Change) {
    (at(name), Change::Put(Bytes::copy_from_slice(text.as_ref())))
}

pub(crate) fn remove(name: &str) -> (RecordKey, Change) {
    (at(name), Change::Delete)
}

pub(crate) async fn load(engine: &dyn Engine, names: &[&str]) -> Loaded {
    let keys: Vec<RecordKey> = names.iter().map(|name| at(name)).collect();
    engine.load(&keys).await.unwrap()
}

pub(crate) async fn one(engine: &dyn Engine, name: &str) -> Option<Record> {
    load(engine, &[name]).await.records.remove(0)
}

pub(crate) async fn text(engine: &dyn Engine, name: &str) -> Option<String> {
    one(engine, name).await.map(|record| String::from_utf8(record.bytes.to_vec()).unwrap())
}

/// Commits, comparing the versions of these keys with those that were loaded.
pub(crate) async fn commit_after(
    engine: &dyn Engine,
    loaded: &Loaded,
    names: &[&str],
    changes: Vec<(RecordKey, Change)>,
) -> Commit {
    let versions = loaded.records.iter().map(|record| record.as_ref().map(|record| record.version));
    let compare = names.iter().map(|name| at(name)).zip(versions).collect();
    engine.commit(Batch { as_of: loaded.as_of, compare, changes, purpose: Purpose::Store }).await.unwrap()
}

/// Commits without comparing anything.
pub(crate) async fn commit(engine: &dyn Engine, changes: Vec<(RecordKey, Change)>) -> Version {
    let loaded = load(engine, &[]).await;
    match commit_after(engine, &loaded, &[], changes).await {
        Commit::Done { first } => first,
        other => panic!("expected it to be done: {other:?}"),
    }
}

/// A scan of everything under the prefix, without limits.
pub(crate) fn under(prefix: &str) -> Scan {
    let prefix = scan_bytes(prefix);
    Scan { from: prefix.clone(), inclusive: true, prefix, limit: usize::MAX, max_bytes: usize::MAX }
}

/// The bytes of a record key with this name, or with the start of one.
pub(crate) fn scan_bytes(start: &str) -> Vec<u8> {
    let kind = at("x").as_bytes()[0];
    [&[kind], start.as_bytes()].concat()
}

pub(crate) async fn names(engine: &dyn Engine, scan: Scan) -> (Vec<String>, bool) {
    let Scanned { records, more } = engine.scan(scan).await.unwrap();
    (records.into_iter().map(|(key, _)| String::from_utf8(key[1..].to_vec()).unwrap()).collect(), more)
}
