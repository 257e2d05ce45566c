//! What a guard asks of the tokens for its resources.

use std::num::NonZeroU64;

use serde::{Deserialize, Serialize};

/// May one token write more than once?
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Equal {
    /// A holder may write as often as it likes under its token.
    #[default]
    Accept,
    /// One applied write per token.
    Reject,
}

/// Must a newer holder claim before it writes?
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Claim {
    /// A first write raises the fence by itself.
    #[default]
    Optional,
    /// The fence is raised by a claim only.
    Required,
}

/// Is the verdict enforced?
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// What the judge refuses is refused.
    #[default]
    Enforce,
    /// What the judge refuses is applied to the data and recorded, and never moves a fence.
    Observe,
}

/// Must a token say which lock service numbered it?
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
    /// May one token write more than once?
    pub equal: Equal,
    /// Must a newer holder claim before it writes?
    pub claim: Claim,
    /// Is the verdict enforced?
    pub mode: Mode,
    /// Must a token name its issuer?
    pub issuer: IssuerRule,
    /// How far above the fence a new token may be; unlimited if absent.
    pub max_jump: Option<NonZeroU64>,
}
