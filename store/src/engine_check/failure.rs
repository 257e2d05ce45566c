//! Why a case does not pass, and the two questions that cases ask.

use crate::engine::EngineError;

/// Why a case did not pass.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The engine broke a rule.
    #[error("{0}")]
    Broken(String),
    /// The engine could not be used, or not in time, which says nothing about the rules.
    #[error("{0}")]
    Unusable(String),
}

/// What a case ends with.
pub type Checked<T = ()> = Result<T, Failure>;

impl From<EngineError> for Failure {
    fn from(EngineError(why): EngineError) -> Failure {
        Failure::Unusable(why)
    }
}

/// Ends the case with a broken rule unless the condition holds.
macro_rules! ensure {
    ($holds:expr, $($why:tt)+) => {
        match $holds {
            true => {}
            false => return Err($crate::engine_check::failure::Failure::Broken(format!($($why)+))),
        }
    };
}

/// Ends the case with a broken rule unless both are equal.
macro_rules! same {
    ($found:expr, $expected:expr, $($why:tt)+) => {
        match (&$found, &$expected) {
            (found, expected) if *found == *expected => {}
            (found, expected) => {
                let why = format!($($why)+);
                let broken = format!("{why}: expected {expected:?}, found {found:?}");
                return Err($crate::engine_check::failure::Failure::Broken(broken));
            }
        }
    };
}

pub(super) use {ensure, same};
