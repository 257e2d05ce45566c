//! The journal: every commit is appended here and synced before RocksDB has it in memory.
//!
//! RocksDB's own log grows with every write, so each of its syncs also writes the metadata of the file. The journal is a
//! few files that are written over once RocksDB has their contents in tables. Within them a sync writes data only.
//!
//! A file begins with a head: the number of its use, and a random seed that goes into the checksums of this use. So an
//! entry of an earlier use is never taken for one of this use, and no caller can write a value that looks like an entry.
//! Entries follow, each at a multiple of [`ALIGNMENT`].
//!
//! Reading stops at the first entry that is not valid. That is the end of the journal, because an entry is written only
//! after the one before it was synced; unless a valid entry further on knows of more writes that were synced. Then the
//! file is damaged ([`Damage`]).

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::Advice;

use super::log_check::{u32_at, u64_at};

const MAGIC: &[u8; 8] = b"FPJRNL01";

/// Both copies of a file's head are in this many bytes; entries follow.
const HEAD_AREA: usize = 8 << 10;

/// Where the second copy of a head is: on another page, so that one bad page leaves one copy.
const SECOND_COPY: u64 = 4 << 10;

/// Magic, number of the use, seed, first position, checksum.
const HEAD_BYTES: usize = 8 + 8 + 16 + 8 + 4;

/// Entries start at multiples of this: a sector, which a disk writes whole or not at all.
const ALIGNMENT: usize = 512;

/// Checksum of the header, length, first position, number of changes, checksum of the body, last synced position.
const ENTRY_HEADER: usize = 4 + 4 + 8 + 4 + 4 + 8;

/// A file is extended by this many zeros at a time, so that most syncs of its first use change no metadata either.
const EXTENSION: usize = 256 << 10;

/// Random bytes that go into the checksums of one use of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Seed([u8; 16]);

impl Seed {
    fn random() -> io::Result<Seed> {
        let mut seed = Seed::default();
        getrandom::fill(&mut seed.0).map_err(io::Error::other)?;
        Ok(seed)
    }

    /// The two checksums of an entry have a half each: together they are 64 bits that nobody can guess.
    fn of_header(&self, bytes: &[u8]) -> u32 {
        crc32c::crc32c_append(crc32c::crc32c(&self.0[..8]), bytes)
    }

    fn of_body(&self, bytes: &[u8]) -> u32 {
        crc32c::crc32c_append(crc32c::crc32c(&self.0[8..]), bytes)
    }
}

/// Why a journal cannot be trusted.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Damage(pub(super) String);

/// The journal of a running engine.
pub(super) struct Journal {
    directory: PathBuf,
    /// Files that are full, oldest first, with the last position in each.
    full: Vec<(Segment, u64)>,
    free: Vec<Segment>,
    current: Option<Use>,
    /// The number of the last use of any file.
    uses: u64,
    /// The size at which a file is full.
    segment_bytes: usize,
    /// Numbers the next file.
    files: u32,
}

/// A file of the journal.
struct Segment {
    file: File,
    /// How many bytes the file has.
    length: usize,
}

/// The file that is being written.
struct Use {
    segment: Segment,
    seed: Seed,
    end: usize,
}

/// The head of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Head {
    number: u64,
    seed: Seed,
    /// The first position in this use.
    first: u64,
}

/// An entry to append: room for its header, and its body.
pub(super) struct Entry(Vec<u8>);

impl Entry {
    pub(super) fn new(body: &[u8]) -> Entry {
        let mut bytes = Vec::with_capacity(ENTRY_HEADER + body.len());
        bytes.extend_from_slice(&[0; ENTRY_HEADER]);
        bytes.extend_from_slice(body);
        Entry(bytes)
    }

    pub(super) fn body(&self) -> &[u8] {
        &self.0[ENTRY_HEADER..]
    }
}

/// The header of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct EntryHeader {
    length: u32,
    first: u64,
    count: u32,
    body_checksum: u32,
    synced: u64,
}

/// An entry that was found on disk.
struct Found {
    file: usize,
    seed: Seed,
    at: usize,
    header: EntryHeader,
}

/// What was found in the directory of a journal.
pub(super) struct Contents {
    files: Vec<PathBuf>,
    /// Entries that are not in tables, in order.
    entries: Vec<Found>,
    /// The last position, in tables or in the journal.
    pub(super) last: u64,
}

impl Contents {
    /// Reads and checks the journal of a database that has everything up to `in_tables` in tables.
    pub(super) fn read(directory: &Path, in_tables: u64) -> io::Result<Result<Contents, Damage>> {
        let mut used = Vec::new();
        for (number, path) in segments(directory)? {
            if let Some(head) = Head::read(&File::open(&path)?)? {
                used.push((head, number, path));
            }
        }
        used.sort_by_key(|(head, ..)| head.number);
        // What lies before a use that begins in the tables is in the tables.
        let begins = used.iter().rposition(|(head, ..)| head.first <= in_tables + 1).unwrap_or(0);
        let mut contents = Contents { files: Vec::new(), entries: Vec::new(), last: in_tables };
        let mut next = in_tables + 1;
        for (head, number, path) in used.into_iter().skip(begins) {
            if head.first > next {
                let why =
                    format!("writes {next} to {} are missing before file {number} of its journal", head.first - 1);
                return Ok(Err(Damage(why)));
            }
            let (entries, end) = match entries(&fs::read(&path)?, &head, in_tables) {
                Ok(found) => found,
                Err(at) => {
                    let why = format!(
                        "file {number} of its journal has a bad checksum at byte {at}, and synced writes after it"
                    );
                    return Ok(Err(Damage(why)));
                }
            };
            let file = contents.files.len();
            contents.entries.extend(entries.into_iter().map(|(at, header)| Found {
                file,
                seed: head.seed,
                at,
                header,
            }));
            contents.files.push(path);
            next = next.max(end);
        }
        contents.last = next - 1;
        Ok(Ok(contents))
    }

    /// Passes the bodies of all entries that are not in tables to `apply`, in order.
    pub(super) fn replay<E>(&self, mut apply: impl FnMut(&[u8]) -> Result<(), E>) -> io::Result<Result<(), E>> {
        let mut open: Option<(usize, Vec<u8>)> = None;
        for Found { file, seed, at, header } in &self.entries {
            if open.as_ref().is_none_or(|(number, _)| number != file) {
                open = Some((*file, fs::read(&self.files[*file])?));
            }
            // Checked again: after a failed sync, what was read before may have been in the system's memory only.
            let body = open.as_ref().and_then(|(_, bytes)| header.checked_body(bytes, *at, seed));
            if let Err(error) = apply(body.ok_or(ErrorKind::InvalidData)?) {
                return Ok(Err(error));
            }
        }
        Ok(Ok(()))
    }

    /// Whether everything is in tables.
    pub(super) fn is_in_tables(&self) -> bool {
        self.entries.is_empty()
    }
}

/// The entries of a file that are not in tables, and the position after the last of them. `Err` is the offset of damage;
/// damage of what is in tables does not matter.
fn entries(bytes: &[u8], head: &Head, in_tables: u64) -> Result<(Vec<(usize, EntryHeader)>, u64), usize> {
    let valid = |at| {
        let header = EntryHeader::read(bytes, at, &head.seed)?;
        header.checked_body(bytes, at, &head.seed).map(|_| header)
    };
    let mut next = head.first.max(in_tables + 1);
    let mut sectors = (HEAD_AREA..bytes.len()).step_by(ALIGNMENT);
    let begin = match head.first == next {
        true => HEAD_AREA,
        false => sectors.find(|at| valid(*at).is_some_and(|header| header.first == next)).unwrap_or(HEAD_AREA),
    };
    let (mut found, mut at) = (Vec::new(), begin);
    while let Some(header) = valid(at).filter(|header| header.first == next) {
        found.push((at, header));
        next += u64::from(header.count);
        at += header.size();
    }
    let knows_more = |at| valid(at).is_some_and(|header| header.synced >= next);
    if (at..bytes.len()).step_by(ALIGNMENT).any(knows_more) {
        return Err(at);
    }
    Ok((found, next))
}

impl Journal {
    /// Opens the journal of a database that has everything in tables, so that every file may be written over.
    pub(super) fn open(directory: &Path, segment_bytes: usize) -> io::Result<Journal> {
        if let Err(error) = fs::create_dir(directory)
            && error.kind() != ErrorKind::AlreadyExists
        {
            return Err(error);
        }
        // A process that was killed may have made names, here or in the directory above, without syncing them.
        for directory in [Some(directory), directory.parent()].into_iter().flatten() {
            File::open(directory)?.sync_all()?;
        }
        let (mut free, mut uses, mut files) = (Vec::new(), 0, 0);
        for (number, path) in segments(directory)? {
            let file = OpenOptions::new().read(true).write(true).open(path)?;
            uses = uses.max(Head::read(&file)?.map_or(0, |head| head.number));
            files = files.max(number + 1);
            let length = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX);
            free.push(Segment { file, length });
        }
        let (directory, full, current) = (directory.to_owned(), Vec::new(), None);
        Ok(Journal { directory, full, free, current, uses, segment_bytes, files })
    }

    /// Appends an entry for the positions from `first` on, and syncs it.
    pub(super) fn append(&mut self, first: u64, count: u32, entry: &mut Entry) -> io::Result<()> {
        let too_long = || io::Error::new(ErrorKind::InvalidInput, "the commit is larger than an entry of the journal");
        let length = u32::try_from(entry.body().len()).map_err(|_| too_long())?;
        let mut current = match self.current.take() {
            Some(current) if current.end + entry.0.len() <= self.segment_bytes => current,
            full => {
                self.full.extend(full.map(|full| (full.segment, first - 1)));
                self.begin(first)?
            }
        };
        let body_checksum = current.seed.of_body(entry.body());
        // Every entry before this one was synced.
        let header = EntryHeader { length, first, count, body_checksum, synced: first - 1 };
        entry.0[..ENTRY_HEADER].copy_from_slice(&header.encode(&current.seed));
        current.segment.reach(current.end + entry.0.len())?;
        current.segment.file.write_all_at(&entry.0, current.end as u64)?;
        current.segment.file.sync_data()?;
        current.end += header.size();
        self.current = Some(current);
        Ok(())
    }

    /// Begins to write a file: one that is free, or else a new one.
    fn begin(&mut self, first: u64) -> io::Result<Use> {
        let mut segment = match self.free.pop() {
            Some(segment) => segment,
            None => self.create()?,
        };
        segment.reach(HEAD_AREA)?;
        // What is written over only in part is read first. Read it ahead; without this, the first write of each page waits.
        let _ = rustix::fs::fadvise(&segment.file, 0, None, Advice::WillNeed);
        let seed = Seed::random()?;
        self.uses += 1;
        let head = Head { number: self.uses, seed, first };
        for at in [0, SECOND_COPY] {
            segment.file.write_all_at(&head.encode(), at)?;
        }
        // Before the first entry: else after a power cut, entries of an earlier use could seem damaged by it.
        segment.file.sync_data()?;
        Ok(Use { segment, seed, end: HEAD_AREA })
    }

    fn create(&mut self) -> io::Result<Segment> {
        let path = self.directory.join(format!("{:04}.journal", self.files));
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)?;
        self.files += 1;
        // Its name must survive a power cut.
        File::open(&self.directory)?.sync_all()?;
        Ok(Segment { file, length: 0 })
    }

    /// Frees the files whose positions are all in tables.
    pub(super) fn free_up_to(&mut self, in_tables: u64) {
        let kept = self.full.iter().position(|(_, last)| *last > in_tables).unwrap_or(self.full.len());
        self.free.extend(self.full.drain(..kept).map(|(segment, _)| segment));
    }

    /// Whether some files are full and not free.
    pub(super) fn has_full_files(&self) -> bool {
        !self.full.is_empty()
    }
}

impl Segment {
    /// Makes sure that the file has bytes up to here.
    fn reach(&mut self, end: usize) -> io::Result<()> {
        if end <= self.length {
            return Ok(());
        }
        let zeros = vec![0; end + EXTENSION - self.length];
        self.file.write_all_at(&zeros, self.length as u64)?;
        self.length += zeros.len();
        Ok(())
    }
}

impl Head {
    fn encode(&self) -> [u8; HEAD_BYTES] {
        let mut bytes = [0; HEAD_BYTES];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..16].copy_from_slice(&self.number.to_le_bytes());
        bytes[16..32].copy_from_slice(&self.seed.0);
        bytes[32..40].copy_from_slice(&self.first.to_le_bytes());
        let checksum = crc32c::crc32c(&bytes[..40]);
        bytes[40..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8; HEAD_BYTES]) -> Option<Head> {
        let seed = Seed(bytes[16..32].try_into().ok()?);
        let head = Head { number: u64_at(bytes, 8)?, seed, first: u64_at(bytes, 32)? };
        (head.encode() == *bytes).then_some(head)
    }

    /// The head of the last use. While it is written, the second copy may still be that of the use before.
    fn read(file: &File) -> io::Result<Option<Head>> {
        let mut found: Option<Head> = None;
        for at in [0, SECOND_COPY] {
            let mut bytes = [0; HEAD_BYTES];
            if read_all(file, &mut bytes, at)?
                && let Some(head) = Head::decode(&bytes)
                && found.is_none_or(|other| head.number > other.number)
            {
                found = Some(head);
            }
        }
        Ok(found)
    }
}

impl EntryHeader {
    /// Bytes from this entry to the next.
    fn size(&self) -> usize {
        (ENTRY_HEADER + self.length as usize).next_multiple_of(ALIGNMENT)
    }

    /// The body of the entry at this offset, if the file has it whole.
    fn checked_body<'f>(&self, file: &'f [u8], at: usize, seed: &Seed) -> Option<&'f [u8]> {
        let from = at + ENTRY_HEADER;
        file.get(from..from + self.length as usize).filter(|body| seed.of_body(body) == self.body_checksum)
    }

    fn encode(&self, seed: &Seed) -> [u8; ENTRY_HEADER] {
        let mut bytes = [0; ENTRY_HEADER];
        bytes[4..8].copy_from_slice(&self.length.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.first.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.count.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.body_checksum.to_le_bytes());
        bytes[24..].copy_from_slice(&self.synced.to_le_bytes());
        let checksum = seed.of_header(&bytes[4..]);
        bytes[..4].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8; ENTRY_HEADER], seed: &Seed) -> Option<EntryHeader> {
        let header = EntryHeader {
            length: u32_at(bytes, 4)?,
            first: u64_at(bytes, 8)?,
            count: u32_at(bytes, 16)?,
            body_checksum: u32_at(bytes, 20)?,
            synced: u64_at(bytes, 24)?,
        };
        (header.encode(seed) == *bytes).then_some(header)
    }

    fn read(file: &[u8], at: usize, seed: &Seed) -> Option<EntryHeader> {
        EntryHeader::decode(file.get(at..at + ENTRY_HEADER)?.try_into().ok()?, seed)
    }
}

/// The files of the journal, with their numbers.
fn segments(directory: &Path) -> io::Result<Vec<(u32, PathBuf)>> {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if let Some(number) = name.strip_suffix(".journal").and_then(|number| number.parse().ok()) {
            found.push((number, path));
        }
    }
    found.sort();
    Ok(found)
}

/// Returns whether the file has all these bytes.
fn read_all(file: &File, bytes: &mut [u8], at: u64) -> io::Result<bool> {
    match file.read_exact_at(bytes, at) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests;
