//! The frame of the journal: a head in two copies, then entries at multiples of 512 bytes, with headers of 32 bytes whose
//! checksums are seeded by the head.

use std::ops::Range;

const HEAD_AREA: usize = 8 << 10;
const SECTOR: usize = 512;
pub(crate) const HEADER: usize = 32;

/// Where the entries of the file's last use are, headers included.
pub(crate) fn entries(bytes: &[u8]) -> Vec<Range<usize>> {
    let (mut found, mut at) = (Vec::new(), HEAD_AREA);
    while let Some(header) = bytes.get(at..at + HEADER) {
        let checksum = crc32c::crc32c_append(crc32c::crc32c(&bytes[16..24]), &header[4..]);
        if header[..4] != checksum.to_le_bytes() {
            break;
        }
        let length = u32::from_le_bytes(header[4..8].try_into().unwrap()) as usize;
        found.push(at..at + HEADER + length);
        at = (at + HEADER + length).next_multiple_of(SECTOR);
    }
    found
}

/// How often the files of its journal were used when this one was begun.
pub(crate) fn number_of_use(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes[8..16].try_into().unwrap())
}
