//! The error of what an operator wrote.

/// A URL, a setting or a file that cannot be used. The text says which, why, and what to do; it contains no password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unusable(pub String);

impl Unusable {
    /// A URL that cannot be used, as it is shown, which is without its password.
    pub fn url(shown: &str, why: &str) -> Unusable {
        Unusable(format!("`{shown}` is not a usable URL: {why}"))
    }
}
