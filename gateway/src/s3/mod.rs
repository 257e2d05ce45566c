//! The S3 front end: fencing for unmodified S3 clients. A request signed with the credentials of a lease presents the
//! lease's token ([`crate::credentials`]).
//!
//! `front_end` is what the accept loop serves, `request` follows a request to the S3 library and back, `permit`
//! decides which requests are admitted, and `calls` lists the offered calls.

mod attributes;
mod body;
mod caller;
mod calls;
mod chunks;
mod conditions;
mod copy_calls;
mod delete_calls;
mod denials;
mod errors;
mod front_end;
mod hosts;
mod list_calls;
mod listing;
mod names;
mod object_calls;
pub mod options;
mod pace;
mod permit;
mod plaintext;
mod queries;
mod refuse;
mod request;
mod shares;
mod signed;
mod unset_calls;
mod upload_calls;
mod words;

pub(crate) use front_end::MAX_STREAMS;
pub use front_end::S3Listener;
