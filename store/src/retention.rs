//! Decides which outcomes are old enough to be removed, although the machine's clock may be set.
//!
//! Outcomes are stamped by the wall clock, because they outlive the process. That clock alone must not remove one
//! early: a retry would be applied twice (G7, trap 24). So an outcome recorded by this process must also be one
//! retention old on the monotonic clock. After a step of the wall clock nothing is removed for one retention, because
//! stamps of other processes cannot be compared with it.

use std::collections::VecDeque;
use std::time::Duration;

use fencepost_core::Timestamp;

use crate::locks::millis;

/// How far the two clocks may drift apart before it counts as a step.
const STEP: Duration = Duration::from_secs(60);

/// How many samples of the wall clock are taken per retention. Outcomes are kept longer by at most one such interval.
const SAMPLES: u32 = 100;

/// Both clocks at one moment.
#[derive(Clone, Copy, Debug)]
struct Sample {
    /// Time since this process started sampling.
    elapsed: Duration,
    wall: Timestamp,
}

impl Sample {
    /// The wall clock at the start of sampling, assuming that it was not set since.
    fn beginning(&self) -> i128 {
        i128::from(self.wall.0) - i128::from(millis(self.elapsed))
    }
}

/// Decides which outcomes are old enough.
pub(crate) struct Retention {
    kept: Duration,
    /// The sample that steps of the wall clock are measured against.
    reference: Sample,
    /// Nothing is removed before this time.
    quiet_until: Duration,
    /// Oldest first. The first is the latest sample that is at least one retention old; until there is one, the first
    /// sample taken.
    samples: VecDeque<Sample>,
}

impl Retention {
    /// Starts sampling the clocks.
    pub(crate) fn new(kept: Duration, wall: Timestamp) -> Retention {
        let first = Sample { elapsed: Duration::ZERO, wall };
        Retention { kept, reference: first, quiet_until: Duration::ZERO, samples: VecDeque::from([first]) }
    }

    /// Outcomes stamped before the returned time are old enough. `None`: nothing may be removed, because the wall clock
    /// was set.
    pub(crate) fn forget_before(&mut self, elapsed: Duration, wall: Timestamp) -> Option<Timestamp> {
        let now = Sample { elapsed, wall };
        let moved = now.beginning() - self.reference.beginning();
        if moved.unsigned_abs() > STEP.as_millis() {
            tracing::warn!(
                seconds = moved / 1000,
                "the clock was set; no outcome is forgotten for the time they are kept"
            );
            self.reference = now;
            self.quiet_until = elapsed + self.kept;
            // Stamps since the last sample may be from before or after the step.
            self.samples.push_back(now);
        }
        self.note(now);
        // Everything this process recorded after the first sample has a later stamp.
        let seen = self.samples.front().map_or(wall, |first| first.wall);
        let old = Timestamp(wall.0.saturating_sub(millis(self.kept)));
        (elapsed >= self.quiet_until).then(|| old.min(seen))
    }

    fn note(&mut self, now: Sample) {
        let is_due = |last: &Sample| now.elapsed >= last.elapsed + self.kept / SAMPLES;
        if self.samples.back().is_none_or(is_due) {
            self.samples.push_back(now);
        }
        while self.samples.get(1).is_some_and(|next| next.elapsed + self.kept <= now.elapsed) {
            self.samples.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(24 * 3600);
    const HOUR: u64 = 3_600_000;

    /// About fifty years after the epoch.
    const START: u64 = 50 * 365 * 24 * HOUR;

    fn hours(hours: u64) -> Duration {
        Duration::from_millis(hours * HOUR)
    }

    fn at(hours: u64) -> Timestamp {
        Timestamp(START + hours * HOUR)
    }

    /// Checks every minute from one hour to another, with the wall clock this far ahead. Returns the last result.
    fn look(retention: &mut Retention, from: u64, to: u64, ahead: u64) -> Option<Timestamp> {
        (from * 60..=to * 60)
            .map(|minute| {
                retention.forget_before(
                    Duration::from_secs(minute * 60),
                    Timestamp(at(0).0 + minute * 60_000 + ahead * HOUR),
                )
            })
            .last()
            .unwrap()
    }

    #[test]
    fn c09_with_a_steady_clock_the_retention_decides() {
        let mut retention = Retention::new(DAY, at(0));
        assert_eq!(look(&mut retention, 0, 1, 0), Some(Timestamp(at(1).0 - 24 * HOUR)), "of earlier processes");
        let before = look(&mut retention, 1, 30, 0).unwrap();
        // This process's own outcomes are kept at most a hundredth longer.
        assert!(before <= at(6) && before.0 >= at(6).0 - HOUR / 3, "{before}");
        assert!(retention.samples.len() <= SAMPLES as usize + 2, "{} samples", retention.samples.len());
    }

    #[test]
    fn c09_a_clock_set_forward_forgets_nothing_early() {
        let mut retention = Retention::new(DAY, at(0));
        look(&mut retention, 0, 2, 0);
        // An outcome is recorded at hour 2, and the clock is set forward by 25 hours.
        assert_eq!(look(&mut retention, 2, 3, 25), None);
        assert_eq!(look(&mut retention, 3, 25, 25), None);
        let before = look(&mut retention, 25, 28, 25).unwrap();
        assert!(before > at(2), "a retention later it goes: {before}");
    }

    /// A machine that boots in 1970, and is set right a minute later.
    #[test]
    fn c09_a_clock_that_is_set_right_after_the_start_forgets_nothing_early() {
        let mut retention = Retention::new(DAY, Timestamp(1000));
        assert_eq!(retention.forget_before(Duration::from_secs(30), Timestamp(31_000)), Some(Timestamp(0)));
        let set = |minutes: u64| (Duration::from_secs(60 * minutes), Timestamp(START + 60_000 * minutes));
        for minute in 1..=24 * 60 {
            let (elapsed, wall) = set(minute);
            assert_eq!(retention.forget_before(elapsed, wall), None, "minute {minute}");
        }
        let (elapsed, wall) = set(24 * 60 + 20);
        assert!(retention.forget_before(elapsed, wall).is_some_and(|before| before > Timestamp(31_000)));
    }

    #[test]
    fn c09_a_small_step_does_not_forget_what_this_process_has_just_recorded() {
        let kept = Duration::from_secs(10);
        let mut retention = Retention::new(kept, at(0));
        // Recorded at second 1; the clock jumps by 50 seconds, too little to count as a step.
        for second in 2..=10 {
            let before = retention.forget_before(Duration::from_secs(second), Timestamp(START + (second + 50) * 1000));
            assert!(before.is_some_and(|before| before <= at(0)), "second {second}: {before:?}");
        }
        let before = retention.forget_before(Duration::from_secs(12), Timestamp(START + 62_000));
        assert!(before.is_some_and(|before| before > at(0)), "{before:?}");
    }

    #[test]
    fn c09_a_clock_set_back_is_a_step_too() {
        let mut retention = Retention::new(DAY, at(100));
        let back = |hour: u64| Timestamp(at(50).0 + hour * HOUR);
        assert_eq!(retention.forget_before(hours(1), back(1)), None);
        assert_eq!(retention.forget_before(hours(24), back(24)), None);
        assert!(retention.forget_before(hours(26), back(26)).is_some());
    }
}
