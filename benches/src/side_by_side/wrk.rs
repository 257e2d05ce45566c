//! wrk, an independent load generator, to check that ours favours no peer.

use std::net::SocketAddr;
use std::process::Command;

use fencepost_gateway::bench::Workload;

use crate::Timing;

/// The requests that wrk sends.
const SCRIPT: &str = include_str!("../../fenced.lua");

/// The rows measured with wrk: a workload at a number of connections.
pub(crate) const ROWS: &[(Workload, usize)] = &[(Workload::Put, 64), (Workload::Get, 64)];

/// The figures that wrk reported.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Said {
    pub(crate) rate: f64,
    /// The latency in milliseconds.
    pub(crate) p99: f64,
}

/// Measures an HTTP server with wrk, on one thread, after a warm-up.
pub(crate) fn measure(
    address: SocketAddr,
    workload: Workload,
    connections: usize,
    time: Timing,
) -> Result<Said, String> {
    let directory = tempfile::tempdir().map_err(|error| error.to_string())?;
    let script = directory.path().join("fenced.lua");
    std::fs::write(&script, SCRIPT).map_err(|error| error.to_string())?;
    let run = |seconds: u64| -> Result<Said, String> {
        let mut command = Command::new("wrk");
        command.args(["-t1", "--latency", &format!("-c{connections}"), &format!("-d{seconds}s"), "-s"]);
        command.arg(&script).args([&format!("http://{address}"), "--", workload.name()]);
        let output = command.output().map_err(|error| format!("wrk cannot be started: {error}"))?;
        said(&String::from_utf8_lossy(&output.stdout))
    };
    run(time.warm_up.as_secs().max(1))?;
    run(time.duration.as_secs().max(1))
}

fn said(text: &str) -> Result<Said, String> {
    let after = |word: &str| text.lines().find_map(|line| line.trim().strip_prefix(word).map(str::trim));
    if after("Non-2xx").is_some() || after("Socket errors").is_some() {
        return Err(format!("not all was answered well:\n{text}"));
    }
    let rate = after("Requests/sec:").and_then(|rate| rate.parse().ok());
    match (rate, after("99%").and_then(millis)) {
        (Some(rate), Some(p99)) => Ok(Said { rate, p99 }),
        _ => Err(format!("wrk said:\n{text}")),
    }
}

/// `5.54ms`, `812.00us` or `1.20s` in milliseconds.
fn millis(time: &str) -> Option<f64> {
    let (digits, factor) = match (time.strip_suffix("us"), time.strip_suffix("ms"), time.strip_suffix('s')) {
        (Some(digits), ..) => (digits, 0.001),
        (_, Some(digits), _) => (digits, 1.0),
        (.., Some(digits)) => (digits, 1000.0),
        _ => return None,
    };
    digits.parse::<f64>().ok().map(|number| number * factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_in_every_unit() {
        assert_eq!(millis("5.54ms"), Some(5.54));
        assert_eq!(millis("500.00us"), Some(0.5));
        assert_eq!(millis("1.20s"), Some(1200.0));
        assert_eq!(millis("fast"), None);
    }

    #[test]
    fn refused_requests_are_no_measurement() {
        let good = "  Latency Distribution\n     50%    2.48ms\n     99%    5.54ms\nRequests/sec:  24891.10\n";
        assert_eq!(said(good), Ok(Said { rate: 24891.1, p99: 5.54 }));
        assert!(said(&format!("{good}  Non-2xx or 3xx responses: 3\n")).is_err());
        assert!(said("unable to connect").is_err());
    }
}
