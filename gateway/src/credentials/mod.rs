//! Lease credentials: a claimed token in a form that every S3 client can send. The HTTP front end issues them, and
//! the S3 front end verifies them.
//!
//! [`access_key`] defines how an access key id carries a token, [`mac_keys`] makes it unforgeable, and [`keyring`]
//! holds all current keys.

pub mod access_key;
pub mod keyring;
pub mod mac_keys;
pub mod secret_file;

use std::sync::Arc;
use std::time::Duration;

use fencepost_core::wire::S3CredentialsAnswer;
use fencepost_core::{Resource, Timestamp, Token};
use parking_lot::RwLock;

use keyring::Keyring;
use mac_keys::Issued;

/// The requested lifetime is out of bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "ttl_s is {asked}; credentials last from 1 to {most} s here (s3.credentials_max_ttl). Leave it out for the most"
)]
pub struct TtlOutOfBounds {
    asked: u64,
    most: u64,
}

/// Issues credentials, and holds the keys that the S3 front end verifies them with.
#[derive(Debug)]
pub struct S3Credentials {
    keyring: RwLock<Arc<Keyring>>,
    endpoint: String,
    max_ttl: Duration,
}

impl S3Credentials {
    /// Creates an issuer. `endpoint` is reported to clients, and `max_ttl` limits the lifetime.
    pub fn new(keyring: Keyring, endpoint: String, max_ttl: Duration) -> S3Credentials {
        S3Credentials { keyring: RwLock::new(Arc::new(keyring)), endpoint, max_ttl }
    }

    /// The current keys.
    pub fn keyring(&self) -> Arc<Keyring> {
        self.keyring.read().clone()
    }

    /// Replaces the keys, and returns a description of the differences.
    pub fn replace(&self, keyring: Keyring) -> Vec<String> {
        let mut current = self.keyring.write();
        let changes = current.changes(&keyring);
        *current = Arc::new(keyring);
        changes
    }

    /// The URL reported to clients.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// The lifetime in seconds: the requested one, or the maximum by default.
    pub fn seconds(&self, asked: Option<u64>) -> Result<u64, TtlOutOfBounds> {
        let most = self.max_ttl.as_secs();
        match asked {
            None => Ok(most),
            Some(asked) if (1..=most).contains(&asked) => Ok(asked),
            Some(asked) => Err(TtlOutOfBounds { asked, most }),
        }
    }

    /// Issues credentials for a claimed token. The expiry does not affect whether the fence admits a write.
    pub fn issue(&self, resource: Resource, token: Token, seconds: u64, now: Timestamp) -> S3CredentialsAnswer {
        let expires = (now.0 / 1000).saturating_add(seconds);
        let Issued { access_key_id, secret_access_key } = self.keyring().mac().issue(&resource, token, expires);
        S3CredentialsAnswer {
            access_key_id,
            secret_access_key,
            expiration: Timestamp(expires.saturating_mul(1000)).to_string(),
            endpoint: self.endpoint.clone(),
            resource,
            token,
        }
    }
}
