//! Signals that are caught.

use std::future::poll_fn;
use std::task::Poll;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Signals that are caught, each with its number.
pub(in crate::cli) struct Signals(Vec<(i32, Signal)>);

impl Signals {
    /// The signals that end a program or notify it.
    pub(in crate::cli) fn to_pass_on() -> std::io::Result<Signals> {
        Signals::catch(&[
            SignalKind::interrupt(),
            SignalKind::terminate(),
            SignalKind::hangup(),
            SignalKind::quit(),
            SignalKind::user_defined1(),
            SignalKind::user_defined2(),
        ])
    }

    pub(super) fn catch(kinds: &[SignalKind]) -> std::io::Result<Signals> {
        let caught = kinds.iter().map(|kind| Ok((kind.as_raw_value(), signal(*kind)?)));
        Ok(Signals(caught.collect::<std::io::Result<_>>()?))
    }

    /// The number of the next signal.
    pub(in crate::cli) async fn next(&mut self) -> i32 {
        poll_fn(|cx| {
            for (number, signal) in &mut self.0 {
                if signal.poll_recv(cx).is_ready() {
                    return Poll::Ready(*number);
                }
            }
            Poll::Pending
        })
        .await
    }
}
