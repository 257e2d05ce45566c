//! Encoding of fences.

use std::num::NonZeroU64;

use bytes::{BufMut, Bytes, BytesMut};
use fencepost_core::{FenceState, Holder, Issuer, Timestamp};

use super::{RECORD_FORMAT, Reader, Undecodable, put_short};

const HAS_HIGH: u8 = 1;
const SPENT: u8 = 1 << 1;
const HAS_HOLDER: u8 = 1 << 2;
const HAS_ISSUER: u8 = 1 << 3;
const HAS_RAISED_AT: u8 = 1 << 4;

/// Encodes a fence.
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

/// Decodes a fence.
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
        _ => Some(Holder::stored(&input.short()?).map_err(|_| Undecodable("a fence has a malformed holder"))?),
    };
    let issuer = match flags & HAS_ISSUER {
        0 => None,
        _ => Some(Issuer::stored(&input.short()?).map_err(|_| Undecodable("a fence has a malformed issuer"))?),
    };
    Ok(FenceState { generation, high, spent: flags & SPENT != 0, holder, issuer, raised_at })
}
