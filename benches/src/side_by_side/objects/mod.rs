//! The cost of the S3 front end, compared with the same files without a server and with another S3 server, on this
//! machine and in one run.

mod connection;
mod direct;
mod report;
mod server;
mod sign;
mod small;

use std::time::Duration;

use report::{Report, Row};
use small::Does;

use crate::usage::Usage;
use crate::{Outcome, Timing};

/// The size of a small object and of a large one.
const SMALL: usize = 4 << 10;
const LARGE: usize = 256 << 20;

/// The number of small objects to read.
const READ_OBJECTS: u64 = 1_000;

/// A store of objects to compare.
trait ObjectPeer {
    /// Its name in the table.
    fn name(&self) -> &'static str;

    /// Transfers many small objects over this many connections, or in this many threads.
    fn small(&mut self, does: Does, connections: usize, time: Timing) -> Result<Outcome, String>;

    /// Writes the large object, and returns the time until the answer.
    fn put_large(&mut self) -> Result<Duration, String>;

    /// Reads the large object, and returns the time it took.
    fn get_large(&mut self) -> Result<Duration, String>;

    /// The process id of the server, if there is one.
    fn process(&self) -> Option<u32>;
}

/// The rows to measure.
const ROWS: &[Row] =
    &[Row::Small(Does::Put, 1), Row::Small(Does::Put, 16), Row::Small(Does::Get, 16), Row::LargePut, Row::LargeGet];

/// The result of one measurement.
struct Sample {
    /// Objects per second, or MiB per second.
    rate: f64,
    p50: f64,
    p99: f64,
    /// The server's anonymous resident memory in MiB, if there is a server.
    memory: f64,
}

/// Measures, prints the table and writes the document.
pub(crate) fn compare(rounds: usize, duration: Duration) -> Result<(), String> {
    let home = tempfile::tempdir().map_err(|error| error.to_string())?;
    let mut peers: Vec<Box<dyn ObjectPeer>> = vec![
        Box::new(server::S3::gateway(home.path())?),
        Box::new(direct::Direct::start(home.path())?),
        Box::new(server::S3::seaweedfs(home.path())?),
    ];
    let time = Timing { warm_up: Duration::from_secs(1), duration };
    let mut report = Report::new(home.path(), rounds, time);
    for round in 1..=rounds {
        for row in ROWS {
            for peer in &mut peers {
                eprintln!("round {round} of {rounds}: {row}, {}", peer.name());
                report.add(*row, peer.name(), measure(peer.as_mut(), *row, time)?);
            }
        }
    }
    let text = report.markdown();
    println!("{text}");
    report.write(&text)
}

fn measure(peer: &mut dyn ObjectPeer, row: Row, time: Timing) -> Result<Sample, String> {
    let (rate, p50, p99) = match row {
        Row::Small(does, connections) => {
            let outcome = peer.small(does, connections, time)?;
            (outcome.rate, outcome.p50, outcome.p99)
        }
        Row::LargePut => throughput(peer.put_large()?),
        Row::LargeGet => throughput(peer.get_large()?),
    };
    let memory = peer.process().map_or(f64::NAN, |process| Usage::of(&[process]).memory);
    Ok(Sample { rate, p50, p99, memory })
}

fn throughput(took: Duration) -> (f64, f64, f64) {
    ((LARGE >> 20) as f64 / took.as_secs_f64(), f64::NAN, f64::NAN)
}

/// A MiB of poorly compressible data; the large object consists of copies of it.
fn block() -> Vec<u8> {
    fencepost_gateway::bench::text(7, 1 << 20).into_bytes()
}
