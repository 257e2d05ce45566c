//! Short texts chosen by callers: the holder of a token, the issuer that numbered it, and the idempotency key.

use std::sync::Arc;

use serde::{Deserialize, Deserializer, de};

use crate::checked_text::checked_text;

const MAX_LABEL_BYTES: usize = 256;

/// Why a text is not a holder, issuer or idempotency key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LabelError {
    /// The text is empty.
    #[error("it is empty; leave it out instead")]
    Empty,
    /// The text is longer than the limit.
    #[error("it has {0} bytes, the limit is {MAX_LABEL_BYTES}")]
    TooLong(usize),
    /// A character that cannot be sent in a header, or that is not visible.
    #[error("it contains {0:?}; only visible characters and inner spaces are allowed")]
    Character(char),
}

/// Returns whether a character is invisible but changes how the text around it is displayed: direction marks, joiners,
/// zero-width spaces, and line separators that are not control characters.
pub fn is_hidden(character: char) -> bool {
    matches!(character, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

/// The characters that a label may contain.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Characters {
    /// Visible characters only: people read these labels in terminals and logs.
    Visible,
    /// Hidden characters too, so that labels stored before they were forbidden are found again.
    AsBefore,
}

fn checked(text: &str, allowed: Characters) -> Result<Arc<str>, LabelError> {
    if text.is_empty() {
        return Err(LabelError::Empty);
    }
    if text.len() > MAX_LABEL_BYTES {
        return Err(LabelError::TooLong(text.len()));
    }
    if text.starts_with(' ') || text.ends_with(' ') {
        return Err(LabelError::Character(' '));
    }
    let hidden = |c| allowed == Characters::Visible && is_hidden(c);
    match text.chars().find(|c| c.is_control() || hidden(*c)) {
        Some(character) => Err(LabelError::Character(character)),
        None => Ok(text.into()),
    }
}

/// A label that was accepted earlier, under the rules of that time.
pub(crate) trait Stored: Sized {
    fn of_before(text: &str) -> Result<Self, LabelError>;
}

/// Deserializes a label in an answer.
pub(crate) fn in_answer<'de, D: Deserializer<'de>, L: Stored>(deserializer: D) -> Result<L, D::Error> {
    L::of_before(&String::deserialize(deserializer)?).map_err(de::Error::custom)
}

/// Deserializes an optional label in an answer.
pub(crate) fn maybe_in_answer<'de, D: Deserializer<'de>, L: Stored>(deserializer: D) -> Result<Option<L>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    text.map(|text| L::of_before(&text)).transpose().map_err(de::Error::custom)
}

macro_rules! label {
    ($(#[$doc:meta])* $name:ident, $characters:expr) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize)]
        #[serde(try_from = "String")]
        pub struct $name(Arc<str>);

        impl $name {
            /// Checks the text: 1 to 256 bytes of UTF-8 without control characters.
            pub fn new(text: &str) -> Result<$name, LabelError> {
                checked(text, $characters).map($name)
            }

            /// Checks a text that was accepted and stored earlier, when hidden characters were still allowed.
            pub fn stored(text: &str) -> Result<$name, LabelError> {
                checked(text, Characters::AsBefore).map($name)
            }
        }

        impl Stored for $name {
            fn of_before(text: &str) -> Result<$name, LabelError> {
                $name::stored(text)
            }
        }

        checked_text!($name, LabelError);
    };
}

label! {
    /// The holder that presents a token: `name#nonce`, unique per acquisition.
    Holder, Characters::Visible
}

label! {
    /// The lock service that numbered a token: `kind:incarnation`.
    Issuer, Characters::Visible
}

label! {
    /// Identifies one request over all its retries: `Idempotency-Key`.
    IdempotencyKey, Characters::AsBefore
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits() {
        assert_eq!(Holder::new("worker-b#9f2c").unwrap().as_str(), "worker-b#9f2c");
        assert_eq!(Holder::new(""), Err(LabelError::Empty));
        assert_eq!(Holder::new(&"x".repeat(257)), Err(LabelError::TooLong(257)));
        assert_eq!(Issuer::new("a\nb"), Err(LabelError::Character('\n')));
        assert_eq!(Issuer::new(" a"), Err(LabelError::Character(' ')));
        assert!(Issuer::new(&"x".repeat(256)).is_ok());
    }

    #[test]
    fn s23_what_readers_do_not_see_is_refused_and_what_is_stored_is_still_read() {
        let hidden = "\u{61c}\u{200b}\u{200e}\u{200f}\u{2028}\u{2029}\u{202a}\u{202e}\u{2066}\u{2069}\u{feff}";
        for character in hidden.chars() {
            let text = format!("worker{character}#1");
            assert_eq!(Holder::new(&text), Err(LabelError::Character(character)));
            assert_eq!(Issuer::new(&text), Err(LabelError::Character(character)));
            let json = format!("\"{text}\"");
            assert!(serde_json::from_str::<Holder>(&json).is_err(), "a request is checked");
            assert_eq!(Holder::stored(&text).unwrap().as_str(), text);
            let mut answer = serde_json::Deserializer::from_str(&json);
            assert_eq!(in_answer::<_, Holder>(&mut answer).unwrap().as_str(), text);
            // A retry after an update must find its record.
            assert!(IdempotencyKey::new(&text).is_ok());
        }
        for visible in ["wörker#1", "作業者#1", "עובד#1", "a b#1", "👷#1"] {
            assert!(Holder::new(visible).is_ok(), "{visible}");
        }
        assert_eq!(Holder::stored("a\nb"), Err(LabelError::Character('\n')));
    }
}
