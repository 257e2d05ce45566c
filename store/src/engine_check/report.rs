//! What a check has found.

use std::fmt;
use std::time::Duration;

use super::failure::{Checked, Failure};

/// A case that has ended.
#[derive(Clone, Debug)]
pub struct Ended {
    /// Its name.
    pub name: &'static str,
    /// How long it ran.
    pub took: Duration,
    /// What is worth saying, or why it did not pass.
    pub result: Checked<String>,
}

/// All cases, in the order in which they ran.
#[derive(Clone, Debug)]
pub struct Report {
    /// What the server says of itself, if there is one.
    pub server: Option<String>,
    /// The cases.
    pub ended: Vec<Ended>,
}

/// What the cases show together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// No rule was broken.
    Safe,
    /// This many cases saw a rule broken.
    Broken(usize),
    /// No rule was broken, and this many cases could not be finished.
    Unknown(usize),
}

impl Report {
    /// What the cases show together.
    pub fn verdict(&self) -> Verdict {
        let count = |is: fn(&Failure) -> bool| {
            self.ended.iter().filter(|case| case.result.as_ref().err().is_some_and(is)).count()
        };
        let broken = count(|failure| matches!(failure, Failure::Broken(_)));
        let unusable = count(|failure| matches!(failure, Failure::Unusable(_)));
        match (broken, unusable) {
            (0, 0) => Verdict::Safe,
            (0, unusable) => Verdict::Unknown(unusable),
            (broken, _) => Verdict::Broken(broken),
        }
    }
}

/// The verdict in one line, with the server's own words.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cases = self.ended.len();
        match self.verdict() {
            Verdict::Safe => write!(f, "safe: no rule was broken in {cases} cases")?,
            Verdict::Broken(broken) => write!(f, "NOT SAFE: {broken} of {cases} cases saw a rule broken")?,
            Verdict::Unknown(unusable) => write!(f, "unknown: {unusable} of {cases} cases could not be finished")?,
        }
        match &self.server {
            Some(server) => write!(f, ", on {server}"),
            None => Ok(()),
        }
    }
}
