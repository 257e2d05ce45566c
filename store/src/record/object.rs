//! Encoding of the records about objects: the index, intents, pending refs, uploads and their parts.
//!
//! The bytes of the objects themselves are stored elsewhere, under a *ref* that is never reused.

use bytes::{BufMut, Bytes, BytesMut};
use fencepost_core::{Key, Timestamp, Token};

use super::{RECORD_FORMAT, Reader, Undecodable, put_short};

/// An object's index entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectRecord {
    /// The ref that its bytes were written under. Refs are reserved when staging begins, so of two writes of one key
    /// the later may have the smaller ref: only equality is meaningful.
    pub id: u64,
    /// Size in bytes.
    pub size: u64,
    /// Identifies the bytes in the storage.
    pub inode: u64,
    /// The ETag without quotes.
    pub etag: String,
    /// When it was written.
    pub modified: Timestamp,
    /// The token of the write; absent if the object was adopted, or written under observe mode.
    pub token: Option<Token>,
    /// Further attributes from the writer, such as the content type and user metadata.
    pub attributes: Attributes,
}

/// Names and values, in the order given.
pub type Attributes = Vec<(String, String)>;

/// An action that the storage has to carry out after a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Intent {
    /// The key of the object.
    pub key: Key,
    /// The action to carry out.
    pub act: Act,
}

/// An action of the storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// The bytes of the intent's ref become the bytes of the key.
    Publish {
        /// Size in bytes.
        size: u64,
        /// Identifies the bytes in the storage.
        inode: u64,
    },
    /// The key's bytes are removed.
    Remove,
}

/// A multipart upload that was begun.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UploadRecord {
    /// When the upload was begun.
    pub started: Timestamp,
    /// The token that it was begun with.
    pub token: Option<Token>,
    /// The attributes of the future object.
    pub attributes: Attributes,
}

/// A part of an upload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartRecord {
    /// The ref that its bytes were written under.
    pub id: u64,
    /// Size in bytes.
    pub size: u64,
    /// The ETag without quotes.
    pub etag: String,
    /// When it was written.
    pub modified: Timestamp,
    /// The part's checksums.
    pub attributes: Attributes,
}

const HAS_TOKEN: u8 = 1;

fn begin() -> BytesMut {
    let mut out = BytesMut::with_capacity(128);
    out.put_u8(RECORD_FORMAT);
    out
}

fn put_token(out: &mut BytesMut, token: Option<Token>) {
    out.put_u8(if token.is_some() { HAS_TOKEN } else { 0 });
    if let Some(token) = token {
        out.put_u32_le(token.generation());
        out.put_u64_le(token.number().get());
    }
}

fn token(input: &mut Reader) -> Result<Option<Token>, Undecodable> {
    match input.u8()? & HAS_TOKEN {
        0 => Ok(None),
        _ => Token::new(input.u32()?, input.u64()?).map(Some).ok_or(Undecodable("an object has token 0")),
    }
}

fn put_attributes(out: &mut BytesMut, attributes: &Attributes) {
    out.put_u32_le(u32::try_from(attributes.len()).unwrap_or(0));
    for (name, value) in attributes {
        put_short(out, name);
        put_short(out, value);
    }
}

fn attributes(input: &mut Reader) -> Result<Attributes, Undecodable> {
    let count = input.u32()?;
    (0..count).map(|_| Ok((input.short()?, input.short()?))).collect()
}

impl ObjectRecord {
    /// Encodes the record.
    pub fn encode(&self) -> Bytes {
        let mut out = begin();
        out.put_u64_le(self.id);
        out.put_u64_le(self.size);
        out.put_u64_le(self.inode);
        out.put_u64_le(self.modified.0);
        put_token(&mut out, self.token);
        put_short(&mut out, &self.etag);
        put_attributes(&mut out, &self.attributes);
        out.freeze()
    }

    /// Decodes a record.
    pub fn decode(bytes: &Bytes) -> Result<ObjectRecord, Undecodable> {
        let mut input = Reader::new(bytes)?;
        let (id, size, inode, modified) = (input.u64()?, input.u64()?, input.u64()?, Timestamp(input.u64()?));
        let token = token(&mut input)?;
        let etag = input.short()?;
        Ok(ObjectRecord { id, size, inode, etag, modified, token, attributes: attributes(&mut input)? })
    }
}

const PUBLISH: u8 = 1;
const REMOVE: u8 = 2;

impl Intent {
    /// Encodes the record.
    pub fn encode(&self) -> Bytes {
        let mut out = begin();
        match self.act {
            Act::Publish { size, inode } => {
                out.put_u8(PUBLISH);
                out.put_u64_le(size);
                out.put_u64_le(inode);
            }
            Act::Remove => out.put_u8(REMOVE),
        }
        put_short(&mut out, self.key.as_str());
        out.freeze()
    }

    /// Decodes a record.
    pub fn decode(bytes: &Bytes) -> Result<Intent, Undecodable> {
        let mut input = Reader::new(bytes)?;
        let act = match input.u8()? {
            PUBLISH => Act::Publish { size: input.u64()?, inode: input.u64()? },
            REMOVE => Act::Remove,
            _ => return Err(Undecodable("an intent is of a kind that this version does not know")),
        };
        let key = Key::new(&input.short()?).map_err(|_| Undecodable("an intent has a malformed name"))?;
        Ok(Intent { key, act })
    }
}

impl UploadRecord {
    /// Encodes the record.
    pub fn encode(&self) -> Bytes {
        let mut out = begin();
        out.put_u64_le(self.started.0);
        put_token(&mut out, self.token);
        put_attributes(&mut out, &self.attributes);
        out.freeze()
    }

    /// Decodes a record.
    pub fn decode(bytes: &Bytes) -> Result<UploadRecord, Undecodable> {
        let mut input = Reader::new(bytes)?;
        let started = Timestamp(input.u64()?);
        let token = token(&mut input)?;
        Ok(UploadRecord { started, token, attributes: attributes(&mut input)? })
    }
}

impl PartRecord {
    /// Encodes the record.
    pub fn encode(&self) -> Bytes {
        let mut out = begin();
        out.put_u64_le(self.id);
        out.put_u64_le(self.size);
        out.put_u64_le(self.modified.0);
        put_short(&mut out, &self.etag);
        put_attributes(&mut out, &self.attributes);
        out.freeze()
    }

    /// Decodes a record.
    pub fn decode(bytes: &Bytes) -> Result<PartRecord, Undecodable> {
        let mut input = Reader::new(bytes)?;
        let (id, size, modified) = (input.u64()?, input.u64()?, Timestamp(input.u64()?));
        let etag = input.short()?;
        Ok(PartRecord { id, size, etag, modified, attributes: attributes(&mut input)? })
    }
}

/// Encodes a record that consists of one time or number.
pub(crate) fn encode_number(number: u64) -> Bytes {
    let mut out = begin();
    out.put_u64_le(number);
    out.freeze()
}

pub(crate) fn decode_number(bytes: &Bytes) -> Result<u64, Undecodable> {
    Reader::new(bytes)?.u64()
}
