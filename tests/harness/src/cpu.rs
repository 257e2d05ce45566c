//! How much a thread has worked, however busy the machine is; and a processor that is busy.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The time that this thread has been on a processor. It is counted in ticks of some milliseconds.
pub fn thread_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("the kernel counts");
    let nanoseconds = text.split_whitespace().next().and_then(|first| first.parse().ok());
    Duration::from_nanos(nanoseconds.expect("a number"))
}

/// Works on one processor, beside somebody who never rests. The threads that the work starts stay there too, and so do its
/// processes; all others go where they like.
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

/// Keeps this thread on one of the processors that it may use. Who is started by it inherits that.
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
