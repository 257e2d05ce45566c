//! What a guard requires of the tokens for its resources.

use std::fmt;
use std::num::NonZeroU64;

use serde::{Deserialize, Serialize};

/// Whether one token may write more than once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Equal {
    /// A holder may write any number of times under its token.
    #[default]
    Accept,
    /// One applied write per token.
    Reject,
}

/// Whether a newer holder must claim before it writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Claim {
    /// A first write raises the fence by itself.
    #[default]
    Optional,
    /// Only a claim raises the fence.
    Required,
}

/// Whether refusals are enforced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// A refusal by the judge takes effect.
    #[default]
    Enforce,
    /// Requests that would be refused are applied to the data and recorded, and never move a fence.
    Observe,
}

/// Whether a token must name the lock service that numbered it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum IssuerRule {
    /// A token without an issuer is admitted.
    #[default]
    Optional,
    /// A token without an issuer is refused.
    Required,
}

/// The rules of one guard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// Whether one token may write more than once.
    pub equal: Equal,
    /// Whether a newer holder must claim before it writes.
    pub claim: Claim,
    /// Whether refusals are enforced.
    pub mode: Mode,
    /// Whether a token must name its issuer.
    pub issuer: IssuerRule,
    /// How far above the fence a new token may be; unlimited if absent.
    pub max_jump: Option<NonZeroU64>,
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mode = match self.mode {
            Mode::Enforce => "enforce",
            Mode::Observe => "observe",
        };
        let equal = match self.equal {
            Equal::Accept => "equal accept",
            Equal::Reject => "equal reject",
        };
        let claim = match self.claim {
            Claim::Optional => "claim optional",
            Claim::Required => "claim required",
        };
        let issuer = match self.issuer {
            IssuerRule::Optional => "issuer optional",
            IssuerRule::Required => "issuer required",
        };
        write!(f, "{mode}, {equal}, {claim}, {issuer}")?;
        match self.max_jump {
            Some(jump) => write!(f, ", max_jump {jump}"),
            None => Ok(()),
        }
    }
}
