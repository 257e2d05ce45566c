//! Encoding of values.

use bytes::{BufMut, Bytes, BytesMut};
use fencepost_core::Token;

use super::{RECORD_FORMAT, Reader, Undecodable, put_short};

/// A key's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value {
    /// The token of the write; absent only for writes under observe mode.
    pub token: Option<Token>,
    /// The value's media type.
    pub content_type: Option<String>,
    /// The value's bytes.
    pub body: Bytes,
}

const HAS_TOKEN: u8 = 1;
const HAS_CONTENT_TYPE: u8 = 1 << 1;

/// The longest content type that is stored.
pub const MAX_CONTENT_TYPE_BYTES: usize = 255;

/// The most bytes that a value's record has in front of the body.
pub(crate) const MAX_HEAD_BYTES: usize = 2 + 12 + 2 + MAX_CONTENT_TYPE_BYTES;

/// The longest value that is parsed as a number, leading zeros included.
pub(crate) const MAX_NUMBER_BYTES: usize = 1024;

impl Value {
    /// Encodes the record.
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(32 + self.content_type.as_ref().map_or(0, String::len) + self.body.len());
        out.put_u8(RECORD_FORMAT);
        let token = if self.token.is_some() { HAS_TOKEN } else { 0 };
        out.put_u8(token | if self.content_type.is_some() { HAS_CONTENT_TYPE } else { 0 });
        if let Some(token) = self.token {
            out.put_u32_le(token.generation());
            out.put_u64_le(token.number().get());
        }
        if let Some(content_type) = &self.content_type {
            put_short(&mut out, content_type);
        }
        out.put_slice(&self.body);
        out.freeze()
    }

    /// Decodes a record; the body is shared, not copied.
    pub fn decode(bytes: &Bytes) -> Result<Value, Undecodable> {
        let mut input = Reader::new(bytes)?;
        let flags = input.u8()?;
        let token = match flags & HAS_TOKEN {
            0 => None,
            _ => Some(Token::new(input.u32()?, input.u64()?).ok_or(Undecodable("a value has token 0"))?),
        };
        let content_type = if flags & HAS_CONTENT_TYPE == 0 { None } else { Some(input.short()?) };
        Ok(Value { token, content_type, body: input.rest() })
    }
}
