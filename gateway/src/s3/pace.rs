//! The minimum pace of a body.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep};

/// The bytes, or the rest of the body, that must arrive in each period after the first.
pub(super) const LEAST_BYTES: usize = 64 << 10;

/// Enforces the pace of a body: something must arrive in each period, and [`LEAST_BYTES`] in each after the first.
/// Only the time in which the gateway waits for the client counts.
pub(super) struct Pace {
    patience: Duration,
    silence: Option<Pin<Box<Sleep>>>,
    waiting_since: Option<Instant>,
    period: Period,
}

/// The time waited in a period, and the bytes that arrived in it.
#[derive(Default)]
struct Period {
    is_later: bool,
    waited: Duration,
    bytes: usize,
}

impl Pace {
    pub(super) fn new(patience: Duration) -> Pace {
        Pace { patience, silence: None, waiting_since: None, period: Period::default() }
    }

    /// Records that bytes have arrived. `Err`: the body is too slow.
    pub(super) fn arrived(&mut self, bytes: usize) -> Result<(), String> {
        self.silence = None;
        let waited = self.waiting_since.take().map_or(Duration::ZERO, |since| since.elapsed());
        self.period.add(waited, bytes, self.patience)
    }

    /// Records that nothing has arrived yet. Completes when that lasts too long.
    pub(super) fn poll_silence(&mut self, context: &mut Context<'_>) -> Poll<String> {
        self.waiting_since.get_or_insert_with(Instant::now);
        let silence = self.silence.get_or_insert_with(|| Box::pin(tokio::time::sleep(self.patience)));
        ready!(silence.as_mut().poll(context));
        Poll::Ready(format!("nothing of it arrived for {} s", self.patience.as_secs()))
    }
}

impl Period {
    fn add(&mut self, waited: Duration, bytes: usize, patience: Duration) -> Result<(), String> {
        self.waited += waited;
        self.bytes = self.bytes.saturating_add(bytes);
        if self.waited < patience {
            return Ok(());
        }
        if self.is_later && self.bytes < LEAST_BYTES {
            let (bytes, waited) = (self.bytes, self.waited.as_secs());
            return Err(format!("it is too slow: {bytes} bytes in {waited} s, and the least is {LEAST_BYTES}"));
        }
        *self = Period { is_later: true, ..Period::default() };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(30);

    #[test]
    fn s11_a_trickle_ends_after_its_second_period() {
        let mut period = Period::default();
        let trickle: Vec<bool> = (0..4).map(|_| period.add(Duration::from_secs(16), 1, PATIENCE).is_ok()).collect();
        assert_eq!(trickle, [true, true, true, false]);
    }

    #[test]
    fn s11_slow_and_steady_goes_on() {
        let mut period = Period::default();
        for _ in 0..1000 {
            period.add(Duration::from_secs(1), LEAST_BYTES / 30 + 1, PATIENCE).unwrap();
        }
    }
}
