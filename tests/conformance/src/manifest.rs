//! What a resource declares about itself.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::op::Verb;

/// Whether a used token may write again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Policy {
    /// Yes: a token at the fence is admitted any number of times.
    #[default]
    Ge,
    /// No: each token writes once.
    Gt,
}

/// Who may use a token that is at the fence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Equal {
    /// Every holder.
    #[default]
    Any,
    /// Only the holder that raised the fence to it.
    Holder,
}

/// How fresh reads are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reads {
    /// A read sees every write that was answered before it began.
    #[default]
    Linearizable,
    /// A read may be stale.
    StaleOk,
}

/// How exact a reported fence is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum High {
    /// It equals the fence.
    #[default]
    Exact,
    /// The fence is at least the reported one.
    AtLeast,
}

/// What a kill ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kill {
    /// Only the killed process; a database behind it may still apply requests it was given.
    #[default]
    Process,
    /// Everything: nothing that was in flight takes effect afterwards.
    Everything,
}

/// The features and promises of a resource.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Manifest {
    /// The verbs it has; `write` is always included.
    pub caps: BTreeSet<Verb>,
    /// Whether a used token may write again.
    pub policy: Policy,
    /// Who may use the token at the fence.
    pub equal: Equal,
    /// How fresh reads are.
    pub reads: Reads,
    /// How exact the reported fence is.
    pub high: High,
    /// Whether a failed `cas` raises the fence.
    pub mismatch_raises: bool,
    /// What a kill ends.
    pub kill: Kill,
    /// The largest token it accepts; larger ones are a definite error.
    #[serde(with = "crate::token::max_as_text")]
    pub token_max: u64,
    /// Whether tokens are sent as text, so that malformed ones can be sent.
    pub text_tokens: bool,
}

impl Default for Manifest {
    fn default() -> Manifest {
        Manifest {
            caps: BTreeSet::from([Verb::Write]),
            policy: Policy::default(),
            equal: Equal::default(),
            reads: Reads::default(),
            high: High::default(),
            mismatch_raises: false,
            kill: Kill::default(),
            token_max: u64::MAX,
            text_tokens: true,
        }
    }
}

impl Manifest {
    /// Whether it has this verb.
    pub fn has(&self, verb: Verb) -> bool {
        verb == Verb::Write || self.caps.contains(&verb)
    }
}
