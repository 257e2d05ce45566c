//! Lease credentials: a token that has been claimed, in a form that every S3 client can send. The HTTP front end issues
//! them, and the S3 front end verifies them.
//!
//! [`access_key`] is how a token travels in an access key id, [`mac_keys`] what makes it unforgeable, [`keyring`] every key
//! of the moment.

pub mod access_key;
pub mod keyring;
pub mod mac_keys;
pub mod secret_file;

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use fencepost_core::wire::S3CredentialsAnswer;
use fencepost_core::{Resource, Timestamp, Token};

use keyring::Keyring;
use mac_keys::Issued;

/// Credentials cannot last that long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "ttl_s is {asked}; credentials last from 1 to {most} s here (s3.credentials_max_ttl). Leave it out for the most"
)]
pub struct TtlOutOfBounds {
    asked: u64,
    most: u64,
}

/// Issues credentials, and has the keys that the S3 front end checks them with.
#[derive(Debug)]
pub struct S3Credentials {
    keyring: RwLock<Arc<Keyring>>,
    endpoint: String,
    max_ttl: Duration,
}

impl S3Credentials {
    /// For clients who are told this endpoint, for this long at the most.
    pub fn new(keyring: Keyring, endpoint: String, max_ttl: Duration) -> S3Credentials {
        S3Credentials { keyring: RwLock::new(Arc::new(keyring)), endpoint, max_ttl }
    }

    /// The keys of the moment.
    pub fn keyring(&self) -> Arc<Keyring> {
        self.keyring.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Other keys from now on. Says what is different.
    pub fn replace(&self, keyring: Keyring) -> Vec<String> {
        let mut current = self.keyring.write().unwrap_or_else(PoisonError::into_inner);
        let changes = current.changes(&keyring);
        *current = Arc::new(keyring);
        changes
    }

    /// The URL that clients are told.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// How many seconds credentials last: as many as were asked for, or as many as may be.
    pub fn seconds(&self, asked: Option<u64>) -> Result<u64, TtlOutOfBounds> {
        let most = self.max_ttl.as_secs();
        match asked {
            None => Ok(most),
            Some(asked) if (1..=most).contains(&asked) => Ok(asked),
            Some(asked) => Err(TtlOutOfBounds { asked, most }),
        }
    }

    /// Credentials for a token that has been claimed. The clock has no say in whether a write is admitted.
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
