//! How far a clock is off.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Seconds ahead of the correct time, or behind it if negative.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Shift(pub i64);

impl Shift {
    /// A day ahead.
    pub const AHEAD: Shift = Shift(86_400);
    /// A day behind.
    pub const BEHIND: Shift = Shift(-86_400);
    /// The correct time.
    pub const NONE: Shift = Shift(0);
}

/// `+86400`, `-86400`, `+0`
impl fmt::Display for Shift {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:+}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::Shift;

    #[test]
    fn a_shift_always_has_a_sign() {
        let written = [Shift::AHEAD, Shift::BEHIND, Shift::NONE].map(|shift| shift.to_string());
        assert_eq!(written, ["+86400", "-86400", "+0"]);
    }
}
