//! Encoding of the records: keys, fences, values, locks, outcomes, objects and the store's own record. Documented in
//! `docs/bytes-on-disk.md`.
//!
//! Every record starts with a format byte, so that later versions can recognise it.

mod fence;
mod lane;
mod lock;
mod meta;
mod object;
mod object_keys;
mod outcome;
mod value;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use fencepost_core::{IdempotencyKey, Key, Resource, Timestamp};

pub use fence::{decode_fence, encode_fence};
pub(crate) use lane::{decode_lane, encode_lane};
pub use lock::{Lease, LeaseId, LockRecord};
pub use meta::Meta;
pub use object::{Act, Attributes, Intent, ObjectRecord, PartRecord, UploadRecord};
pub(crate) use object::{decode_number, encode_number};
pub use object_keys::UploadId;
pub(crate) use object_keys::{id_of, intent_prefix, object_prefix, part_prefix, pending_prefix, upload_prefix};
pub(crate) use outcome::{Pending, Recorded, decode_index, encode_index};
pub use value::{MAX_CONTENT_TYPE_BYTES, Value};
pub(crate) use value::{MAX_HEAD_BYTES, MAX_NUMBER_BYTES};

/// The format that this version writes, and the newest that it reads.
pub const FORMAT: u32 = 1;

const RECORD_FORMAT: u8 = 1;

const META: u8 = b'm';
const FENCE: u8 = b'f';
const VALUE: u8 = b'k';
const LOCK: u8 = b'l';
const OUTCOME: u8 = b'o';
const INDEX: u8 = b'x';
const LANE: u8 = b'c';

/// A record's key: one byte for the kind, then the name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordKey(Box<[u8]>);

impl RecordKey {
    /// The key of the store's own record.
    pub fn meta() -> RecordKey {
        RecordKey::named(META, "store")
    }

    /// The key of a resource's fence.
    pub fn fence(resource: &Resource) -> RecordKey {
        RecordKey::named(FENCE, resource.as_str())
    }

    /// The key of a key's value.
    pub fn value(key: &Key) -> RecordKey {
        RecordKey::named(VALUE, key.as_str())
    }

    /// The key of a lock.
    pub fn lock(resource: &Resource) -> RecordKey {
        RecordKey::named(LOCK, resource.as_str())
    }

    /// The key of a recorded outcome.
    pub fn outcome(key: &OutcomeKey) -> RecordKey {
        RecordKey::named(OUTCOME, &key.0)
    }

    /// The key of the index of outcomes recorded together at this time; `id` makes it unique within a millisecond.
    pub(crate) fn index(at: Timestamp, id: u64) -> RecordKey {
        let mut bytes = index_at(at);
        bytes.extend_from_slice(&id.to_be_bytes());
        RecordKey(bytes.into())
    }

    /// The key of a stream of commits, whose id was chosen at random.
    pub(crate) fn lane(id: [u8; 16]) -> RecordKey {
        let mut bytes = vec![LANE];
        bytes.extend_from_slice(&id);
        RecordKey(bytes.into())
    }

    /// A key from the bytes that a scan returned.
    pub(crate) fn scanned(bytes: Vec<u8>) -> RecordKey {
        RecordKey(bytes.into())
    }

    /// Returns whether it is the key of a value.
    #[cfg(feature = "rocksdb")]
    pub(crate) fn is_value(&self) -> bool {
        self.0.first() == Some(&VALUE)
    }

    /// Returns whether requests keep asking for the record. Outcomes and objects are mostly read once.
    #[cfg(feature = "rocksdb")]
    pub(crate) fn is_read_often(&self) -> bool {
        matches!(self.0.first(), Some(&(META | FENCE | VALUE | LOCK)))
    }

    /// Returns whether the judge asks for the record: a fence, or the store's own record.
    pub(crate) fn is_judged_on(&self) -> bool {
        matches!(self.0.first(), Some(&(META | FENCE)))
    }

    /// Returns whether it is the key of a recorded outcome.
    pub(crate) fn is_outcome(&self) -> bool {
        self.0.first() == Some(&OUTCOME)
    }

    /// Returns whether it is the record of a lane.
    pub(crate) fn is_lane(&self) -> bool {
        self.0.first() == Some(&LANE)
    }

    /// The encoded key.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    fn named(kind: u8, name: &str) -> RecordKey {
        let mut bytes = Vec::with_capacity(1 + name.len());
        bytes.push(kind);
        bytes.extend_from_slice(name.as_bytes());
        RecordKey(bytes.into())
    }
}

/// The common prefix of the record keys of all fences whose names start with `prefix`.
pub(crate) fn fence_prefix(prefix: &str) -> Vec<u8> {
    RecordKey::named(FENCE, prefix).0.into_vec()
}

pub(crate) fn value_prefix(prefix: &str) -> Vec<u8> {
    RecordKey::named(VALUE, prefix).0.into_vec()
}

pub(crate) fn lock_prefix(prefix: &str) -> Vec<u8> {
    RecordKey::named(LOCK, prefix).0.into_vec()
}

/// The first possible key of an index of this time; indexes are ordered by time.
pub(crate) fn index_at(at: Timestamp) -> Vec<u8> {
    let mut bytes = vec![INDEX];
    bytes.extend_from_slice(&at.0.to_be_bytes());
    bytes
}

/// The common prefix of all index keys.
pub(crate) fn index_prefix() -> Vec<u8> {
    vec![INDEX]
}

/// Identifies a recorded outcome by the caller and the idempotency key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OutcomeKey(Box<str>);

impl OutcomeKey {
    /// Neither part can contain the control character that separates them.
    pub fn new(caller: &str, key: &IdempotencyKey) -> OutcomeKey {
        OutcomeKey(format!("{caller}\0{key}").into())
    }
}

/// The name in a record's key.
pub(crate) fn name_of(key: &[u8]) -> Result<&str, Undecodable> {
    let name = key.get(1..).ok_or(Undecodable("a record key is empty"))?;
    std::str::from_utf8(name).map_err(|_| Undecodable("a record key is not UTF-8"))
}

/// A record that this version cannot read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a stored record cannot be read: {0}")]
pub struct Undecodable(&'static str);

/// Writes a text of at most 65,535 bytes, preceded by its length.
fn put_short(out: &mut BytesMut, text: &str) {
    out.put_u16_le(u16::try_from(text.len()).unwrap_or(0));
    out.put_slice(text.as_bytes());
}

/// Writes bytes, preceded by their length.
fn put_long(out: &mut BytesMut, bytes: &[u8]) {
    out.put_u32_le(u32::try_from(bytes.len()).unwrap_or(0));
    out.put_slice(bytes);
}

/// Reads encoded fields, never past the end.
struct Reader(Bytes);

impl Reader {
    fn new(bytes: &Bytes) -> Result<Reader, Undecodable> {
        let mut input = Reader(bytes.clone());
        match input.u8()? {
            RECORD_FORMAT => Ok(input),
            _ => Err(Undecodable("its format is newer than this version of fencepost")),
        }
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The remaining bytes.
    fn rest(self) -> Bytes {
        self.0
    }

    fn need(&self, bytes: usize) -> Result<(), Undecodable> {
        if self.0.len() < bytes { Err(Undecodable("it is too short")) } else { Ok(()) }
    }

    fn u8(&mut self) -> Result<u8, Undecodable> {
        self.need(1).map(|()| self.0.get_u8())
    }

    fn u32(&mut self) -> Result<u32, Undecodable> {
        self.need(4).map(|()| self.0.get_u32_le())
    }

    fn u64(&mut self) -> Result<u64, Undecodable> {
        self.need(8).map(|()| self.0.get_u64_le())
    }

    fn i64(&mut self) -> Result<i64, Undecodable> {
        self.need(8).map(|()| self.0.get_i64_le())
    }

    fn bytes(&mut self) -> Result<Bytes, Undecodable> {
        let length = self.u32()? as usize;
        self.need(length).map(|()| self.0.split_to(length))
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Undecodable> {
        let mut array = [0; N];
        self.need(N).map(|()| self.0.copy_to_slice(&mut array))?;
        Ok(array)
    }

    fn short(&mut self) -> Result<String, Undecodable> {
        self.need(2)?;
        let length = usize::from(self.0.get_u16_le());
        self.text(length)
    }

    fn text(&mut self, length: usize) -> Result<String, Undecodable> {
        self.need(length)?;
        String::from_utf8(self.0.split_to(length).to_vec()).map_err(|_| Undecodable("a text is not UTF-8"))
    }
}

#[cfg(test)]
mod tests;
