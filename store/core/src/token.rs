//! Fencing tokens: the numbers that a lock service assigns to its grants.

use std::fmt;
use std::num::NonZeroU64;
use std::str::FromStr;

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The largest integer that JSON parsers represent exactly.
const MAX_JSON_INTEGER: u64 = 1 << 53;

/// A fencing token: `(generation, number)`, ordered in that order.
///
/// Text is `34`, or `2:34` for a generation above 0. Each token has exactly one text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token {
    generation: u32,
    number: NonZeroU64,
}

/// Why a text is not a token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// The token is empty.
    #[error("the token is empty: give the number your lock service handed out, such as `34`")]
    Empty,
    /// The number is zero, which no lock service hands out.
    #[error("token 0 is not a token: numbers start at 1 (is an unset variable being sent?)")]
    Zero,
    /// The text contains something other than decimal digits.
    #[error("`{0}` is not a token: expected decimal digits as in `34`, or `2:34` with a generation")]
    NotDecimal(String),
    /// A number with a leading zero.
    #[error("`{0}` is not a token: leading zeros are not allowed")]
    LeadingZero(String),
    /// A number that is too large for its field.
    #[error(
        "`{0}` is not a token: the number must be at most 18446744073709551615 and the generation at most 4294967295"
    )]
    TooLarge(String),
    /// `0:34`, which is written `34`.
    #[error("`{0}` is not a token: generation 0 is written without a prefix")]
    ExplicitZeroGeneration(String),
}

impl Token {
    /// A token, or `None` for number 0.
    pub fn new(generation: u32, number: u64) -> Option<Token> {
        NonZeroU64::new(number).map(|number| Token { generation, number })
    }

    /// A token from a number that is known not to be 0.
    pub const fn from_parts(generation: u32, number: NonZeroU64) -> Token {
        Token { generation, number }
    }

    /// The token's generation; only an administrator starts a new one.
    pub const fn generation(self) -> u32 {
        self.generation
    }

    /// The number the lock service handed out.
    pub const fn number(self) -> NonZeroU64 {
        self.number
    }

    /// The token's unique text. Every answer contains one or two, so this is optimised for speed.
    pub fn text(self) -> String {
        let mut number = itoa::Buffer::new();
        let number = number.format(self.number.get());
        match self.generation {
            0 => number.to_owned(),
            generation => [itoa::Buffer::new().format(generation), ":", number].concat(),
        }
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text())
    }
}

impl FromStr for Token {
    type Err = TokenError;

    fn from_str(text: &str) -> Result<Token, TokenError> {
        let (generation, number) = match text.split_once(':') {
            None => (0, decimal(text, text)?),
            Some((generation, number)) => match decimal(generation, text)? {
                0 => return Err(TokenError::ExplicitZeroGeneration(shown(text))),
                generation => (generation, decimal(number, text)?),
            },
        };
        let generation = u32::try_from(generation).map_err(|_| TokenError::TooLarge(shown(text)))?;
        Token::new(generation, number).ok_or(TokenError::Zero)
    }
}

fn decimal(digits: &str, whole: &str) -> Result<u64, TokenError> {
    match digits.as_bytes() {
        [] if whole.is_empty() => Err(TokenError::Empty),
        [] => Err(TokenError::NotDecimal(shown(whole))),
        bytes if !bytes.iter().all(u8::is_ascii_digit) => Err(TokenError::NotDecimal(shown(whole))),
        [b'0', _, ..] => Err(TokenError::LeadingZero(shown(whole))),
        _ => digits.parse().map_err(|_| TokenError::TooLarge(shown(whole))),
    }
}

/// Invalid input prepared for a message: shortened, and without control characters.
fn shown(text: &str) -> String {
    let mut short: String = text.chars().take(40).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

impl Serialize for Token {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text())
    }
}

impl<'de> Deserialize<'de> for Token {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Token, D::Error> {
        struct TokenVisitor;

        impl Visitor<'_> for TokenVisitor {
            type Value = Token;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a token as text, such as \"34\" or \"2:34\"")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Token, E> {
                text.parse().map_err(E::custom)
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Token, E> {
                if number > MAX_JSON_INTEGER {
                    return Err(E::custom(format!(
                        "token {number} is above 2^53 and must be written as text: \"{number}\""
                    )));
                }
                Token::new(0, number).ok_or_else(|| E::custom(TokenError::Zero))
            }
        }

        deserializer.deserialize_any(TokenVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn token(text: &str) -> Result<Token, TokenError> {
        text.parse()
    }

    #[test]
    fn text_forms() {
        assert_eq!(token("34").unwrap(), Token::new(0, 34).unwrap());
        assert_eq!(token("2:34").unwrap(), Token::new(2, 34).unwrap());
        assert_eq!(token("18446744073709551615").unwrap().number().get(), u64::MAX);
        assert_eq!(token("4294967295:1").unwrap().generation(), u32::MAX);
    }

    #[test]
    fn order_is_generation_then_number() {
        assert!(token("33").unwrap() < token("34").unwrap());
        assert!(token("99999").unwrap() < token("1:1").unwrap());
        assert!(token("9").unwrap() < token("10").unwrap());
    }

    #[test]
    fn t25_absent_and_zero_are_refused_as_different_errors() {
        assert_eq!(token(""), Err(TokenError::Empty));
        assert_eq!(token("0"), Err(TokenError::Zero));
        assert_eq!(token("3:0"), Err(TokenError::Zero));
    }

    #[test]
    fn malformed_texts() {
        for bad in [
            "-1", "+1", " 1", "1 ", "1e3", "0x10", "1.0", "1,2", "１", "a", ":", "1:", ":1", "1:2:3", "1:-2", "1_000",
            "-0",
        ] {
            assert!(matches!(token(bad), Err(TokenError::NotDecimal(_))), "{bad:?}: {:?}", token(bad));
        }
        for bad in ["01", "00", "1:01", "01:1"] {
            assert!(matches!(token(bad), Err(TokenError::LeadingZero(_))), "{bad:?}");
        }
        for bad in ["18446744073709551616", "4294967296:1", "99999999999999999999999999"] {
            assert!(matches!(token(bad), Err(TokenError::TooLarge(_))), "{bad:?}");
        }
        assert!(matches!(token("0:34"), Err(TokenError::ExplicitZeroGeneration(_))));
    }

    #[test]
    fn t21_json_is_text_and_exact_above_two_to_the_53() {
        let big = token("18446744073709551615").unwrap();
        let json = serde_json::to_string(&big).unwrap();
        assert_eq!(json, "\"18446744073709551615\"");
        assert_eq!(serde_json::from_str::<Token>(&json).unwrap(), big);
        assert_eq!(serde_json::from_str::<Token>("34").unwrap(), token("34").unwrap());
        assert_eq!(serde_json::from_str::<Token>("9007199254740992").unwrap().number().get(), 1 << 53);
        for bad in ["9007199254740993", "0", "-1", "1.5", "1e3", "null", "true", "\"0\"", "\" 1\"", "\"\""] {
            assert!(serde_json::from_str::<Token>(bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn text_round_trips(generation in any::<u32>(), number in 1u64..) {
            let token = Token::new(generation, number).unwrap();
            prop_assert_eq!(token.to_string().parse::<Token>(), Ok(token));
        }

        #[test]
        fn whatever_parses_prints_back_the_same(text in "[0-9:]{0,24}") {
            if let Ok(token) = text.parse::<Token>() {
                prop_assert_eq!(token.to_string(), text);
            }
        }
    }
}
