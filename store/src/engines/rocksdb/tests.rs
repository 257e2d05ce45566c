//! Large values in the database: where head and body are stored, and compatibility with earlier versions.

use fencepost_core::Key;
use tempfile::TempDir;

use super::*;
use crate::engine::{Purpose, Want};

const LARGE: usize = 1 << 20;

fn open(dir: &TempDir) -> RocksDb {
    RocksDb::open(dir.path(), &EngineOptions { free_space_floor: 0, ..EngineOptions::default() }).unwrap()
}

fn key(name: &str) -> RecordKey {
    RecordKey::value(&Key::new(name).unwrap())
}

fn put(name: &str, bytes: Vec<u8>) -> (RecordKey, Change) {
    (key(name), Change::Put(bytes.into()))
}

async fn commit(engine: &RocksDb, changes: Vec<(RecordKey, Change)>) -> Version {
    let as_of = engine.load(&[]).await.unwrap().as_of;
    match engine.commit(Batch { as_of, compare: Vec::new(), changes, purpose: Purpose::Store }).await.unwrap() {
        Commit::Done { first } => first,
        other => panic!("{other:?}"),
    }
}

async fn load(engine: &RocksDb, name: &str, want: Want) -> Result<Option<Record>, EngineError> {
    let loaded = engine.load_wanted(&[Wanted { key: key(name), want }], 0).await?;
    Ok(loaded.records.into_iter().next().unwrap())
}

/// The number of bodies in the database.
fn bodies_in(engine: &RocksDb) -> usize {
    let from_bodies_on = engine.shared.db.iterator(IteratorMode::From(&[bodies::BODY], Direction::Forward));
    from_bodies_on.filter(|entry| *entry.as_ref().unwrap().0 != *POSITION).count()
}

/// The version of a large value is readable even if its body is missing.
#[tokio::test]
async fn c06_the_version_of_a_large_value_is_read_without_its_bytes() {
    let dir = TempDir::new().unwrap();
    let engine = open(&dir);
    let version = commit(&engine, vec![put("a", vec![7; LARGE])]).await;
    let whole = load(&engine, "a", Want::Bytes).await.unwrap().unwrap();
    assert_eq!((whole.version, whole.bytes.len()), (version, LARGE));
    engine.shared.db.delete(bodies::body_key(key("a").as_bytes())).unwrap();
    let head = load(&engine, "a", Want::Version).await.unwrap();
    assert_eq!(head, Some(Record::head(version, LARGE)));
    // Only a read that wants the bytes fails.
    assert!(load(&engine, "a", Want::Bytes).await.unwrap_err().0.contains("missing"));
    let everything = Scan { from: vec![], inclusive: true, prefix: vec![], limit: 9, max_bytes: usize::MAX };
    assert!(engine.scan(everything).await.unwrap_err().0.contains("missing"));
    commit(&engine, vec![put("a", vec![8; LARGE])]).await;
    assert_eq!(load(&engine, "a", Want::Bytes).await.unwrap().unwrap().bytes, vec![8; LARGE]);
}

#[tokio::test]
async fn c06_nothing_is_left_of_a_large_value_that_was_replaced_or_removed() {
    let dir = TempDir::new().unwrap();
    let engine = open(&dir);
    commit(&engine, vec![put("small", vec![1; bodies::LARGE]), put("other", vec![])]).await;
    assert!(!engine.shared.has_bodies.load(Ordering::Relaxed), "a store without large values does not look for any");
    commit(&engine, vec![put("a", vec![1; bodies::LARGE + 1]), put("b", vec![2; LARGE]), put("c", vec![3; LARGE])])
        .await;
    assert_eq!(bodies_in(&engine), 3);
    drop(engine);
    let engine = open(&dir);
    assert!(engine.shared.has_bodies.load(Ordering::Relaxed));
    commit(&engine, vec![put("a", vec![1]), (key("b"), Change::Delete), put("c", vec![4; LARGE])]).await;
    assert_eq!(bodies_in(&engine), 1);
    commit(&engine, vec![put("d", vec![5; LARGE]), (key("d"), Change::Delete), (key("c"), Change::Delete)]).await;
    assert_eq!(bodies_in(&engine), 0);
    drop(engine);
    assert!(!open(&dir).shared.has_bodies.load(Ordering::Relaxed));
}

/// Earlier versions kept every value in one record. Such a record stays readable, and a write replaces it with the new
/// form.
#[tokio::test]
async fn c06_large_values_of_earlier_versions_are_read_and_replaced() {
    let dir = TempDir::new().unwrap();
    let engine = open(&dir);
    commit(&engine, vec![put("new", vec![1; LARGE])]).await;
    let mut stored = Vec::new();
    for (name, byte) in [("a", 2), ("b", 3), ("c", 4)] {
        let version = engine.shared.db.latest_sequence_number() + 1;
        bodies::encode_whole(version, &vec![byte; LARGE], &mut stored);
        engine.shared.db.put_opt(key(name).as_bytes(), &stored, &applying()).unwrap();
        let whole = Record::whole(Version(version), vec![byte; LARGE].into());
        assert_eq!(load(&engine, name, Want::Bytes).await.unwrap(), Some(whole));
        assert_eq!(load(&engine, name, Want::Version).await.unwrap(), Some(Record::head(Version(version), LARGE)));
    }
    // A stop would not: these writes are in no journal.
    engine.shared.db.flush().unwrap();
    drop(engine);
    let engine = open(&dir);
    commit(&engine, vec![put("a", vec![5; LARGE]), put("b", vec![6]), (key("c"), Change::Delete)]).await;
    for (name, bytes) in [("a", Some(vec![5; LARGE])), ("b", Some(vec![6])), ("c", None), ("new", Some(vec![1; LARGE]))]
    {
        let found = load(&engine, name, Want::Bytes).await.unwrap();
        assert_eq!(found.map(|record| record.bytes.to_vec()), bytes, "{name}");
    }
    assert_eq!(bodies_in(&engine), 2);
}

/// Only values are stored with a separate body: no other record is large.
#[tokio::test]
async fn other_records_are_kept_whole() {
    let dir = TempDir::new().unwrap();
    let engine = open(&dir);
    let outcome = RecordKey::scanned(b"o\0large".to_vec());
    commit(&engine, vec![(outcome.clone(), Change::Put(vec![1; LARGE].into()))]).await;
    assert_eq!((bodies_in(&engine), engine.shared.has_bodies.load(Ordering::Relaxed)), (0, false));
    let loaded = engine.load(&[outcome]).await.unwrap();
    assert_eq!(loaded.records[0].as_ref().map(|record| record.size), Some(LARGE));
}

/// The caller stops after an unknown outcome (G8); if it did not, the engine would not commit anyway.
#[tokio::test]
async fn g8_after_a_failed_commit_nothing_is_committed() {
    let dir = TempDir::new().unwrap();
    let engine = open(&dir);
    commit(&engine, vec![put("a", vec![1])]).await;
    engine.committer.lock().failed = true;
    let changes = vec![put("a", vec![2])];
    let batch = Batch { as_of: AsOf(0), compare: Vec::new(), changes, purpose: Purpose::Store };
    assert!(matches!(engine.commit(batch).await, Ok(Commit::Unavailable(_))));
    drop(engine);
    let found = load(&open(&dir), "a", Want::Bytes).await.unwrap();
    assert_eq!(found.map(|record| record.bytes.to_vec()), Some(vec![1]));
}
