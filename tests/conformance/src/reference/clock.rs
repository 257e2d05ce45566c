//! The bugs that depend on a clock.

use super::record::Record;
use super::store::{Gone, Visit};
use super::{Bug, Reference};

/// The seconds after which [`Bug::ClockExpiry`] drops a fence.
const EXPIRES: i64 = 43_200;

impl Reference {
    /// A record as the bugs see it under the current clock.
    pub(super) fn as_the_clock_says(&self, visit: &Visit<'_>, found: Record) -> Result<Record, Gone> {
        match self.bug {
            Some(Bug::ClockExpiry) if found.at + EXPIRES < visit.now()? => Ok(Record::default().with_value_of(&found)),
            _ => Ok(found),
        }
    }

    /// The record to store for a change, with its time.
    pub(super) fn stamped(&self, visit: &Visit<'_>, before: &Record, after: &Record) -> Result<Record, Gone> {
        let at = match self.bug {
            Some(Bug::ClockExpiry | Bug::ClockOrder) => visit.now()?,
            _ => return Ok(after.clone()),
        };
        let stamped = Record { at, ..after.clone() };
        match self.bug {
            Some(Bug::ClockOrder) if before.high.is_some() && at < before.at => {
                Ok(Record { at: before.at, ..stamped.with_value_of(before) })
            }
            _ => Ok(stamped),
        }
    }
}
