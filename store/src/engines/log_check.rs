//! Verifies RocksDB's logs before RocksDB reads them.
//!
//! The write-ahead logs and the manifest share one format: blocks of 32 KiB with checksummed records. RocksDB 11 can
//! read such a file for ever when certain bits of a record's header are flipped. So every complete record is checked
//! here first, and a file with a bad one is refused. A record that the end of the file cuts off is a write that was
//! never answered, and passes.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

const BLOCK_BYTES: usize = 32 * 1024;
/// Checksum, length, type.
const HEADER_BYTES: usize = 7;
/// Types that only recycled logs have, and ours are never recycled. These are what RocksDB reads for ever.
const RECYCLABLE_TYPES: [u8; 6] = [5, 6, 7, 8, 11, 131];

/// What is wrong with the logs in a directory, in words; `None` if nothing is.
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
    for entry in fs::read_dir(database)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        let is_log = name.strip_suffix(".log").is_some_and(|number| number.parse::<u64>().is_ok());
        if (is_log || name == manifest)
            && let Some(at) = bad_record(File::open(database.join(&name))?)?
        {
            return Ok(Some(format!("{name} has a bad checksum in the record at byte {at}")));
        }
    }
    Ok(None)
}

/// The offset of the first complete record whose checksum is wrong.
fn bad_record(mut file: impl Read) -> io::Result<Option<u64>> {
    let mut block = Vec::with_capacity(BLOCK_BYTES);
    let mut before: u64 = 0;
    loop {
        block.clear();
        let bytes = file.by_ref().take(BLOCK_BYTES as u64).read_to_end(&mut block)?;
        if let Some(at) = bad_record_of_block(&block, bytes < BLOCK_BYTES) {
            return Ok(Some(before + at as u64));
        }
        if bytes < BLOCK_BYTES {
            return Ok(None);
        }
        before += bytes as u64;
    }
}

fn bad_record_of_block(block: &[u8], last: bool) -> Option<usize> {
    let mut at = 0;
    while let Some(header) = block.get(at..at + HEADER_BYTES) {
        let stored = u32::from_le_bytes([header[0], header[1], header[2], header[3]]);
        let length = usize::from(u16::from_le_bytes([header[4], header[5]]));
        let kind = header[6];
        if kind == 0 && length == 0 {
            // Space that was reserved and never written, up to the end of the block.
            return block[at..].iter().any(|byte| *byte != 0).then_some(at);
        }
        if RECYCLABLE_TYPES.contains(&kind) {
            return Some(at);
        }
        match block.get(at + 6..at + HEADER_BYTES + length) {
            Some(checked) if masked(crc32c::crc32c(checked)) == stored => at += HEADER_BYTES + length,
            Some(_) => return Some(at),
            None if last => return None,
            None => return Some(at),
        }
    }
    None
}

/// RocksDB stores checksums rotated and shifted, so that data which contains checksums is checked well.
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

    #[test]
    fn every_flipped_bit_of_a_complete_record_is_found_or_looks_cut_off() {
        let log = [record(b"first"), record(b"second")].concat();
        assert_eq!(bad_record(log.as_slice()).unwrap(), None);
        for bit in 0..log.len() * 8 {
            let mut flipped = log.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            // A longer length can reach past the end; the committed mark is there for that.
            let length = matches!((bit / 8) % record(b"first").len(), 4 | 5) || matches!(bit / 8, 16 | 17);
            assert!(length || bad_record(flipped.as_slice()).unwrap().is_some(), "bit {bit}");
        }
    }

    #[test]
    fn a_cut_off_record_and_reserved_space_pass() {
        let mut log = [record(b"first"), record(b"second")].concat();
        log.truncate(log.len() - 3);
        assert_eq!(bad_record(log.as_slice()).unwrap(), None);
        let mut log = record(b"first");
        log.resize(2 * BLOCK_BYTES, 0);
        assert_eq!(bad_record(log.as_slice()).unwrap(), None);
    }
}
