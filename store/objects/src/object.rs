//! What readers learn of objects, parts and uploads. Where their bytes lie stays in the records.

use fencepost_core::{Key, Timestamp, Token};
use fencepost_store::record::{ObjectRecord, PartRecord, UploadId};

/// Names and values, in the order given.
pub type Attributes = Vec<(String, String)>;

/// An object, or the marker of a folder, as the index knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// Bytes.
    pub size: u64,
    /// Without quotes.
    pub etag: String,
    /// When it was written.
    pub modified: Timestamp,
    /// The token of the write; absent for what was adopted, or let through by observe mode.
    pub token: Option<Token>,
    /// What else its writer said of it, and its checksums.
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
    /// Counted from 1.
    pub number: u16,
    /// Bytes.
    pub size: u64,
    /// Without quotes.
    pub etag: String,
    /// When it was written.
    pub modified: Timestamp,
    /// Its checksums.
    pub attributes: Attributes,
}

impl Part {
    pub(crate) fn new(number: u16, record: PartRecord) -> Part {
        let PartRecord { size, etag, modified, attributes, id: _ } = record;
        Part { number, size, etag, modified, attributes }
    }
}

/// An upload that was begun and is not over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upload {
    /// Of which object.
    pub key: Key,
    /// Names it.
    pub id: UploadId,
    /// When it was begun.
    pub started: Timestamp,
}

impl From<fencepost_store::Upload> for Upload {
    fn from(upload: fencepost_store::Upload) -> Upload {
        Upload { key: upload.key, id: upload.id, started: upload.record.started }
    }
}

/// An entry of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listed {
    /// An object, or the marker of a folder, whose name ends in `/`.
    Object(String, Box<Object>),
    /// Everything whose name begins like this, up to and with the delimiter.
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
