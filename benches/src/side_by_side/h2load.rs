//! h2load, an independent load generator that speaks both versions of HTTP: the same requests over many connections of
//! HTTP/1.1, and as streams of few connections of HTTP/2.

use std::net::SocketAddr;
use std::process::Command;

use fencepost_gateway::bench::Workload;

use crate::{RESOURCES, Timing, VALUE};

/// The workloads measured with h2load.
pub(crate) const ROWS: &[Workload] = &[Workload::Put, Workload::Get];

/// How 64 requests at once are carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Carried {
    /// One on each of 64 connections.
    Http1,
    /// As 16 streams on each of 4 connections.
    Http2,
}

impl Carried {
    pub(crate) const ALL: [Carried; 2] = [Carried::Http1, Carried::Http2];

    /// As the table names it.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Carried::Http1 => "HTTP/1.1, 64 connections",
            Carried::Http2 => "HTTP/2, 4 connections of 16 streams",
        }
    }

    fn arguments(self) -> &'static [&'static str] {
        match self {
            Carried::Http1 => &["--h1", "-c64", "-m1"],
            Carried::Http2 => &["-c4", "-m16"],
        }
    }
}

/// Answers per second.
pub(crate) fn measure(address: SocketAddr, workload: Workload, carried: Carried, time: Timing) -> Result<f64, String> {
    let directory = tempfile::tempdir().map_err(|error| error.to_string())?;
    let (targets, value) = (directory.path().join("targets"), directory.path().join("value"));
    let lines: String = (0..RESOURCES).map(|number| format!("http://{address}/v1/kv/bench/{number}\n")).collect();
    std::fs::write(&targets, lines).map_err(|error| error.to_string())?;
    std::fs::write(&value, vec![b'v'; VALUE]).map_err(|error| error.to_string())?;
    let mut command = Command::new("h2load");
    command.args(["-t1", &format!("-D{}", time.duration.as_secs().max(1))]);
    command.arg(format!("--warm-up-time={}", time.warm_up.as_secs().max(1)));
    command.args(carried.arguments()).arg("-i").arg(&targets);
    if workload == Workload::Put {
        command.args(["-H", ":method: PUT", "-H", "fencing-token: 1000000", "-d"]).arg(&value);
    }
    let output = command.output().map_err(|error| format!("h2load cannot be started: {error}"))?;
    said(&String::from_utf8_lossy(&output.stdout))
}

/// `finished in 3.00s, 26154.33 req/s, 5.04MB/s`, and a line that counts the statuses.
fn said(text: &str) -> Result<f64, String> {
    let line = |word: &str| text.lines().find_map(|line| line.strip_prefix(word));
    let rate = line("finished in ").and_then(|rest| rest.split(", ").nth(1)?.strip_suffix(" req/s")?.parse().ok());
    let all_well = line("status codes: ").is_some_and(|rest| rest.ends_with("0 3xx, 0 4xx, 0 5xx"));
    match rate {
        Some(rate) if all_well => Ok(rate),
        _ => Err(format!("h2load said:\n{text}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_requests_are_no_measurement() {
        let good = "\nfinished in 3.00s, 26154.33 req/s, 5.04MB/s\nstatus codes: 78463 2xx, 0 3xx, 0 4xx, 0 5xx\n";
        assert_eq!(said(good), Ok(26154.33));
        assert!(said(&good.replace("0 4xx", "7 4xx")).is_err());
        assert!(said("could not connect").is_err());
    }
}
