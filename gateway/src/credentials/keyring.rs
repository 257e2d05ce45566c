//! All keys that an S3 client may sign with: those of leases, and long-term keys for readers.

use std::fmt;

use serde::Deserialize;
use zeroize::Zeroize;

use super::mac_keys::{MacKeys, UnknownKey, Verified};

/// The longest id of a long-term key. Ids of lease keys are longer, so no id is ever both.
const MAX_ID_BYTES: usize = 64;
const SECRET_BYTES: std::ops::RangeInclusive<usize> = 16..=128;

/// A text that is never printed, and is wiped from memory when it is dropped.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// Wraps a text.
    pub fn new(text: String) -> Secret {
        Secret(text)
    }

    /// Returns the text. Only for code that needs the secret itself.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// Why a long-term key cannot be used. The messages do not contain secrets.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LongTermKeyError {
    /// The id has characters or a length that cannot be sent in headers. An id that is long enough for a secret is
    /// not printed, because it may be a secret in the wrong field.
    #[error("access key id {0}: write 3 to {MAX_ID_BYTES} letters, digits, `-`, `_` or `.`")]
    Id(String),
    /// The secret is too short, too long, or not printable ASCII.
    #[error("the secret of access key `{0}` must have 16 to 128 printable ASCII characters, and spaces only inside")]
    Secret(String),
    /// Two keys have the same id.
    #[error("two keys have the access key id `{0}`")]
    SameId(String),
}

/// A key that carries no lease: for readers, and for writers where a guard only observes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LongTermKey {
    access_key_id: String,
    secret: Secret,
}

impl LongTermKey {
    /// Creates a key after checking its id and secret.
    pub fn new(access_key_id: String, secret: Secret) -> Result<LongTermKey, LongTermKeyError> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if !(3..=MAX_ID_BYTES).contains(&access_key_id.len()) || !access_key_id.bytes().all(plain) {
            let may_be_a_secret = access_key_id.len() >= *SECRET_BYTES.start();
            return Err(LongTermKeyError::Id(match may_be_a_secret {
                true => format!("of {} bytes", access_key_id.len()),
                false => format!("`{}`", access_key_id.escape_debug()),
            }));
        }
        let printable = |byte: u8| byte.is_ascii_graphic() || byte == b' ';
        let trimmed = secret.0.trim_ascii() == secret.0;
        if !SECRET_BYTES.contains(&secret.0.len()) || !trimmed || !secret.0.bytes().all(printable) {
            return Err(LongTermKeyError::Secret(access_key_id));
        }
        Ok(LongTermKey { access_key_id, secret })
    }

    /// Returns an error if two keys have the same id.
    pub fn all_different(keys: &[LongTermKey]) -> Result<(), LongTermKeyError> {
        for (at, LongTermKey { access_key_id, .. }) in keys.iter().enumerate() {
            if keys[..at].iter().any(|earlier| earlier.access_key_id == *access_key_id) {
                return Err(LongTermKeyError::SameId(access_key_id.clone()));
            }
        }
        Ok(())
    }

    /// Lists the ids of some keys, for messages.
    pub fn list(keys: &[LongTermKey]) -> String {
        match keys {
            [] => "none".to_owned(),
            keys => keys.iter().map(|key| key.access_key_id.as_str()).collect::<Vec<_>>().join(", "),
        }
    }
}

/// The owner of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Signer {
    /// A lease, whose token is presented with every write.
    Lease(Verified),
    /// A long-term key with this secret, which has no token.
    LongTerm(Secret),
}

/// All current keys.
#[derive(Clone, Debug)]
pub struct Keyring {
    mac: MacKeys,
    long_term: Vec<LongTermKey>,
}

impl Keyring {
    /// Combines the keys that sign leases with the long-term keys.
    pub fn new(mac: MacKeys, long_term: Vec<LongTermKey>) -> Keyring {
        Keyring { mac, long_term }
    }

    /// Finds the owner of an access key id, with the secret that its requests are signed with.
    pub fn signer(&self, access_key_id: &str) -> Result<Signer, UnknownKey> {
        match self.long_term.iter().find(|key| key.access_key_id == access_key_id) {
            Some(key) => Ok(Signer::LongTerm(key.secret.clone())),
            None => self.mac.verify(access_key_id).map(Signer::Lease),
        }
    }

    /// The keys that sign lease credentials.
    pub fn mac(&self) -> &MacKeys {
        &self.mac
    }

    /// Describes the differences to a newer keyring, without secrets.
    pub fn changes(&self, after: &Keyring) -> Vec<String> {
        let mut changes = Vec::new();
        if self.mac != after.mac {
            changes.push(changed("s3.mac_keys", self.mac.to_string(), after.mac.to_string()));
        }
        if self.long_term != after.long_term {
            let (before, after) = (LongTermKey::list(&self.long_term), LongTermKey::list(&after.long_term));
            changes.push(changed("s3.key", before, after));
        }
        changes
    }
}

fn changed(what: &str, before: String, after: String) -> String {
    match before == after {
        true => format!("{what}: {before}, with another secret"),
        false => format!("{what}: {before} -> {after}"),
    }
}

#[cfg(test)]
mod tests {
    use fencepost_core::Resource;

    use super::super::mac_keys::MacKey;
    use super::*;

    fn key(id: &str, secret: &str) -> Result<LongTermKey, LongTermKeyError> {
        LongTermKey::new(id.to_owned(), Secret::new(secret.to_owned()))
    }

    fn mac(id: u8, digits: &str) -> MacKeys {
        MacKeys::new(vec![MacKey::from_hex(id, &digits.repeat(32)).unwrap()]).unwrap()
    }

    #[test]
    fn ids_and_secrets_are_what_clients_can_send() {
        assert!(key("reader", "0123456789abcdef").is_ok());
        assert!(key("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY").is_ok());
        for bad in ["", "ab", "a/b/c", "with space", "ümlaut", &"x".repeat(65)] {
            assert!(matches!(key(bad, "0123456789abcdef"), Err(LongTermKeyError::Id(_))), "{bad}");
        }
        let swapped = key("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "AKIAIOSFODNN7EXAMPLE").unwrap_err().to_string();
        assert!(swapped.contains("of 40 bytes") && !swapped.contains("wJalr"), "{swapped}");
        for bad in
            ["", "0123456789abcde", "0123456789abcde\n", " 0123456789abcdef", "0123456789\tabcdef", &"x".repeat(129)]
        {
            let error = key("reader", bad).unwrap_err();
            assert_eq!(error, LongTermKeyError::Secret("reader".into()));
        }
        let twice = [key("reader", "0123456789abcdef").unwrap(), key("reader", "fedcba9876543210").unwrap()];
        assert_eq!(LongTermKey::all_different(&twice), Err(LongTermKeyError::SameId("reader".into())));
    }

    #[test]
    fn a_key_is_a_leases_or_a_long_term_one_or_unknown() {
        let ring = Keyring::new(mac(1, "0a"), vec![key("reader", "0123456789abcdef").unwrap()]);
        let issued = ring.mac().issue(&Resource::new("a").unwrap(), "34".parse().unwrap(), 5);
        assert!(
            matches!(ring.signer(&issued.access_key_id), Ok(Signer::Lease(lease)) if lease.secret == issued.secret_access_key)
        );
        assert_eq!(ring.signer("reader"), Ok(Signer::LongTerm(Secret::new("0123456789abcdef".into()))));
        assert_eq!(ring.signer("Reader"), Err(UnknownKey::NotALeaseKey));
        assert!(!format!("{ring:?}").contains("0123456789abcdef"));
    }

    #[test]
    fn changes_are_told_without_secrets() {
        let old = Keyring::new(mac(1, "0a"), vec![]);
        assert!(old.changes(&old).is_empty());
        let both = MacKeys::new(vec![
            MacKey::from_hex(2, &"0b".repeat(32)).unwrap(),
            MacKey::from_hex(1, &"0a".repeat(32)).unwrap(),
        ]);
        let new = Keyring::new(both.unwrap(), vec![key("reader", "0123456789abcdef").unwrap()]);
        assert_eq!(old.changes(&new), ["s3.mac_keys: 1 -> 2, 1", "s3.key: none -> reader"]);
        let other = Keyring::new(mac(1, "0c"), vec![]);
        assert_eq!(old.changes(&other), ["s3.mac_keys: 1, with another secret"]);
    }
}
