//! The reasons for the recovery mode of the log: a torn tail is dropped, and any other damage is refused. Damage that
//! no remaining file reveals is listed here as undetectable.

use std::path::{Path, PathBuf};

use crate::testbed::directory::{self, Positions, budget, edit, logs, roomy, small};
use crate::testbed::history::{History, Seen, Written};
use crate::testbed::log_format::{self, BLOCK};
use crate::testbed::{applied, put, resource, token};
use fencepost_store::record::RecordKey;
use rocksdb::{DB, DBRecoveryMode, Options};
use tempfile::TempDir;

fn the_log(dir: &Path) -> PathBuf {
    let logs = logs(dir);
    assert_eq!(logs.len(), 1);
    logs[0].clone()
}

/// Flips one bit in the middle of the log; most records after it stay intact.
fn flip_in_the_middle(dir: &Path) {
    edit(&the_log(dir), |bytes| {
        let records = log_format::records(bytes);
        let middle = &records[records.len() / 2];
        bytes[middle.end - 1] ^= 1;
    });
}

/// Opens the database without the engine's checks, and looks for a fence.
fn fence_is_there(dir: &Path, mode: Option<DBRecoveryMode>, name: &str) -> bool {
    let mut options = Options::default();
    if let Some(mode) = mode {
        options.set_wal_recovery_mode(mode);
    }
    let db = DB::open(&options, dir.join("db")).unwrap();
    db.get(RecordKey::fence(&resource(name)).as_bytes()).unwrap().is_some()
}

#[tokio::test]
async fn rocksdbs_default_mode_forgets_in_silence_and_ours_refuses() {
    let written = Written::in_the_log().await;
    let (newest, _) = written.history.newest();
    assert!(fence_is_there(written.copy().path(), None, newest), "without damage it is there");
    for silent in [None, Some(DBRecoveryMode::PointInTime), Some(DBRecoveryMode::SkipAnyCorruptedRecord)] {
        let copy = written.copy();
        flip_in_the_middle(copy.path());
        let before: usize = log_format::records(&std::fs::read(the_log(copy.path())).unwrap()).len();
        assert!(before > 50, "most records are whole");
        let found = fence_is_there(copy.path(), silent, newest);
        let skips = matches!(silent, Some(DBRecoveryMode::SkipAnyCorruptedRecord));
        assert_eq!(found, skips, "point in time forgets all that follows, skipping forgets some of the middle");
    }
    let mut ours = Options::default();
    ours.set_wal_recovery_mode(DBRecoveryMode::TolerateCorruptedTailRecords);
    let copy = written.copy();
    flip_in_the_middle(copy.path());
    assert!(DB::open(&ours, copy.path().join("db")).is_err(), "the mode alone refuses it");
    let seen = written.damaged(flip_in_the_middle).await.unwrap();
    assert!(matches!(&seen, Seen::Refused(why) if why.contains("checksum")), "{seen:?}");
}

/// The other strict recovery mode would refuse a store after every crash during a write.
#[tokio::test]
async fn absolute_consistency_would_refuse_a_torn_tail() {
    let written = Written::in_the_log().await;
    let copy = written.copy();
    edit(&the_log(copy.path()), |bytes| bytes.extend_from_slice(&[1, 2, 3, 4, 0xff, 0x10, 1, 7, 7, 7]));
    let mut options = Options::default();
    options.set_wal_recovery_mode(DBRecoveryMode::AbsoluteConsistency);
    assert!(DB::open(&options, copy.path().join("db")).is_err());
    assert_eq!(written.history.look(copy.path(), &written.options).await, Seen::Intact);
}

/// A directory as it was after some acknowledged writes, and its log after one more write.
struct Torn {
    dir: TempDir,
    history: History,
    whole: Vec<u8>,
    answered: usize,
}

async fn torn(bytes_of_the_last: usize) -> Torn {
    let original = TempDir::new().unwrap();
    let store = directory::open(original.path(), &roomy()).await;
    let mut history = History::default();
    history.write(&store, 30, 200).await;
    let dir = TempDir::new().unwrap();
    // No background work is running: the buffer is far from full.
    directory::copy(original.path(), dir.path());
    let answered = std::fs::metadata(the_log(dir.path())).unwrap().len() as usize;
    applied(put(&store, "unanswered", token("1"), &"u".repeat(bytes_of_the_last)).await);
    let whole = std::fs::read(the_log(original.path())).unwrap();
    store.close().await;
    assert!(whole.len() > answered);
    Torn { dir, history, whole, answered }
}

#[tokio::test]
async fn a_torn_tail_is_dropped_and_every_answer_kept() {
    // A last write within one block, and one across several blocks.
    for bytes in [300, 100_000] {
        let torn = torn(bytes).await;
        let unanswered = torn.whole.len() - torn.answered;
        let mut places = Positions(7);
        let random = (0..budget(12, 200)).map(|_| places.below(unanswered));
        for extra in [0, 1, 6, 7, 8, unanswered - 1, unanswered].into_iter().chain(random) {
            let copy = TempDir::new().unwrap();
            directory::copy(torn.dir.path(), copy.path());
            std::fs::write(the_log(copy.path()), &torn.whole[..torn.answered + extra]).unwrap();
            assert_eq!(torn.history.look(copy.path(), &roomy()).await, Seen::Intact, "{extra} of {unanswered} bytes");
        }
    }
}

#[tokio::test]
async fn life_goes_on_after_a_torn_tail_again_and_again() {
    let torn = torn(300).await;
    let mut history = torn.history.clone();
    std::fs::write(the_log(torn.dir.path()), &torn.whole[..torn.answered + 50]).unwrap();
    for round in 0..6 {
        let store = directory::open(torn.dir.path(), &small()).await;
        assert_eq!(history.compare(&store).await, Ok(Seen::Intact), "round {round}");
        history.write(&store, 40, 300).await;
        store.close().await;
        // The next start finds a partial header, or a partial record.
        let log = logs(torn.dir.path()).pop().unwrap();
        let garbage = &torn.whole[torn.answered..torn.answered + 3 + 20 * (round % 2)];
        edit(&log, |bytes| bytes.extend_from_slice(garbage));
    }
    assert_eq!(history.look(torn.dir.path(), &small()).await, Seen::Intact);
}

#[tokio::test]
async fn garbage_after_the_last_record_is_dropped_or_refused() {
    let written = Written::in_the_log().await;
    let mut noise = Positions(11);
    for _ in 0..budget(40, 1_000) {
        let garbage: Vec<u8> = (0..1 + noise.below(300)).map(|_| noise.next() as u8).collect();
        let seen = written.damaged(|dir| edit(&the_log(dir), |bytes| bytes.extend_from_slice(&garbage))).await;
        assert!(matches!(seen, Ok(Seen::Intact | Seen::Refused(_))), "{seen:?}");
    }
}

/// Damage that was refused once is refused again, although RocksDB may have cleaned up at the first attempt.
#[tokio::test]
async fn a_refused_directory_stays_refused() {
    let written = Written::in_tables_and_log().await;
    for cut in [1, 1_000, 10_000] {
        let copy = written.copy();
        let log = logs(copy.path()).pop().unwrap();
        edit(&log, |bytes| bytes.truncate(bytes.len() - cut));
        for attempt in 0..4 {
            let seen = written.history.look(copy.path(), &written.options).await;
            let missing = matches!(&seen, Seen::Refused(why) if why.contains("answered writes are missing"));
            assert!(missing, "{cut} bytes cut off, attempt {attempt}: {seen:?}");
        }
    }
}

/// RocksDB treats zeros as preallocated space, and continues with the next block.
#[tokio::test]
async fn a_hole_of_zeros_up_to_a_block_is_refused() {
    let dir = TempDir::new().unwrap();
    let store = directory::open(dir.path(), &roomy()).await;
    let mut history = History::default();
    history.write(&store, 30, 200).await;
    let filler = async |bytes: usize| {
        let before = std::fs::metadata(the_log(dir.path())).unwrap().len() as usize;
        applied(put(&store, "filler", token("1"), &"f".repeat(bytes)).await);
        std::fs::metadata(the_log(dir.path())).unwrap().len() as usize - before
    };
    filler(300).await;
    let overhead = filler(300).await - 300;
    // Fills the block to its last byte, so that the next block begins with a new record.
    loop {
        let left = BLOCK - std::fs::metadata(the_log(dir.path())).unwrap().len() as usize % BLOCK;
        match left.checked_sub(overhead) {
            Some(exact) if (300..8_000).contains(&exact) => {
                filler(exact).await;
                break;
            }
            _ => filler(300).await,
        };
    }
    assert_eq!(std::fs::metadata(the_log(dir.path())).unwrap().len() as usize % BLOCK, 0);
    history.write(&store, 30, 200).await;
    store.close().await;
    let written = Written { dir, history, options: roomy() };
    let hole = written.damaged(|dir| {
        edit(&the_log(dir), |bytes| {
            let start = log_format::records(bytes)[10].start;
            assert!(start < BLOCK);
            bytes[start..BLOCK].fill(0);
        });
    });
    let seen = hole.await;
    assert!(matches!(seen, Ok(Seen::Refused(_))), "{seen:?}");
}

/// The log does not reveal what was cut off, and the mark that would is gone too.
#[tokio::test]
async fn undetectable_a_log_cut_between_records_whose_mark_is_gone() {
    let written = Written::in_the_log().await;
    let cut = |dir: &Path| {
        edit(&the_log(dir), |bytes| {
            let records = log_format::records(bytes);
            bytes.truncate(records[records.len() / 2].start);
        });
    };
    assert!(matches!(written.damaged(cut).await, Ok(Seen::Refused(_))), "with the mark it is detected");
    let both = written.damaged(|dir| {
        cut(dir);
        std::fs::remove_file(dir.join("committed")).unwrap();
    });
    let broken = both.await.unwrap_err();
    assert!(broken.contains("was answered"), "{broken}");
}

/// All files are consistent, but old. Restoring a backup requires the restore command, which raises the base
/// generation.
#[tokio::test]
async fn undetectable_an_older_copy_of_the_whole_directory() {
    let mut written = Written::in_the_log().await;
    let older = written.copy();
    let store = directory::open(written.dir.path(), &written.options).await;
    written.history.write(&store, 5, 10).await;
    store.close().await;
    assert_eq!(written.history.look(written.dir.path(), &written.options).await, Seen::Intact);
    assert!(written.history.try_look(older.path(), &written.options).await.is_err());
}

/// No file is left that could reveal the loss.
#[tokio::test]
async fn undetectable_an_emptied_directory() {
    let written = Written::in_the_log().await;
    let emptied = TempDir::new().unwrap();
    assert!(written.history.try_look(emptied.path(), &written.options).await.is_err());
}
