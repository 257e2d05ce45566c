//! The journal: every commit is appended here and synced before RocksDB has it in memory.
//!
//! RocksDB's own log grows with every write, so each of its syncs also writes the metadata of the file. The journal is a
//! few files that are written over once RocksDB has their contents in tables. Within them a sync writes data only.
//!
//! Entries are written past the page cache where the file system allows it. Through it, a sync would copy them, write
//! whole pages, and wait for the page that the entry before ended in.
//!
//! A file begins with a head: the number of its use, and a random seed that goes into the checksums of this use. So an
//! entry of an earlier use is never taken for one of this use, and no caller can write a value that looks like an entry.
//! Entries follow (`format.rs`).
//!
//! Reading stops at the first entry that is not valid. That is the end of the journal, because an entry is written only
//! after the one before it was synced; unless a valid entry further on knows of more writes that were synced. Then the
//! file is damaged (`contents.rs`).

mod contents;
mod format;

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Advice, OFlags};

use format::{EntryHeader, HEAD_AREA, HEAD_COPIES, Head, Seed};

pub(super) use contents::Contents;
pub(super) use format::Entry;

/// A file is extended by this many zeros at a time, so that most syncs of its first use change no metadata either.
const EXTENSION: usize = 256 << 10;

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
    /// The same file, written past the page cache. `None` if its file system, or its disk, does not allow that.
    direct: Option<File>,
    /// How many bytes the file has.
    length: usize,
}

/// The file that is being written.
struct Use {
    segment: Segment,
    seed: Seed,
    end: usize,
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
            let file = OpenOptions::new().read(true).write(true).open(&path)?;
            uses = uses.max(Head::read(&file)?.map_or(0, |head| head.number));
            files = files.max(number + 1);
            let length = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX);
            free.push(Segment { file, direct: direct(&path), length });
        }
        let (directory, full, current) = (directory.to_owned(), Vec::new(), None);
        Ok(Journal { directory, full, free, current, uses, segment_bytes, files })
    }

    /// Appends an entry for the positions from `first` on, and syncs it.
    pub(super) fn append(&mut self, first: u64, count: u32, entry: &mut Entry) -> io::Result<()> {
        let too_long = || io::Error::new(ErrorKind::InvalidInput, "the commit is larger than an entry of the journal");
        let length = u32::try_from(entry.body().len()).map_err(|_| too_long())?;
        let mut current = match self.current.take() {
            Some(current) if current.has_room_for(entry, self.segment_bytes) => current,
            full => {
                self.full.extend(full.map(|full| (full.segment, first - 1)));
                self.begin(first)?
            }
        };
        let body_checksum = current.seed.of_body(entry.body());
        // Every entry before this one was synced.
        let header = EntryHeader { length, first, count, body_checksum, synced: first - 1 };
        entry.set_header(&header.encode(&current.seed));
        current.segment.reach(current.end + entry.sectors().len())?;
        current.segment.write(entry.sectors(), current.end as u64)?;
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
        // In the page cache, what is written over only in part is read first. Read it ahead; without this, the first write of
        // each page waits. Past the cache, old pages are only in the way.
        let advice = if segment.direct.is_some() { Advice::DontNeed } else { Advice::WillNeed };
        let _ = rustix::fs::fadvise(&segment.file, 0, None, advice);
        let seed = Seed::random()?;
        self.uses += 1;
        let head = Head { number: self.uses, seed, first };
        for at in HEAD_COPIES {
            segment.file.write_all_at(&head.encode(), at)?;
        }
        // Before the first entry: else after a power cut, entries of an earlier use could seem damaged by it.
        segment.file.sync_data()?;
        Ok(Use { segment, seed, end: HEAD_AREA })
    }

    fn create(&mut self) -> io::Result<Segment> {
        let path = self.directory.join(format!("{:04}.journal", self.files));
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
        self.files += 1;
        // Its name must survive a power cut.
        File::open(&self.directory)?.sync_all()?;
        Ok(Segment { file, direct: direct(&path), length: 0 })
    }

    /// Frees the files whose positions are all in tables.
    pub(super) fn free_up_to(&mut self, in_tables: u64) {
        let kept = self.full.iter().position(|(_, last)| *last > in_tables).unwrap_or(self.full.len());
        self.free.extend(self.full.drain(..kept).map(|(segment, _)| segment));
    }

    /// How many files are full and may have positions that are not in tables.
    pub(super) fn full_files(&self) -> usize {
        self.full.len()
    }

    /// Whether this entry does not fit into the file that is being written.
    pub(super) fn needs_a_file_for(&self, entry: &Entry) -> bool {
        self.current.as_ref().is_none_or(|current| !current.has_room_for(entry, self.segment_bytes))
    }
}

impl Use {
    fn has_room_for(&self, entry: &Entry, segment_bytes: usize) -> bool {
        self.end + entry.sectors().len() <= segment_bytes
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

    /// Writes whole sectors.
    fn write(&mut self, sectors: &[u8], at: u64) -> io::Result<()> {
        if let Some(direct) = &self.direct {
            match direct.write_all_at(sectors, at) {
                // This disk wants another alignment, as one with sectors of 4 KiB does. The same bytes go through the cache.
                Err(error) if matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::Unsupported) => {
                    self.direct = None
                }
                written => return written,
            }
        }
        self.file.write_all_at(sectors, at)
    }
}

/// Opens a file of the journal to be written past the page cache.
fn direct(path: &Path) -> Option<File> {
    let flags = OFlags::DIRECT.bits().cast_signed();
    OpenOptions::new().write(true).custom_flags(flags).open(path).ok()
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

#[cfg(test)]
mod tests;
