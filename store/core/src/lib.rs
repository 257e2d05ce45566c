//! The vocabulary and the rule of Fencepost.
//!
//! A resource has a *fence*: the highest fencing [`Token`] ever admitted for it. [`judge`] decides, purely and
//! without a clock, whether a request that presents a token may pass. Everything else here names things: keys and
//! resources, guards that map one to the other, refusals with both sides of the story, and the words on the wire.
//!
//! This crate does no I/O and knows no async runtime.

mod fence;
mod guard;
mod guard_check;
mod json;
mod judge;
mod label;
mod name;
mod policy;
mod problem;
mod refusal;
mod timestamp;
mod token;
pub mod wire;

pub use fence::{Effective, FenceState};
pub use guard::{Guard, GuardError, GuardSpec, Guarded, Guards, Mapping, SameMapping, describe_mapping};
pub use judge::{Access, Presented, Step, Verdict, decide, judge};
pub use label::{Holder, IdempotencyKey, Issuer, LabelError, is_hidden};
pub use name::{Key, MAX_NAME_BYTES, NameError, Resource, percent_decode_name, percent_encode_name};
pub use policy::{Claim, Equal, IssuerRule, Mode, Policy};
pub use problem::{ProblemDocument, ProblemKind, RefusedResource};
pub use refusal::{Reason, Refusal};
pub use timestamp::Timestamp;
pub use token::{Token, TokenError};
