//! Large values in the database: where head and body are stored, and compatibility with earlier versions.

use fencepost_core::Key;
use tempfile::TempDir;

use super::tables::POSITION;
use super::*;
use crate::engine::{Change, Purpose, Version};

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
    match engine
        .commit(Batch { as_of, shared: Vec::new(), compare: Vec::new(), changes, purpose: Purpose::Store })
        .await
        .unwrap()
    {
        Commit::Done { first } => first,
        other => panic!("{other:?}"),
    }
}

async fn load(engine: &RocksDb, name: &str, want: Want) -> Result<Option<Record>, EngineError> {
    let loaded = engine.load_wanted(&[Wanted { key: key(name), want }], 0).await?;
    Ok(loaded.records.into_iter().next().unwrap())
}

/// The number of bodies in the database, when everything is saved.
fn bodies_in(engine: &RocksDb) -> usize {
    engine.shared.save().unwrap();
    let from_bodies_on = engine.shared.tables.db.iterator(IteratorMode::From(&[bodies::BODY], Direction::Forward));
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
    engine.shared.save().unwrap();
    engine.shared.tables.db.delete(bodies::body_key(key("a").as_bytes())).unwrap();
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
    assert!(
        !engine.shared.tables.has_bodies.load(Ordering::Relaxed),
        "a store without large values does not look for any"
    );
    commit(&engine, vec![put("a", vec![1; bodies::LARGE + 1]), put("b", vec![2; LARGE]), put("c", vec![3; LARGE])])
        .await;
    assert_eq!(bodies_in(&engine), 3);
    drop(engine);
    let engine = open(&dir);
    assert!(engine.shared.tables.has_bodies.load(Ordering::Relaxed));
    commit(&engine, vec![put("a", vec![1]), (key("b"), Change::Delete), put("c", vec![4; LARGE])]).await;
    assert_eq!(bodies_in(&engine), 1);
    commit(&engine, vec![put("d", vec![5; LARGE]), (key("d"), Change::Delete), (key("c"), Change::Delete)]).await;
    assert_eq!(bodies_in(&engine), 0);
    drop(engine);
    assert!(!open(&dir).shared.tables.has_bodies.load(Ordering::Relaxed));
}

/// Earlier versions kept every value in one record. Such a record stays readable, and a write replaces it with the new
/// form.
#[tokio::test]
async fn c06_large_values_of_earlier_versions_are_read_and_replaced() {
    let dir = TempDir::new().unwrap();
    let engine = open(&dir);
    commit(&engine, vec![put("new", vec![1; LARGE])]).await;
    engine.shared.save().unwrap();
    let mut stored = Vec::new();
    for (name, byte) in [("a", 2), ("b", 3), ("c", 4)] {
        let version = engine.shared.tables.db.latest_sequence_number() + 1;
        bodies::encode_whole(version, &vec![byte; LARGE], &mut stored);
        let mut written = rocksdb::WriteBatch::default();
        written.put(key(name).as_bytes(), &stored);
        engine.shared.tables.write(written.data()).unwrap();
        let whole = Record::whole(Version(version), vec![byte; LARGE].into());
        assert_eq!(load(&engine, name, Want::Bytes).await.unwrap(), Some(whole));
        assert_eq!(load(&engine, name, Want::Version).await.unwrap(), Some(Record::head(Version(version), LARGE)));
    }
    // A stop would not: these writes are in no journal.
    engine.shared.tables.db.flush().unwrap();
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
    assert_eq!((bodies_in(&engine), engine.shared.tables.has_bodies.load(Ordering::Relaxed)), (0, false));
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
    let batch = Batch { as_of: AsOf(0), shared: Vec::new(), compare: Vec::new(), changes, purpose: Purpose::Store };
    assert!(matches!(engine.commit(batch).await, Ok(Commit::Unavailable(_))));
    drop(engine);
    let found = load(&open(&dir), "a", Want::Bytes).await.unwrap();
    assert_eq!(found.map(|record| record.bytes.to_vec()), Some(vec![1]));
}

fn everything() -> Scan {
    Scan { from: vec![], inclusive: true, prefix: vec![], limit: usize::MAX, max_bytes: usize::MAX }
}

/// If records cannot be saved to tables, commits stop (G8), and reads and lists go on with what is in memory and in the journal.
#[tokio::test]
async fn g8_records_that_cannot_be_saved_stay_readable_and_durable() {
    let dir = TempDir::new().unwrap();
    let engine = open(&dir);
    commit(&engine, vec![put("a", vec![1]), put("b", vec![1]), put("d", vec![1])]).await;
    engine.shared.save().unwrap();
    commit(&engine, vec![put("a", vec![2]), (key("b"), Change::Delete), put("c", vec![2; LARGE])]).await;
    // A part of them is in tables, without the position: the head of a large value, and the rest not.
    let leaving = engine.shared.recent.leave().unwrap();
    engine.shared.write(&leaving.sorted()[..2]).unwrap();
    engine.shared.tables.db.flush().unwrap();
    engine.shared.failed_save.lock().get_or_insert("for a test".into());
    assert_eq!(engine.fault().as_deref(), Some("for a test"));
    let seen = |scanned: Scanned| -> Vec<_> {
        scanned.records.into_iter().map(|(key, record)| (key[1..].to_vec(), record.size)).collect()
    };
    let expected = [(b"a".to_vec(), 1), (b"c".to_vec(), LARGE), (b"d".to_vec(), 1)];
    assert_eq!(seen(engine.scan(everything()).await.unwrap()), expected);
    assert_eq!(load(&engine, "a", Want::Bytes).await.unwrap().unwrap().bytes, vec![2]);
    drop(engine);
    let engine = open(&dir);
    assert_eq!(engine.fault(), None);
    assert_eq!(seen(engine.scan(everything()).await.unwrap()), expected);
}

/// Records that are written again and again: RocksDB gets them in their last version, and the journal stays small.
#[tokio::test]
async fn one_record_written_again_and_again_does_not_fill_the_journal() {
    let dir = TempDir::new().unwrap();
    let options = EngineOptions { free_space_floor: 0, write_buffer_bytes: 256 << 10, ..EngineOptions::default() };
    let engine = RocksDb::open(dir.path(), &options).unwrap();
    let mut most = 0;
    for round in 0..2_000_u32 {
        commit(&engine, vec![put("a", round.to_le_bytes().repeat(200))]).await;
        most = most.max(std::fs::read_dir(dir.path().join("journal")).unwrap().count());
    }
    // 2 MB in files of 64 KiB would be 32 of them.
    assert!(most <= 12, "{most} files");
    engine.shared.save().unwrap();
    let found = engine.shared.tables.version(&key("a")).unwrap();
    assert_eq!(found, Some(Version(2_000)));
}

/// Tables may have a part of what the journal has, in later versions than it is applied again in.
#[tokio::test]
async fn g3_what_tables_have_beyond_their_position_is_applied_again() {
    let written = || vec![put("a", vec![2]), put("b", vec![3; LARGE]), put("c", vec![4]), (key("d"), Change::Delete)];
    for part in 1..=4 {
        let dir = TempDir::new().unwrap();
        let engine = open(&dir);
        let before = ["a", "b", "c", "d"].map(|name| put(name, vec![1; LARGE])).to_vec();
        commit(&engine, before).await;
        engine.shared.save().unwrap();
        commit(&engine, vec![put("a", vec![1]), put("b", vec![1]), put("c", vec![1; LARGE])]).await;
        let last = commit(&engine, written()).await;
        let leaving = engine.shared.recent.leave().unwrap();
        engine.shared.write(&leaving.sorted()[..part]).unwrap();
        engine.shared.tables.db.flush().unwrap();
        drop(engine);
        let engine = open(&dir);
        for (number, (key, change)) in written().into_iter().enumerate() {
            let expected = match change {
                Change::Put(bytes) => Some(Record::whole(Version(last.0 + number as u64), bytes)),
                Change::Delete => None,
            };
            let found = engine.load(&[key]).await.unwrap().records.remove(0);
            assert_eq!(found, expected, "record {number}, {part} in tables");
        }
        assert_eq!(bodies_in(&engine), 1, "{part} in tables");
    }
}

/// Has RocksDB take no writes, as if it could not keep up.
async fn stall(engine: &RocksDb) {
    let db = &engine.shared.tables.db;
    commit(engine, vec![put("before", vec![1])]).await;
    engine.shared.save().unwrap();
    db.flush().unwrap();
    let options = [("level0_file_num_compaction_trigger", "100"), ("level0_stop_writes_trigger", "1")];
    db.set_options(&options).unwrap();
    assert!(engine.shared.tables.is_stalled());
}

#[tokio::test]
async fn a_flush_during_a_stall_is_no_fault() {
    let dir = TempDir::new().unwrap();
    let engine = open(&dir);
    stall(&engine).await;
    engine.shared.flush_soon();
    assert_eq!(engine.fault(), None);
    commit(&engine, vec![put("a", vec![1])]).await;
    engine.shared.tables.db.set_options(&[("level0_stop_writes_trigger", "36")]).unwrap();
    engine.shared.save().unwrap();
    engine.shared.flush_soon();
    assert_eq!(engine.fault(), None);
    assert_eq!(load(&engine, "a", Want::Bytes).await.unwrap().unwrap().bytes, vec![1]);
}

#[tokio::test]
async fn a_stop_does_not_wait_for_a_stall_to_end() {
    let dir = TempDir::new().unwrap();
    let engine = open(&dir);
    stall(&engine).await;
    commit(&engine, vec![put("a", vec![1])]).await;
    engine.saver.flush();
    let (stopped, waiting) = std::sync::mpsc::sync_channel(1);
    std::thread::spawn(move || {
        drop(engine);
        stopped.send(()).unwrap();
    });
    waiting.recv_timeout(std::time::Duration::from_secs(60)).unwrap();
    assert_eq!(load(&open(&dir), "a", Want::Bytes).await.unwrap().unwrap().bytes, vec![1]);
}

/// If the thread that saves is gone, commits end with the reason instead of waiting for it.
#[tokio::test]
async fn g8_a_saver_that_panics_stops_commits() {
    let dir = TempDir::new().unwrap();
    let engine = open(&dir);
    commit(&engine, vec![put("a", vec![1])]).await;
    let shared = engine.shared.clone();
    let panicked = std::thread::spawn(move || {
        let _unexpected = saver::FailedIfPanicking(&shared);
        panic!("for a test");
    });
    let panicked = panicked.join();
    assert!(panicked.is_err());
    assert!(engine.fault().unwrap().contains("unexpectedly"));
}
