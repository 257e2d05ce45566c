//! Time limits, as configuration files write them.

use std::time::Duration;

use serde::Deserialize;

/// A time limit: `500ms`, `30s`, `2min`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Limit(pub Duration);

impl TryFrom<String> for Limit {
    type Error = String;

    fn try_from(text: String) -> Result<Limit, String> {
        let digits = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
        let number: Option<u64> = text[..digits].parse().ok();
        if number == Some(0) {
            return Err(format!(
                "`{text}` is no time in which anything could happen: write at least \"1ms\", such as \"30s\", or leave it out"
            ));
        }
        let time = number.and_then(|number| match &text[digits..] {
            "ms" => Some(Duration::from_millis(number)),
            "s" => Some(Duration::from_secs(number)),
            "min" => number.checked_mul(60).map(Duration::from_secs),
            _ => None,
        });
        // More than an hour is probably a mistake, and would block the whole run.
        time.filter(|time| *time <= Duration::from_secs(3600)).map(Limit).ok_or_else(|| {
            format!("`{text}` is not a time: write a number with ms, s or min, at most an hour, such as \"30s\"")
        })
    }
}
