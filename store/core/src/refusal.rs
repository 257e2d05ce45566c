//! Refusals: what was presented, what was found, and the next step.

use std::fmt::Write as _;

use crate::{FenceState, Presented, ProblemKind, Resource, Timestamp, Token};

/// Why the judge refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    /// No token was presented.
    MissingToken,
    /// The guard requires an issuer, and none was presented.
    MissingIssuer,
    /// The token belongs to a generation that an administrator ended.
    RetiredGeneration,
    /// The token belongs to a generation that does not exist yet.
    UnknownGeneration,
    /// The resource's tokens are numbered by another lock service.
    ForeignIssuer,
    /// A newer token has been seen.
    Stale,
    /// The same token was presented by another holder: it was issued twice.
    Collision,
    /// The guard allows one write per token, and it has been applied.
    Spent,
    /// The guard requires a claim before the first write under a token.
    Unclaimed,
    /// The token is further above the fence than the guard allows.
    Implausible,
}

impl Reason {
    /// Returns whether a token that was refused for it once is refused for ever: fences only rise.
    pub fn is_final(self) -> bool {
        matches!(self, Reason::Stale | Reason::RetiredGeneration)
    }

    /// Every reason, for tables and metrics.
    pub const ALL: [Reason; 10] = [
        Reason::MissingToken,
        Reason::MissingIssuer,
        Reason::RetiredGeneration,
        Reason::UnknownGeneration,
        Reason::ForeignIssuer,
        Reason::Stale,
        Reason::Collision,
        Reason::Spent,
        Reason::Unclaimed,
        Reason::Implausible,
    ];

    /// The kind of problem for this reason.
    pub fn problem(self) -> ProblemKind {
        match self {
            Reason::MissingToken => ProblemKind::MissingToken,
            Reason::MissingIssuer => ProblemKind::MissingIssuer,
            Reason::RetiredGeneration => ProblemKind::RetiredGeneration,
            Reason::UnknownGeneration => ProblemKind::UnknownGeneration,
            Reason::ForeignIssuer => ProblemKind::ForeignIssuer,
            Reason::Stale => ProblemKind::Stale,
            Reason::Collision => ProblemKind::Collision,
            Reason::Spent => ProblemKind::Spent,
            Reason::Unclaimed => ProblemKind::Unclaimed,
            Reason::Implausible => ProblemKind::Implausible,
        }
    }

    /// The identifier of this reason on the wire, in metrics and in logs.
    pub fn as_str(self) -> &'static str {
        self.problem().slug()
    }

    /// What the caller should do next.
    pub fn advice(self) -> &'static str {
        match self {
            Reason::MissingToken => "Send the token your lock service handed out in the Fencing-Token header.",
            Reason::MissingIssuer => {
                "Send the lock service that numbered the token in the Fencing-Issuer header, as `kind:incarnation`."
            }
            Reason::RetiredGeneration => {
                "An administrator started a new generation. Read the fence, then acquire the lock again. Do not retry \
                 with this token."
            }
            Reason::UnknownGeneration => {
                "This gateway knows no such generation. Read the fence for the generation to present; if the number \
                 came from a configuration, correct it."
            }
            Reason::ForeignIssuer => {
                "Numbers of two lock services are not comparable. Use the lock service this resource is bound to, or \
                 have an administrator rotate the resource."
            }
            Reason::Stale => "Your lock was taken over; stop, and acquire it again. Do not retry with this token.",
            Reason::Collision => {
                "Two holders carry one token, so the lock service issued it twice or holders share it. Stop, acquire \
                 the lock again, and check the lock service."
            }
            Reason::Spent => {
                "This guard allows one write per token, and it has been applied. Acquire the lock again for the next."
            }
            Reason::Unclaimed => "This guard requires a claim first: POST /v1/claim/{resource} with the same token.",
            Reason::Implausible => {
                "The token is further above the fence than this guard's max_jump allows. If the lock service really \
                 jumped, raise max_jump or have an administrator rotate the resource."
            }
        }
    }
}

/// What was presented, the state of the fence, and the reason for the refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The reason for the refusal.
    pub reason: Reason,
    /// The resource whose fence refused.
    pub resource: Resource,
    /// What was presented.
    pub presented: Option<Presented>,
    /// The state of the resource.
    pub found: FenceState,
    /// Whether another gateway may have raised the fence since. It is final all the same: fences only rise.
    pub at_least: bool,
}

impl Refusal {
    /// The token that was presented.
    pub fn presented_token(&self) -> Option<Token> {
        self.presented.as_ref().map(|presented| presented.token)
    }

    /// Describes the refusal in one sentence with both sides.
    pub fn detail(&self, now: Timestamp) -> String {
        let mut text = String::with_capacity(160);
        let token = self.presented_token().map(Token::text).unwrap_or_default();
        let resource = &self.resource;
        let generation = self.found.generation;
        // Writing to a String cannot fail.
        let _ = match self.reason {
            Reason::MissingToken => write!(text, "`{resource}` needs a fencing token, and none was sent"),
            Reason::MissingIssuer => write!(text, "token {token} for `{resource}` does not name its issuer"),
            Reason::RetiredGeneration => {
                write!(
                    text,
                    "token {token} belongs to a retired generation of `{resource}`, which is now in generation {generation}"
                )
            }
            Reason::UnknownGeneration => {
                write!(
                    text,
                    "token {token} belongs to a generation that `{resource}` has not reached; it is in generation {generation}"
                )
            }
            Reason::ForeignIssuer => {
                let theirs = self.presented.as_ref().and_then(|presented| presented.issuer.as_ref());
                write!(
                    text,
                    "token {token} was numbered by `{}`, but `{resource}` is bound to `{}`",
                    Known(theirs),
                    Known(self.found.issuer.as_ref())
                )
            }
            Reason::Stale => {
                // Formatted without `write!`, because this reason can occur at high rates.
                for part in ["token ", &token, " is stale for `", resource.as_str(), "`"] {
                    text.push_str(part);
                }
                Ok(())
            }
            Reason::Collision => {
                let theirs = self.presented.as_ref().and_then(|presented| presented.holder.as_ref());
                write!(
                    text,
                    "token {token} for `{resource}` is presented by `{}`, but belongs to `{}`",
                    Known(theirs),
                    Known(self.found.holder.as_ref())
                )
            }
            Reason::Spent => write!(text, "token {token} has already been used for a write to `{resource}`"),
            Reason::Unclaimed => write!(text, "token {token} has not claimed `{resource}` yet"),
            Reason::Implausible => write!(text, "token {token} is implausibly far above the fence of `{resource}`"),
        };
        if let Some(fence) = self.found.token() {
            text.push_str(if self.at_least { ": the fence is at least " } else { ": the fence is " });
            text.push_str(&fence.text());
            let holder = self.found.holder.as_ref();
            if holder.is_some() || self.found.raised_at.is_some() {
                text.push_str(", raised");
            }
            if let Some(holder) = holder {
                for part in [" by `", holder.as_str(), "`"] {
                    text.push_str(part);
                }
            }
            if let Some(at) = self.found.raised_at {
                text.push(' ');
                text.push_str(&at.ago(now));
            }
        }
        text.push('.');
        text
    }
}

/// Displays a label that may be unknown.
struct Known<'a, T>(Option<&'a T>);

impl<T: std::fmt::Display> std::fmt::Display for Known<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(label) => label.fmt(f),
            None => f.write_str("unknown"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Holder;

    #[test]
    fn a_refusal_tells_both_sides() {
        let refusal = Refusal {
            reason: Reason::Stale,
            resource: Resource::new("orders/123").unwrap(),
            presented: Some(Presented { token: "33".parse().unwrap(), holder: None, issuer: None }),
            found: FenceState {
                high: std::num::NonZeroU64::new(34),
                holder: Some(Holder::new("worker-b#9f2c").unwrap()),
                raised_at: Some(Timestamp(1_000)),
                ..FenceState::default()
            },
            at_least: false,
        };
        let perhaps_higher = Refusal { at_least: true, ..refusal.clone() };
        assert!(perhaps_higher.detail(Timestamp(13_500)).contains(": the fence is at least 34, raised by"));
        assert_eq!(
            refusal.detail(Timestamp(13_500)),
            "token 33 is stale for `orders/123`: the fence is 34, raised by `worker-b#9f2c` 12 s ago."
        );
        assert!(refusal.reason.advice().contains("acquire it again"));
    }

    #[test]
    fn every_reason_has_a_sentence_and_advice() {
        for reason in Reason::ALL {
            let refusal = Refusal {
                reason,
                resource: Resource::new("r").unwrap(),
                presented: None,
                found: FenceState::default(),
                at_least: false,
            };
            assert!(refusal.detail(Timestamp(0)).contains("`r`"), "{reason:?}");
            assert!(reason.advice().ends_with('.') || reason.advice().ends_with("token."), "{reason:?}");
            assert!(matches!(reason.problem().status(), 409 | 428), "{reason:?}");
        }
    }
}
