//! Names of keys and resources.

use std::borrow::{Borrow, Cow};
use std::sync::Arc;

use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};
use serde::Deserialize;

use crate::EngineName;
use crate::checked_text::checked_text;

/// The longest name, in bytes of UTF-8 after decoding.
pub const MAX_NAME_BYTES: usize = 1024;

/// Why a text is not a name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// The name is empty.
    #[error("the name is empty")]
    Empty,
    /// The name is longer than the limit.
    #[error("the name has {0} bytes, the limit is {MAX_NAME_BYTES}")]
    TooLong(usize),
    /// The name contains a control character.
    #[error("the name contains the control character {0:?}")]
    Control(char),
    /// An empty segment: `a//b`, `/a` or `a/`.
    #[error("the name has an empty segment: no leading, trailing or doubled `/`")]
    EmptySegment,
    /// A dot segment: `a/./b` or `a/../b`.
    #[error("the name has a `{0}` segment, which clients and proxies rewrite")]
    DotSegment(&'static str),
    /// Percent-decoding gave bytes that are not UTF-8.
    #[error("the name is not UTF-8 after percent-decoding")]
    NotUtf8,
    /// A `%` that is not followed by two hexadecimal digits.
    #[error("the name has a `%` without two hexadecimal digits; write a literal `%` as `%25`")]
    BadEscape,
    /// A guard keeps names like it on another engine than the one that was asked.
    #[error("names like it are kept on the engine `{0}`")]
    OnEngine(EngineName),
    /// Names like it are kept on the engine without a name, and a named one was asked.
    #[error("names like it are not kept on a named engine")]
    OnUnnamedEngine,
}

fn checked(text: &str) -> Result<&str, NameError> {
    if text.is_empty() {
        return Err(NameError::Empty);
    }
    if text.len() > MAX_NAME_BYTES {
        return Err(NameError::TooLong(text.len()));
    }
    if let Some(control) = text.chars().find(|c| c.is_control()) {
        return Err(NameError::Control(control));
    }
    for segment in text.split('/') {
        match segment {
            "" => return Err(NameError::EmptySegment),
            "." => return Err(NameError::DotSegment(".")),
            ".." => return Err(NameError::DotSegment("..")),
            _ => {}
        }
    }
    Ok(text)
}

/// Percent-decodes exactly once, without checking that the result is a name. Nothing is normalised.
pub fn percent_decode_name(raw: &str) -> Result<Cow<'_, str>, NameError> {
    let bytes = raw.as_bytes();
    for (at, _) in bytes.iter().enumerate().filter(|(_, byte)| **byte == b'%') {
        let digits = bytes.get(at + 1..at + 3).unwrap_or_default();
        if digits.len() != 2 || !digits.iter().all(u8::is_ascii_hexdigit) {
            return Err(NameError::BadEscape);
        }
    }
    percent_decode_str(raw).decode_utf8().map_err(|_| NameError::NotUtf8)
}

/// Characters that are escaped in a URL path. `/` is not one of them.
const ESCAPED: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'`')
    .add(b'{')
    .add(b'}')
    .add(b'\\')
    .add(b'^')
    .add(b'|');

/// Encodes a name for a URL path.
pub fn percent_encode_name(name: &str) -> String {
    utf8_percent_encode(name, ESCAPED).to_string()
}

macro_rules! name {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
        #[serde(try_from = "String")]
        pub struct $name(Arc<str>);

        impl $name {
            /// Checks a name that is already decoded.
            pub fn new(text: &str) -> Result<$name, NameError> {
                checked(text).map(|text| $name(text.into()))
            }

            /// Percent-decodes a raw URL path exactly once, then checks it.
            pub fn from_raw_path(raw: &str) -> Result<$name, NameError> {
                $name::new(&percent_decode_name(raw)?)
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        checked_text!($name, NameError);
    };
}

name! {
    /// The name of a piece of data.
    Key
}

name! {
    /// The name of what a lock protects: the unit that has one fence.
    Resource
}

impl Key {
    /// The resource of the same name, which protects a key that no guard matches.
    pub fn as_resource(&self) -> Resource {
        Resource(self.0.clone())
    }
}

impl Resource {
    /// The key of the same name.
    pub fn as_key(&self) -> Key {
        Key(self.0.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn accepts_ordinary_and_unusual_names() {
        for good in
            ["a", "orders/123", "a b", "ä/ß", "日本", "...", "a/.../b", ".hidden", "%41", "*", "a+b", "\u{2028}"]
        {
            assert_eq!(Key::new(good).unwrap().as_str(), good);
        }
        assert!(Key::new(&"x".repeat(1024)).is_ok());
    }

    #[test]
    fn refuses_bad_names() {
        assert_eq!(Key::new(""), Err(NameError::Empty));
        assert_eq!(Key::new(&"x".repeat(1025)), Err(NameError::TooLong(1025)));
        for bad in ["/a", "a/", "a//b", "/"] {
            assert_eq!(Key::new(bad), Err(NameError::EmptySegment), "{bad}");
        }
        assert_eq!(Key::new("."), Err(NameError::DotSegment(".")));
        assert_eq!(Key::new("a/../b"), Err(NameError::DotSegment("..")));
        for bad in ["a\0b", "a\nb", "\u{7f}", "\u{85}"] {
            assert!(matches!(Key::new(bad), Err(NameError::Control(_))), "{bad:?}");
        }
    }

    #[test]
    fn decodes_exactly_once() {
        assert_eq!(Key::from_raw_path("a%2Fb").unwrap(), Key::new("a/b").unwrap());
        assert_eq!(Key::from_raw_path("a%252Fb").unwrap(), Key::new("a%2Fb").unwrap());
        assert_eq!(Key::from_raw_path("%C3%A4").unwrap().as_str(), "ä");
        assert_eq!(Key::from_raw_path("a+b").unwrap().as_str(), "a+b");
        assert_eq!(Key::from_raw_path("a%2E%2E").unwrap().as_str(), "a..");
        assert_eq!(Key::from_raw_path("a/%2e%2e/b"), Err(NameError::DotSegment("..")));
        assert_eq!(Key::from_raw_path("%2Fa"), Err(NameError::EmptySegment));
        assert_eq!(Key::from_raw_path("a%00"), Err(NameError::Control('\0')));
        assert_eq!(Key::from_raw_path("%FF"), Err(NameError::NotUtf8));
        for bad in ["%", "a%2", "%zz", "%%41", "%+1"] {
            assert_eq!(Key::from_raw_path(bad), Err(NameError::BadEscape), "{bad}");
        }
    }

    #[test]
    fn nothing_is_normalised() {
        // U+00E9 and e + U+0301 look the same but stay two names.
        assert_ne!(Key::from_raw_path("%C3%A9").unwrap(), Key::from_raw_path("e%CC%81").unwrap());
    }

    proptest! {
        #[test]
        fn encoding_round_trips(text in "\\PC{1,40}") {
            if let Ok(key) = Key::new(&text) {
                prop_assert_eq!(Key::from_raw_path(&percent_encode_name(&text)), Ok(key));
            }
        }
    }
}
