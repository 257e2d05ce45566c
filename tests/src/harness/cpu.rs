//! How much a thread has worked, however busy the machine is.

use std::time::Duration;

/// The time that this thread has been on a processor. It is counted in ticks of some milliseconds.
pub fn thread_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("the kernel counts");
    let nanoseconds = text.split_whitespace().next().and_then(|first| first.parse().ok());
    Duration::from_nanos(nanoseconds.expect("a number"))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{super::wait, thread_time};

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
