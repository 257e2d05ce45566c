//! The token of an operation, as presented: mostly a number, sometimes something that must not be accepted as one.

use std::fmt;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A presented token. As JSON: a string, a list of two, or absent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Token {
    /// A number, sent as decimal digits.
    Number(u64),
    /// Any other text.
    Text(String),
    /// No token at all.
    #[default]
    Absent,
    /// Two tokens that contradict each other.
    Both(String, String),
}

impl Token {
    /// A text; if it is a number in canonical form, that number.
    pub fn text(text: &str) -> Token {
        match parse(text) {
            Some(number) => Token::Number(number),
            None => Token::Text(text.to_owned()),
        }
    }

    /// The number, if it is one.
    pub fn number(&self) -> Option<u64> {
        match self {
            Token::Number(number) => Some(*number),
            Token::Text(_) | Token::Absent | Token::Both(..) => None,
        }
    }

    /// Whether there is no token.
    pub fn is_absent(&self) -> bool {
        *self == Token::Absent
    }
}

/// Parses a number in canonical form: without signs, spaces, or leading zeros.
pub fn parse(text: &str) -> Option<u64> {
    let number: u64 = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}

impl From<u64> for Token {
    fn from(number: u64) -> Token {
        Token::Number(number)
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Token::Number(number) => write!(f, "token {number}"),
            Token::Text(text) if text.chars().count() > 40 => write!(f, "a token of {} bytes", text.len()),
            Token::Text(text) => write!(f, "token {text:?}"),
            Token::Absent => f.write_str("no token"),
            Token::Both(first, second) => write!(f, "two tokens, {first:?} and {second:?}"),
        }
    }
}

impl Serialize for Token {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Token::Number(number) => serializer.serialize_str(&number.to_string()),
            Token::Text(text) => serializer.serialize_str(text),
            Token::Absent => serializer.serialize_none(),
            Token::Both(first, second) => (first, second).serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Token {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Token, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Form {
            One(String),
            Two(String, String),
            None(()),
        }
        match Form::deserialize(deserializer) {
            Ok(Form::One(text)) => Ok(Token::text(&text)),
            Ok(Form::Two(first, second)) => Ok(Token::Both(first, second)),
            Ok(Form::None(())) => Ok(Token::Absent),
            Err(_) => Err(D::Error::custom("a token is a string of digits")),
        }
    }
}

/// Numbers as JSON strings, so that no JSON parser rounds them.
pub(crate) mod as_text {
    use super::{Deserialize, Deserializer, Error, Serialize, Serializer, parse};

    pub(crate) fn serialize<S: Serializer>(number: &Option<u64>, serializer: S) -> Result<S::Ok, S::Error> {
        number.map(|number| number.to_string()).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
        match Option::<String>::deserialize(deserializer)? {
            None => Ok(None),
            Some(text) => {
                let number = parse(&text);
                number
                    .map(Some)
                    .ok_or_else(|| D::Error::custom(format!("`{text}` is not a token: write decimal digits")))
            }
        }
    }
}

/// The same for a number that is always present.
pub(crate) mod max_as_text {
    use super::{Deserialize, Deserializer, Error, Serialize, Serializer, parse};

    pub(crate) fn serialize<S: Serializer>(number: &u64, serializer: S) -> Result<S::Ok, S::Error> {
        number.to_string().serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
        let text = String::deserialize(deserializer)?;
        parse(&text)
            .ok_or_else(|| D::Error::custom(format!("`{text}` is not a token: write decimal digits, in quotes")))
    }
}

#[cfg(test)]
mod tests {
    use super::Token;

    #[test]
    fn a_token_travels_as_text() {
        for (token, json) in [
            (Token::Number(u64::MAX), r#""18446744073709551615""#),
            (Token::text("007"), r#""007""#),
            (Token::Absent, "null"),
            (Token::Both("5".into(), "9".into()), r#"["5","9"]"#),
        ] {
            assert_eq!(serde_json::to_string(&token).unwrap(), json);
            assert_eq!(serde_json::from_str::<Token>(json).unwrap(), token);
        }
        assert_eq!(Token::text("42"), Token::Number(42));
        assert!(serde_json::from_str::<Token>("42").is_err(), "a JSON number may have been rounded");
    }
}
