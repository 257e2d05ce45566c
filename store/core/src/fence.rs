//! The state of a resource.

use std::borrow::Cow;
use std::num::NonZeroU64;

use crate::judge::{Presented, Step};
use crate::{Holder, Issuer, Timestamp, Token};

/// What is known of a resource: its generation, the highest number seen in it, and who presented that.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FenceState {
    /// The numbering that counts now.
    pub generation: u32,
    /// The highest number seen in this generation.
    pub high: Option<NonZeroU64>,
    /// Has a write been applied under `high`?
    pub spent: bool,
    /// Who presented `high`.
    pub holder: Option<Holder>,
    /// Which lock service numbers this resource's tokens.
    pub issuer: Option<Issuer>,
    /// When `high` was first seen; for people, never for admission.
    pub raised_at: Option<Timestamp>,
}

/// A stored state seen under the store's base generation.
pub type Effective<'a> = Cow<'a, FenceState>;

impl FenceState {
    /// A resource never seen before.
    pub fn unseen(base_generation: u32) -> FenceState {
        FenceState { generation: base_generation, ..FenceState::default() }
    }

    /// The fence as a token.
    pub fn token(&self) -> Option<Token> {
        self.high.map(|high| Token::from_parts(self.generation, high))
    }

    /// The state as it counts under a base generation: a base above the resource's own generation retires it.
    pub fn under(stored: Option<&FenceState>, base_generation: u32) -> Effective<'_> {
        match stored {
            Some(state) if state.generation >= base_generation => Cow::Borrowed(state),
            _ => Cow::Owned(FenceState::unseen(base_generation)),
        }
    }

    /// The state after an admitted request, before anything was written. `None`: nothing changed.
    pub fn after(&self, step: Step, presented: &Presented, now: Timestamp) -> Option<FenceState> {
        match step {
            Step::Keep => None,
            Step::Fill => Some(FenceState {
                holder: self.holder.clone().or_else(|| presented.holder.clone()),
                issuer: self.issuer.clone().or_else(|| presented.issuer.clone()),
                ..self.clone()
            }),
            Step::Raise => Some(FenceState {
                generation: self.generation,
                high: Some(presented.token.number()),
                spent: false,
                holder: presented.holder.clone(),
                issuer: self.issuer.clone().or_else(|| presented.issuer.clone()),
                raised_at: Some(now),
            }),
        }
    }
}
