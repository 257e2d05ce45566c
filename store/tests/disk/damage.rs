//! Damaged files: after any cut, flip, zeroed page or deletion, a store is refused or correct, never with a lower
//! fence.
//!
//! Budget: CI 60, full 2,000 random places per kind of file, beside the chosen ones.

use std::path::{Path, PathBuf};
use std::pin::Pin;

use crate::testbed::directory::{Positions, budget, edit, journal, manifests, tables};
use crate::testbed::history::{Seen, Written};
use crate::testbed::{journal_format, log_format, together};

/// One kind of damage to a file.
#[derive(Clone, Copy, Debug)]
enum Damage {
    Cut { to: usize },
    Flip { at: usize, bit: u8 },
    Zero { from: usize, to: usize },
    Delete,
}

impl Damage {
    fn apply(self, path: &Path) {
        match self {
            Damage::Cut { to } => edit(path, |bytes| bytes.truncate(to)),
            Damage::Flip { at, bit } => edit(path, |bytes| bytes[at] ^= 1 << bit),
            Damage::Zero { from, to } => edit(path, |bytes| bytes[from..to].fill(0)),
            Damage::Delete => std::fs::remove_file(path).unwrap(),
        }
    }
}

/// Cuts, flips and zeroed pages at reproducible places, and deletion of the file.
fn anywhere(bytes: &[u8], seed: u64) -> Vec<Damage> {
    let (mut places, length) = (Positions(seed), bytes.len());
    let mut all = vec![Damage::Delete, Damage::Cut { to: 0 }, Damage::Cut { to: 1 }, Damage::Cut { to: length - 1 }];
    for _ in 0..budget(60, 2_000) {
        all.push(Damage::Flip { at: places.below(length), bit: places.below(8) as u8 });
    }
    for _ in 0..budget(10, 300) {
        all.push(Damage::Cut { to: places.below(length) });
        let from = places.below(length) / 4096 * 4096;
        all.push(Damage::Zero { from, to: (from + 4096).min(length) });
    }
    all
}

/// Every kind of damage to the frame of a manifest, which has RocksDB's log format: at, before and in the headers of some of its records.
fn at_records(bytes: &[u8], records: usize) -> Vec<Damage> {
    let all = log_format::records(bytes);
    let every = all.len().div_ceil(records).max(1);
    let chosen = all.iter().step_by(every).chain(all.last());
    chosen
        .flat_map(|record| {
            let start = record.start;
            let flips = (0..log_format::HEADER).map(move |byte| Damage::Flip { at: start + byte, bit: 7 });
            let low = [4, 5].map(|byte| Damage::Flip { at: start + byte, bit: 0 });
            // Some record types make RocksDB 11 loop forever.
            let types = (0..8).map(move |bit| Damage::Flip { at: start + 6, bit });
            flips.chain(low).chain(types).chain([
                Damage::Cut { to: start },
                Damage::Cut { to: start + 3 },
                Damage::Cut { to: start + log_format::HEADER },
                Damage::Zero { from: start, to: start + log_format::HEADER },
            ])
        })
        .collect()
}

/// Damages a manifest at random places and at some of its records. Returns how many damages were tried, and how many were
/// refused.
async fn try_manifest(written: &Written, manifest: &Path, seed: u64, records: usize) -> (usize, usize) {
    let bytes = std::fs::read(manifest).unwrap();
    let damages = [anywhere(&bytes, seed), at_records(&bytes, records)].concat();
    (damages.len(), try_all(written, manifest, damages).await)
}

/// Every kind of damage to the last use of a file of the journal: at random places in its entries, and at, before and in
/// the headers of some of them. What lies between entries and behind the last of them means nothing.
fn in_entries(bytes: &[u8], seed: u64, chosen: usize) -> Vec<Damage> {
    let (entries, mut places) = (journal_format::entries(bytes), Positions(seed));
    let (first, last) = (entries.first().unwrap().start, entries.last().unwrap().end);
    let mut all = vec![Damage::Delete, Damage::Cut { to: 0 }, Damage::Cut { to: 1 }, Damage::Cut { to: last - 1 }];
    for _ in 0..budget(60, 2_000) {
        let entry = &entries[places.below(entries.len())];
        all.push(Damage::Flip { at: entry.start + places.below(entry.len()), bit: places.below(8) as u8 });
    }
    for _ in 0..budget(10, 300) {
        all.push(Damage::Cut { to: first + places.below(last - first) });
        // A page that an entry begins in, so that some of it is not zero already.
        let from = entries[places.below(entries.len())].start / 4096 * 4096;
        all.push(Damage::Zero { from, to: (from + 4096).min(bytes.len()) });
    }
    let every = entries.len().div_ceil(chosen).max(1);
    for entry in entries.iter().step_by(every).chain(entries.last()) {
        let start = entry.start;
        all.extend((0..journal_format::HEADER).map(|byte| Damage::Flip { at: start + byte, bit: 7 }));
        all.extend((0..8).map(|byte| Damage::Flip { at: start + 4 * byte, bit: 0 }));
        all.extend([
            Damage::Cut { to: start },
            Damage::Cut { to: start + 3 },
            Damage::Cut { to: start + journal_format::HEADER },
            Damage::Zero { from: start, to: start + journal_format::HEADER },
        ]);
    }
    all
}

/// Damages the newest file of the journal. Returns how many damages were tried, and how many were refused.
async fn try_journal(written: &Written, seed: u64, entries: usize) -> (usize, usize) {
    let file = journal(written.dir.path());
    let damages = in_entries(&std::fs::read(&file).unwrap(), seed, entries);
    (damages.len(), try_all(written, &file, damages).await)
}

/// How many copies are examined concurrently. RocksDB waits a second after a compaction that met damage.
const SIDE_BY_SIDE: usize = 16;

/// Applies each damage to a fresh copy. Fails with all broken promises at once; returns how many were refused.
async fn try_all(written: &Written, file: &Path, damages: Vec<Damage>) -> usize {
    let inside: PathBuf = file.strip_prefix(written.dir.path()).unwrap().to_owned();
    let (tried, mut refused, mut broken) = (damages.len(), 0, Vec::new());
    for some in damages.chunks(SIDE_BY_SIDE) {
        let looks = some.iter().map(|damage| -> Pin<Box<dyn Future<Output = _>>> {
            Box::pin(written.damaged(|dir| damage.apply(&dir.join(&inside))))
        });
        for (damage, seen) in some.iter().zip(together(looks.collect()).await) {
            match seen {
                Ok(Seen::Refused(why)) => {
                    assert!(why.len() > 40, "{damage:?} is refused without a clear text: {why}");
                    refused += 1;
                }
                Ok(Seen::Intact | Seen::ReadErrors(_)) => {}
                Err(how) => broken.push(format!("{damage:?}: {how}")),
            }
        }
    }
    let shown = broken.iter().take(20).cloned().collect::<Vec<_>>().join("\n  ");
    assert!(broken.is_empty(), "{inside:?}: {} of {tried} broke a promise:\n  {shown}", broken.len());
    refused
}

#[tokio::test]
async fn an_undamaged_copy_is_intact() {
    for written in [Written::in_the_journal().await, Written::in_tables_and_journal().await] {
        assert_eq!(written.damaged(|_| {}).await, Ok(Seen::Intact));
    }
}

#[tokio::test]
async fn the_journal_of_a_store_without_tables() {
    let written = Written::in_the_journal().await;
    assert_eq!(tables(written.dir.path()).len(), 1, "only the one that says that no record is in tables");
    let (tried, refused) = try_journal(&written, 1, budget(8, 60)).await;
    assert_eq!(refused, tried, "all of the journal was answered, so no damage is harmless");
}

#[tokio::test]
async fn the_journal_beside_tables() {
    let written = Written::in_tables_and_journal().await;
    let (tried, refused) = try_journal(&written, 2, budget(8, 60)).await;
    assert_eq!(refused, tried, "all of the journal was answered, so no damage is harmless");
}

/// After a power cut the mark may be old. Damage between entries is found without it.
#[tokio::test]
async fn damage_between_entries_is_found_without_the_mark() {
    let written = Written::in_the_journal().await;
    let file = journal(written.dir.path());
    let inside: PathBuf = file.strip_prefix(written.dir.path()).unwrap().to_owned();
    let entries = journal_format::entries(&std::fs::read(&file).unwrap());
    for entry in &entries[..entries.len() - 1] {
        let seen = written.damaged(|dir| {
            edit(&dir.join(&inside), |bytes| bytes[entry.start + 40] ^= 1);
            std::fs::remove_file(dir.join("committed")).unwrap();
        });
        let seen = seen.await;
        assert!(matches!(&seen, Ok(Seen::Refused(why)) if why.contains("checksum")), "{entry:?}: {seen:?}");
    }
}

#[tokio::test]
async fn tables_are_checked_when_they_are_read() {
    let written = Written::in_tables_and_journal().await;
    let all = tables(written.dir.path());
    assert!(!all.is_empty());
    for (at, table) in all.iter().enumerate() {
        let bytes = std::fs::read(table).unwrap();
        assert!(try_all(&written, table, anywhere(&bytes, 3 + at as u64)).await > 0);
    }
}

#[tokio::test]
async fn the_manifest() {
    let written = Written::in_tables_and_journal().await;
    let manifest = manifests(written.dir.path()).pop().unwrap();
    assert!(log_format::records(&std::fs::read(&manifest).unwrap()).len() > 5, "it tells of several flushes");
    assert!(try_manifest(&written, &manifest, 4, usize::MAX).await.1 > 0);
}

#[tokio::test]
async fn the_manifest_of_a_store_that_was_opened_again() {
    let mut written = Written::in_tables_and_journal().await;
    let store = crate::testbed::directory::open(written.dir.path(), &written.options).await;
    written.history.write(&store, 10, 400).await;
    store.close().await;
    let manifest = manifests(written.dir.path()).pop().unwrap();
    assert!(try_manifest(&written, &manifest, 5, usize::MAX).await.1 > 0);
}

/// A flip of every bit of a small file.
fn every_bit(bytes: &[u8]) -> Vec<Damage> {
    let flips = (0..bytes.len()).flat_map(|at| (0..8).map(move |bit| Damage::Flip { at, bit }));
    flips.chain((0..bytes.len()).map(|to| Damage::Cut { to })).chain([Damage::Delete]).collect()
}

#[tokio::test]
async fn the_file_that_names_the_manifest() {
    let written = Written::in_tables_and_journal().await;
    let current = written.dir.path().join("db/CURRENT");
    let damages = every_bit(&std::fs::read(&current).unwrap());
    assert!(try_all(&written, &current, damages).await > 0);
}

/// The mark is only additional evidence: losing it alone does no harm, and a wrong one is not trusted.
#[tokio::test]
async fn the_committed_mark() {
    let written = Written::in_tables_and_journal().await;
    let mark = written.dir.path().join("committed");
    let damages = every_bit(&std::fs::read(&mark).unwrap());
    assert_eq!(try_all(&written, &mark, damages).await, 0);
}

#[tokio::test]
async fn the_marker_of_the_format() {
    let written = Written::in_tables_and_journal().await;
    let marker = written.dir.path().join("FENCEPOST");
    let damages = every_bit(&std::fs::read(&marker).unwrap());
    assert!(try_all(&written, &marker, damages).await > 0);
}
