//! Recovery from the journal: a torn end is dropped, and any other damage is refused. Damage that no remaining file
//! reveals is listed here as undetectable.

use std::path::Path;

use crate::testbed::directory::{self, Positions, budget, edit, journal, roomy, small};
use crate::testbed::history::{History, Seen, Written};
use crate::testbed::journal_format;
use crate::testbed::{applied, put, token};
use tempfile::TempDir;

/// A directory as it was after some acknowledged writes, and the entry of one more write.
struct Torn {
    dir: TempDir,
    history: History,
    /// Where the entry begins.
    at: usize,
    entry: Vec<u8>,
}

async fn torn(bytes_of_the_last: usize) -> Torn {
    let original = TempDir::new().unwrap();
    let store = directory::open(original.path(), &roomy()).await;
    let mut history = History::default();
    history.write(&store, 30, 200).await;
    let dir = TempDir::new().unwrap();
    // No background work is running: the buffer is far from full.
    directory::copy(original.path(), dir.path());
    applied(put(&store, "unanswered", token("1"), &"u".repeat(bytes_of_the_last)).await);
    let whole = std::fs::read(journal(original.path())).unwrap();
    store.close().await;
    let last = journal_format::entries(&whole).pop().unwrap();
    assert!(last.len() > bytes_of_the_last);
    Torn { dir, history, at: last.start, entry: whole[last].to_vec() }
}

/// Writes over a file from an offset on.
fn overwrite(file: &Path, at: usize, part: &[u8]) {
    edit(file, |bytes| {
        bytes.resize(bytes.len().max(at + part.len()), 0);
        bytes[at..at + part.len()].copy_from_slice(part);
    });
}

#[tokio::test]
async fn a_torn_end_is_dropped_and_every_answer_kept() {
    // A last write within a few sectors, and one of many pages.
    for bytes in [300, 100_000] {
        let torn = torn(bytes).await;
        let length = torn.entry.len();
        let mut places = Positions(7);
        let random = (0..budget(12, 200)).map(|_| places.below(length));
        for written in [0, 1, 31, 32, 33, length - 1, length].into_iter().chain(random) {
            let copy = TempDir::new().unwrap();
            directory::copy(torn.dir.path(), copy.path());
            overwrite(&journal(copy.path()), torn.at, &torn.entry[..written]);
            assert_eq!(torn.history.look(copy.path(), &roomy()).await, Seen::Intact, "{written} of {length} bytes");
        }
    }
}

/// A disk may write the sectors of an unsynced entry in any order.
#[tokio::test]
async fn an_end_with_missing_sectors_is_dropped_and_every_answer_kept() {
    let torn = torn(20_000).await;
    let mut places = Positions(8);
    for round in 0..budget(16, 200) {
        let mut entry = torn.entry.clone();
        for sector in entry.chunks_mut(512) {
            if places.below(3) == 0 {
                sector.fill(0);
            }
        }
        let copy = TempDir::new().unwrap();
        directory::copy(torn.dir.path(), copy.path());
        overwrite(&journal(copy.path()), torn.at, &entry);
        assert_eq!(torn.history.look(copy.path(), &roomy()).await, Seen::Intact, "round {round}");
    }
}

#[tokio::test]
async fn life_goes_on_after_a_torn_end_again_and_again() {
    let torn = torn(300).await;
    let mut history = torn.history.clone();
    overwrite(&journal(torn.dir.path()), torn.at, &torn.entry[..50]);
    for round in 0..6 {
        let store = directory::open(torn.dir.path(), &small()).await;
        assert_eq!(history.compare(&store).await, Ok(Seen::Intact), "round {round}");
        history.write(&store, 40, 300).await;
        store.close().await;
        // The next start finds a part of a header, or of an entry.
        let file = journal(torn.dir.path());
        let end = journal_format::entries(&std::fs::read(&file).unwrap()).pop().map_or(8 << 10, |entry| entry.end);
        overwrite(&file, end.next_multiple_of(512), &torn.entry[..3 + 60 * (round % 2)]);
    }
    assert_eq!(history.look(torn.dir.path(), &small()).await, Seen::Intact);
}

#[tokio::test]
async fn garbage_after_the_last_entry_is_dropped() {
    let written = Written::in_the_journal().await;
    let end = journal_format::entries(&std::fs::read(journal(written.dir.path())).unwrap()).pop().unwrap().end;
    let mut noise = Positions(11);
    for _ in 0..budget(40, 1_000) {
        let garbage: Vec<u8> = (0..1 + noise.below(3_000)).map(|_| noise.next() as u8).collect();
        let seen = written.damaged(|dir| overwrite(&journal(dir), end.next_multiple_of(512), &garbage)).await;
        assert_eq!(seen, Ok(Seen::Intact));
    }
}

/// Damage that was refused once is refused again, although RocksDB may have cleaned up at the first attempt.
#[tokio::test]
async fn a_refused_directory_stays_refused() {
    let written = Written::in_tables_and_journal().await;
    let entries = journal_format::entries(&std::fs::read(journal(written.dir.path())).unwrap());
    for cut in [1, 4, 10] {
        let copy = written.copy();
        edit(&journal(copy.path()), |bytes| bytes.truncate(entries[entries.len() - cut].end - 1));
        for attempt in 0..4 {
            let seen = written.history.look(copy.path(), &written.options).await;
            let missing = matches!(&seen, Seen::Refused(why) if why.contains("answered writes are missing"));
            assert!(missing, "{cut} entries cut off, attempt {attempt}: {seen:?}");
        }
    }
}

#[tokio::test]
async fn g1_a_store_that_lost_its_journal_is_refused() {
    let written = Written::in_the_journal().await;
    for attempt in 0..2 {
        let seen = written.damaged(|dir| std::fs::remove_dir_all(dir.join("journal")).unwrap()).await;
        assert!(matches!(seen, Ok(Seen::Refused(_))), "attempt {attempt}: {seen:?}");
    }
}

/// Files of the journal are written over again and again, and every start finds what was answered.
#[tokio::test]
async fn the_journal_goes_round_and_stays_small() {
    let dir = TempDir::new().unwrap();
    let mut history = History::default();
    for round in 0..budget(6, 40) {
        let store = directory::open(dir.path(), &small()).await;
        assert_eq!(history.compare(&store).await, Ok(Seen::Intact), "round {round}");
        history.write(&store, 400, 400).await;
        // As a kill would leave it, but for files that come and go meanwhile.
        store.close().await;
    }
    let files: Vec<_> = std::fs::read_dir(dir.path().join("journal")).unwrap().map(|file| file.unwrap()).collect();
    let bytes: u64 = files.iter().map(|file| file.metadata().unwrap().len()).sum();
    assert!(files.len() < 40 && bytes < 16 << 20, "{} files with {bytes} bytes", files.len());
    assert_eq!(history.look(dir.path(), &small()).await, Seen::Intact);
}

/// The journal does not reveal what was cut off, and the mark that would is gone too.
#[tokio::test]
async fn undetectable_a_journal_cut_between_entries_whose_mark_is_gone() {
    let written = Written::in_the_journal().await;
    let cut = |dir: &Path| {
        edit(&journal(dir), |bytes| {
            let entries = journal_format::entries(bytes);
            bytes.truncate(entries[entries.len() / 2].start);
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
    let mut written = Written::in_the_journal().await;
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
    let written = Written::in_the_journal().await;
    let emptied = TempDir::new().unwrap();
    assert!(written.history.try_look(emptied.path(), &written.options).await.is_err());
}
