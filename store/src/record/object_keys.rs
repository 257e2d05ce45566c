//! Keys of the records about objects.

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

/// Identifies a multipart upload; chosen at random.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct UploadId(pub [u8; 16]);

impl UploadId {
    /// Length of its text in characters.
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
    /// The key of an object's index entry.
    pub(crate) fn object(key: &Key) -> RecordKey {
        RecordKey::named(OBJECT, key.as_str())
    }

    /// The key of a folder marker's index entry: the name of the folder, followed by `/`. So it sorts before everything
    /// in the folder, and no object has that name.
    pub(crate) fn folder(folder: &Key) -> RecordKey {
        RecordKey::named(OBJECT, &format!("{folder}/"))
    }

    /// The key of an intent, under the ref of the write that needs it.
    pub(crate) fn intent(id: u64) -> RecordKey {
        RecordKey::named(INTENT, &digits(id))
    }

    /// The key of a pending ref, whose bytes belong to nothing.
    pub(crate) fn pending(id: u64) -> RecordKey {
        RecordKey::named(PENDING, &digits(id))
    }

    /// The key of a multipart upload. No name contains the control character that separates the two parts.
    pub(crate) fn upload(key: &Key, id: UploadId) -> RecordKey {
        RecordKey::named(UPLOAD, &format!("{key}\0{id}"))
    }

    /// The key of a part of an upload; parts are ordered by number.
    pub(crate) fn part(upload: UploadId, number: u16) -> RecordKey {
        RecordKey::named(PART, &format!("{upload}{number:05}"))
    }

    /// The key of the counter that holds the next unused ref.
    pub(crate) fn refs() -> RecordKey {
        RecordKey::named(REFS, "next")
    }

    /// The key of the mark that a bucket's files were added to the index.
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
