//! An engine under test, in a place of its own, with helpers to use it.

use std::sync::Arc;

use bytes::Bytes;
use fencepost_core::Key;
use fencepost_remote::ServerUrl;
use fencepost_store::engine::{
    Batch, Change, Commit, Engine, Loaded, Ownership, Purpose, Record, Scan, Scanned, Version,
};
use fencepost_store::engines::{EngineKind, EngineOptions, Place};
use fencepost_store::record::RecordKey;
use tempfile::TempDir;

use crate::servers;

/// Conflicts in a row after which an engine does not work: a shared one may report a few without need.
const MOST_CONFLICTS: usize = 100;

pub(crate) struct Bench {
    kind: &'static EngineKind,
    place: Place,
    /// Removed with the bench.
    _dir: Option<TempDir>,
}

impl Bench {
    /// A directory, or a schema or prefix on the server that all cases share.
    pub(crate) fn of(kind: &'static EngineKind) -> Bench {
        if !kind.is_shared() {
            let dir = TempDir::new().unwrap();
            return Bench { kind, place: Place::Directory(dir.path().to_owned()), _dir: Some(dir) };
        }
        let url = match kind.name {
            "etcd" => format!("etcd://{}/{}", servers::etcd().address(), servers::new_name()),
            "postgres" => format!("{}?schema={}", servers::postgres().url(), servers::new_name()),
            other => panic!("no server is started for the engine {other}: add it to servers.rs"),
        };
        Bench { kind, place: Place::Server(ServerUrl::parse(&url).unwrap()), _dir: None }
    }

    /// Opens the engine. A durable one still has its earlier contents, and a shared one may be open already.
    pub(crate) async fn open(&self) -> Arc<dyn Engine> {
        let options = EngineOptions {
            cache_bytes: 1 << 20,
            write_buffer_bytes: 4 << 20,
            free_space_floor: 0,
            ..EngineOptions::default()
        };
        self.open_with(&options).await
    }

    pub(crate) async fn open_with(&self, options: &EngineOptions) -> Arc<dyn Engine> {
        (self.kind.open)(&self.place, options).await.unwrap()
    }

    /// Two gateways over the same records.
    pub(crate) async fn pair(&self) -> [Arc<dyn Engine>; 2] {
        [self.open().await, self.open().await]
    }

    /// The URL of a place on a server.
    pub(crate) fn url(&self) -> &ServerUrl {
        match &self.place {
            Place::Server(url) => url,
            Place::Directory(path) => panic!("{} is a directory", path.display()),
        }
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

/// The number in a record; 0 if it is absent.
pub(crate) fn number(record: Option<&Record>) -> u64 {
    record.map_or(0, |record| std::str::from_utf8(&record.bytes).unwrap().parse().unwrap())
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
    let batch = Batch { as_of: loaded.as_of, shared: Vec::new(), compare, changes, purpose: Purpose::Store };
    engine.commit(batch).await.unwrap()
}

/// Commits without comparing anything.
pub(crate) async fn commit(engine: &dyn Engine, changes: Vec<(RecordKey, Change)>) -> Version {
    for _ in 0..MOST_CONFLICTS {
        let loaded = load(engine, &[]).await;
        match commit_after(engine, &loaded, &[], changes.clone()).await {
            Commit::Done { first } => return first,
            // It had to wait too long for another gateway.
            Commit::Conflict if engine.ownership() == Ownership::Shared => {}
            other => panic!("expected it to be done: {other:?}"),
        }
    }
    panic!("{MOST_CONFLICTS} conflicts, and nothing was compared");
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
