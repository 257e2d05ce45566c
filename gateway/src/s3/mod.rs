//! The S3 face: unmodified S3 clients, fenced. Who signs with the credentials of a lease presents its token.
//!
//! [`caller`] says who asks and what may be asked, [`door`] is the port, [`access_key`] how a token travels in an
//! access key id.

pub mod access_key;
mod attributes;
mod body;
pub mod caller;
mod chunks;
mod conditions;
mod copy_calls;
pub mod credentials;
mod delete_calls;
pub(crate) mod denials;
pub mod door;
mod errors;
mod face;
mod hosts;
pub mod keyring;
mod list_calls;
mod listing;
pub mod mac_keys;
mod names;
mod object_calls;
pub mod options;
mod pace;
mod plaintext;
mod queries;
mod refuse;
mod request;
pub mod secret_file;
mod shares;
mod signed;
mod unset_calls;
mod upload_calls;
mod words;
