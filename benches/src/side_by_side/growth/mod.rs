//! Measurements as the data, the values or the connections grow.
//!
//! Every row has its own data or its own load, and a gateway is started for it in every round. Rows are interleaved, so
//! that a slow minute of the machine affects all of them. One gateway runs at a time.

mod fill;
mod report;
mod subject;

use std::path::Path;
use std::time::Duration;

use fencepost_gateway::bench::Workload;

use crate::figures::Rounds;
use crate::{Outcome, Timing, VALUE, machine};
use fill::{Content, fill};
use report::Report;
use subject::{Charge, Subject, disk};

/// The default numbers of fences.
const FENCES: &[u64] = &[10_000, 1_000_000, 10_000_000];

/// Bytes of a value, the number of keys with such values, and a label.
const VALUES: &[(usize, u64, &str)] = &[
    (64, 10_000, "64 B"),
    (1 << 10, 10_000, "1 KiB"),
    (16 << 10, 10_000, "16 KiB"),
    (256 << 10, 1_000, "256 KiB"),
    (1 << 20, 256, "1 MiB"),
];

const CONNECTIONS: &[u64] = &[1, 16, 64, 256, 1024, 4096];

/// The number of connections where it is not varied.
const USUAL_CONNECTIONS: u64 = 64;
const USUAL_FENCES: u64 = 10_000;

const USAGE: &str = "usage: side-by-side growth [ROUNDS SECONDS [FENCES…]]";

/// Rates and latencies of one kind of request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Speed {
    pub(crate) rate: Rounds,
    pub(crate) p50: Rounds,
    pub(crate) p99: Rounds,
}

impl Speed {
    fn add(&mut self, outcome: &Outcome) {
        self.rate.add(outcome.rate);
        self.p50.add(outcome.p50);
        self.p99.add(outcome.p99);
    }
}

/// A row for one number of fences.
#[derive(Clone, Debug, Default)]
pub(crate) struct ByFences {
    pub(crate) fences: u64,
    /// Fences per second while filling.
    pub(crate) filled: f64,
    pub(crate) put: Speed,
    pub(crate) get: Speed,
    /// Memory in MiB.
    pub(crate) memory: Rounds,
    pub(crate) disk: Rounds,
    /// In milliseconds: from the start to ready, the same after SIGKILL, and from there to a durable write.
    pub(crate) ready: Rounds,
    pub(crate) recovered: Rounds,
    pub(crate) writing: Rounds,
}

/// A row for values of one size.
#[derive(Clone, Debug)]
pub(crate) struct ByValue {
    pub(crate) name: &'static str,
    pub(crate) bytes: usize,
    pub(crate) put: Speed,
    pub(crate) get: Speed,
    pub(crate) memory: Rounds,
}

/// A row for one number of connections.
#[derive(Clone, Debug)]
pub(crate) struct ByConnections {
    pub(crate) connections: u64,
    pub(crate) put: Speed,
    pub(crate) memory: Rounds,
}

/// Runs everything and writes the document.
pub(crate) fn run(arguments: &[&str]) -> Result<(), String> {
    let (rounds, seconds, fences) = match arguments {
        [] => (3_usize, 5, FENCES.to_vec()),
        [rounds, seconds, fences @ ..] => {
            let fences: Result<Vec<u64>, _> = fences.iter().map(|count| count.parse()).collect();
            match (rounds.parse(), seconds.parse(), fences) {
                (Ok(rounds @ 1..), Ok(seconds @ 1..), Ok(fences)) => {
                    (rounds, seconds, if fences.is_empty() { FENCES.to_vec() } else { fences })
                }
                _ => return Err(USAGE.to_owned()),
            }
        }
        _ => return Err(USAGE.to_owned()),
    };
    let time = Timing { warm_up: Duration::from_secs(1), duration: Duration::from_secs(seconds) };
    grow(rounds, time, &fences)
}

fn grow(rounds: usize, time: Timing, sizes: &[u64]) -> Result<(), String> {
    let open_files = machine::raise_open_files();
    let home = tempfile::tempdir().map_err(|error| error.to_string())?;
    let mut report = Report::new(machine::describe(home.path()), rounds, time);
    let path = |fences: u64| home.path().join(fences.to_string());
    for &fences in sizes {
        let filled = prepare(&path(fences), &[Content { prefix: "bench/", count: fences, value: VALUE }])?;
        report.fences.push(ByFences { fences, filled, ..ByFences::default() });
    }
    let other = home.path().join("other");
    let names: Vec<String> = VALUES.iter().map(|(bytes, ..)| format!("value-{bytes}/")).collect();
    let mut contents = vec![Content { prefix: "bench/", count: USUAL_FENCES, value: VALUE }];
    contents.extend(VALUES.iter().zip(&names).map(|((value, count, _), prefix)| Content {
        prefix,
        count: *count,
        value: *value,
    }));
    prepare(&other, &contents)?;

    for round in 1..=rounds as u64 {
        for row in &mut report.fences {
            eprintln!("round {round} of {rounds}: {} fences", row.fences);
            by_fences(row, &path(row.fences), round, time)?;
        }
        for ((row, (.., count, _)), prefix) in report.values.iter_mut().zip(VALUES).zip(&names) {
            eprintln!("round {round} of {rounds}: values of {}", row.name);
            let charge = Charge { prefix, resources: *count, value: row.bytes, ..usual(Workload::Put, round) };
            if let Err(why) = by_value(row, &other, charge, time) {
                report.failures.push(format!("values of {}, round {round}: {why}", row.name));
            }
        }
        for row in &mut report.connections {
            eprintln!("round {round} of {rounds}: {} connections", row.connections);
            let charge = Charge { connections: row.connections, ..usual(Workload::Put, round) };
            let result = match row.connections + 256 > open_files {
                true => Err(format!("only {open_files} files may be open here (ulimit -n)")),
                false => by_connections(row, &other, charge, time),
            };
            if let Err(why) = result {
                report.failures.push(format!("{} connections, round {round}: {why}", row.connections));
            }
        }
    }
    let text = report.markdown();
    println!("{text}");
    report.write(&text)
}

/// Fills a directory, and lets a gateway finish the background work of filling. Returns fences per second of the last
/// content.
fn prepare(directory: &Path, contents: &[Content<'_>]) -> Result<f64, String> {
    let mut rate = f64::NAN;
    for content in contents {
        eprintln!("filling: {} fences under {}", content.count, content.prefix);
        rate = fill(directory, content)?;
    }
    let subject = Subject::start(directory)?;
    subject.settle();
    subject.stop();
    Ok(rate)
}

/// A load whose requests no other round sends.
fn usual(workload: Workload, round: u64) -> Charge<'static> {
    let starting_at = round * 1_000_000_000 + if workload == Workload::Get { 500_000_000 } else { 0 };
    let (connections, resources) = (USUAL_CONNECTIONS, USUAL_FENCES);
    Charge { workload, connections, prefix: "bench/", resources, value: VALUE, starting_at }
}

fn by_fences(row: &mut ByFences, data: &Path, round: u64, time: Timing) -> Result<(), String> {
    let millis = |time: Duration| time.as_secs_f64() * 1000.0;
    let charge = |workload| Charge { resources: row.fences, ..usual(workload, round) };
    let (put, get) = (charge(Workload::Put), charge(Workload::Get));
    let subject = Subject::start(data)?;
    row.ready.add(millis(subject.ready));
    row.put.add(&subject.measure(put, time)?);
    row.get.add(&subject.measure(get, time)?);
    row.memory.add(subject.memory());
    row.disk.add(disk(data));
    subject.kill_under_load(Charge { starting_at: put.starting_at + 250_000_000, ..put });
    let subject = Subject::start(data)?;
    row.recovered.add(millis(subject.ready));
    row.writing.add(millis(subject.first_write("bench/0")?));
    subject.settle();
    subject.stop();
    Ok(())
}

fn by_value(row: &mut ByValue, data: &Path, put: Charge<'_>, time: Timing) -> Result<(), String> {
    let subject = Subject::start(data)?;
    row.put.add(&subject.measure(put, time)?);
    row.get.add(&subject.measure(Charge { workload: Workload::Get, ..put }, time)?);
    row.memory.add(subject.memory());
    subject.settle();
    subject.stop();
    Ok(())
}

fn by_connections(row: &mut ByConnections, data: &Path, put: Charge<'_>, time: Timing) -> Result<(), String> {
    let subject = Subject::start(data)?;
    row.put.add(&subject.measure(put, time)?);
    row.memory.add(subject.memory());
    subject.stop();
    Ok(())
}
