//! The data directory of the embedded engine: who may open it, and when it accepts no writes.

use std::fs::File;
use std::path::Path;
use std::pin::Pin;
use std::process::Command;

use crate::testbed::directory::{edit, journal, logs, roomy, small, try_open};
use crate::testbed::history::{Seen, Written};
use crate::testbed::requests::{acquire, grant, once, release, txn, wanted};
use crate::testbed::{Outcome, applied, delete, fence, put, reason, text, together, token};
use fencepost_store::engine::{Batch, Commit, Engine, Purpose};
use fencepost_store::engines::rocksdb::RocksDb;
use fencepost_store::engines::{EngineOpenError, EngineOptions, find};
use fencepost_store::{Failure, Rejected};
use rustix::fs::{FallocateFlags, fallocate, statvfs};
use tempfile::TempDir;

fn refusal(path: &Path) -> EngineOpenError {
    RocksDb::open(path, &roomy()).err().unwrap()
}

#[tokio::test]
async fn a_second_opening_in_one_process_is_refused() {
    let dir = TempDir::new().unwrap();
    let first = crate::testbed::directory::open(dir.path(), &roomy()).await;
    let error = refusal(dir.path());
    assert!(matches!(&error, EngineOpenError::InUse { .. }), "{error}");
    let text = error.to_string();
    for part in [dir.path().display().to_string(), format!("process {}", std::process::id()), "--data".to_owned()] {
        assert!(text.contains(&part), "{text}");
    }
    applied(put(&first, "a", token("1"), "the first goes on").await);
    first.close().await;
    assert!(try_open(dir.path(), &roomy()).await.is_ok());
}

/// The test starts itself again with this variable set; that process tries to open the directory.
const TRY: &str = "FENCEPOST_TEST_TRY_TO_OPEN";

#[tokio::test]
async fn a_second_process_is_refused_and_told_who_has_it() {
    if let Some(dir) = std::env::var_os(TRY) {
        let outcome = RocksDb::open(Path::new(&dir), &roomy()).map(|_| "opened".to_owned());
        println!("outcome: {}", outcome.unwrap_or_else(|error| error.to_string()));
        return;
    }
    let dir = TempDir::new().unwrap();
    let second = || {
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "directory::a_second_process_is_refused_and_told_who_has_it", "--nocapture"])
            .env(TRY, dir.path())
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let first = crate::testbed::directory::open(dir.path(), &roomy()).await;
    applied(put(&first, "a", token("1"), "one").await);
    let said = second();
    assert!(said.contains(&format!("is in use by another process (process {})", std::process::id())), "{said}");
    applied(put(&first, "a", token("2"), "two").await);
    first.close().await;
    assert!(second().contains("outcome: opened"));
}

#[tokio::test]
async fn a_newer_format_is_refused_before_anything_is_touched() {
    let written = Written::in_the_journal().await;
    let marker = written.dir.path().join("FENCEPOST");
    edit(&marker, |bytes| *bytes = b"fencepost store, format 3\n".to_vec());
    let file = journal(written.dir.path());
    let before = std::fs::metadata(&file).unwrap().modified().unwrap();
    let error = refusal(written.dir.path());
    assert!(matches!(error, EngineOpenError::NewerFormat { found: 3, known: 2, .. }), "{error}");
    assert!(error.to_string().contains("use a newer fencepost"), "{error}");
    assert_eq!(std::fs::metadata(&file).unwrap().modified().unwrap(), before);
    edit(&marker, |bytes| *bytes = b"fencepost store, format 2\n".to_vec());
    assert_eq!(written.history.look(written.dir.path(), &written.options).await, Seen::Intact);
}

/// Creating an empty database in place of a lost one would lose every fence (G1).
#[tokio::test]
async fn g1_a_directory_that_lost_its_database_is_refused() {
    for lost in ["db", "db/CURRENT"] {
        let written = Written::in_tables_and_journal().await;
        let path = written.dir.path().join(lost);
        if path.is_dir() {
            std::fs::remove_dir_all(path).unwrap()
        } else {
            std::fs::remove_file(path).unwrap()
        }
        for _ in 0..2 {
            let error = refusal(written.dir.path());
            assert!(matches!(error, EngineOpenError::Damaged { .. }), "{lost}: {error}");
        }
    }
}

/// The process was killed while it created the database, before anything could be written to it.
#[tokio::test]
async fn a_making_that_was_interrupted_can_be_repeated() {
    let whole = TempDir::new().unwrap();
    drop(RocksDb::open(whole.path(), &roomy()).unwrap());
    for lost in [&["FENCEPOST"][..], &["FENCEPOST", "committed"], &["FENCEPOST", "committed", "log"]] {
        let copy = TempDir::new().unwrap();
        crate::testbed::directory::copy(whole.path(), copy.path());
        for name in lost {
            match *name {
                "log" => logs(copy.path()).iter().for_each(|log| std::fs::remove_file(log).unwrap()),
                name => std::fs::remove_file(copy.path().join(name)).unwrap(),
            }
        }
        let store = crate::testbed::directory::open(copy.path(), &roomy()).await;
        applied(put(&store, "a", token("1"), "one").await);
        store.close().await;
        assert!(copy.path().join("FENCEPOST").exists());
        assert_eq!(
            text(&crate::testbed::directory::open(copy.path(), &roomy()).await, "a").await.as_deref(),
            Some("one")
        );
    }
}

#[tokio::test]
async fn a_directory_that_cannot_be_used_says_why() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("file");
    File::create(&file).unwrap();
    let error = refusal(&file);
    assert!(matches!(error, EngineOpenError::Directory { .. }), "{error}");
    assert!(error.to_string().contains("file"), "{error}");
}

#[test]
fn engines_are_found_by_name() {
    assert!(find("rocksdb").is_some_and(|engine| engine.durable));
    assert!(find("memory").is_some_and(|engine| !engine.durable));
    assert!(find("paper").is_none());
}

fn free(path: &Path) -> u64 {
    let disk = statvfs(path).unwrap();
    disk.f_bavail * disk.f_frsize
}

/// How much the free space may change because of other processes.
const MARGIN: u64 = 256 << 20;

/// Below the floor nothing is written and no fence is raised. Writes resume without a restart.
#[tokio::test]
async fn a_disk_that_fills_up_rejects_writes_until_there_is_room() {
    let dir = TempDir::new().unwrap();
    let floor = free(dir.path()).checked_sub(2 * MARGIN).expect("the disk of the temporary directory is nearly full");
    let options = EngineOptions { free_space_floor: floor, ..small() };
    let store = crate::testbed::directory::open(dir.path(), &options).await;
    applied(put(&store, "a", token("5"), "before").await);

    let ballast = dir.path().join("ballast");
    let file = File::create(&ballast).unwrap();
    fallocate(&file, FallocateFlags::empty(), 0, 4 * MARGIN).unwrap();
    for _ in 0..3 {
        let ended = put(&store, "a", token("9"), "full").await;
        let Err(Failure::Rejected(Rejected::NoSpace { free, floor: told })) = ended else { panic!("{ended:?}") };
        assert!(told == floor && free < floor);
    }
    assert_eq!(fence(&store, "a").await.as_deref(), Some("5"));
    assert_eq!(text(&store, "a").await.as_deref(), Some("before"));

    drop(file);
    std::fs::remove_file(&ballast).unwrap();
    applied(put(&store, "a", token("6"), "after").await);
    assert_eq!(text(&store, "a").await.as_deref(), Some("after"));
}

#[tokio::test]
async fn a_full_disk_makes_no_new_store() {
    let dir = TempDir::new().unwrap();
    let options = EngineOptions { free_space_floor: u64::MAX, ..small() };
    let error = try_open(dir.path(), &options).await.err().unwrap();
    assert!(error.text().contains("free_space_floor"), "{}", error.text());
    let engine = RocksDb::open(dir.path(), &options).unwrap();
    let loaded = engine.load(&[]).await.unwrap();
    let batch =
        Batch { as_of: loaded.as_of, shared: vec![], compare: vec![], changes: vec![], purpose: Purpose::Store };
    assert!(matches!(engine.commit(batch).await, Ok(Commit::NoSpace { .. })));
}

/// Whether it removes something, and whether it was applied.
type Removal = (bool, bool);

/// Trap 47. The floor is twice the free space. So free space stays between a quarter of the floor and the floor,
/// whatever other processes write.
#[tokio::test]
async fn c04_below_the_floor_what_removes_something_is_committed() {
    let dir = TempDir::new().unwrap();
    let store = crate::testbed::directory::open(dir.path(), &roomy()).await;
    for n in 0..40 {
        applied(put(&store, &format!("k{n}"), token("5"), "stored").await);
    }
    let lease = grant(&store, "lock", "A#1").await;
    store.close().await;

    let options = EngineOptions { free_space_floor: 2 * free(dir.path()), ..small() };
    let store = crate::testbed::directory::open(dir.path(), &options).await;
    let is_full = |ended: &Result<_, Failure>| matches!(ended, Err(Failure::Rejected(Rejected::NoSpace { .. })));
    assert!(is_full(&put(&store, "k0", token("5"), "more").await));
    assert!(is_full(&acquire(&store, wanted("other", "A#1", 1000)).await));
    assert_eq!(reason(delete(&store, "k0", token("4")).await), fencepost_core::Reason::Stale, "it is judged as ever");
    applied(delete(&store, "k0", token("6")).await);
    assert_eq!((text(&store, "k0").await, fence(&store, "k0").await.as_deref()), (None, Some("6")));
    assert_eq!(release(&store, "lock", &lease).await, Ok(Outcome::Released));
    let removal =
        || txn().token("k1", token("5")).token("k2", token("5")).delete("k1").delete("k2").once(once("removal", 1));
    assert!(matches!(removal().send(&store).await, Ok(Outcome::Transacted(_))));
    assert!(matches!(removal().send(&store).await, Ok(Outcome::Replayed(..))));
    let mixed = txn().token("k3", token("5")).token("k4", token("5")).delete("k3").put("k4", "more");
    assert!(is_full(&mixed.send(&store).await), "a transaction that also stores something");
    assert_eq!(text(&store, "k3").await.as_deref(), Some("stored"));

    // However they share batches, each ends as it would alone.
    let mut all: Vec<Pin<Box<dyn Future<Output = Removal>>>> = Vec::new();
    for n in 5..40 {
        let store = &store;
        all.push(Box::pin(async move { (false, put(store, &format!("new{n}"), token("5"), "more").await.is_ok()) }));
        all.push(Box::pin(async move { (true, delete(store, &format!("k{n}"), token("5")).await.is_ok()) }));
    }
    for (removes, done) in together(all).await {
        assert_eq!(done, removes);
    }
}

#[tokio::test]
async fn c04_far_below_the_floor_nothing_is_committed() {
    let dir = TempDir::new().unwrap();
    let store = crate::testbed::directory::open(dir.path(), &roomy()).await;
    applied(put(&store, "a", token("5"), "stored").await);
    store.close().await;
    let floor = 16 * free(dir.path());
    let store =
        crate::testbed::directory::open(dir.path(), &EngineOptions { free_space_floor: floor, ..small() }).await;
    let ended = delete(&store, "a", token("5")).await;
    let Err(Failure::Rejected(Rejected::NoSpace { floor: told, .. })) = ended else { panic!("{ended:?}") };
    assert_eq!(told, floor / 4, "it says how much must be free for this");
}

/// A position that was read must never be ahead of the position after reopening.
#[tokio::test]
async fn c03_the_position_grows_with_commits_and_survives_reopening() {
    let dir = TempDir::new().unwrap();
    let mut last = None;
    for round in 1..=3 {
        let store = crate::testbed::directory::open(dir.path(), &roomy()).await;
        let opened = store.position().unwrap();
        assert!(last.is_none_or(|last| !opened.is_behind(&last)), "{opened:?} after {last:?}");
        for n in 1..=5 {
            let before = store.position().unwrap();
            applied(put(&store, "a", token(&(round * 10 + n).to_string()), "x").await);
            assert!(before.is_behind(&store.position().unwrap()));
        }
        last = store.position();
        store.close().await;
    }
}
