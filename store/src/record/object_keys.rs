//! Keys of the records that are kept about objects.

use std::fmt;

use fencepost_core::Key;

use super::{RecordKey, Undecodable};

const OBJECT: u8 = b'b';
const INTENT: u8 = b'i';
const PENDING: u8 = b'p';
const UPLOAD: u8 = b'u';
const PART: u8 = b't';
const REFS: u8 = b'r';
const ADOPTED: u8 = b'a';

/// Names an upload in parts; chosen at random.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct UploadId(pub [u8; 16]);

impl UploadId {
    /// Characters of its text.
    pub(crate) const TEXT: usize = 32;
}

impl fmt::Display for UploadId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl std::str::FromStr for UploadId {
    type Err = ();

    fn from_str(text: &str) -> Result<UploadId, ()> {
        let digits = text.as_bytes();
        if digits.len() != UploadId::TEXT || !digits.iter().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f')) {
            return Err(());
        }
        u128::from_str_radix(text, 16).map(|number| UploadId(number.to_be_bytes())).map_err(|_| ())
    }
}

impl RecordKey {
    /// An object's entry in the index.
    pub(crate) fn object(key: &Key) -> RecordKey {
        RecordKey::named(OBJECT, key.as_str())
    }

    /// A folder marker's entry in the index: the name of its folder, with a `/` behind it. So it sorts before everything
    /// in the folder, and no object has that name.
    pub(crate) fn folder(folder: &Key) -> RecordKey {
        RecordKey::named(OBJECT, &format!("{folder}/"))
    }

    /// What has to happen in the storage, under the ref of the write that wants it.
    pub(crate) fn intent(id: u64) -> RecordKey {
        RecordKey::named(INTENT, &digits(id))
    }

    /// A ref whose bytes belong to nothing.
    pub(crate) fn pending(id: u64) -> RecordKey {
        RecordKey::named(PENDING, &digits(id))
    }

    /// An upload in parts. No name contains the control character between the two.
    pub(crate) fn upload(key: &Key, id: UploadId) -> RecordKey {
        RecordKey::named(UPLOAD, &format!("{key}\0{id}"))
    }

    /// A part of an upload; parts are in order of their number.
    pub(crate) fn part(upload: UploadId, number: u16) -> RecordKey {
        RecordKey::named(PART, &format!("{upload}{number:05}"))
    }

    /// The next ref that nobody has.
    pub(crate) fn refs() -> RecordKey {
        RecordKey::named(REFS, "next")
    }

    /// That a bucket's files were taken into the index.
    pub(crate) fn adopted(bucket: &str) -> RecordKey {
        RecordKey::named(ADOPTED, bucket)
    }
}

pub(crate) fn object_prefix(prefix: &str) -> Vec<u8> {
    RecordKey::named(OBJECT, prefix).as_bytes().to_vec()
}

pub(crate) fn upload_prefix(prefix: &str) -> Vec<u8> {
    RecordKey::named(UPLOAD, prefix).as_bytes().to_vec()
}

pub(crate) fn part_prefix(upload: &str) -> Vec<u8> {
    RecordKey::named(PART, upload).as_bytes().to_vec()
}

pub(crate) fn intent_prefix(from: &str) -> Vec<u8> {
    RecordKey::named(INTENT, from).as_bytes().to_vec()
}

pub(crate) fn pending_prefix(from: &str) -> Vec<u8> {
    RecordKey::named(PENDING, from).as_bytes().to_vec()
}

fn digits(id: u64) -> String {
    format!("{id:016x}")
}

/// The ref in the name of an intent or a pending record.
pub(crate) fn id_of(name: &str) -> Result<u64, Undecodable> {
    u64::from_str_radix(name, 16).map_err(|_| Undecodable("a ref is no number"))
}
