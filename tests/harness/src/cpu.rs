//! The CPU time of a thread, independent of the load of the machine; and a busy processor to run work on.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The CPU time of this thread. It is counted in ticks of some milliseconds.
pub fn thread_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("the kernel counts");
    let nanoseconds = text.split_whitespace().next().and_then(|first| first.parse().ok());
    Duration::from_nanos(nanoseconds.expect("a number"))
}

/// Runs work on one processor, beside a thread that never sleeps. Threads and processes that the work starts stay on
/// that processor; all others are unaffected.
pub fn on_a_busy_one<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let done = &AtomicBool::new(false);
    thread::scope(|scope| {
        let working = scope.spawn(move || {
            stay_on_one();
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
            work()
        });
        let worked = working.join();
        done.store(true, Ordering::Relaxed);
        worked.unwrap_or_else(|panic| resume_unwind(panic))
    })
}

/// Pins this thread to one of its allowed processors. Its child threads and processes inherit that.
fn stay_on_one() {
    let allowed = sched_getaffinity(None).expect("the kernel knows");
    let mut one = CpuSet::new();
    one.set((0..CpuSet::MAX_CPU).find(|cpu| allowed.is_set(*cpu)).expect("it runs somewhere"));
    sched_setaffinity(None, &one).expect("it may use fewer");
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Duration;

    use fencepost_conformance::wait;
    use rustix::thread::sched_getaffinity;

    use super::{on_a_busy_one, thread_time};

    #[test]
    fn work_on_a_busy_processor_takes_its_threads_along_and_nobody_else() {
        let before = sched_getaffinity(None).unwrap();
        let mine = || sched_getaffinity(None).unwrap();
        let (worker, started) = on_a_busy_one(|| (mine(), thread::spawn(mine).join().unwrap()));
        assert_eq!((worker.count(), started), (1, worker));
        assert_eq!(mine(), before);
    }

    #[test]
    fn work_counts_and_waiting_does_not() {
        let before = thread_time();
        wait::pause(Duration::from_millis(300));
        assert!(thread_time() - before < Duration::from_millis(200));
        wait::until("work to be counted", Duration::from_secs(60), || {
            (0..1_000_000).for_each(|_| std::hint::spin_loop());
            (thread_time() - before > Duration::from_millis(200)).then_some(())
        });
    }
}
