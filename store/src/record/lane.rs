//! Encoding of lanes: streams of commits of one gateway on a shared engine.

use bytes::{BufMut, Bytes, BytesMut};

use super::{RECORD_FORMAT, Reader, Undecodable};

/// Encodes the number of a lane's last commit.
pub(crate) fn encode_lane(number: u64) -> Bytes {
    let mut out = BytesMut::with_capacity(9);
    out.put_u8(RECORD_FORMAT);
    out.put_u64_le(number);
    out.freeze()
}

/// Decodes the number of a lane's last commit.
pub(crate) fn decode_lane(bytes: &Bytes) -> Result<u64, Undecodable> {
    Reader::new(bytes)?.u64()
}
