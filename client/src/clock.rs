//! The clock of leases, which keeps running while the machine is suspended.
//!
//! A lease ends at its service whether the holder's machine sleeps or not. `Instant` is `CLOCK_MONOTONIC`, which stops
//! during suspension: after a resume it would report an expired lease as valid. (The fence refuses it anyway.)

use std::fmt;
use std::ops::Add;
use std::sync::Arc;
use std::time::Duration;

/// A moment on the clock of leases: `CLOCK_BOOTTIME`. On systems without one, it is the monotonic clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(Duration);

impl Moment {
    /// The current time.
    pub fn now() -> Moment {
        Moment(since_boot())
    }

    /// The time since this moment; zero if it is in the future.
    pub fn elapsed(self) -> Duration {
        Moment::now().since(self)
    }

    /// The time from an earlier moment to this one; zero if that one is later.
    pub fn since(self, earlier: Moment) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    /// This moment minus a duration, but not before the clock's zero.
    #[must_use]
    pub(crate) fn before(self, time: Duration) -> Moment {
        Moment(self.0.saturating_sub(time))
    }
}

impl Add<Duration> for Moment {
    type Output = Moment;

    fn add(self, time: Duration) -> Moment {
        Moment(self.0.saturating_add(time))
    }
}

#[cfg(target_os = "linux")]
fn since_boot() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::new(u64::try_from(now.tv_sec).unwrap_or(0), u32::try_from(now.tv_nsec).unwrap_or(0))
}

#[cfg(not(target_os = "linux"))]
fn since_boot() -> Duration {
    use std::sync::OnceLock;
    use std::time::Instant;
    static FIRST: OnceLock<Instant> = OnceLock::new();
    FIRST.get_or_init(Instant::now).elapsed()
}

/// The source of time for a guard's lease.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> Moment + Send + Sync>);

impl Clock {
    /// A custom clock, for tests that advance it as a suspended machine would.
    pub fn new(now: impl Fn() -> Moment + Send + Sync + 'static) -> Clock {
        Clock(Arc::new(now))
    }

    pub(crate) fn now(&self) -> Moment {
        (self.0)()
    }
}

impl Default for Clock {
    fn default() -> Clock {
        Clock::new(Moment::now)
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_far_from_panics() {
        let now = Moment::now();
        assert!(now + Duration::MAX > now);
        assert_eq!(now.since(now + Duration::from_secs(1)), Duration::ZERO);
        assert_eq!((now + Duration::from_secs(1)).since(now), Duration::from_secs(1));
        assert_eq!(now.before(Duration::MAX), Moment(Duration::ZERO));
    }

    /// Compares with the system's own seconds since boot, which include suspension.
    #[test]
    #[cfg(target_os = "linux")]
    fn c12_it_is_the_clock_that_goes_on_in_suspension() {
        let text = std::fs::read_to_string("/proc/uptime").unwrap();
        let uptime: f64 = text.split_whitespace().next().unwrap().parse().unwrap();
        assert!((Moment::now().0.as_secs_f64() - uptime).abs() < 60.0, "{text}");
    }
}
