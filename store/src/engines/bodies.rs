//! The layout of a large value in RocksDB: a small head under its key, and its bytes (the body) under another key.
//!
//! Conditions need only the version of a value, but RocksDB reads a record whole: copied out of a write buffer, or as
//! one block of a table. So the bytes of a large value are stored separately from its version and size. Both are
//! written and removed by one `WriteBatch`, and both contain the version, so that a mismatched pair is detected.

use bytes::Bytes;
use foldhash::{HashSet, HashSetExt};
use rocksdb::WriteBatch;

use crate::engine::{EngineError, Record, Version};
use crate::record::RecordKey;

/// Values above this size are stored separately. Reading one of this size for its version alone costs a microsecond of
/// copying.
pub(super) const LARGE: usize = 16 << 10;

/// Prefix of body keys. No record kind uses this byte, so bodies sort after all records and no scan meets them.
pub(super) const BODY: u8 = 0xff;

/// Flag in the version at the start of a head. Versions are positions, which never get that far.
const APART: u64 = 1 << 63;

/// Stands where records have their format byte. Versions of fencepost that do not know this layout reject it instead of
/// serving a head as a value.
const HEAD_FORMAT: u8 = 2;

const VERSION_BYTES: usize = 8;

/// What a RocksDB value holds.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Stored<'a> {
    /// A whole record.
    Whole(Version, &'a [u8]),
    /// The head of a record of this size.
    Head(Version, usize),
}

impl Stored<'_> {
    pub(super) fn parse(stored: &[u8]) -> Result<Stored<'_>, EngineError> {
        let (version, rest) =
            split_version(stored).ok_or_else(|| EngineError("a stored record is shorter than its version".into()))?;
        if version & APART == 0 {
            return Ok(Stored::Whole(Version(version), rest));
        }
        let size = match rest.split_first() {
            Some((&HEAD_FORMAT, size)) => size.try_into().ok().map(u64::from_le_bytes),
            Some(_) | None => None,
        };
        let size = size.and_then(|size| usize::try_from(size).ok());
        let size = size.ok_or_else(|| EngineError("the head of a large value cannot be read".into()))?;
        Ok(Stored::Head(Version(version & !APART), size))
    }

    pub(super) fn version(&self) -> Version {
        match self {
            Stored::Whole(version, _) | Stored::Head(version, _) => *version,
        }
    }
}

/// Returns whether this record is stored as head and body.
fn is_large(key: &RecordKey, bytes: &Bytes) -> bool {
    bytes.len() > LARGE && key.is_value()
}

/// The key of a large value's body.
pub(super) fn body_key(key: &[u8]) -> Vec<u8> {
    let mut body = Vec::with_capacity(1 + key.len());
    body.push(BODY);
    body.extend_from_slice(key);
    body
}

/// Encodes a whole record, or the body of a large one, into `out`.
pub(super) fn encode_whole(version: u64, bytes: &[u8], out: &mut Vec<u8>) {
    out.clear();
    out.extend_from_slice(&version.to_le_bytes());
    out.extend_from_slice(bytes);
}

/// Encodes the head of a large value into `out`.
pub(super) fn encode_head(version: u64, size: usize, out: &mut Vec<u8>) {
    out.clear();
    out.extend_from_slice(&(version | APART).to_le_bytes());
    out.push(HEAD_FORMAT);
    out.extend_from_slice(&(size as u64).to_le_bytes());
}

/// Combines a head and its body, if they belong to the same write.
pub(super) fn join(version: Version, size: usize, body: &[u8]) -> Option<Record> {
    let (written, bytes) = split_version(body)?;
    let belongs = written == version.0 && bytes.len() == size;
    belongs.then(|| Record::whole(version, Bytes::copy_from_slice(bytes)))
}

/// A batch of changes for RocksDB.
pub(super) struct Written {
    pub(super) batch: WriteBatch,
    /// Whether any of them has a separate body.
    pub(super) has_bodies: bool,
}

/// Encodes changes, followed by the changes of bodies: for each key the version and bytes to write, or `None` to remove
/// it. The body of a replaced or removed value is removed if there may be one.
pub(super) fn write_batch<'c>(
    changes: impl Iterator<Item = (&'c RecordKey, Option<(Version, &'c Bytes)>)>,
    may_have_body: impl Fn(&RecordKey) -> bool,
) -> Written {
    let (mut batch, mut record) = (WriteBatch::default(), Vec::new());
    let mut edits: Vec<(&RecordKey, Option<(u64, &Bytes)>)> = Vec::new();
    let mut apart: HashSet<&RecordKey> = HashSet::new();
    for (key, change) in changes {
        match change {
            Some((Version(version), bytes)) if is_large(key, bytes) => {
                encode_head(version, bytes.len(), &mut record);
                batch.put(key.as_bytes(), &record);
                edits.push((key, Some((version, bytes))));
                apart.insert(key);
                continue;
            }
            Some((Version(version), bytes)) => {
                encode_whole(version, bytes, &mut record);
                batch.put(key.as_bytes(), &record);
            }
            None => batch.delete(key.as_bytes()),
        }
        if apart.contains(key) || may_have_body(key) {
            edits.push((key, None));
        }
    }
    for (key, edit) in edits {
        match edit {
            Some((version, bytes)) => {
                encode_whole(version, bytes, &mut record);
                batch.put(body_key(key.as_bytes()), &record);
            }
            None => batch.delete(body_key(key.as_bytes())),
        }
    }
    Written { batch, has_bodies: !apart.is_empty() }
}

fn split_version(stored: &[u8]) -> Option<(u64, &[u8])> {
    let (version, rest) = stored.split_first_chunk::<VERSION_BYTES>()?;
    Some((u64::from_le_bytes(*version), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes on disk, as documented in `docs/bytes-on-disk.md`.
    #[test]
    fn a_head_has_these_bytes() {
        let mut head = Vec::new();
        encode_head(0x0102, 0x0304_0506, &mut head);
        assert_eq!(head, [2, 1, 0, 0, 0, 0, 0, 0x80, 2, 6, 5, 4, 3, 0, 0, 0, 0]);
        assert_eq!(Stored::parse(&head), Ok(Stored::Head(Version(0x0102), 0x0304_0506)));
        assert_eq!(body_key(b"ka/b"), b"\xffka/b");
    }

    /// Version 0.1.0 expects eight bytes of version and then a record whose first byte must be 1.
    #[test]
    fn a_head_is_no_value_to_earlier_versions() {
        let mut head = Vec::new();
        encode_head(7, 5_000_000, &mut head);
        let refused = crate::record::Value::decode(&Bytes::copy_from_slice(&head[VERSION_BYTES..]));
        assert!(refused.unwrap_err().to_string().contains("newer"));
    }

    #[test]
    fn what_is_cut_off_or_of_another_write_is_noticed() {
        let mut stored = Vec::new();
        encode_head(7, 3, &mut stored);
        for length in 0..stored.len() {
            assert!(Stored::parse(&stored[..length]).is_err(), "{length}");
        }
        encode_whole(7, b"abc", &mut stored);
        assert_eq!(Stored::parse(&stored), Ok(Stored::Whole(Version(7), b"abc")));
        let whole = Record::whole(Version(7), Bytes::from_static(b"abc"));
        assert_eq!(join(Version(7), 3, &stored), Some(whole));
        assert_eq!(join(Version(8), 3, &stored), None);
        assert_eq!(join(Version(7), 4, &stored), None);
        assert_eq!(join(Version(7), 3, &stored[..5]), None);
    }
}
