//! What is in the journal of a store that is being opened.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use super::format::{ALIGNMENT, EntryHeader, HEAD_AREA, Head, Seed};
use super::segments;

/// Why a journal cannot be trusted.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::engines) struct Damage(pub(in crate::engines) String);

/// An entry that was found on disk.
struct Found {
    file: usize,
    seed: Seed,
    at: usize,
    header: EntryHeader,
}

/// What was found in the directory of a journal.
pub(in crate::engines) struct Contents {
    files: Vec<PathBuf>,
    /// Entries that are not in tables, in order.
    entries: Vec<Found>,
    /// The last position, in tables or in the journal.
    pub(in crate::engines) last: u64,
}

impl Contents {
    /// Reads and checks the journal of a database that has everything up to `in_tables` in tables.
    pub(in crate::engines) fn read(directory: &Path, in_tables: u64) -> io::Result<Result<Contents, Damage>> {
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
                let why = format!("writes {next} to {} are missing before journal/{number:04}.journal", head.first - 1);
                return Ok(Err(Damage(why)));
            }
            let (entries, end) = match entries(&fs::read(&path)?, &head, in_tables) {
                Ok(found) => found,
                Err(at) => {
                    let why = format!(
                        "journal/{number:04}.journal has a bad checksum at byte {at}, and synced writes after it"
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
    pub(in crate::engines) fn replay<E>(
        &self,
        mut apply: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> io::Result<Result<(), E>> {
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
    pub(in crate::engines) fn is_in_tables(&self) -> bool {
        self.entries.is_empty()
    }
}

/// The entries of a file that are not in tables, and the position after the last of them. `Err` is the offset of damage;
/// damage of what is in tables does not matter.
pub(super) fn entries(bytes: &[u8], head: &Head, in_tables: u64) -> Result<(Vec<(usize, EntryHeader)>, u64), usize> {
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
