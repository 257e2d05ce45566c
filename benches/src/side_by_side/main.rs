//! The cost of fencing through the gateway, compared with common alternatives, on this machine and in one run.
//!
//! This program starts every peer, with its data in a temporary directory on the same file system. Every peer keeps
//! every answered write on stable storage. Rounds are interleaved: each peer is measured once per round, so that a slow
//! minute of the machine affects all of them. The load generator runs on the same machine, on one thread.

mod bare;
mod bars;
mod chart;
mod etcd;
mod figures;
mod gateway;
mod growth;
mod grpc;
mod h2load;
mod machine;
mod objects;
mod postgres;
mod redis;
mod report;
mod samples;
mod server;
mod shared;
mod usage;
mod wrk;

use std::net::SocketAddr;
use std::time::Duration;

use fencepost_gateway::bench::Workload;
use report::Report;
use samples::{Row, Sample};
use usage::Usage;

/// The size of a value in bytes, and the number of resources.
const VALUE: usize = 256;
const RESOURCES: u64 = 10_000;

/// A server that keeps values behind a fence, or a bare one for comparison.
pub(crate) trait Peer {
    /// Its name in the table.
    fn name(&self) -> &'static str;

    /// True if it supports this workload.
    fn offers(&self, workload: Workload) -> bool;

    /// Answers per second, latencies in milliseconds (p50, p99, p99.9), and the number of answers.
    fn measure(&mut self, workload: Workload, connections: usize, time: Timing) -> Result<Outcome, String>;

    /// The address of its HTTP interface, if it is to be measured with wrk, too.
    fn http(&self) -> Option<SocketAddr>;

    /// Its processes; their children are counted too.
    fn processes(&self) -> Vec<u32>;

    /// The processes of the server that it keeps its records on, if that is another one.
    fn behind(&self) -> Vec<u32> {
        Vec::new()
    }
}

/// The results of the load generator.
pub(crate) struct Outcome {
    pub(crate) rate: f64,
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) p999: f64,
    pub(crate) answers: f64,
}

/// The duration of each measurement.
#[derive(Clone, Copy)]
pub(crate) struct Timing {
    pub(crate) warm_up: Duration,
    pub(crate) duration: Duration,
}

/// The rows of the table: a workload at a number of connections.
const ROWS: &[(Workload, usize)] = &[
    (Workload::Put, 1),
    (Workload::Put, 64),
    (Workload::Put, 256),
    (Workload::Stale, 64),
    (Workload::Stale, 256),
    (Workload::Mixed, 64),
    (Workload::Get, 64),
    (Workload::CheckedGet, 64),
    (Workload::Claim, 64),
    (Workload::Txn, 64),
    (Workload::Lock, 64),
];

/// At least 3 seconds: opening 256 connections to PostgreSQL alone takes more than one.
const USAGE: &str = "usage: side-by-side [ROUNDS SECONDS], at least 1 round of at least 3 seconds
       side-by-side shared [ROUNDS SECONDS]
       side-by-side objects [ROUNDS SECONDS]
       side-by-side growth [ROUNDS SECONDS [FENCES…]]";

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let result = match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["bare", address] => bare::serve(address),
        ["growth", rest @ ..] => growth::run(rest),
        ["shared", rest @ ..] => rounds_and_seconds(rest).and_then(|(rounds, time)| shared::compare(rounds, time)),
        ["objects", rest @ ..] => rounds_and_seconds(rest).and_then(|(rounds, time)| objects::compare(rounds, time)),
        rest => rounds_and_seconds(rest).and_then(|(rounds, time)| compare(rounds, time)),
    };
    if let Err(error) = result {
        eprintln!("side-by-side: {error}");
        std::process::exit(1);
    }
}

fn rounds_and_seconds(arguments: &[&str]) -> Result<(usize, Duration), String> {
    match arguments {
        [] => Ok((5, Duration::from_secs(3))),
        [rounds, seconds] => match (rounds.parse(), seconds.parse()) {
            (Ok(rounds @ 1..), Ok(seconds @ 3..)) => Ok((rounds, Duration::from_secs(seconds))),
            _ => Err(USAGE.to_owned()),
        },
        _ => Err(USAGE.to_owned()),
    }
}

fn compare(rounds: usize, duration: Duration) -> Result<(), String> {
    machine::raise_open_files();
    let home = tempfile::tempdir().map_err(|error| error.to_string())?;
    let mut peers: Vec<Box<dyn Peer>> = vec![
        Box::new(gateway::Gateways::embedded(home.path())?),
        Box::new(bare::Bare::start()?),
        Box::new(redis::Redis::start(home.path())?),
        Box::new(postgres::Postgres::start(home.path())?),
        Box::new(etcd::Etcd::start(home.path())?),
    ];
    let time = Timing { warm_up: Duration::from_secs(1), duration };
    let mut report = Report::new(home.path(), rounds, time);
    for round in 1..=rounds {
        let progress = format!("round {round} of {rounds}");
        measure_each(&mut peers, ROWS, time, &progress, |row, sample| report.add(row, sample))?;
        for (workload, connections) in wrk::ROWS {
            for peer in &peers {
                let Some(address) = peer.http() else { continue };
                eprintln!("{progress}: {workload} at {connections} by wrk, {}", peer.name());
                let row = Row { workload: *workload, connections: *connections, peer: peer.name() };
                report.add_wrk(row, wrk::measure(address, *workload, *connections, time)?);
            }
        }
        let Some(gateway) = peers.first().and_then(|gateway| gateway.http()) else { continue };
        for workload in h2load::ROWS {
            for carried in h2load::Carried::ALL {
                eprintln!("{progress}: {workload} by h2load, {}", carried.text());
                report.add_h2load(*workload, carried, h2load::measure(gateway, *workload, carried, time)?);
            }
        }
    }
    let text = report.markdown();
    println!("{text}");
    report.write(&text)
}

/// One round: each peer has its turn with each row that it offers.
fn measure_each(
    peers: &mut [Box<dyn Peer>],
    rows: &[(Workload, usize)],
    time: Timing,
    round: &str,
    mut add: impl FnMut(Row, Sample),
) -> Result<(), String> {
    for (workload, connections) in rows {
        for peer in peers.iter_mut() {
            // Each of several gateways needs a connection.
            if !peer.offers(*workload) || *connections < peer.processes().len() {
                continue;
            }
            eprintln!("{round}: {workload} at {connections}, {}", peer.name());
            let row = Row { workload: *workload, connections: *connections, peer: peer.name() };
            add(row, measure(peer.as_mut(), *workload, *connections, time)?);
        }
    }
    Ok(())
}

fn measure(peer: &mut dyn Peer, workload: Workload, connections: usize, time: Timing) -> Result<Sample, String> {
    let (processes, behind) = (peer.processes(), peer.behind());
    let now = || (Usage::of(&processes), Usage::of(&behind));
    let (before, before_behind) = now();
    let outcome = peer.measure(workload, connections, time)?;
    let (used, used_behind) = now();
    // The usage includes the warm-up, so it is divided by the answers of the whole time.
    let all = outcome.answers * (time.warm_up + time.duration).as_secs_f64() / time.duration.as_secs_f64();
    Ok(Sample {
        rate: outcome.rate,
        p50: outcome.p50,
        p99: outcome.p99,
        p999: outcome.p999,
        cpu: (used.cpu - before.cpu) / all * 100_000.0,
        written: (used.written - before.written) / all,
        cpu_behind: (used_behind.cpu - before_behind.cpu) / all * 100_000.0,
        written_behind: (used_behind.written - before_behind.written) / all,
        memory: used.memory,
    })
}
