//! The S3 face: lease credentials, and the keys that make and check them.

pub mod access_key;
pub mod credentials;
pub mod keyring;
pub mod mac_keys;
pub mod secret_file;
