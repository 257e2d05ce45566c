//! Waits for a condition, never for a fixed time.

use std::time::{Duration, Instant};

/// The limit for events that must happen, on a machine that may stall for some seconds and shares its disk.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Polls until the condition returns a value; panics with `what` at the limit.
pub fn until<T>(what: &str, limit: Duration, mut condition: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(found) = condition() {
            return found;
        }
        assert!(Instant::now() < deadline, "waited {limit:?} for {what}");
        pause(Duration::from_millis(5));
    }
}

/// Lets time pass between two checks of a condition, or up to a random point of a run.
#[allow(clippy::disallowed_methods, reason = "the one sleep; everything else waits for a condition")]
pub fn pause(time: Duration) {
    std::thread::sleep(time);
}
