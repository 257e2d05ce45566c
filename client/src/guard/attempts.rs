//! Several attempts at one call, and what may be concluded when the last one fails.

use fencepost_core::{IdempotencyKey, ProblemKind};

use crate::Precondition;
use crate::error::{Error, ErrorKind};
use crate::transport::Missed;

/// Whether a condition that failed may hold later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Conflicts {
    /// It cannot: it asks for a version, and versions are never reused.
    Final,
    /// It can, so a delayed request may still be applied.
    MayPass,
}

impl Conflicts {
    pub(super) fn of(precondition: &Precondition) -> Conflicts {
        match precondition {
            Precondition::Version(etag) if etag != "*" => Conflicts::Final,
            Precondition::Version(_) | Precondition::Absent | Precondition::Always => Conflicts::MayPass,
        }
    }
}

/// What is known about a call after some attempts.
pub(super) struct Attempts<'a> {
    /// The idempotency key of all attempts. `None` for a call that writes no data, so no attempt can have left anything
    /// behind.
    key: Option<&'a IdempotencyKey>,
    conflicts: Conflicts,
    /// Why the outcome of some attempt is unknown, if it is.
    unknown: Option<String>,
}

impl<'a> Attempts<'a> {
    /// Attempts at a write, all with the same key.
    pub(super) fn with(key: Option<&'a IdempotencyKey>, conflicts: Conflicts) -> Attempts<'a> {
        Attempts { key, conflicts, unknown: None }
    }

    /// Attempts at a call that writes no data.
    pub(super) fn harmless() -> Attempts<'static> {
        Attempts { key: None, conflicts: Conflicts::MayPass, unknown: None }
    }

    /// Records a failed attempt that will be repeated.
    pub(super) fn note(&mut self, error: &Error) {
        if let Some(unknown) = error.unknown_outcome() {
            self.unknown.get_or_insert_with(|| unknown.why.clone());
        }
    }

    /// The error of the whole call, given its last attempt.
    pub(super) fn conclude(self, last: Missed) -> Error {
        let settled = self.settled_by(&last);
        match (self.key, self.unknown) {
            (Some(key), Some(first)) if !settled => {
                let why = match last.error.kind() {
                    ErrorKind::UnknownOutcome => first,
                    _ => format!("{first}; a later attempt ended with: {}", last.error),
                };
                Error::unknown(why, Some(key.clone())).with_source(last.error)
            }
            _ => last.error,
        }
    }

    /// True if this answer proves that no earlier attempt was applied, and that none can be, even if it still arrives.
    ///
    /// The gateway looks up the record of the key before it judges. So any answer other than the recorded outcome was
    /// decided when no attempt had been applied. Only attempts still in transit remain to be considered.
    fn settled_by(&self, last: &Missed) -> bool {
        match last.error.kind() {
            _ if last.replayed => true,
            // A fence never falls, so each of these reasons refuses the same token from then on.
            ErrorKind::Fenced => matches!(
                last.error.problem_kind(),
                Some(
                    ProblemKind::Stale
                        | ProblemKind::Spent
                        | ProblemKind::Collision
                        | ProblemKind::ForeignIssuer
                        | ProblemKind::RetiredGeneration
                )
            ),
            ErrorKind::Conflict => self.conflicts == Conflicts::Final,
            ErrorKind::Invalid => last.error.problem_kind() == Some(ProblemKind::Abandoned),
            ErrorKind::Lost | ErrorKind::Busy | ErrorKind::Unavailable | ErrorKind::UnknownOutcome => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use fencepost_core::ProblemDocument;

    use super::*;
    use crate::error::Cause;

    fn problem(kind: ProblemKind) -> Missed {
        Error::answered(ProblemDocument::new(kind, "why")).into()
    }

    fn unreachable() -> Error {
        Cause::Unreachable { url: "u".into(), why: "w".into() }.into()
    }

    /// The error of a call whose first attempt has an unknown outcome.
    fn after_unknown(conflicts: Conflicts, last: Missed) -> Error {
        let key = IdempotencyKey::new("k").unwrap();
        let mut attempts = Attempts::with(Some(&key), conflicts);
        attempts.note(&Error::unknown("lost".into(), None));
        attempts.note(&unreachable());
        attempts.conclude(last)
    }

    fn is_unknown(conflicts: Conflicts, last: Missed) -> bool {
        let error = after_unknown(conflicts, last);
        if let Some(unknown) = error.unknown_outcome() {
            assert!(unknown.why.starts_with("lost") && unknown.key.is_some(), "{unknown}");
        }
        error.kind() == ErrorKind::UnknownOutcome
    }

    #[test]
    fn c02_what_does_not_settle_an_unknown_attempt_leaves_it_unknown() {
        use ProblemKind as Kind;
        for kind in [Kind::Poisoned, Kind::Overloaded, Kind::NoSpace, Kind::Draining, Kind::Timeout, Kind::TooLarge] {
            assert!(is_unknown(Conflicts::Final, problem(kind)), "{kind:?}");
        }
        for kind in [Kind::Unclaimed, Kind::Implausible, Kind::UnknownGeneration, Kind::MissingIssuer] {
            assert!(is_unknown(Conflicts::Final, problem(kind)), "{kind:?} may pass");
        }
        for error in [Error::unknown("again".into(), None), unreachable(), Cause::Failed("nonsense".into()).into()] {
            assert!(is_unknown(Conflicts::Final, error.into()));
        }
        assert!(is_unknown(Conflicts::MayPass, problem(Kind::ConditionFailed)));
        assert!(is_unknown(Conflicts::MayPass, problem(Kind::AddImpossible)));
    }

    #[test]
    fn c02_what_settles_an_unknown_attempt_is_the_answer() {
        use ProblemKind as Kind;
        for kind in [Kind::Stale, Kind::Spent, Kind::Collision, Kind::ForeignIssuer, Kind::RetiredGeneration] {
            assert!(!is_unknown(Conflicts::MayPass, problem(kind)), "{kind:?}");
        }
        assert!(!is_unknown(Conflicts::Final, problem(Kind::ConditionFailed)));
        assert!(!is_unknown(Conflicts::MayPass, problem(Kind::Abandoned)));
        let recorded = Missed { replayed: true, ..problem(Kind::ConditionFailed) };
        assert!(!is_unknown(Conflicts::MayPass, recorded));
    }

    #[test]
    fn without_an_unknown_attempt_the_last_error_counts() {
        let key = IdempotencyKey::new("k").unwrap();
        let mut attempts = Attempts::with(Some(&key), Conflicts::MayPass);
        attempts.note(&unreachable());
        assert_eq!(attempts.conclude(problem(ProblemKind::Poisoned)).kind(), ErrorKind::Unavailable);
        let mut read = Attempts::harmless();
        read.note(&Error::unknown("lost".into(), None));
        assert_eq!(read.conclude(problem(ProblemKind::Poisoned)).kind(), ErrorKind::Unavailable);
    }

    #[test]
    fn only_a_version_is_gone_for_good() {
        assert_eq!(Conflicts::of(&Precondition::Version("\"7\"".into())), Conflicts::Final);
        for condition in [Precondition::Version("*".into()), Precondition::Absent, Precondition::Always] {
            assert_eq!(Conflicts::of(&condition), Conflicts::MayPass);
        }
    }
}
