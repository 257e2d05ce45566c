//! What a resource says about itself.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::op::Verb;

/// May a token that was used write again?
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Policy {
    /// Yes: a token at the fence is admitted as often as its holder likes.
    #[default]
    Ge,
    /// No: each token writes once.
    Gt,
}

/// Who may use a token that is at the fence?
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Equal {
    /// Everybody.
    #[default]
    Any,
    /// The holder who raised the fence to it.
    Holder,
}

/// How fresh are reads?
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reads {
    /// A read sees every write that was answered before it began.
    #[default]
    Linearizable,
    /// A read may be behind.
    StaleOk,
}

/// How exact is the fence that is reported?
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum High {
    /// It is the fence.
    #[default]
    Exact,
    /// The fence is that, or higher.
    AtLeast,
}

/// What ends with a kill?
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kill {
    /// Only the process that was killed; a database behind it may go on with what it was given.
    #[default]
    Process,
    /// Everything: nothing that was in flight happens afterwards.
    Everything,
}

/// What a resource has, and what it promises.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Manifest {
    /// The verbs it has; `write` always counts.
    pub caps: BTreeSet<Verb>,
    /// May a used token write again?
    pub policy: Policy,
    /// Who may use the token at the fence?
    pub equal: Equal,
    /// How fresh are reads?
    pub reads: Reads,
    /// How exact is the reported fence?
    pub high: High,
    /// Does a failed `cas` raise the fence?
    pub mismatch_raises: bool,
    /// What ends with a kill?
    pub kill: Kill,
    /// The largest token it takes; larger ones are a definite error.
    #[serde(with = "crate::token::max_as_text")]
    pub token_max: u64,
    /// Are tokens text on their way, so that malformed ones can be sent?
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
    /// Has it this verb?
    pub fn has(&self, verb: Verb) -> bool {
        verb == Verb::Write || self.caps.contains(&verb)
    }
}
