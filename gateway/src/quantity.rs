//! Sizes and durations as people write them: `4MiB`, `30s`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use fencepost_conformance::quantity::{duration, number_and_unit};
use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer};

/// A number of bytes: a plain number, or one with `KiB`, `MiB` or `GiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(pub u64);

/// A length of time: a number with `ms`, `s`, `min` or `h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span(pub Duration);

impl Span {
    /// In whole milliseconds.
    pub fn millis(self) -> u64 {
        u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX)
    }
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Size, String> {
        number_and_unit(text)
            .and_then(|(number, unit)| {
                let factor: u64 = match unit.trim_start() {
                    "" | "B" => 1,
                    "KiB" => 1 << 10,
                    "MiB" => 1 << 20,
                    "GiB" => 1 << 30,
                    _ => return None,
                };
                number.checked_mul(factor).map(Size)
            })
            .ok_or_else(|| format!("`{text}` is not a size: write a number of bytes, or one with KiB, MiB or GiB"))
    }
}

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Span, String> {
        number_and_unit(text)
            .and_then(|(number, unit)| duration(number, unit.trim_start()))
            .map(Span)
            .ok_or_else(|| format!("`{text}` is not a duration: write a number with ms, s, min or h, such as `30s`"))
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            bytes if bytes >= 1 << 30 && bytes % (1 << 30) == 0 => write!(f, "{}GiB", bytes >> 30),
            bytes if bytes >= 1 << 20 && bytes % (1 << 20) == 0 => write!(f, "{}MiB", bytes >> 20),
            bytes if bytes >= 1 << 10 && bytes % (1 << 10) == 0 => write!(f, "{}KiB", bytes >> 10),
            bytes => write!(f, "{bytes}"),
        }
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_millis() {
            millis if millis > 0 && millis % 3_600_000 == 0 => write!(f, "{}h", millis / 3_600_000),
            millis if millis % 1000 == 0 => write!(f, "{}s", millis / 1000),
            millis => write!(f, "{millis}ms"),
        }
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Size, D::Error> {
        struct SizeVisitor;

        impl Visitor<'_> for SizeVisitor {
            type Value = Size;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a size such as \"4MiB\" or a number of bytes")
            }

            fn visit_i64<E: de::Error>(self, bytes: i64) -> Result<Size, E> {
                u64::try_from(bytes).map(Size).map_err(|_| E::custom("a size cannot be negative"))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Size, E> {
                text.parse().map_err(E::custom)
            }
        }

        deserializer.deserialize_any(SizeVisitor)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Span, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_spans() {
        assert_eq!("4MiB".parse(), Ok(Size(4 << 20)));
        assert_eq!("4096".parse(), Ok(Size(4096)));
        assert_eq!("2 GiB".parse(), Ok(Size(2 << 30)));
        assert_eq!("500ms".parse(), Ok(Span(Duration::from_millis(500))));
        assert_eq!("2min".parse(), Ok(Span(Duration::from_secs(120))));
        assert_eq!("24h".parse(), Ok(Span(Duration::from_secs(86_400))));
        assert_eq!(Span(Duration::from_secs(86_400)).to_string(), "24h");
        for bad in ["", "MiB", "4MB", "-1", "4.5MiB", "99999999999GiB"] {
            assert!(bad.parse::<Size>().is_err(), "{bad}");
        }
        for bad in ["", "30", "s", "1d"] {
            assert!(bad.parse::<Span>().is_err(), "{bad}");
        }
        assert_eq!((Size(4 << 20).to_string(), Size(1000).to_string()), ("4MiB".into(), "1000".into()));
        assert_eq!(Span(Duration::from_secs(90)).to_string(), "90s");
    }
}
