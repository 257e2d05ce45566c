//! The keys that sign lease credentials. The first one signs and all of them verify, which allows rotation.

use std::fmt;
use std::path::{Path, PathBuf};

use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
use fencepost_core::{Resource, Token};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use zeroize::Zeroizing;

use super::access_key::{self, LeaseKey, MAC_BYTES, ResourceId, first_half};
use super::secret_file::{self, SecretFileError};

/// The shortest MAC key, in bytes.
pub const MIN_KEY_BYTES: usize = 32;

/// The id of the key that a gateway creates for itself.
pub const OWN_KEY_ID: u8 = 0;

/// The file of that key in the data directory.
pub const OWN_KEY_FILE: &str = "s3-mac.key";

/// Each key is used for two purposes; the labels separate them.
const ID_LABEL: &[u8] = b"fencepost s3 access key id 1\0";
const SECRET_LABEL: &[u8] = b"fencepost s3 secret access key 1\0";

/// Why MAC keys cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum MacKeyError {
    /// Not hexadecimal.
    #[error("MAC key {0} is not hexadecimal; make one with `openssl rand -hex {MIN_KEY_BYTES}`")]
    NotHex(u8),
    /// Too short to be secret.
    #[error(
        "MAC key {0} has {1} bytes, the least is {MIN_KEY_BYTES}; make one with `openssl rand -hex {MIN_KEY_BYTES}`"
    )]
    TooShort(u8, usize),
    /// Two keys, one id.
    #[error("two MAC keys have the id {0}; give each its own, from 0 to 255")]
    SameId(u8),
    /// The list of keys is empty.
    #[error("there is no MAC key; leave `mac_keys` out and the gateway makes one")]
    None,
    /// The key's file cannot be used.
    #[error(transparent)]
    File(#[from] SecretFileError),
    /// The system has no random bytes.
    #[error("cannot make a MAC key: the system gives no random bytes: {0}")]
    Random(getrandom::Error),
}

/// A key with its id.
#[derive(Clone)]
pub struct MacKey {
    id: u8,
    keyed: Hmac<Sha256>,
}

impl MacKey {
    /// Parses a key: at least 64 hexadecimal digits, with optional white space around them.
    pub fn from_hex(id: u8, text: &str) -> Result<MacKey, MacKeyError> {
        let bytes = HEXLOWER_PERMISSIVE.decode(text.trim_ascii().as_bytes()).map_err(|_| MacKeyError::NotHex(id))?;
        let bytes = Zeroizing::new(bytes);
        let short = || MacKeyError::TooShort(id, bytes.len());
        if bytes.len() < MIN_KEY_BYTES {
            return Err(short());
        }
        // HMAC accepts keys of any length, so this does not fail.
        let keyed = Hmac::new_from_slice(&bytes).map_err(|_| short())?;
        Ok(MacKey { id, keyed })
    }

    /// Reads a key from a file that only its owner can read.
    pub fn from_file(id: u8, path: &Path) -> Result<MacKey, MacKeyError> {
        MacKey::from_hex(id, &secret_file::read(path)?)
    }

    fn over(&self, label: &[u8], bytes: &[u8]) -> Hmac<Sha256> {
        self.keyed.clone().chain_update(label).chain_update(bytes)
    }

    fn secret(&self, access_key_id: &str) -> String {
        HEXLOWER.encode(&self.over(SECRET_LABEL, access_key_id.as_bytes()).finalize().into_bytes())
    }
}

/// Compares both key and id.
impl PartialEq for MacKey {
    fn eq(&self, other: &MacKey) -> bool {
        let sample = |key: &MacKey| key.over(b"fencepost s3 comparison\0", &[]).finalize();
        self.id == other.id && sample(self) == sample(other)
    }
}

impl fmt::Debug for MacKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MacKey").field("id", &self.id).finish_non_exhaustive()
    }
}

/// The keys that sign and verify.
#[derive(Clone, Debug, PartialEq)]
pub struct MacKeys {
    signing: MacKey,
    others: Vec<MacKey>,
}

/// Issued credentials.
#[derive(Clone, PartialEq, Eq)]
pub struct Issued {
    /// Identifies the lease; not secret.
    pub access_key_id: String,
    /// The secret for signing requests.
    pub secret_access_key: String,
}

impl fmt::Debug for Issued {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Issued").field("access_key_id", &self.access_key_id).finish_non_exhaustive()
    }
}

/// An access key id whose MAC was verified.
#[derive(Clone, PartialEq, Eq)]
pub struct Verified {
    /// The contents of the access key id.
    pub lease: LeaseKey,
    /// The matching secret.
    pub secret: String,
}

impl fmt::Debug for Verified {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verified").field("lease", &self.lease).finish_non_exhaustive()
    }
}

/// An access key id that was not signed by a known key: S3's `InvalidAccessKeyId`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnknownKey {
    /// It does not have the form of a lease key.
    #[error("the access key id is not known here; get one with `fencepost s3 credentials`")]
    NotALeaseKey,
    /// Its MAC key is not known, or no longer.
    #[error(
        "the access key id was signed with MAC key {0}, which this gateway does not have (any more); ask for new \
         credentials for the same token"
    )]
    NoSuchMacKey(u8),
    /// Its MAC does not match.
    #[error("the access key id was changed, or another gateway issued it; ask this one for credentials")]
    WrongMac,
}

impl MacKeys {
    /// Creates the set of keys; the first one signs.
    pub fn new(keys: Vec<MacKey>) -> Result<MacKeys, MacKeyError> {
        for (at, key) in keys.iter().enumerate() {
            if keys[..at].iter().any(|earlier| earlier.id == key.id) {
                return Err(MacKeyError::SameId(key.id));
            }
        }
        let mut keys = keys.into_iter();
        let signing = keys.next().ok_or(MacKeyError::None)?;
        Ok(MacKeys { signing, others: keys.collect() })
    }

    /// Loads the gateway's own key, creating it in the data directory if it is missing.
    pub fn own(data: &Path) -> Result<MacKeys, MacKeyError> {
        let path: PathBuf = data.join(OWN_KEY_FILE);
        if !path.try_exists().map_err(|error| SecretFileError::Read(path.clone(), error))? {
            let mut key = Zeroizing::new([0; MIN_KEY_BYTES]);
            getrandom::fill(key.as_mut_slice()).map_err(MacKeyError::Random)?;
            secret_file::make(&path, &Zeroizing::new(HEXLOWER.encode(key.as_slice())))?;
        }
        MacKeys::new(vec![MacKey::from_file(OWN_KEY_ID, &path)?])
    }

    /// Issues credentials for one lease. The same lease and expiry give the same credentials.
    pub fn issue(&self, resource: &Resource, token: Token, expires: u64) -> Issued {
        let key = &self.signing;
        let lease = LeaseKey { mac_key: key.id, resource: ResourceId::of(resource), token, expires };
        let signed = lease.signed();
        let mac: [u8; MAC_BYTES] = first_half(key.over(ID_LABEL, &signed).finalize().into_bytes().into());
        let access_key_id = access_key::text(&signed, &mac);
        Issued { secret_access_key: key.secret(&access_key_id), access_key_id }
    }

    /// Verifies an access key id and returns its contents. The MAC is compared in constant time.
    pub fn verify(&self, access_key_id: &str) -> Result<Verified, UnknownKey> {
        let read = access_key::read(access_key_id).ok_or(UnknownKey::NotALeaseKey)?;
        let id = read.lease.mac_key;
        let key = self.all().find(|key| key.id == id).ok_or(UnknownKey::NoSuchMacKey(id))?;
        key.over(ID_LABEL, &read.signed).verify_truncated_left(&read.mac).map_err(|_| UnknownKey::WrongMac)?;
        Ok(Verified { lease: read.lease, secret: key.secret(access_key_id) })
    }

    fn all(&self) -> impl Iterator<Item = &MacKey> {
        std::iter::once(&self.signing).chain(&self.others)
    }
}

/// Lists the ids of the keys, the signing key first.
impl fmt::Display for MacKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.all().map(|key| key.id.to_string()).collect::<Vec<_>>().join(", "))
    }
}

#[cfg(test)]
#[path = "mac_keys_tests.rs"]
mod tests;
