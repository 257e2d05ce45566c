//! Waiting for a condition, never for luck.

use std::time::{Duration, Instant};

/// For what must happen, on a machine that may stand still for some seconds and whose disk is everybody's.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Polls until the condition gives something, or fails with what was waited for.
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

/// Lets time pass between two looks at a condition, or at a random point of a run.
#[allow(clippy::disallowed_methods, reason = "the one sleep; everything else waits for a condition")]
pub fn pause(time: Duration) {
    std::thread::sleep(time);
}
