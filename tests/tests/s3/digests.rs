//! Digests of bodies, in the form in which S3 writes them.

use data_encoding::{BASE64, HEXLOWER};
use md5::{Digest, Md5};

/// The ETag of an object that was uploaded in one piece.
pub(crate) fn md5_of(bytes: &[u8]) -> String {
    HEXLOWER.encode(&Md5::digest(bytes))
}

/// CRC-32 in the form of `x-amz-checksum-crc32`.
pub(crate) fn crc32_of(bytes: &[u8]) -> String {
    crc_of(0xedb8_8320, bytes)
}

/// CRC-32C in the form of `x-amz-checksum-crc32c`.
pub(crate) fn crc32c_of(bytes: &[u8]) -> String {
    crc_of(0x82f6_3b78, bytes)
}

fn crc_of(polynomial: u32, bytes: &[u8]) -> String {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ polynomial } else { crc >> 1 };
        }
    }
    BASE64.encode(&(!crc).to_be_bytes())
}
