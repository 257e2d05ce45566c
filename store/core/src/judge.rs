//! The admission rule. Pure: no I/O, no clock.

use std::cmp::Ordering;

use crate::{Claim, Equal, FenceState, Holder, Issuer, IssuerRule, Mode, Policy, Reason, Token};

/// What a request presents: its token, with holder and issuer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Presented {
    /// The token that the lock service handed out.
    pub token: Token,
    /// The holder that presents the token.
    pub holder: Option<Holder>,
    /// The lock service that numbered the token.
    pub issuer: Option<Issuer>,
}

/// The kind of access to judge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Changes data.
    Write,
    /// Raises the fence and reads.
    Claim,
    /// Reads, if the token is not below the fence. Never raises.
    CheckedRead,
}

/// The effect of an admission on the fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The token equals the fence, and nothing changes.
    Keep,
    /// The token equals the fence; an unknown holder or issuer becomes known.
    Fill,
    /// The token is above the fence. A checked read discards this step.
    Raise,
}

/// The result of a judgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Admitted; the fence takes this step.
    Admit(Step),
    /// Would be refused, but the guard only observes: data changes, the fence does not.
    Observe(Reason),
    /// Refused, for this reason.
    Refuse(Reason),
}

/// Judges a request and applies the guard's mode to the verdict.
pub fn decide(state: &FenceState, presented: Option<&Presented>, access: Access, policy: &Policy) -> Verdict {
    let verdict = match presented {
        None => Verdict::Refuse(Reason::MissingToken),
        Some(presented) => judge(state, presented, access, policy),
    };
    match (verdict, policy.mode) {
        (Verdict::Refuse(reason), Mode::Observe) => Verdict::Observe(reason),
        (verdict, _) => verdict,
    }
}

/// The admission rule: the rows of the table in `docs/design.md`, in order. Ignores the mode.
pub fn judge(state: &FenceState, presented: &Presented, access: Access, policy: &Policy) -> Verdict {
    match presented.token.generation().cmp(&state.generation) {
        Ordering::Less => return Verdict::Refuse(Reason::RetiredGeneration),
        Ordering::Greater => return Verdict::Refuse(Reason::UnknownGeneration),
        Ordering::Equal => {}
    }
    match (&presented.issuer, &state.issuer, policy.issuer) {
        (Some(theirs), Some(ours), _) if theirs != ours => return Verdict::Refuse(Reason::ForeignIssuer),
        (None, _, IssuerRule::Required) => return Verdict::Refuse(Reason::MissingIssuer),
        _ => {}
    }
    let number = presented.token.number();
    match state.high.map(|high| (number.cmp(&high), high)) {
        Some((Ordering::Less, _)) => Verdict::Refuse(Reason::Stale),
        Some((Ordering::Equal, _)) => equal(state, presented, access, policy),
        Some((Ordering::Greater, high)) => match policy.max_jump {
            _ if unclaimed(access, policy) => Verdict::Refuse(Reason::Unclaimed),
            Some(jump) if access != Access::CheckedRead && number.get() > high.get().saturating_add(jump.get()) => {
                Verdict::Refuse(Reason::Implausible)
            }
            _ => Verdict::Admit(Step::Raise),
        },
        None if unclaimed(access, policy) => Verdict::Refuse(Reason::Unclaimed),
        None => Verdict::Admit(Step::Raise),
    }
}

fn equal(state: &FenceState, presented: &Presented, access: Access, policy: &Policy) -> Verdict {
    match (&presented.holder, &state.holder) {
        (Some(theirs), Some(ours)) if theirs != ours => return Verdict::Refuse(Reason::Collision),
        _ => {}
    }
    if access == Access::Write && policy.equal == Equal::Reject && state.spent {
        return Verdict::Refuse(Reason::Spent);
    }
    let learns_holder = state.holder.is_none() && presented.holder.is_some();
    let learns_issuer = state.issuer.is_none() && presented.issuer.is_some();
    Verdict::Admit(if learns_holder || learns_issuer { Step::Fill } else { Step::Keep })
}

fn unclaimed(access: Access, policy: &Policy) -> bool {
    access == Access::Write && policy.claim == Claim::Required
}

#[cfg(test)]
#[path = "judge_tests.rs"]
mod tests;
