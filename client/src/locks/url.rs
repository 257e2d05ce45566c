//! URLs of lock services.

pub use fencepost_remote::{ServerUrl as LockUrl, Unusable};

use super::LockError;

pub(super) fn wrong(text: &str, why: &str) -> LockError {
    LockError::Invalid(format!("`{text}` is not the URL of a lock service: {why}"))
}

impl From<Unusable> for LockError {
    fn from(Unusable(why): Unusable) -> LockError {
        LockError::Invalid(why)
    }
}
