//! Stores on disk as each format wrote them, kept so that every later version is tested to read them.
//!
//! `fixtures/format-1` is a closed store: some records are in a table, the newest in RocksDB's log. In
//! `fixtures/format-2` the newest are in the journal. Their contents are listed in `records.txt`, which people can read
//! too. Logs are kept as `*.log.kept`, because git ignores `*.log`.
//!
//! To write a fixture in a new directory, which only a new format justifies:
//! `FENCEPOST_WRITE_FIXTURE=$PWD/store/tests/fixtures/format-3 make test SUITE=disk ARGS=fixture`.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::testbed::directory::{edit, logs, roomy, tables};
use crate::testbed::{
    applied, body, claim, claimed, delete, ended, fence, issued, journal_format, key, log_format, open, put, read,
    reason, refused, text, token,
};
use bytes::Bytes;
use fencepost_core::{FenceState, GuardSpec, Guards, Mode, Policy, Reason, Timestamp};
use fencepost_store::engine::{Engine, Scan};
use fencepost_store::engines::rocksdb::RocksDb;
use fencepost_store::record::{FORMAT, Meta, RecordKey, Value, decode_fence, encode_fence};
use fencepost_store::{Condition, Put, Remapped, Store, remap};
use tempfile::TempDir;

fn fixture() -> PathBuf {
    fixture_of(1)
}

fn fixture_of(format: u32) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/fixtures/format-{format}"))
}

fn guards() -> Guards {
    let spec = |keys: &str, resource: Option<&str>, mode| GuardSpec {
        keys: keys.into(),
        resource: resource.map(str::to_owned),
        policy: Policy { mode, ..Policy::default() },
        engine: None,
    };
    Guards::new(vec![spec("orders/*/**", Some("orders/*"), Mode::Enforce), spec("watched", None, Mode::Observe)])
        .unwrap()
}

async fn open_store(dir: &Path, guards: Guards) -> Store {
    open(Arc::new(RocksDb::open(dir, &roomy()).unwrap()), guards).await
}

/// Creates the store for the fixture.
async fn make(dir: &Path) {
    let store = open_store(dir, Guards::default()).await;
    applied(put(&store, "orders/1/lines", issued("33", "worker-a#1", "etcd:7"), "of generation 0").await);
    applied(put(&store, "plain", token("5"), "retired with the rest").await);
    store.close().await;

    let engine = RocksDb::open(dir, &roomy()).unwrap();
    assert!(matches!(remap(&engine, &guards(), 0).await, Ok(Remapped::Changed { generation: 1, .. })));
    drop(engine);

    // Opening moved the contents of the log to a table. What follows stays in the log.
    let store = open_store(dir, guards()).await;
    applied(put(&store, "orders/1/lines", issued("1:34", "worker-b#2", "redis:k"), "of generation 1").await);
    applied(put(&store, "orders/2", token("1:18446744073709551615"), "the highest number").await);
    applied(put(&store, "gone", issued("1:8", "worker-c#3", "redis:k"), "deleted soon").await);
    applied(delete(&store, "gone", token("1:9")).await);
    claimed(claim(&store, "claimed", issued("1:2", "höher#4", "zk:1")).await);
    let unfenced = Put {
        key: key("watched"),
        presented: None,
        condition: Condition::Always,
        content_type: None,
        body: Bytes::from_static(&[0, 255, 10]),
        once: None,
    };
    applied(ended(store.put(unfenced).await));
    store.close().await;
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

/// The text of a part; `-` if it is absent.
fn shown(part: Option<impl ToString>) -> String {
    part.map_or_else(|| "-".to_owned(), |part| part.to_string())
}

/// Describes every record as text. Parts that differ in every run are included only if `exactly` is set.
async fn describe(engine: &dyn Engine, exactly: bool) -> String {
    let everything = Scan { from: vec![], inclusive: true, prefix: vec![], limit: usize::MAX, max_bytes: usize::MAX };
    let mut text = String::new();
    for (name, record) in engine.scan(everything).await.unwrap().records {
        let (kind, rest) = (name[0], std::str::from_utf8(&name[1..]).unwrap());
        write!(text, "{} {rest}, version {}: ", char::from(kind), record.version.0).unwrap();
        if name == RecordKey::meta().as_bytes() {
            let Meta { format, store_id, base_generation, highest_generation, mapping_hash, mapping_text } =
                Meta::decode(&record.bytes).unwrap();
            assert_eq!(highest_generation, base_generation, "nothing was rotated by itself");
            let id = if exactly { hex(&store_id) } else { "…".to_owned() };
            let (mapping, hash) = (mapping_text.escape_debug(), hex(&mapping_hash));
            writeln!(text, "format {format}, id {id}, base generation {base_generation}, mapping {mapping} {hash}")
        } else if kind == b'f' {
            let state = decode_fence(&record.bytes).unwrap();
            let (high, holder, issuer) = (shown(state.high), shown(state.holder), shown(state.issuer));
            let (generation, spent) = (state.generation, state.spent);
            let raised_at = shown(state.raised_at.filter(|_| exactly));
            writeln!(text, "generation {generation}, high {high}, spent {spent}, {holder}, {issuer}, {raised_at}")
        } else {
            let Value { token, content_type, body } = Value::decode(&record.bytes).unwrap();
            writeln!(text, "token {}, {}, {}", shown(token), shown(content_type), body.escape_ascii())
        }
        .unwrap();
    }
    text
}

/// Copies the relevant files of a closed store.
fn keep(from: &Path, to: &Path) {
    std::fs::create_dir_all(to.join("db")).unwrap();
    for name in ["FENCEPOST", "committed"] {
        std::fs::copy(from.join(name), to.join(name)).unwrap();
    }
    for entry in std::fs::read_dir(from.join("db")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let kept = match name.as_str() {
            "LOCK" | "LOG" => continue,
            name if name.starts_with("LOG.") || name.starts_with("OPTIONS-") => continue,
            name if name.ends_with(".log") => format!("{name}.kept"),
            name => name.to_owned(),
        };
        std::fs::copy(from.join("db").join(&name), to.join("db").join(kept)).unwrap();
    }
    std::fs::create_dir_all(to.join("journal")).unwrap();
    for entry in std::fs::read_dir(from.join("journal")).unwrap() {
        let entry = entry.unwrap();
        let mut bytes = std::fs::read(entry.path()).unwrap();
        // Without the zeros behind its last entry.
        bytes.truncate(journal_format::entries(&bytes).pop().unwrap().end);
        std::fs::write(to.join("journal").join(entry.file_name()), bytes).unwrap();
    }
}

/// Copies the kept files to a directory where they can be opened.
fn unpack(kept: &Path) -> TempDir {
    let dir = TempDir::new().unwrap();
    crate::testbed::directory::copy(kept, dir.path());
    for kept in crate::testbed::directory::files(dir.path(), |name| name.ends_with(".kept")) {
        std::fs::rename(&kept, kept.with_extension("")).unwrap();
    }
    dir
}

#[tokio::test]
async fn format_1_is_read_record_by_record() {
    let dir = unpack(&fixture());
    assert!(!tables(dir.path()).is_empty() && !logs(dir.path()).is_empty());
    let engine = RocksDb::open(dir.path(), &roomy()).unwrap();
    let expected = std::fs::read_to_string(fixture().join("records.txt")).unwrap();
    assert_eq!(describe(&engine, true).await, expected);
}

#[tokio::test]
async fn format_2_is_read_record_by_record() {
    let dir = unpack(&fixture_of(2));
    assert!(std::fs::read_to_string(dir.path().join("FENCEPOST")).unwrap().contains("format 2"));
    let engine = RocksDb::open(dir.path(), &roomy()).unwrap();
    assert_eq!(describe(&engine, true).await, std::fs::read_to_string(fixture_of(2).join("records.txt")).unwrap());
}

/// What is not read from the log of format 1 would be forgotten for good.
#[tokio::test]
async fn damage_of_a_log_of_format_1_is_refused() {
    let log = logs(unpack(&fixture()).path()).pop().unwrap();
    let inside = log.file_name().unwrap();
    let bytes = std::fs::read(unpack(&fixture()).path().join("db").join(inside)).unwrap();
    for record in log_format::records(&bytes) {
        let dir = unpack(&fixture());
        edit(&dir.path().join("db").join(inside), |bytes| bytes[record.end - 1] ^= 1);
        let error = RocksDb::open(dir.path(), &roomy()).err().map(|error| error.to_string());
        assert!(error.as_ref().is_some_and(|error| error.contains("checksum")), "{record:?}: {error:?}");
        let dir = unpack(&fixture());
        edit(&dir.path().join("db").join(inside), |bytes| bytes.truncate(record.start));
        assert!(RocksDb::open(dir.path(), &roomy()).is_err(), "cut at {record:?}: the mark knows of more");
    }
}

/// From the first opening on, an older fencepost refuses the directory: it would not see the journal.
#[tokio::test]
async fn format_1_becomes_format_2_when_it_is_opened() {
    let dir = unpack(&fixture());
    let marker = || std::fs::read_to_string(dir.path().join("FENCEPOST")).unwrap();
    assert!(marker().contains("format 1"));
    drop(RocksDb::open(dir.path(), &roomy()).unwrap());
    assert!(marker().contains("format 2"));
}

/// A kill before the marker is changed leaves a converted store that still looks like format 1.
#[tokio::test]
async fn an_interrupted_conversion_is_repeated() {
    let dir = unpack(&fixture());
    drop(RocksDb::open(dir.path(), &roomy()).unwrap());
    std::fs::write(dir.path().join("FENCEPOST"), "fencepost store, format 1\n").unwrap();
    let engine = RocksDb::open(dir.path(), &roomy()).unwrap();
    let expected = std::fs::read_to_string(fixture().join("records.txt")).unwrap();
    assert_eq!(describe(&engine, true).await, expected);
}

#[tokio::test]
async fn format_1_is_served() {
    let dir = unpack(&fixture());
    let store = open_store(dir.path(), guards()).await;
    assert_eq!(fence(&store, "orders/1").await.as_deref(), Some("1:34"));
    assert_eq!(text(&store, "orders/1/lines").await.as_deref(), Some("of generation 1"));
    let refusal = refused(put(&store, "orders/1/lines", token("33"), "a zombie").await);
    assert_eq!(refusal.reason, Reason::RetiredGeneration);
    assert_eq!(refusal.found.holder.unwrap().as_str(), "worker-b#2");
    assert_eq!(refusal.found.issuer.unwrap().as_str(), "redis:k");
    assert_eq!(reason(put(&store, "orders/1/lines", token("1:33"), "late").await), Reason::Stale);
    assert_eq!(reason(put(&store, "gone", token("1:8"), "first again?").await), Reason::Stale);
    assert_eq!(reason(put(&store, "plain", token("6"), "of before").await), Reason::RetiredGeneration);
    assert_eq!(fence(&store, "orders/2").await.as_deref(), Some("1:18446744073709551615"));
    assert_eq!(fence(&store, "claimed").await.as_deref(), Some("1:2"));
    let (_, watched) = read(&store, "watched").await.value.unwrap();
    assert_eq!((watched.token, watched.body), (None, Bytes::from_static(&[0, 255, 10])));
    let (_, plain) = read(&store, "plain").await.value.unwrap();
    assert_eq!((body(&plain), plain.content_type.as_deref()), ("retired with the rest".into(), Some("text/plain")));
    applied(put(&store, "orders/1/lines", token("1:35"), "life goes on").await);
    store.close().await;
    let store = open_store(dir.path(), guards()).await;
    assert_eq!(fence(&store, "orders/1").await.as_deref(), Some("1:35"));
}

/// While the format number is unchanged, this version must write exactly what the fixture holds.
#[tokio::test]
async fn the_fixture_is_what_this_version_writes() {
    assert_eq!(FORMAT, 1, "a new format needs a fixture of its own, beside this one");
    let dir = TempDir::new().unwrap();
    make(dir.path()).await;
    if let Some(wanted) = std::env::var_os("FENCEPOST_WRITE_FIXTURE") {
        let kept = Path::new(&wanted);
        keep(dir.path(), kept);
        let engine = RocksDb::open(unpack(kept).path(), &roomy()).unwrap();
        std::fs::write(kept.join("records.txt"), describe(&engine, true).await).unwrap();
    }
    let ours = describe(&RocksDb::open(dir.path(), &roomy()).unwrap(), false).await;
    let kept = unpack(&fixture());
    let kept = describe(&RocksDb::open(kept.path(), &roomy()).unwrap(), false).await;
    // Version 0.1 hashed the text of the mapping. Opening a store with such a hash replaces it with the new form.
    let mapping = guards().mapping();
    assert!(kept.contains(&hex(&mapping.old_hash())), "{kept}");
    assert_eq!(ours, kept.replace(&hex(&mapping.old_hash()), &hex(&mapping.hash)));
}

#[test]
fn records_have_these_bytes() {
    let presented = issued("2:34", "a#1", "e:1");
    let raised = FenceState::unseen(2).after(fencepost_core::Step::Raise, &presented, Timestamp(0x0102)).unwrap();
    let expected = "011f020000002200000000000000020100000000000003006123310300653a31";
    assert_eq!(hex(&encode_fence(&FenceState { spent: true, ..raised })), expected);
    let value =
        Value { token: Some(presented.token), content_type: Some("a/b".into()), body: Bytes::from_static(b"xyz") };
    assert_eq!(hex(&value.encode()), "01030200000022000000000000000300612f6278797a");
    assert_eq!(hex(RecordKey::fence(&crate::testbed::resource("a/b")).as_bytes()), "66612f62");
    assert_eq!(hex(RecordKey::value(&key("a/b")).as_bytes()), "6b612f62");
}
