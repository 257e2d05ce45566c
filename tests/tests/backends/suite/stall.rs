//! A stall of the machine invalidates ttls: a case that failed during a stall is tried again, a few times.

use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::Once;
use std::time::{Duration, Instant};

use fencepost_conformance::wait;
use futures_util::FutureExt;
use parking_lot::Mutex;

/// How often a case is tried at most.
const TRIES: usize = 4;

/// The interval of looking at the clock.
const TICK: Duration = Duration::from_millis(10);

/// Shorter stalls are normal on a busy machine.
const NOTABLE: Duration = Duration::from_millis(100);

/// When each stall was noticed, and how long it was.
static NOTICED: Mutex<Vec<(Instant, Duration)>> = Mutex::new(Vec::new());

/// Starts a thread that watches the clock for all cases.
fn watch_the_clock() {
    static WATCHED: Once = Once::new();
    WATCHED.call_once(|| {
        std::thread::spawn(|| {
            loop {
                let before = Instant::now();
                wait::pause(TICK);
                noticed(before.elapsed().saturating_sub(TICK));
            }
        });
    });
}

/// Records a wait that took longer than it should, because of the machine or of the service.
pub(crate) fn noticed(standstill: Duration) {
    if standstill >= NOTABLE {
        NOTICED.lock().push((Instant::now(), standstill));
    }
}

fn longest_since(begin: Instant) -> Duration {
    let noticed = NOTICED.lock();
    noticed.iter().filter(|(at, _)| *at >= begin).map(|(_, length)| *length).max().unwrap_or_default()
}

/// Runs a case. If it fails during a stall that is longer than it tolerates, it is tried again.
pub(crate) async fn patiently<F: Future<Output = ()>>(bears: Duration, case: impl Fn() -> F) {
    watch_the_clock();
    for _ in 1..TRIES {
        let begin = Instant::now();
        let Err(failure) = AssertUnwindSafe(case()).catch_unwind().await else { return };
        let longest = longest_since(begin);
        if longest < bears {
            resume_unwind(failure);
        }
        println!("it failed, but there was a standstill of {longest:?}: once more");
    }
    case().await;
}

/// The retries neither hide a failure nor give up a case that was only unlucky.
#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn only_a_standstill_is_a_reason_to_try_again() {
        let bears = Duration::from_secs(3600);
        let tried = AtomicUsize::new(0);
        let failing = || async {
            tried.fetch_add(1, Ordering::SeqCst);
            panic!("as it should");
        };
        let failed = AssertUnwindSafe(patiently(bears, failing)).catch_unwind().await;
        assert!(failed.is_err() && tried.load(Ordering::SeqCst) == 1, "{tried:?}");
        let unlucky = || async {
            noticed(bears);
            tried.fetch_add(1, Ordering::SeqCst);
            panic!("as it should");
        };
        let failed = AssertUnwindSafe(patiently(bears, unlucky)).catch_unwind().await;
        assert!(failed.is_err() && tried.load(Ordering::SeqCst) == 1 + TRIES, "{tried:?}");
        // Remove the simulated stalls, so that other tests of this process do not blame them.
        NOTICED.lock().retain(|(_, length)| *length < bears);
    }
}
