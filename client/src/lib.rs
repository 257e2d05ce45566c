//! Client of the Fencepost gateway.
//!
//! [`Gateway`] speaks `/v1`: every call ends in an answer, in a typed refusal, or in an outcome that is not known.
//! Locks and guards that attach tokens by themselves come with a later version.

mod admin;
mod call;
mod error;
mod gateway;
mod transport;

pub use admin::Admin;
pub use call::{Credentials, Precondition, ReadValue, WriteOptions, Written};
pub use error::CallError;
pub use gateway::{BadUrl, Gateway};
