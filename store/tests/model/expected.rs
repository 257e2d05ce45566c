//! Outcomes in terms of the model, and their comparison with the store's outcomes.

use std::num::NonZeroU64;

use crate::testbed::Outcome;
use bytes::Bytes;
use fencepost_core::{FenceState, Holder, Key, Presented, Reason, Refusal, Resource, Token};
use fencepost_store::engine::Version;
use fencepost_store::record::Value;
use fencepost_store::{Done, Impossible};

use super::command::{GrantId, WriteId};
use super::known::Known;
use crate::testbed::Ended;

/// A value in terms of the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stored {
    pub(crate) id: WriteId,
    pub(crate) token: Option<Token>,
    pub(crate) body: Bytes,
}

impl Stored {
    fn is(&self, version: Version, value: &Value, known: &Known) -> bool {
        known.version(self.id) == Some(version) && self.token == value.token && self.body == value.body
    }
}

/// The result of one operation.
#[derive(Clone, Debug)]
pub(crate) enum Left {
    Put(WriteId),
    Absent,
    Sum(WriteId, i64),
    Read(Stored),
}

#[derive(Clone, Debug)]
pub(crate) struct Refused {
    pub(crate) resource: Resource,
    pub(crate) reason: Reason,
    pub(crate) found: FenceState,
    pub(crate) presented: Option<Presented>,
}

#[derive(Clone, Debug)]
pub(crate) enum Expected {
    Applied { put: Option<WriteId>, fence: Option<Token>, observed: Option<Reason> },
    Transacted { results: Vec<(Key, Left)>, fence: Option<Token>, observed: Vec<(Resource, Reason)>, fresh: bool },
    Claimed { state: FenceState, values: Vec<(Key, Option<Stored>)>, observed: Option<Reason> },
    Refused(Vec<Refused>),
    ConditionFailed { at: usize, key: Key, current: Option<WriteId>, fence: Option<Token> },
    Impossible { at: usize, key: Key, why: Impossible },
    TooLarge { bytes: usize },
    Granted { id: GrantId, token: Token, holder: Holder, observed: Option<Reason> },
    Held { holder: Holder, token: Token },
    LeaseLost { holder: Option<Holder>, fence: Option<Token> },
    Released,
    ForceReleased { holder: Holder, token: Token, fence: Option<Token> },
    NotHeld,
    Exhausted { fence: Option<Token>, generation: u32 },
    Rotated { generation: u32 },
    OtherGeneration { found: u32 },
    Replayed(Box<Expected>),
    KeyReused,
    Abandoned,
}

/// Every [`Expected::kind`] that a thousand histories should reach.
pub(crate) const KINDS: [&str; 38] = [
    "abandoned",
    "applied",
    "applied, observed",
    "claimed",
    "collision",
    "condition failed",
    "exhausted",
    "force-released",
    "foreign-issuer",
    "granted",
    "granted, observed",
    "held",
    "implausible",
    "key reused",
    "lease lost",
    "missing-token",
    "not a number",
    "not held",
    "other generation",
    "out of bounds",
    "refused by several",
    "released",
    "replayed applied",
    "replayed condition failed",
    "replayed granted",
    "replayed impossible",
    "replayed lease lost",
    "replayed transacted",
    "retired-generation",
    "rotated",
    "spent",
    "stale",
    "too large",
    "transacted",
    "transacted, found by abandoning",
    "transacted, observed",
    "unclaimed",
    "unknown-generation",
];

/// The state without the time of the raise, which is informational and not compared.
pub(crate) fn timeless(state: &FenceState) -> FenceState {
    FenceState { raised_at: None, ..state.clone() }
}

/// The fence's generation and number.
fn place(state: &FenceState) -> (u32, Option<NonZeroU64>) {
    (state.generation, state.high)
}

impl Refused {
    fn is(&self, refusal: &Refusal) -> bool {
        let exact = refusal.reason == self.reason && timeless(&refusal.found) == self.found;
        // A refusal from the cache: based on an earlier state, but the token is below what was durable then and still
        // is.
        let below =
            |presented: &Presented| (presented.token.generation(), Some(presented.token.number())) < place(&self.found);
        let cached = matches!(refusal.reason, Reason::Stale | Reason::RetiredGeneration)
            && self.presented.as_ref().is_some_and(below)
            && place(&refusal.found) <= place(&self.found);
        self.resource == refusal.resource && (exact || cached)
    }
}

impl Left {
    fn is(&self, done: &Done, known: &Known) -> bool {
        match (self, done) {
            (Left::Put(id), Done::Put(version)) => known.version(*id) == Some(*version),
            (Left::Sum(id, sum), Done::Sum(version, found)) => known.version(*id) == Some(*version) && sum == found,
            (Left::Read(stored), Done::Read(version, value)) => stored.is(*version, value, known),
            (Left::Absent, Done::Absent) => true,
            _ => false,
        }
    }
}

impl Expected {
    pub(crate) fn matches(&self, ended: &Ended, known: &Known) -> Result<(), String> {
        match ended {
            Ok(outcome) if self.is(outcome, known) => Ok(()),
            _ => Err(format!("the model says {self:?}, the store {ended:?}")),
        }
    }

    /// The kind of outcome.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Expected::Applied { observed: None, .. } => "applied",
            Expected::Applied { .. } => "applied, observed",
            Expected::Transacted { fresh: false, .. } => "transacted, found by abandoning",
            Expected::Transacted { observed, .. } if observed.is_empty() => "transacted",
            Expected::Transacted { .. } => "transacted, observed",
            Expected::Claimed { .. } => "claimed",
            Expected::Refused(refused) if refused.len() == 1 => refused[0].reason.as_str(),
            Expected::Refused(_) => "refused by several",
            Expected::ConditionFailed { .. } => "condition failed",
            Expected::Impossible { why: Impossible::NotANumber, .. } => "not a number",
            Expected::Impossible { why: Impossible::OutOfBounds { .. }, .. } => "out of bounds",
            Expected::TooLarge { .. } => "too large",
            Expected::Granted { observed: None, .. } => "granted",
            Expected::Granted { .. } => "granted, observed",
            Expected::Held { .. } => "held",
            Expected::LeaseLost { .. } => "lease lost",
            Expected::Released => "released",
            Expected::ForceReleased { .. } => "force-released",
            Expected::NotHeld => "not held",
            Expected::Exhausted { .. } => "exhausted",
            Expected::Rotated { .. } => "rotated",
            Expected::OtherGeneration { .. } => "other generation",
            Expected::Replayed(outcome) => match **outcome {
                Expected::Applied { .. } => "replayed applied",
                Expected::Transacted { .. } => "replayed transacted",
                Expected::ConditionFailed { .. } => "replayed condition failed",
                Expected::Impossible { .. } => "replayed impossible",
                Expected::Granted { .. } => "replayed granted",
                Expected::LeaseLost { .. } => "replayed lease lost",
                _ => "replayed what is never recorded",
            },
            Expected::KeyReused => "key reused",
            Expected::Abandoned => "abandoned",
        }
    }

    /// Converts the outcome of a transaction to that of a plain put or delete.
    pub(crate) fn of_one(self) -> Expected {
        match self {
            Expected::Transacted { results, fence, observed, .. } => {
                let put = results.first().and_then(|(_, left)| match left {
                    Left::Put(id) => Some(*id),
                    _ => None,
                });
                Expected::Applied { put, fence, observed: observed.first().map(|(_, reason)| *reason) }
            }
            Expected::Replayed(outcome) => Expected::Replayed(Box::new(outcome.of_one())),
            other => other,
        }
    }

    fn is(&self, outcome: &Outcome, known: &Known) -> bool {
        match (self, outcome) {
            (Expected::Applied { put, fence, observed }, Outcome::Applied(found)) => {
                let version = put.and_then(|id| known.version(id));
                found.fence == *fence && found.observed == *observed && found.version == version
            }
            (Expected::Transacted { results, fence, observed, .. }, Outcome::Transacted(found)) => {
                found.fence == *fence
                    && found.observed == *observed
                    && found.results.len() == results.len()
                    && found
                        .results
                        .iter()
                        .zip(results)
                        .all(|((name, done), (key, left))| name == key && left.is(done, known))
            }
            (Expected::Claimed { state, values, observed }, Outcome::Claimed(found)) => {
                timeless(&found.state) == *state
                    && found.observed == *observed
                    && found.values.len() == values.len()
                    && found.values.iter().zip(values).all(|((name, slot), (key, stored))| {
                        let same = match (slot, stored) {
                            (Some((version, value)), Some(stored)) => stored.is(*version, value, known),
                            (None, None) => true,
                            _ => false,
                        };
                        name == key && same
                    })
            }
            (Expected::Refused(expected), Outcome::Refused(found)) => {
                expected.len() == found.len() && expected.iter().zip(found).all(|(one, refusal)| one.is(refusal))
            }
            (
                Expected::ConditionFailed { at, key, current, fence },
                Outcome::ConditionFailed { at: place, key: name, current: now, fence: found },
            ) => (at, key, fence) == (place, name, found) && *now == current.and_then(|id| known.version(id)),
            (Expected::Impossible { at, key, why }, Outcome::Impossible { at: place, key: name, why: found }) => {
                (at, key, why) == (place, name, found)
            }
            // The size of a value that was not loaded includes its token and content type.
            (Expected::TooLarge { bytes }, Outcome::TooLarge { bytes: found, .. }) => {
                (*bytes..bytes + 300).contains(found)
            }
            (Expected::Granted { id, token, holder, observed }, Outcome::Granted(found)) => {
                (*token, holder, *observed) == (found.token, &found.holder, found.observed)
                    && known.lease(*id) == found.lease
            }
            (Expected::Held { holder, token }, Outcome::Held(found)) => {
                found.by.as_ref().is_some_and(|by| by.holder == *holder && by.token == *token)
            }
            (Expected::LeaseLost { holder, fence }, Outcome::LeaseLost { holder: by, fence: found }) => {
                (holder, fence) == (by, found)
            }
            (
                Expected::ForceReleased { holder, token, fence },
                Outcome::ForceReleased { holder: by, token: given, fence: found },
            ) => (holder, token, fence) == (by, given, found),
            (Expected::Exhausted { fence, generation }, Outcome::Exhausted { fence: found, generation: of }) => {
                (fence, generation) == (found, of)
            }
            (Expected::Rotated { generation }, Outcome::Rotated { generation: found })
            | (Expected::OtherGeneration { found: generation }, Outcome::OtherGeneration { found }) => {
                generation == found
            }
            (Expected::Replayed(expected), Outcome::Replayed(found)) => expected.is(found, known),
            (Expected::Released, Outcome::Released)
            | (Expected::NotHeld, Outcome::NotHeld)
            | (Expected::KeyReused, Outcome::KeyReused)
            | (Expected::Abandoned, Outcome::Abandoned) => true,
            _ => false,
        }
    }
}
