//! Time limits, as configuration files write them.

use std::time::Duration;

use serde::Deserialize;

use crate::quantity::{duration, number_and_unit};

/// A time limit: `500ms`, `30s`, `2min`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Limit(pub Duration);

impl TryFrom<String> for Limit {
    type Error = String;

    fn try_from(text: String) -> Result<Limit, String> {
        let parts = number_and_unit(&text);
        if let Some((0, _)) = parts {
            return Err(format!(
                "`{text}` is no time in which anything could happen: write at least \"1ms\", such as \"30s\", or leave it out"
            ));
        }
        // Hours are not a unit here, because an hour is the most.
        let time = parts.filter(|(_, unit)| *unit != "h").and_then(|(number, unit)| duration(number, unit));
        // More than an hour is probably a mistake, and would block the whole run.
        time.filter(|time| *time <= Duration::from_secs(3600)).map(Limit).ok_or_else(|| {
            format!("`{text}` is not a time: write a number with ms, s or min, at most an hour, such as \"30s\"")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_up_to_an_hour() {
        let limit = |text: &str| Limit::try_from(text.to_owned());
        assert_eq!(limit("500ms"), Ok(Limit(Duration::from_millis(500))));
        assert_eq!(limit("30s"), Ok(Limit(Duration::from_secs(30))));
        assert_eq!(limit("60min"), Ok(Limit(Duration::from_secs(3600))));
        for bad in ["", "30", "s", "5 s", "1h", "61min", "99999999999999999999s"] {
            assert!(limit(bad).is_err_and(|why| why.contains("is not a time")), "{bad}");
        }
        for zero in ["0", "0s", "0h"] {
            assert!(limit(zero).is_err_and(|why| why.contains("no time in which")), "{zero}");
        }
    }
}
