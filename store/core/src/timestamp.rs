//! Timestamps for people to read. They are never used for admission.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Serialize, Serializer};

/// Milliseconds since the Unix epoch; shown as RFC 3339 in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// The current wall-clock time, for messages and records only.
    #[allow(clippy::disallowed_methods, reason = "the one place that reads the wall clock; never for admission")]
    pub fn now() -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        Timestamp(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }

    /// How long before `now` this was, as text: `12 s ago`.
    pub fn ago(self, now: Timestamp) -> String {
        let seconds = now.0.saturating_sub(self.0) / 1000;
        let (number, unit) = match seconds {
            0..=119 => (seconds, " s ago"),
            120..=7199 => (seconds / 60, " min ago"),
            7200..=172_799 => (seconds / 3600, " h ago"),
            _ => (seconds / 86_400, " days ago"),
        };
        [itoa::Buffer::new().format(number), unit].concat()
    }

    /// RFC 3339 in UTC, always with milliseconds.
    pub fn text(self) -> String {
        let (seconds, millis) = (self.0 / 1000, self.0 % 1000);
        let (days, rest) = (seconds / 86_400, seconds % 86_400);
        let (year, month, day) = civil(days);
        let mut text = Vec::with_capacity(24);
        if year > 9999 {
            text.extend_from_slice(itoa::Buffer::new().format(year / 10_000).as_bytes());
        }
        let parts = [
            (year / 100 % 100, None),
            (year % 100, Some(b'-')),
            (month, Some(b'-')),
            (day, Some(b'T')),
            (rest / 3600, Some(b':')),
            (rest / 60 % 60, Some(b':')),
            (rest % 60, Some(b'.')),
            (millis / 10, None),
        ];
        for (number, end) in parts {
            text.extend_from_slice(&[digit(number / 10), digit(number % 10)]);
            text.extend(end);
        }
        text.extend_from_slice(&[digit(millis % 10), b'Z']);
        String::from_utf8(text).unwrap_or_default()
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text())
    }
}

fn digit(number: u64) -> u8 {
    b"0123456789"[usize::try_from(number % 10).unwrap_or(0)]
}

/// Converts days since 1970-01-01 to year, month and day, using 400-year cycles that start in March.
fn civil(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let (cycle, of_cycle) = (shifted / 146_097, shifted % 146_097);
    let year_of_cycle = (of_cycle - of_cycle / 1460 + of_cycle / 36_524 - of_cycle / 146_096) / 365;
    let day_of_year = of_cycle - (365 * year_of_cycle + year_of_cycle / 4 - year_of_cycle / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = cycle * 400 + year_of_cycle + u64::from(month <= 2);
    (year, month, day)
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_known_days() {
        assert_eq!(Timestamp(0).to_string(), "1970-01-01T00:00:00.000Z");
        assert_eq!(Timestamp(1_709_251_199_007).to_string(), "2024-02-29T23:59:59.007Z");
        assert_eq!(Timestamp(253_402_300_800_000).to_string(), "10000-01-01T00:00:00.000Z");
        assert_eq!(Timestamp(951_782_400_000).to_string(), "2000-02-29T00:00:00.000Z");
        assert_eq!(Timestamp(1_709_251_199_999).to_string(), "2024-02-29T23:59:59.999Z");
        assert_eq!(Timestamp(4_102_444_800_000).to_string(), "2100-01-01T00:00:00.000Z");
    }

    #[test]
    fn ago_picks_a_unit_and_never_goes_negative() {
        let now = Timestamp(10_000_000_000);
        assert_eq!(Timestamp(now.0 - 12_000).ago(now), "12 s ago");
        assert_eq!(Timestamp(now.0 - 600_000).ago(now), "10 min ago");
        assert_eq!(Timestamp(now.0 - 36_000_000).ago(now), "10 h ago");
        assert_eq!(Timestamp(0).ago(now), "115 days ago");
        assert_eq!(Timestamp(now.0 + 5_000).ago(now), "0 s ago");
    }
}
