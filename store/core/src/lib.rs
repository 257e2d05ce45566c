//! The vocabulary and the admission rule of Fencepost: tokens, resources, fences, and the judge that compares them.
//!
//! A resource has a *fence*: the highest fencing [`Token`] ever admitted for it. [`judge`] decides whether a request
//! that presents a token may pass; it is a pure function and uses no clock. The other types are keys and resources,
//! guards that map one to the other, refusals with both sides, and the messages on the wire. This crate does no I/O and
//! has no async code.
//!
//! ```
//! use fencepost_core::{Access, FenceState, Policy, Presented, Reason, Step, Timestamp, Verdict, judge};
//!
//! let present = |token: &str| Presented { token: token.parse().unwrap(), holder: None, issuer: None };
//! let (fence, policy) = (FenceState::unseen(0), Policy::default());
//!
//! // The first token is admitted, and raises the fence to 34.
//! assert_eq!(judge(&fence, &present("34"), Access::Write, &policy), Verdict::Admit(Step::Raise));
//! let fence = fence.after(Step::Raise, &present("34"), Timestamp::now()).unwrap();
//!
//! // The holder before it wakes up too late.
//! assert_eq!(judge(&fence, &present("33"), Access::Write, &policy), Verdict::Refuse(Reason::Stale));
//! ```
//!
//! # Types
//!
//! | type | for |
//! | --- | --- |
//! | [`Token`], [`Holder`], [`Issuer`], [`Presented`] | what a request presents: a number with its generation, who presents it, who numbered it |
//! | [`Key`], [`Resource`] | a piece of data, and what a lock protects |
//! | [`Guards`], [`Guard`], [`GuardSpec`] | which keys belong to which resource, and under which policy |
//! | [`EngineName`] | which engine keeps the resources of a guard |
//! | [`Policy`], [`Mode`], [`Equal`], [`Claim`], [`IssuerRule`] | what a guard demands |
//! | [`FenceState`] | what is known of a resource |
//! | [`judge`], [`decide`], [`Verdict`], [`Step`], [`Access`] | the rule |
//! | [`Refusal`], [`Reason`] | a refusal, with both sides and the next step |
//! | [`ProblemKind`], [`ProblemDocument`] | every error answer of the gateway (RFC 9457) |
//! | [`IdempotencyKey`], [`Timestamp`] | names of requests, and times for people |
//! | [`wire`] | bodies and header names of the HTTP interface |
//!
//! # Read on
//!
//! `docs/design.md` has the guarantees G1–G8 and the rule as a table; `docs/errors.md` the problems.

mod checked_text;
mod engine_name;
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

pub use engine_name::{EngineName, EngineNameError, UNNAMED_ENGINE};
pub use fence::{Effective, FenceState};
pub use guard::{
    Guard, GuardError, GuardSpec, Guarded, Guards, Mapping, SameMapping, describe_mapping, engines_of_mapping,
};
pub use judge::{Access, Presented, Step, Verdict, decide, judge};
pub use label::{Holder, IdempotencyKey, Issuer, LabelError, is_hidden};
pub use name::{Key, MAX_NAME_BYTES, NameError, Resource, percent_decode_name, percent_encode_name};
pub use policy::{Claim, Equal, IssuerRule, Mode, Policy};
pub use problem::{ProblemDocument, ProblemKind, RefusedResource};
pub use refusal::{Reason, Refusal};
pub use timestamp::Timestamp;
pub use token::{Token, TokenError};
