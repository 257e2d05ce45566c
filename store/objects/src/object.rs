//! What readers see of objects, parts and uploads. The location of the bytes stays in the records.

use fencepost_core::{Key, Timestamp, Token};
use fencepost_store::record::{ObjectRecord, PartRecord, UploadId};

/// Names and values, in the order given.
pub type Attributes = Vec<(String, String)>;

/// An object or a folder marker, as recorded in the index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// The size in bytes.
    pub size: u64,
    /// The ETag, without quotes.
    pub etag: String,
    /// The time of the write.
    pub modified: Timestamp,
    /// The token of the write; absent for an adopted object, and for a write that observe mode let through.
    pub token: Option<Token>,
    /// The metadata given by the writer, and the checksums.
    pub attributes: Attributes,
}

impl From<ObjectRecord> for Object {
    fn from(record: ObjectRecord) -> Object {
        let ObjectRecord { size, etag, modified, token, attributes, id: _, inode: _ } = record;
        Object { size, etag, modified, token, attributes }
    }
}

/// A part of an upload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The part's number, starting at 1.
    pub number: u16,
    /// The size in bytes.
    pub size: u64,
    /// The ETag, without quotes.
    pub etag: String,
    /// The time of the write.
    pub modified: Timestamp,
    /// The part's checksums.
    pub attributes: Attributes,
}

impl Part {
    pub(crate) fn new(number: u16, record: PartRecord) -> Part {
        let PartRecord { size, etag, modified, attributes, id: _ } = record;
        Part { number, size, etag, modified, attributes }
    }
}

/// An upload that has begun and not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upload {
    /// The object that it will write.
    pub key: Key,
    /// The upload's id.
    pub id: UploadId,
    /// The time when it began.
    pub started: Timestamp,
}

impl From<fencepost_store::Upload> for Upload {
    fn from(upload: fencepost_store::Upload) -> Upload {
        Upload { key: upload.key, id: upload.id, started: upload.record.started }
    }
}

/// An entry of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listed {
    /// An object, or a folder marker, whose name ends in `/`.
    Object(String, Box<Object>),
    /// All names that begin with this prefix, which ends with the delimiter.
    Prefix(String),
}

impl From<fencepost_store::Listed> for Listed {
    fn from(listed: fencepost_store::Listed) -> Listed {
        match listed {
            fencepost_store::Listed::Object(name, record) => Listed::Object(name, Box::new((*record).into())),
            fencepost_store::Listed::Prefix(prefix) => Listed::Prefix(prefix),
        }
    }
}
