//! The frame of RocksDB's log format, which write-ahead logs and manifests share: blocks of 32 KiB with records that
//! have a header of 7 bytes (checksum, length, type).

use std::ops::Range;

pub(crate) const BLOCK: usize = 32 << 10;
pub(crate) const HEADER: usize = 7;

/// Where the physical records are, headers included.
pub(crate) fn records(bytes: &[u8]) -> Vec<Range<usize>> {
    let (mut found, mut at) = (Vec::new(), 0);
    while at + HEADER <= bytes.len() {
        let left = BLOCK - at % BLOCK;
        if left < HEADER {
            at += left;
            continue;
        }
        let length = usize::from(u16::from_le_bytes([bytes[at + 4], bytes[at + 5]]));
        let end = at + HEADER + length;
        assert!(end <= bytes.len(), "a record at {at} ends at {end} of {}", bytes.len());
        found.push(at..end);
        at = end;
    }
    found
}
