//! Load on a running gateway, and the measurement of its answers: `fencepost bench`, and the gateway's part of `make
//! bench`.

mod http;
mod load;
mod spread;
mod workload;

use std::fmt::Write as _;

pub use http::Http;
pub use load::{Answered, Load, Measured, Protocol, Trouble, run};
pub use spread::{spread, text};
pub use workload::{WORKLOADS, Workload};

/// The heading of a table of measurements.
pub fn heading() -> String {
    format!(
        "{:<12} {:>11} {:>12} {:>9} {:>9} {:>9} {:>11}",
        "workload", "connections", "answers/s", "p50 ms", "p99 ms", "p99.9 ms", "unexpected"
    )
}

/// A measurement as a line of that table.
pub fn line(workload: Workload, measured: &Measured) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = write!(
        text,
        "{:<12} {:>11} {:>12.0} {:>9.2} {:>9.2} {:>9.2} {:>11}",
        workload.name(),
        measured.connections,
        measured.rate(),
        measured.millis(0.5),
        measured.millis(0.99),
        measured.millis(0.999),
        measured.unexpected
    );
    text
}
