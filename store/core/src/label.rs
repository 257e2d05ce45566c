//! Short texts that callers choose: who presents a token, which lock service numbered it, which request this is.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize, Serializer};

const MAX_LABEL_BYTES: usize = 256;

/// Why a text is not a holder, issuer or idempotency key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LabelError {
    /// Nothing was given.
    #[error("it is empty; leave it out instead")]
    Empty,
    /// Longer than the limit.
    #[error("it has {0} bytes, the limit is {MAX_LABEL_BYTES}")]
    TooLong(usize),
    /// A character that would not survive a header.
    #[error("it contains {0:?}; only visible characters and inner spaces are allowed")]
    Character(char),
}

fn checked(text: &str) -> Result<Arc<str>, LabelError> {
    if text.is_empty() {
        return Err(LabelError::Empty);
    }
    if text.len() > MAX_LABEL_BYTES {
        return Err(LabelError::TooLong(text.len()));
    }
    if text.starts_with(' ') || text.ends_with(' ') {
        return Err(LabelError::Character(' '));
    }
    match text.chars().find(|c| c.is_control()) {
        Some(character) => Err(LabelError::Character(character)),
        None => Ok(text.into()),
    }
}

macro_rules! label {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize)]
        #[serde(try_from = "String")]
        pub struct $name(Arc<str>);

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl $name {
            /// Checks the text: 1 to 256 bytes of UTF-8 without control characters.
            pub fn new(text: &str) -> Result<$name, LabelError> {
                checked(text).map($name)
            }

            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl TryFrom<String> for $name {
            type Error = LabelError;

            fn try_from(text: String) -> Result<$name, LabelError> {
                $name::new(&text)
            }
        }

        impl From<$name> for String {
            fn from(label: $name) -> String {
                label.0.as_ref().to_owned()
            }
        }
    };
}

label! {
    /// Who presents the token: `name#nonce`, unique per acquisition.
    Holder
}

label! {
    /// Which lock service numbered the token: `kind:incarnation`.
    Issuer
}

label! {
    /// Names one request over all its retries: `Idempotency-Key`.
    IdempotencyKey
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
}
