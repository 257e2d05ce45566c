//! Bytes of the records: keys, fences, values and the store's own record. Documented in `docs/bytes-on-disk.md`.
//!
//! Every record starts with a format byte, so that a later version can tell what it reads.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use fencepost_core::{FenceState, Holder, Issuer, Key, Resource, Timestamp, Token};
use std::num::NonZeroU64;

/// The format that this version writes, and the newest that it reads.
pub const FORMAT: u32 = 1;

const RECORD_FORMAT: u8 = 1;

const META: u8 = b'm';
const FENCE: u8 = b'f';
const VALUE: u8 = b'k';

/// A record's key: one byte for the kind, then the name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordKey(Box<[u8]>);

impl RecordKey {
    /// The store's own record.
    pub fn meta() -> RecordKey {
        RecordKey::named(META, "store")
    }

    /// A resource's fence.
    pub fn fence(resource: &Resource) -> RecordKey {
        RecordKey::named(FENCE, resource.as_str())
    }

    /// A key's value.
    pub fn value(key: &Key) -> RecordKey {
        RecordKey::named(VALUE, key.as_str())
    }

    /// The bytes.
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

/// The bytes under which all fences, or all values, whose names start with `prefix` are found.
pub(crate) fn fence_prefix(prefix: &str) -> Vec<u8> {
    RecordKey::named(FENCE, prefix).0.into_vec()
}

pub(crate) fn value_prefix(prefix: &str) -> Vec<u8> {
    RecordKey::named(VALUE, prefix).0.into_vec()
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

/// The store's own record: identity, base generation and guard mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meta {
    /// The store's format.
    pub format: u32,
    /// Chosen at random when the store was made.
    pub store_id: [u8; 16],
    /// No resource is in a lower generation.
    pub base_generation: u32,
    /// SHA-256 of the mapping.
    pub mapping_hash: [u8; 32],
    /// The mapping in words, for messages.
    pub mapping_text: String,
}

/// A key's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value {
    /// The token of the write; absent only for what observe mode let through.
    pub token: Option<Token>,
    /// Its media type.
    pub content_type: Option<String>,
    /// The bytes.
    pub body: Bytes,
}

impl Meta {
    /// To bytes.
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(64 + self.mapping_text.len());
        out.put_u8(RECORD_FORMAT);
        out.put_u32_le(self.format);
        out.put_slice(&self.store_id);
        out.put_u32_le(self.base_generation);
        out.put_slice(&self.mapping_hash);
        out.put_u32_le(u32::try_from(self.mapping_text.len()).unwrap_or(0));
        out.put_slice(self.mapping_text.as_bytes());
        out.freeze()
    }

    /// From bytes.
    pub fn decode(bytes: &Bytes) -> Result<Meta, Undecodable> {
        let mut input = Reader::new(bytes)?;
        let format = input.u32()?;
        let store_id = input.array()?;
        let base_generation = input.u32()?;
        let mapping_hash = input.array()?;
        let length = input.u32()?;
        Ok(Meta { format, store_id, base_generation, mapping_hash, mapping_text: input.text(length as usize)? })
    }
}

const HAS_HIGH: u8 = 1;
const SPENT: u8 = 1 << 1;
const HAS_HOLDER: u8 = 1 << 2;
const HAS_ISSUER: u8 = 1 << 3;
const HAS_RAISED_AT: u8 = 1 << 4;

/// A fence, to bytes.
pub fn encode_fence(state: &FenceState) -> Bytes {
    let flag = |flag: u8, present: bool| if present { flag } else { 0 };
    let mut out = BytesMut::with_capacity(64);
    out.put_u8(RECORD_FORMAT);
    out.put_u8(
        flag(HAS_HIGH, state.high.is_some())
            | flag(SPENT, state.spent)
            | flag(HAS_HOLDER, state.holder.is_some())
            | flag(HAS_ISSUER, state.issuer.is_some())
            | flag(HAS_RAISED_AT, state.raised_at.is_some()),
    );
    out.put_u32_le(state.generation);
    if let Some(high) = state.high {
        out.put_u64_le(high.get());
    }
    if let Some(raised_at) = state.raised_at {
        out.put_u64_le(raised_at.0);
    }
    for text in
        [state.holder.as_ref().map(Holder::as_str), state.issuer.as_ref().map(Issuer::as_str)].into_iter().flatten()
    {
        put_short(&mut out, text);
    }
    out.freeze()
}

/// A fence, from bytes.
pub fn decode_fence(bytes: &Bytes) -> Result<FenceState, Undecodable> {
    let mut input = Reader::new(bytes)?;
    let flags = input.u8()?;
    let generation = input.u32()?;
    let high = match flags & HAS_HIGH {
        0 => None,
        _ => Some(NonZeroU64::new(input.u64()?).ok_or(Undecodable("a fence has number 0"))?),
    };
    let raised_at = if flags & HAS_RAISED_AT == 0 { None } else { Some(Timestamp(input.u64()?)) };
    let holder = match flags & HAS_HOLDER {
        0 => None,
        _ => Some(Holder::new(&input.short()?).map_err(|_| Undecodable("a fence has a malformed holder"))?),
    };
    let issuer = match flags & HAS_ISSUER {
        0 => None,
        _ => Some(Issuer::new(&input.short()?).map_err(|_| Undecodable("a fence has a malformed issuer"))?),
    };
    Ok(FenceState { generation, high, spent: flags & SPENT != 0, holder, issuer, raised_at })
}

const HAS_TOKEN: u8 = 1;
const HAS_CONTENT_TYPE: u8 = 1 << 1;

/// The longest content type that is kept.
pub const MAX_CONTENT_TYPE_BYTES: usize = 255;

impl Value {
    /// To bytes.
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

    /// From bytes; the body is shared, not copied.
    pub fn decode(bytes: &Bytes) -> Result<Value, Undecodable> {
        let mut input = Reader::new(bytes)?;
        let flags = input.u8()?;
        let token = match flags & HAS_TOKEN {
            0 => None,
            _ => Some(Token::new(input.u32()?, input.u64()?).ok_or(Undecodable("a value has token 0"))?),
        };
        let content_type = if flags & HAS_CONTENT_TYPE == 0 { None } else { Some(input.short()?) };
        Ok(Value { token, content_type, body: input.0 })
    }
}

/// A text of at most 65,535 bytes with its length before it.
fn put_short(out: &mut BytesMut, text: &str) {
    out.put_u16_le(u16::try_from(text.len()).unwrap_or(0));
    out.put_slice(text.as_bytes());
}

/// Reads what was written, and never past the end.
struct Reader(Bytes);

impl Reader {
    fn new(bytes: &Bytes) -> Result<Reader, Undecodable> {
        let mut input = Reader(bytes.clone());
        match input.u8()? {
            RECORD_FORMAT => Ok(input),
            _ => Err(Undecodable("its format is newer than this version of fencepost")),
        }
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
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_label() -> impl Strategy<Value = Option<String>> {
        prop::option::of("[a-z#:0-9]{1,20}")
    }

    proptest! {
        #[test]
        fn fences_round_trip(
            generation in any::<u32>(), high in any::<u64>(), spent in any::<bool>(),
            holder in any_label(), issuer in any_label(), raised_at in prop::option::of(any::<u64>()),
        ) {
            let state = FenceState {
                generation, high: NonZeroU64::new(high), spent,
                holder: holder.map(|h| Holder::new(&h).unwrap()),
                issuer: issuer.map(|i| Issuer::new(&i).unwrap()),
                raised_at: raised_at.map(Timestamp),
            };
            prop_assert_eq!(decode_fence(&encode_fence(&state)), Ok(state));
        }

        #[test]
        fn values_round_trip(
            token in prop::option::of((any::<u32>(), 1u64..)), content_type in prop::option::of("[a-z/]{0,40}"),
            body in prop::collection::vec(any::<u8>(), 0..300),
        ) {
            let value = Value { token: token.map(|(g, n)| Token::new(g, n).unwrap()), content_type, body: body.into() };
            prop_assert_eq!(Value::decode(&value.encode()), Ok(value));
        }

        #[test]
        fn no_bytes_make_a_decoder_panic(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let bytes = Bytes::from(bytes);
            let _ = (decode_fence(&bytes), Value::decode(&bytes), Meta::decode(&bytes));
        }
    }

    #[test]
    fn the_stores_record_round_trips_and_a_newer_format_is_refused() {
        let meta = Meta {
            format: FORMAT,
            store_id: [7; 16],
            base_generation: 3,
            mapping_hash: [9; 32],
            mapping_text: "a/* -> a\n".into(),
        };
        assert_eq!(Meta::decode(&meta.encode()), Ok(meta.clone()));
        let mut newer = meta.encode().to_vec();
        newer[0] = 2;
        assert!(Meta::decode(&newer.into()).is_err());
    }
}
