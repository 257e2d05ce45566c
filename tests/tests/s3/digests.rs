//! Digests of bodies, in the form in which S3 writes them.

use data_encoding::{BASE64, HEXLOWER};
use md5::{Digest, Md5};

/// The ETag of an object that was uploaded in one piece.
pub(crate) fn md5_of(bytes: &[u8]) -> String {
    HEXLOWER.encode(&Md5::digest(bytes))
}

/// CRC-32 in the form of `x-amz-checksum-crc32`.
pub(crate) fn crc32_of(bytes: &[u8]) -> String {
    BASE64.encode(&crc_fast::crc32_iso_hdlc(bytes).to_be_bytes())
}

/// CRC-32C in the form of `x-amz-checksum-crc32c`.
pub(crate) fn crc32c_of(bytes: &[u8]) -> String {
    BASE64.encode(&crc_fast::crc32_iscsi(bytes).to_be_bytes())
}
