//! Where records are in etcd: their keys, and what a value holds beside the bytes of its record.

use bytes::{BufMut, Bytes, BytesMut};

use super::super::after_prefix;
use crate::engine::Scan;

/// The first byte of the engine's own keys. Keys of records start with a letter.
const OWN: u8 = b'!';

/// The key of the note about the history of the records.
const HISTORY: &[u8] = b"!history";

/// The key that is written when a commit would change nothing otherwise.
const TICK: &[u8] = b"!tick";

/// The bytes of a value before those of its record: the place of the change in its commit.
const HEAD: usize = 2;

/// The keys of one store: all that start with its prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Keys {
    prefix: Vec<u8>,
}

impl Keys {
    pub(super) fn new(prefix: &str) -> Keys {
        Keys { prefix: prefix.as_bytes().to_vec() }
    }

    /// The key of a record, given the bytes of its key.
    pub(super) fn of(&self, record: &[u8]) -> Bytes {
        [self.prefix.as_slice(), record].concat().into()
    }

    /// All keys: the first possible one, and the first that is none.
    pub(super) fn all(&self) -> Option<(Bytes, Bytes)> {
        Some((self.prefix.clone().into(), after_prefix(&self.prefix)?.into()))
    }

    pub(super) fn history(&self) -> Bytes {
        self.of(HISTORY)
    }

    pub(super) fn tick(&self) -> Bytes {
        self.of(TICK)
    }

    /// The bytes of the key of the record at this key; `None` if it is one of the engine's own.
    pub(super) fn record(&self, key: &[u8]) -> Option<Vec<u8>> {
        let record = key.strip_prefix(self.prefix.as_slice())?;
        (record.first() != Some(&OWN)).then(|| record.to_vec())
    }

    /// The first key of a scan, and the key at which it ends. `None`: there can be no record.
    pub(super) fn range(&self, scan: &Scan) -> Option<(Bytes, Bytes)> {
        let from = match scan.from < scan.prefix {
            true => self.of(&scan.prefix),
            false if scan.inclusive => self.of(&scan.from),
            false => after(&self.of(&scan.from)),
        };
        let end = Bytes::from(after_prefix(&self.of(&scan.prefix))?);
        (from < end).then_some((from, end))
    }
}

/// The first key after this one.
pub(super) fn after(key: &[u8]) -> Bytes {
    [key, &[0]].concat().into()
}

/// A value, with the place of its change in the commit. All changes of a commit have one revision, so without it two of
/// them would have one version.
pub(super) fn value(place: u16, record: &[u8]) -> Bytes {
    let mut value = BytesMut::with_capacity(HEAD + record.len());
    value.put_u16(place);
    value.put_slice(record);
    value.freeze()
}

/// The place and the record in a value; `None` if it is not one of ours.
pub(super) fn parts(value: &[u8]) -> Option<(u16, &[u8])> {
    let (place, record) = value.split_first_chunk::<HEAD>()?;
    Some((u16::from_be_bytes(*place), record))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scan(from: &[u8], inclusive: bool, prefix: &[u8]) -> Scan {
        Scan { from: from.to_vec(), inclusive, prefix: prefix.to_vec(), limit: 1, max_bytes: 1 }
    }

    #[test]
    fn a_record_has_a_key_below_the_prefix() {
        let keys = Keys::new("orders/");
        assert_eq!(keys.of(b"fa"), "orders/fa");
        assert_eq!(keys.record(b"orders/fa"), Some(b"fa".to_vec()));
        assert_eq!(
            (keys.record(b"other/fa"), keys.record(&keys.history()), keys.record(&keys.tick())),
            (None, None, None)
        );
    }

    #[test]
    fn a_scan_stays_within_the_prefix() {
        let keys = Keys::new("p/");
        let range = |scan: Scan| keys.range(&scan).map(|(from, end)| (from.to_vec(), end.to_vec()));
        let expected = |from: &[u8]| Some((from.to_vec(), b"p/kb0".to_vec()));
        assert_eq!(range(scan(b"ka", false, b"kb/")), expected(b"p/kb/"));
        assert_eq!(range(scan(b"kb/1", true, b"kb/")), expected(b"p/kb/1"));
        assert_eq!(range(scan(b"kb/1", false, b"kb/")), expected(b"p/kb/1\0"));
        assert_eq!(range(scan(b"kc", true, b"kb/")), None);
        assert_eq!(range(scan(b"", true, b"")), Some((b"p/".to_vec(), b"p0".to_vec())));
    }

    #[test]
    fn a_value_has_the_place_of_its_change() {
        let whole = value(258, b"abc");
        assert_eq!(whole, &b"\x01\x02abc"[..]);
        assert_eq!(parts(&whole), Some((258, &b"abc"[..])));
        assert_eq!((parts(b"\0\0"), parts(b"\0"), parts(b"")), (Some((0, &b""[..])), None, None));
    }
}
