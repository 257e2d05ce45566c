//! The last line of a run: what was shown and what was not.

use super::text::one_line;
use crate::verdict::{Level, Outcome, Results, Status};

impl Results {
    /// The last line of a run: what was shown and what was not.
    pub fn last_line(&self) -> String {
        let mut parts = vec![self.claim()];
        if self.left_out > 0 {
            parts.push(format!("no level is claimed: {} not selected", cases(self.left_out)));
        } else if matches!(self.outcome(), Outcome::Safe | Outcome::Unknown) {
            let levels = |levels: Vec<Level>| levels.into_iter().map(Level::about).collect::<Vec<_>>().join(", ");
            match self.not_shown() {
                not_shown if not_shown.is_empty() => {}
                not_shown => parts.push(format!("not shown: {}", levels(not_shown))),
            }
            match self.not_tested() {
                not_tested if not_tested.is_empty() => {}
                not_tested => parts.push(format!("not tested: {}", not_tested.join(", "))),
            }
        }
        parts.join(" · ")
    }

    fn claim(&self) -> String {
        let (all, level) = (self.cases.len(), self.level);
        let of = |status: Status| (self.ids(status).len(), listed(&self.ids(status)));
        let (failed, failures) = of(Status::Fail);
        let (unknown, unclear) = of(Status::Unknown);
        let (skipped, skips) = of(Status::Skip);
        match self.outcome() {
            Outcome::Safe => format!("SAFE at {level}"),
            Outcome::Passed => {
                let passed = self.ids(Status::Pass);
                format!("PASSED: {} of {} ({})", passed.len(), cases(all), listed(&passed))
            }
            Outcome::NotSafe => format!("NOT SAFE: {failed} of {} failed ({failures})", cases(all)),
            Outcome::Broken => {
                let why = self.broken.as_deref().unwrap_or("the harness failed");
                format!("ERROR: nothing is shown, because the run was broken off: {}", one_line(why))
            }
            Outcome::Unknown => {
                let mut reasons = Vec::new();
                if unknown > 0 {
                    reasons.push(format!("{unknown} of {} could not be judged ({unclear})", cases(all)));
                }
                if skipped > 0 {
                    reasons.push(format!("{skipped} of {} skipped ({skips})", cases(all)));
                }
                if reasons.is_empty() {
                    reasons.push(match self.left_out {
                        0 => format!("nothing passed that would show {}", self.short_at()),
                        _ => "no selected case passed".to_owned(),
                    });
                }
                let reasons = reasons.join(", ");
                match self.shown() {
                    Some(shown) if unknown == 0 => format!("SAFE at {shown}, asked for {level}: {reasons}"),
                    Some(shown) => format!("UNKNOWN: {reasons} · shown: {shown}"),
                    None => format!("UNKNOWN: {reasons}"),
                }
            }
        }
    }

    /// The lowest level that is not shown.
    fn short_at(&self) -> Level {
        let shown = self.shown();
        Level::ALL.into_iter().find(|level| Some(*level) > shown).unwrap_or(self.level)
    }
}

fn cases(count: usize) -> String {
    if count == 1 { "1 case".to_owned() } else { format!("{count} cases") }
}

/// A few ids, and how many more there are.
fn listed(ids: &[&str]) -> String {
    const FEW: usize = 8;
    match ids.len().checked_sub(FEW) {
        None | Some(0) => ids.join(", "),
        Some(more) => format!("{} and {more} more", ids[..FEW].join(", ")),
    }
}
