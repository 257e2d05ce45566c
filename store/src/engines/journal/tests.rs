use super::contents::{Damage, entries};
use super::format::{ALIGNMENT, ENTRY_HEADER};
use super::*;

/// Entries of three positions each, numbered from 1, with bodies that differ in length.
fn body(number: u64) -> Vec<u8> {
    vec![number as u8; 300 + 97 * usize::try_from(number).unwrap()]
}

fn append(journal: &mut Journal, first: u64, count: u32, body: &[u8]) {
    journal.append(first, count, &mut Entry::new(body)).unwrap();
}

fn filled(directory: &Path, entries: u64, segment_bytes: usize) -> Journal {
    let mut journal = Journal::open(directory, segment_bytes).unwrap();
    for number in 1..=entries {
        append(&mut journal, 3 * number - 2, 3, &body(number));
    }
    journal
}

fn read(directory: &Path, in_tables: u64) -> Result<(u64, Vec<Vec<u8>>), Damage> {
    let contents = Contents::read(directory, in_tables).unwrap()?;
    let mut bodies = Vec::new();
    let replayed = contents.replay(|bytes| {
        bodies.push(bytes.to_vec());
        Ok::<_, ()>(())
    });
    replayed.unwrap().unwrap();
    Ok((contents.last, bodies))
}

fn files(directory: &Path) -> Vec<PathBuf> {
    segments(directory).unwrap().into_iter().map(|(_, path)| path).collect()
}

fn edit(path: &Path, edit: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs::read(path).unwrap();
    edit(&mut bytes);
    fs::write(path, bytes).unwrap();
}

/// The offsets of all entries of a file.
fn offsets(path: &Path) -> Vec<usize> {
    let bytes = fs::read(path).unwrap();
    let head = Head::read(&File::open(path).unwrap()).unwrap().unwrap();
    entries(&bytes, &head, 0).unwrap().0.into_iter().map(|(at, _)| at).collect()
}

#[test]
fn what_was_appended_is_read_in_order_over_several_files() {
    let directory = tempfile::tempdir().unwrap();
    assert_eq!(read(&directory.path().join("none"), 7), Ok((7, Vec::new())), "a store without a journal");
    let journal = filled(directory.path(), 20, 12 << 10);
    assert!(journal.full.len() > 1 && files(directory.path()).len() > 2);
    let all: Vec<_> = (1..=20).map(body).collect();
    assert_eq!(read(directory.path(), 0), Ok((60, all.clone())));
    assert_eq!(read(directory.path(), 30), Ok((60, all[10..].to_vec())), "what is in tables is left out");
    assert_eq!(read(directory.path(), 60), Ok((60, Vec::new())));
}

#[test]
fn files_are_written_over_when_their_entries_are_in_tables() {
    let directory = tempfile::tempdir().unwrap();
    let mut journal = filled(directory.path(), 20, 12 << 10);
    let before = files(directory.path()).len();
    journal.free_up_to(60);
    assert!(journal.full.is_empty());
    for number in 21..=30 {
        append(&mut journal, 3 * number - 2, 3, &body(number));
    }
    assert!(files(directory.path()).len() <= before + 1);
    assert_eq!(read(directory.path(), 60), Ok((90, (21..=30).map(body).collect())));
    drop(journal);
    let mut journal = Journal::open(directory.path(), 12 << 10).unwrap();
    append(&mut journal, 91, 3, &body(31));
    assert_eq!(read(directory.path(), 90), Ok((93, vec![body(31)])), "an opened journal goes on in a use of its own");
}

#[test]
fn a_torn_last_entry_is_the_end() {
    let directory = tempfile::tempdir().unwrap();
    drop(filled(directory.path(), 6, 1 << 20));
    let path = files(directory.path()).remove(0);
    let (whole, last) = (fs::read(&path).unwrap(), *offsets(&path).last().unwrap());
    let five: Vec<_> = (1..=5).map(body).collect();
    // Any part of the last entry may be missing: its header, its body, or sectors of it.
    for at in (last..last + ENTRY_HEADER + body(6).len()).step_by(37) {
        edit(&path, |bytes| bytes[at] ^= 0x40);
        assert_eq!(read(directory.path(), 0), Ok((15, five.clone())), "byte {at}");
        fs::write(&path, &whole).unwrap();
    }
    edit(&path, |bytes| bytes.truncate(last + 100));
    assert_eq!(read(directory.path(), 0), Ok((15, five)));
}

#[test]
fn g1_damage_before_the_last_entry_is_found() {
    let directory = tempfile::tempdir().unwrap();
    drop(filled(directory.path(), 6, 1 << 20));
    let path = files(directory.path()).remove(0);
    let (whole, at) = (fs::read(&path).unwrap(), offsets(&path));
    for byte in (at[0]..at[5]).step_by(31).chain(at[..5].iter().flat_map(|at| *at..at + ENTRY_HEADER)) {
        let entry = at.iter().rposition(|at| *at <= byte).unwrap();
        if byte >= at[entry] + ENTRY_HEADER + body(entry as u64 + 1).len() {
            continue; // Between two entries.
        }
        edit(&path, |bytes| bytes[byte] ^= 1);
        assert!(read(directory.path(), 0).is_err(), "byte {byte} of entry {}", entry + 1);
        fs::write(&path, &whole).unwrap();
    }
    for sector in at[0] / ALIGNMENT..at[5] / ALIGNMENT {
        edit(&path, |bytes| bytes[sector * ALIGNMENT..(sector + 1) * ALIGNMENT].fill(0));
        assert!(read(directory.path(), 0).is_err(), "sector {sector}");
        fs::write(&path, &whole).unwrap();
    }
}

#[test]
fn damage_of_what_is_in_tables_does_not_matter() {
    let directory = tempfile::tempdir().unwrap();
    drop(filled(directory.path(), 6, 1 << 20));
    let path = files(directory.path()).remove(0);
    let (whole, at) = (fs::read(&path).unwrap(), offsets(&path));
    for damaged in 0..5 {
        edit(&path, |bytes| bytes[at[damaged] + 5] ^= 1);
        for in_tables in (damaged + 1..=6).map(|entries| 3 * entries as u64) {
            let left: Vec<_> = (in_tables / 3 + 1..=6).map(body).collect();
            assert_eq!(read(directory.path(), in_tables), Ok((18, left)), "entry {damaged}, {in_tables} in tables");
        }
        for in_tables in (0..=damaged).map(|entries| 3 * entries as u64) {
            assert!(read(directory.path(), in_tables).is_err(), "entry {damaged}, {in_tables} in tables");
        }
        fs::write(&path, &whole).unwrap();
    }
}

#[test]
fn g1_a_missing_file_between_others_is_found() {
    let directory = tempfile::tempdir().unwrap();
    drop(filled(directory.path(), 20, 12 << 10));
    fs::remove_file(&files(directory.path())[1]).unwrap();
    assert!(read(directory.path(), 0).is_err());
    let cut = tempfile::tempdir().unwrap();
    drop(filled(cut.path(), 20, 12 << 10));
    edit(&files(cut.path())[0], |bytes| bytes.truncate(HEAD_AREA + 200));
    assert!(read(cut.path(), 0).is_err(), "a cut file between others");
}

#[test]
fn one_copy_of_a_head_is_enough() {
    let directory = tempfile::tempdir().unwrap();
    drop(filled(directory.path(), 4, 1 << 20));
    let path = files(directory.path()).remove(0);
    let whole = fs::read(&path).unwrap();
    for page in [0, 4096] {
        edit(&path, |bytes| bytes[page..page + 4096].fill(0));
        assert_eq!(read(directory.path(), 0).unwrap().0, 12);
        fs::write(&path, &whole).unwrap();
    }
}

/// A power cut may leave any of the pages of the last use unwritten. What an earlier use left must not be taken for an
/// entry, nor for damage.
#[test]
fn entries_of_an_earlier_use_are_neither_entries_nor_damage() {
    let directory = tempfile::tempdir().unwrap();
    drop(filled(directory.path(), 6, 1 << 20));
    let path = files(directory.path()).remove(0);
    let before = fs::read(&path).unwrap();
    let mut journal = Journal::open(directory.path(), 1 << 20).unwrap();
    append(&mut journal, 19, 3, &body(7));
    let after = fs::read(&path).unwrap();
    let page = |bytes: &[u8], page: usize| bytes[page * 4096..(page + 1) * 4096].to_vec();
    // The head is synced before the first entry: it is old in both copies, in one, or in none.
    for old in [vec![0, 1, 2], vec![0, 2], vec![1, 2], vec![2]] {
        let mut mixed = after.clone();
        for number in &old {
            mixed[number * 4096..(number + 1) * 4096].copy_from_slice(&page(&before, *number));
        }
        fs::write(&path, &mixed).unwrap();
        assert_eq!(read(directory.path(), 18), Ok((18, Vec::new())), "old pages: {old:?}");
    }
}

/// A value may hold the bytes of an entry, copied from the journal itself or computed with a guessed seed.
#[test]
fn a_forged_entry_in_a_body_is_not_an_entry() {
    let directory = tempfile::tempdir().unwrap();
    drop(filled(directory.path(), 2, 1 << 20));
    let forged = EntryHeader { length: 4, first: 7, count: 1, body_checksum: 0, synced: 90 };
    let sector = |seed: &Seed| {
        let mut sector = EntryHeader { body_checksum: seed.of_body(b"evil"), ..forged }.encode(seed).to_vec();
        sector.extend_from_slice(b"evil");
        sector.resize(ALIGNMENT, 0);
        sector
    };
    let path = files(directory.path()).remove(0);
    let earlier = Head::read(&File::open(&path).unwrap()).unwrap().unwrap().seed;
    // Aligned as entries are: an entry's header, then sectors that look like entries.
    let mut body = vec![0; ALIGNMENT - ENTRY_HEADER];
    for seed in [earlier, Seed::default()] {
        body.extend(sector(&seed));
    }
    let mut journal = Journal::open(directory.path(), 1 << 20).unwrap();
    append(&mut journal, 7, 1, &body);
    assert_eq!(read(directory.path(), 6), Ok((7, vec![body])));
    // The same, when the forged bytes are what lies behind the end.
    edit(&path, |bytes| bytes[HEAD_AREA] ^= 1);
    assert_eq!(read(directory.path(), 6), Ok((6, Vec::new())));
}

#[test]
fn a_large_entry_has_a_file_of_its_own() {
    let directory = tempfile::tempdir().unwrap();
    let mut journal = filled(directory.path(), 1, 16 << 10);
    let large = vec![7; 100 << 10];
    append(&mut journal, 4, 1, &large);
    append(&mut journal, 5, 1, b"small");
    assert_eq!(read(directory.path(), 0), Ok((5, vec![body(1), large, b"small".to_vec()])));
}

/// A disk with other sectors refuses what is written past the page cache. The same bytes are then written through it.
#[test]
fn what_cannot_be_written_past_the_page_cache_goes_through_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("0000.journal");
    fs::write(&path, vec![0; 64 << 10]).unwrap();
    let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let mut segment = Segment { file, direct: direct(&path), length: 64 << 10 };
    let (aligned, shifted) = (Entry::new(&[7; 700]), vec![8; 1000]);
    segment.write(aligned.sectors(), 8 << 10).unwrap();
    // Most file systems refuse this; some write it through the page cache by themselves.
    let refused = direct(&path).is_none_or(|direct| direct.write_all_at(&shifted[1..], 40 << 10 | 1).is_err());
    segment.write(&shifted[1..], (16 << 10) + 1).unwrap();
    assert_eq!(segment.direct.is_none(), refused, "it is not tried again");
    segment.write(aligned.sectors(), 24 << 10).unwrap();
    let bytes = fs::read(&path).unwrap();
    for at in [8 << 10, 24 << 10] {
        assert_eq!(&bytes[at..at + aligned.sectors().len()], aligned.sectors(), "at {at}");
    }
    assert_eq!(&bytes[(16 << 10) + 1..(16 << 10) + 1000], &shifted[1..]);
}

#[test]
fn an_entry_is_whole_sectors_in_memory_and_on_disk() {
    for length in [0, 1, 479, 480, 481, 100_000] {
        let entry = Entry::new(&vec![7; length]);
        assert_eq!(entry.sectors().as_ptr().align_offset(ALIGNMENT), 0, "{length}");
        assert_eq!(entry.sectors().len(), (ENTRY_HEADER + length).next_multiple_of(ALIGNMENT), "{length}");
        assert_eq!(entry.body(), vec![7; length], "{length}");
    }
}

/// After a failed sync, the system may show bytes that are not on the disk, and forget them later.
#[test]
fn what_changes_between_reading_and_replaying_is_not_applied() {
    let directory = tempfile::tempdir().unwrap();
    drop(filled(directory.path(), 3, 1 << 20));
    let contents = Contents::read(directory.path(), 0).unwrap().unwrap();
    let path = files(directory.path()).remove(0);
    let last = *offsets(&path).last().unwrap();
    edit(&path, |bytes| bytes[last + ENTRY_HEADER + 7] ^= 1);
    let mut applied = 0;
    let replayed = contents.replay(|_| {
        applied += 1;
        Ok::<_, ()>(())
    });
    assert!(replayed.is_err() && applied == 2);
}
