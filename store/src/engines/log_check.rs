//! Verifies RocksDB's manifest and logs before RocksDB opens them. Since format 2 the logs are empty, and the journal has
//! the commits instead.
//!
//! The write-ahead logs and the manifest share one format: blocks of 32 KiB with checksummed records. RocksDB 11 does
//! not detect all damage in such files:
//!
//! - It loops forever when certain bits of a record's header are flipped.
//! - It treats a stretch of zeros as preallocated space, and continues after it.
//! - It takes a manifest whose end is missing, or seems cut off because of one flipped bit, for an older manifest. Then
//!   it loses the tables listed in the missing end, although the logs before them are long deleted.
//!
//! So every complete record is checked here first, and the writes must have no gap: the first write in the logs must
//! follow the last one that the manifest knows to be in tables, and each further write must follow the one before it. A
//! record that is cut off by the end of a file is a write that was never acknowledged, and is accepted.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

const BLOCK_BYTES: usize = 32 * 1024;
/// Checksum, length, type.
const HEADER_BYTES: usize = 7;
/// How many bytes at the start of a record are examined.
const HEAD_BYTES: usize = 256;
/// Record types of recycled logs, which this engine never creates. RocksDB loops forever on these.
const RECYCLABLE_TYPES: [u8; 6] = [5, 6, 7, 8, 11, 131];
const FULL: u8 = 1;
const FIRST: u8 = 2;
const MIDDLE: u8 = 3;
const LAST: u8 = 4;

/// Describes the damage to the logs in a directory; `None` if there is none.
pub(crate) fn damage(database: &Path) -> io::Result<Option<String>> {
    if !database.join("CURRENT").exists() {
        return Ok(None);
    }
    let manifest = fs::read_to_string(database.join("CURRENT"));
    let manifest = match manifest.as_deref().map(str::trim_end) {
        Ok(name) if name.starts_with("MANIFEST-") && !name.contains('/') => name.to_owned(),
        _ => return Ok(Some("its CURRENT file does not name a manifest".into())),
    };
    if !database.join(&manifest).exists() {
        return Ok(Some(format!("{manifest}, which CURRENT names, is missing")));
    }
    let mut known = Known::default();
    if let Some(at) = bad_record(File::open(database.join(&manifest))?, |head| known.learn(head))? {
        return Ok(Some(bad(&manifest, at)));
    }
    let mut next = None;
    for (number, name) in logs(database)? {
        let mut gap = None;
        let bad_at = bad_record(File::open(database.join(&name))?, |head| {
            let (Some(first), Some(count)) = (u64_at(head, 0), u32_at(head, 8)) else { return };
            if number < known.log_number || gap.is_some() {
                return;
            }
            let expected = next.unwrap_or(known.last_sequence + 1);
            // The log may also contain writes that the manifest knows to be in tables, but only at its start.
            if first > expected || (next.is_some() && first != expected) {
                gap = Some(format!("writes {expected} to {} are missing before {name}, or in it", first - 1));
            }
            next = Some(first + u64::from(count));
        })?;
        if let Some(at) = bad_at {
            return Ok(Some(bad(&name, at)));
        }
        if gap.is_some() {
            return Ok(gap);
        }
    }
    Ok(None)
}

fn bad(name: &str, at: u64) -> String {
    format!("{name} has a bad checksum in the record at byte {at}")
}

/// The write-ahead logs in order of number, which is the order of their writes.
fn logs(database: &Path) -> io::Result<Vec<(u64, String)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(database)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if let Some(number) = name.strip_suffix(".log").and_then(|number| number.parse().ok()) {
            found.push((number, name));
        }
    }
    found.sort();
    Ok(found)
}

/// What a manifest records about the logs.
#[derive(Default)]
struct Known {
    /// Logs with lower numbers are in tables.
    log_number: u64,
    /// The newest write known to the manifest.
    last_sequence: u64,
}

impl Known {
    /// Reads the numbers at the start of a version edit. The file entries after them are left to RocksDB.
    fn learn(&mut self, mut edit: &[u8]) {
        while let Some(tag) = varint(&mut edit) {
            match tag {
                // The comparator and the database id are strings.
                1 | 8193 => {
                    let length =
                        varint(&mut edit).and_then(|length| usize::try_from(length).ok()).unwrap_or(usize::MAX);
                    edit = edit.get(length..).unwrap_or_default();
                }
                2 => self.log_number = varint(&mut edit).unwrap_or(self.log_number),
                4 => self.last_sequence = self.last_sequence.max(varint(&mut edit).unwrap_or(0)),
                3 | 9 | 10 | 203 => {
                    varint(&mut edit);
                }
                _ => return,
            }
        }
    }
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// The offset of the first complete record that is damaged. `each` is called with the start of every record.
fn bad_record(mut file: impl Read, mut each: impl FnMut(&[u8])) -> io::Result<Option<u64>> {
    let (mut block, mut head) = (Vec::with_capacity(BLOCK_BYTES), Vec::with_capacity(HEAD_BYTES));
    let (mut before, mut reserved) = (0, None);
    loop {
        block.clear();
        let bytes = file.by_ref().take(BLOCK_BYTES as u64).read_to_end(&mut block)?;
        if reserved.is_some() && block.iter().any(|byte| *byte != 0) {
            return Ok(reserved);
        }
        match read_block(&block, bytes < BLOCK_BYTES, &mut head, &mut each) {
            Block::Bad(at) => return Ok(Some(before + at as u64)),
            Block::Reserved(at) => reserved = reserved.or(Some(before + at as u64)),
            Block::Whole => {}
        }
        if bytes < BLOCK_BYTES {
            return Ok(None);
        }
        before += bytes as u64;
    }
}

enum Block {
    /// Every record in the block is intact, or cut off by the end of the file.
    Whole,
    /// Nothing was written from this offset on.
    Reserved(usize),
    /// The record at this offset is damaged.
    Bad(usize),
}

fn read_block(block: &[u8], last: bool, head: &mut Vec<u8>, each: &mut impl FnMut(&[u8])) -> Block {
    let mut at = 0;
    while let Some(header) = block.get(at..at + HEADER_BYTES) {
        let stored = u32::from_le_bytes([header[0], header[1], header[2], header[3]]);
        let length = usize::from(u16::from_le_bytes([header[4], header[5]]));
        let kind = header[6];
        if kind == 0 && length == 0 {
            let zeros = block[at..].iter().all(|byte| *byte == 0);
            return if zeros { Block::Reserved(at) } else { Block::Bad(at) };
        }
        if RECYCLABLE_TYPES.contains(&kind) {
            return Block::Bad(at);
        }
        let end = at + HEADER_BYTES + length;
        match block.get(at + 6..end) {
            Some(checked) if masked(crc32c::crc32c(checked)) == stored => {}
            None if last => return Block::Whole,
            Some(_) | None => return Block::Bad(at),
        }
        if matches!(kind, FULL | FIRST) {
            head.clear();
        }
        if matches!(kind, FULL | FIRST | MIDDLE | LAST) {
            let wanted = HEAD_BYTES.saturating_sub(head.len()).min(length);
            head.extend_from_slice(&block[at + HEADER_BYTES..at + HEADER_BYTES + wanted]);
        }
        if matches!(kind, FULL | LAST) {
            each(head);
        }
        at = end;
    }
    Block::Whole
}

/// RocksDB stores masked checksums, so that data which itself contains checksums is still checked well.
fn masked(crc: u32) -> u32 {
    crc.rotate_right(15).wrapping_add(0xa282_ead8)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(payload: &[u8]) -> Vec<u8> {
        let mut checked = vec![1];
        checked.extend_from_slice(payload);
        let mut record = masked(crc32c::crc32c(&checked)).to_le_bytes().to_vec();
        record.extend_from_slice(&u16::try_from(payload.len()).unwrap().to_le_bytes());
        record.extend_from_slice(&checked);
        record
    }

    fn bad(log: &[u8]) -> Option<u64> {
        bad_record(log, |_| {}).unwrap()
    }

    #[test]
    fn every_flipped_bit_of_a_complete_record_is_found_or_looks_cut_off() {
        let log = [record(b"first"), record(b"second")].concat();
        assert_eq!(bad(&log), None);
        for bit in 0..log.len() * 8 {
            let mut flipped = log.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            // An increased length can reach past the end. The committed mark and the count of writes detect that case.
            let length = matches!((bit / 8) % record(b"first").len(), 4 | 5) || matches!(bit / 8, 16 | 17);
            assert!(length || bad(&flipped).is_some(), "bit {bit}");
        }
    }

    #[test]
    fn a_cut_off_record_and_reserved_space_pass() {
        let mut log = [record(b"first"), record(b"second")].concat();
        log.truncate(log.len() - 3);
        assert_eq!(bad(&log), None);
        let mut log = record(b"first");
        log.resize(2 * BLOCK_BYTES, 0);
        assert_eq!(bad(&log), None);
        log.extend(record(b"second"));
        assert_eq!(bad(&log), Some(record(b"first").len() as u64), "something follows on what was never written");
    }

    #[test]
    fn an_edit_tells_its_numbers_before_its_files() {
        let mut known = Known::default();
        known.learn(&[1, 2, b'x', b'y', 2, 7, 9, 0, 3, 0x80, 1, 4, 0xac, 2, 103, 4, 1]);
        assert_eq!((known.log_number, known.last_sequence), (7, 300));
        known.learn(&[4, 5]);
        assert_eq!((known.log_number, known.last_sequence), (7, 300));
    }
}
