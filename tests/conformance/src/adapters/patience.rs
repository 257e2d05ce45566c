//! A time limit that does not run out while the whole machine is stalled.

use std::time::{Duration, Instant};

/// The length of one wait, and the most that one wait counts: if it took longer, the other processes did not run
/// either.
const SLICE: Duration = Duration::from_millis(100);

/// Sockets reject a timeout of zero.
const SHORTEST: Duration = Duration::from_millis(1);

/// The time left to wait for a process. It is spent slice by slice: a pause of the whole machine costs one slice, and a
/// process that could not answer during the pause still has time afterwards.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Patience {
    left: Duration,
}

impl Patience {
    /// Patience of this length.
    pub(super) fn of(left: Duration) -> Patience {
        Patience { left }
    }

    /// The time until a deadline, and one slice at least: the machine may have been stalled until then.
    pub(super) fn until(deadline: Instant) -> Patience {
        Patience::of(deadline.saturating_duration_since(Instant::now()).max(SLICE))
    }

    /// Waits once, for at most the time passed to `wait`.
    pub(super) fn wait<T>(&mut self, wait: impl FnOnce(Duration) -> T) -> T {
        let slice = self.left.clamp(SHORTEST, SLICE);
        let began = Instant::now();
        let came = wait(slice);
        self.left = self.left.saturating_sub(began.elapsed().min(slice));
        came
    }

    /// Limits the time left to `most`.
    pub(super) fn shorten(&mut self, most: Duration) {
        self.left = self.left.min(most);
    }

    /// Whether no time is left.
    pub(super) fn is_over(&self) -> bool {
        self.left.is_zero()
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{Patience, SLICE};
    use crate::wait;

    #[test]
    fn a_machine_that_stands_still_costs_one_slice() {
        let mut patience = Patience::of(3 * SLICE);
        patience.wait(|slice| wait::pause(4 * slice));
        assert_eq!(patience, Patience::of(2 * SLICE));
        let mut waits = 0;
        while !patience.is_over() {
            patience.wait(wait::pause);
            waits += 1;
        }
        assert_eq!(waits, 2, "time that really passes is counted");
    }

    #[test]
    fn there_is_a_slice_after_a_deadline_too() {
        assert_eq!(Patience::until(Instant::now()), Patience::of(SLICE));
        let mut short = Patience::of(Duration::from_micros(1));
        short.wait(wait::pause);
        assert!(short.is_over());
    }

    #[test]
    fn it_gets_shorter_and_never_longer() {
        let mut patience = Patience::of(2 * SLICE);
        patience.shorten(3 * SLICE);
        assert_eq!(patience, Patience::of(2 * SLICE));
        patience.shorten(SLICE);
        assert_eq!(patience, Patience::of(SLICE));
    }
}
