//! Numbers with a unit, and durations, as people write them: `500ms`, `30s`.

use std::time::Duration;

/// Splits a text into the number that it begins with and the rest, which is its unit.
pub fn number_and_unit(text: &str) -> Option<(u64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    Some((text[..end].parse().ok()?, &text[end..]))
}

/// A number of milliseconds, seconds, minutes or hours: `ms`, `s`, `min` or `h`.
pub fn duration(number: u64, unit: &str) -> Option<Duration> {
    match unit {
        "ms" => Some(Duration::from_millis(number)),
        "s" => Some(Duration::from_secs(number)),
        "min" => number.checked_mul(60).map(Duration::from_secs),
        "h" => number.checked_mul(3600).map(Duration::from_secs),
        _ => None,
    }
}
