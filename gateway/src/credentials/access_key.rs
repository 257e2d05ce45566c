//! Access key ids that carry a lease: which resource, which token, until when.
//!
//! `FP`, then base32 (RFC 4648, upper case, no padding) of these 54 bytes, numbers in big-endian order:
//!
//! | bytes | what |
//! | --- | --- |
//! | 1 | format, 1 |
//! | 1 | id of the MAC key that signed |
//! | 16 | the resource: the first half of the SHA-256 of its name |
//! | 4 | generation of the token |
//! | 8 | number of the token |
//! | 8 | expiry in seconds of the Unix clock |
//! | 16 | MAC: the first half of an HMAC-SHA-256 of a label and the bytes before |
//!
//! Each lease key has exactly one text form. The MAC itself is computed in [`mac_keys`](super::mac_keys).

use data_encoding::BASE32_NOPAD;
use fencepost_core::{Resource, Timestamp, Token};
use sha2::{Digest, Sha256};

/// The prefix of every access key id of a lease.
pub const PREFIX: &str = "FP";

/// The only format so far.
const FORMAT: u8 = 1;

/// The number of bytes that the MAC covers.
pub(super) const SIGNED_BYTES: usize = 38;
/// The length of the MAC in bytes.
pub(super) const MAC_BYTES: usize = 16;
const BYTES: usize = SIGNED_BYTES + MAC_BYTES;

/// A resource, identified by the hash of its name, because names are too long for an access key id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResourceId([u8; 16]);

impl ResourceId {
    /// Computes the id of a resource.
    pub fn of(resource: &Resource) -> ResourceId {
        ResourceId(first_half(Sha256::digest(resource.as_str().as_bytes()).into()))
    }
}

/// The contents of an access key id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseKey {
    /// The id of the MAC key that signed it.
    pub mac_key: u8,
    /// The resource that may be written with it.
    pub resource: ResourceId,
    /// The token presented with every write.
    pub token: Token,
    /// When it expires, in seconds of the Unix clock. A precaution only: the fence ignores it.
    pub expires: u64,
}

/// A decoded lease key whose MAC is not verified yet.
pub(super) struct Unverified {
    pub(super) lease: LeaseKey,
    pub(super) signed: [u8; SIGNED_BYTES],
    pub(super) mac: [u8; MAC_BYTES],
}

impl LeaseKey {
    /// Returns whether the key is for this resource.
    pub fn covers(&self, resource: &Resource) -> bool {
        self.resource == ResourceId::of(resource)
    }

    /// Returns whether the key has expired.
    pub fn expired(&self, now: Timestamp) -> bool {
        now.0 / 1000 >= self.expires
    }

    /// The bytes that the MAC covers.
    pub(super) fn signed(&self) -> [u8; SIGNED_BYTES] {
        let mut bytes = [0; SIGNED_BYTES];
        bytes[0] = FORMAT;
        bytes[1] = self.mac_key;
        bytes[2..18].copy_from_slice(&self.resource.0);
        bytes[18..22].copy_from_slice(&self.token.generation().to_be_bytes());
        bytes[22..30].copy_from_slice(&self.token.number().get().to_be_bytes());
        bytes[30..38].copy_from_slice(&self.expires.to_be_bytes());
        bytes
    }
}

/// Encodes signed bytes and their MAC as an access key id.
pub(super) fn text(signed: &[u8; SIGNED_BYTES], mac: &[u8; MAC_BYTES]) -> String {
    [PREFIX, &BASE32_NOPAD.encode(&[&signed[..], &mac[..]].concat())].concat()
}

/// Decodes an access key id without verifying its MAC. `None`: it is not a lease key.
pub(super) fn read(access_key_id: &str) -> Option<Unverified> {
    let encoded = access_key_id.strip_prefix(PREFIX)?;
    if encoded.len() != BASE32_NOPAD.encode_len(BYTES) {
        return None;
    }
    // The decoder rejects lower case, other alphabets and left-over bits.
    let bytes: [u8; BYTES] = BASE32_NOPAD.decode(encoded.as_bytes()).ok()?.try_into().ok()?;
    let (signed, mac): (&[u8; SIGNED_BYTES], &[u8; MAC_BYTES]) =
        (bytes.first_chunk::<SIGNED_BYTES>()?, bytes.last_chunk::<MAC_BYTES>()?);
    if signed[0] != FORMAT {
        return None;
    }
    let generation = u32::from_be_bytes(signed[18..22].try_into().ok()?);
    let number = u64::from_be_bytes(signed[22..30].try_into().ok()?);
    let lease = LeaseKey {
        mac_key: signed[1],
        resource: ResourceId(signed[2..18].try_into().ok()?),
        token: Token::new(generation, number)?,
        expires: u64::from_be_bytes(signed[30..38].try_into().ok()?),
    };
    Some(Unverified { lease, signed: *signed, mac: *mac })
}

/// The first 16 bytes of a hash.
pub(super) fn first_half(hash: [u8; 32]) -> [u8; 16] {
    let mut half = [0; 16];
    half.copy_from_slice(&hash[..16]);
    half
}

#[cfg(test)]
#[path = "access_key_tests.rs"]
mod tests;
