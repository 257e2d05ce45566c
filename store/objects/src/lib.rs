//! Objects behind fences: the bytes are in a [`layout::Layout`], everything else is in the store. This crate knows no
//! protocol; the S3 front end is one of its users.
//!
//! | type | what |
//! | --- | --- |
//! | [`Objects`] | the service: every call about objects, uploads in parts and buckets |
//! | [`Objects::put`] | the life of a write, in one function: foresee → stage → commit → show → answer |
//! | [`Source`] | where the bytes of a write come from: [`Body`], [`ObjectCopy`], or the parts of a [`Completion`] |
//! | [`Object`], [`Part`], [`Upload`] | what the index says, without where the bytes lie |
//! | [`layout::Layout`] | the contract of a storage (L1–L6); [`directory::Directory`] is one |
//! | [`ObjectError`] | why something was not done; a refusal by the fence is one of its kinds |
//!
//! The engine below holds the truth (index, fences, intents); its records are not part of this interface.

mod abandoned_uploads;
mod buckets;
mod check;
mod checksum;
mod completion;
mod composition;
mod deletion;
mod digest;
pub mod directory;
mod error;
mod folders;
mod key_locks;
pub mod layout;
mod measurement;
mod name;
mod object;
mod open_object;
mod pieces;
mod put;
mod recovery;
mod refs;
mod selection;
mod service;
mod settlement;
mod source;
mod staged;
#[cfg(test)]
mod tests;
mod unshown;
mod upload_checksum;
mod uploads;

pub use abandoned_uploads::collect_abandoned_uploads;
pub use check::{Checked, Difference, Leftovers};
pub use checksum::{Algorithm, Checksums};
pub use completion::Completion;
pub use composition::Composition;
pub use deletion::Removal;
pub use digest::{Measure, Measured, Promised};
pub use error::ObjectError;
pub use fencepost_store::record::UploadId;
pub use fencepost_store::{Changed, Failure, ObjectCondition, Page, Rejected};
pub use name::{bucket_of, tellable, untellable};
pub use object::{Attributes, Listed, Object, Part, Upload};
pub use open_object::OpenObject;
pub use put::{Grant, Put, Written};
pub use selection::{GivenPart, MIN_PART_BYTES};
pub use service::Objects;
pub use source::{Body, ObjectCopy, Source, Trailer};
pub use staged::Staged;
pub use upload_checksum::{ChecksumKind, UploadChecksum};
pub use uploads::PutPart;
