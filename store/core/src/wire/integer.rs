//! Whole numbers in JSON.

use std::fmt;

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A whole number: a JSON integer, or decimal text for readers that lose digits. Written as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Integer(pub i64);

impl Serialize for Integer {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Integer {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Integer, D::Error> {
        struct IntegerVisitor;

        impl Visitor<'_> for IntegerVisitor {
            type Value = Integer;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a whole number from -9223372036854775808 to 9223372036854775807, such as -1 or \"-1\"")
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Integer, E> {
                Ok(Integer(number))
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Integer, E> {
                i64::try_from(number)
                    .map(Integer)
                    .map_err(|_| E::invalid_value(de::Unexpected::Unsigned(number), &self))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Integer, E> {
                Integer::parse(text.as_bytes()).ok_or_else(|| E::invalid_value(de::Unexpected::Str(text), &self))
            }
        }

        deserializer.deserialize_any(IntegerVisitor)
    }
}

impl Integer {
    /// Reads decimal digits with an optional `-` before them, and nothing around them.
    pub fn parse(text: &[u8]) -> Option<Integer> {
        let digits = text.strip_prefix(b"-").unwrap_or(text);
        if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
            return None;
        }
        std::str::from_utf8(text).ok()?.parse().ok().map(Integer)
    }
}
