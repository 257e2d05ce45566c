//! Names of engines, by which guards choose where their resources are kept.

use std::sync::Arc;

use serde::Deserialize;

use crate::checked_text::checked_text;

/// The longest name of an engine, in bytes. It is a label of metrics.
const MAX_BYTES: usize = 32;

/// What messages call the engine without a name. No engine can be named so.
pub const UNNAMED_ENGINE: &str = "default";

/// Why a text is not the name of an engine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EngineNameError {
    /// The text is empty or too long, or contains another character.
    #[error(
        "`{0}` cannot be the name of an engine: use 1 to {MAX_BYTES} lower-case letters, digits, `-` and `_`, and begin \
         with a letter"
    )]
    Characters(String),
    /// The name stands for the engine that has none.
    #[error("`{UNNAMED_ENGINE}` stands for the engine without a name; choose another name")]
    Unnamed,
}

/// The name of an engine in the configuration.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(try_from = "String")]
pub struct EngineName(Arc<str>);

impl EngineName {
    /// Checks a name.
    pub fn new(text: &str) -> Result<EngineName, EngineNameError> {
        let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_');
        let begins = text.starts_with(|c: char| c.is_ascii_lowercase());
        match text {
            UNNAMED_ENGINE => Err(EngineNameError::Unnamed),
            _ if begins && text.len() <= MAX_BYTES && text.chars().all(is_part) => Ok(EngineName(text.into())),
            _ => Err(EngineNameError::Characters(text.chars().take(MAX_BYTES).collect())),
        }
    }
}

checked_text!(EngineName, EngineNameError);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_short_and_plain() {
        for good in ["b", "orders-2", "eu_west", &"x".repeat(32)] {
            assert_eq!(EngineName::new(good).unwrap().as_str(), good);
        }
        for bad in ["", "B", "2", "-a", "a b", "a/b", "ä", "postgres://a", &"x".repeat(33)] {
            assert!(matches!(EngineName::new(bad), Err(EngineNameError::Characters(_))), "{bad}");
        }
        assert_eq!(EngineName::new("default"), Err(EngineNameError::Unnamed));
    }
}
