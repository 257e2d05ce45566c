//! The bytes of the journal: heads of files, and entries. Documented in `docs/bytes-on-disk.md`.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;

use crate::engines::log_check::{u32_at, u64_at};

const MAGIC: &[u8; 8] = b"FPJRNL01";

/// Both copies of a file's head are in this many bytes; entries follow.
pub(super) const HEAD_AREA: usize = 8 << 10;

/// Where the copies of a head are: on two pages, so that one bad page leaves one copy.
pub(super) const HEAD_COPIES: [u64; 2] = [0, 4 << 10];

/// Magic, number of the use, seed, first position, checksum.
const HEAD_BYTES: usize = 8 + 8 + 16 + 8 + 4;

/// Entries start at multiples of this: a sector, which a disk writes whole or not at all.
pub(super) const ALIGNMENT: usize = 512;

/// Checksum of the header, length, first position, number of changes, checksum of the body, last synced position.
pub(super) const ENTRY_HEADER: usize = 4 + 4 + 8 + 4 + 4 + 8;

/// Random bytes that go into the checksums of one use of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Seed([u8; 16]);

impl Seed {
    pub(super) fn random() -> io::Result<Seed> {
        let mut seed = Seed::default();
        getrandom::fill(&mut seed.0).map_err(io::Error::other)?;
        Ok(seed)
    }

    /// The two checksums of an entry have a half each: together they are 64 bits that no caller can guess.
    fn of_header(&self, bytes: &[u8]) -> u32 {
        crc32c::crc32c_append(crc32c::crc32c(&self.0[..8]), bytes)
    }

    pub(super) fn of_body(&self, bytes: &[u8]) -> u32 {
        crc32c::crc32c_append(crc32c::crc32c(&self.0[8..]), bytes)
    }
}

/// The head of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) number: u64,
    pub(super) seed: Seed,
    /// The first position in this use.
    pub(super) first: u64,
}

/// An entry to append: room for its header, its body, and zeros up to the next multiple of [`ALIGNMENT`]. In memory it starts
/// at a multiple of that, too, as writes past the page cache need it.
pub(in crate::engines) struct Entry {
    bytes: Vec<u8>,
    from: usize,
    body: usize,
}

impl Entry {
    pub(in crate::engines) fn new(body: &[u8]) -> Entry {
        let size = (ENTRY_HEADER + body.len()).next_multiple_of(ALIGNMENT);
        let mut bytes = Vec::<u8>::with_capacity(ALIGNMENT + size);
        let from = bytes.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        // Within the capacity, so the bytes stay where they are.
        bytes.resize(from + ENTRY_HEADER, 0);
        bytes.extend_from_slice(body);
        bytes.resize(from + size, 0);
        Entry { bytes, from, body: body.len() }
    }

    pub(in crate::engines) fn body(&self) -> &[u8] {
        let from = self.from + ENTRY_HEADER;
        &self.bytes[from..from + self.body]
    }

    pub(super) fn set_header(&mut self, header: &[u8; ENTRY_HEADER]) {
        self.bytes[self.from..self.from + ENTRY_HEADER].copy_from_slice(header);
    }

    /// What is written: whole sectors.
    pub(super) fn sectors(&self) -> &[u8] {
        &self.bytes[self.from..]
    }
}

/// The header of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EntryHeader {
    pub(super) length: u32,
    pub(super) first: u64,
    pub(super) count: u32,
    pub(super) body_checksum: u32,
    pub(super) synced: u64,
}

impl Head {
    pub(super) fn encode(&self) -> [u8; HEAD_BYTES] {
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
    pub(super) fn read(file: &File) -> io::Result<Option<Head>> {
        let mut found: Option<Head> = None;
        for at in HEAD_COPIES {
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
    pub(super) fn size(&self) -> usize {
        (ENTRY_HEADER + self.length as usize).next_multiple_of(ALIGNMENT)
    }

    /// The body of the entry at this offset, if the file has it whole.
    pub(super) fn checked_body<'f>(&self, file: &'f [u8], at: usize, seed: &Seed) -> Option<&'f [u8]> {
        let from = at + ENTRY_HEADER;
        file.get(from..from + self.length as usize).filter(|body| seed.of_body(body) == self.body_checksum)
    }

    pub(super) fn encode(&self, seed: &Seed) -> [u8; ENTRY_HEADER] {
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

    pub(super) fn read(file: &[u8], at: usize, seed: &Seed) -> Option<EntryHeader> {
        EntryHeader::decode(file.get(at..at + ENTRY_HEADER)?.try_into().ok()?, seed)
    }
}

/// Returns whether the file has all these bytes.
fn read_all(file: &File, bytes: &mut [u8], at: u64) -> io::Result<bool> {
    match file.read_exact_at(bytes, at) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}
