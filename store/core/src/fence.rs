//! The fence state of a resource.

use std::borrow::Cow;
use std::num::NonZeroU64;

use crate::judge::{Presented, Step};
use crate::{Holder, Issuer, Timestamp, Token};

/// The fence state of a resource: its generation, the highest number seen in it, and the holder that presented it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FenceState {
    /// The current generation; numbers are comparable only within one.
    pub generation: u32,
    /// The highest number seen in this generation.
    pub high: Option<NonZeroU64>,
    /// Whether a write was applied under `high`.
    pub spent: bool,
    /// The holder that presented `high`.
    pub holder: Option<Holder>,
    /// The lock service that numbers this resource's tokens.
    pub issuer: Option<Issuer>,
    /// When `high` was first seen; informational, never used for admission.
    pub raised_at: Option<Timestamp>,
}

/// A stored state adjusted to the store's base generation.
pub type Effective<'a> = Cow<'a, FenceState>;

impl FenceState {
    /// The state of a resource that was never seen.
    pub fn unseen(base_generation: u32) -> FenceState {
        FenceState { generation: base_generation, ..FenceState::default() }
    }

    /// The fence as a token; `None` if no number was seen in this generation.
    pub fn token(&self) -> Option<Token> {
        self.high.map(|high| Token::from_parts(self.generation, high))
    }

    /// The state as it counts under a base generation: a higher base retires the resource's own generation.
    pub fn under(stored: Option<&FenceState>, base_generation: u32) -> Effective<'_> {
        match stored {
            Some(state) if state.generation >= base_generation => Cow::Borrowed(state),
            _ => Cow::Owned(FenceState::unseen(base_generation)),
        }
    }

    /// The state after an admitted request, before its write is applied. `None`: nothing changed.
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
