//! The table.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::time::Instant;

use fencepost_gateway::bench::Workload;

use crate::{RESOURCES, Sample, Timing, VALUE};

/// Where it is written.
const DOCUMENT: &str = "docs/benchmarks.md";

/// What was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) workload: Workload,
    pub(crate) connections: usize,
    pub(crate) peer: &'static str,
}

pub(crate) struct Report {
    rows: Vec<(Row, Vec<Sample>)>,
    machine: String,
}

impl Report {
    pub(crate) fn new(home: &Path, rounds: usize, time: Timing) -> Report {
        Report { rows: Vec::new(), machine: machine(home, rounds, time) }
    }

    pub(crate) fn add(&mut self, row: Row, sample: Sample) {
        match self.rows.iter_mut().find(|(known, _)| *known == row) {
            Some((_, samples)) => samples.push(sample),
            None => self.rows.push((row, vec![sample])),
        }
    }

    fn median(&self, row: Row, of: impl Fn(&Sample) -> f64) -> Option<f64> {
        let (_, samples) = self.rows.iter().find(|(known, _)| *known == row)?;
        let mut values: Vec<f64> = samples.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied()
    }

    pub(crate) fn markdown(&self) -> String {
        let mut text =
            format!("# Benchmarks\n\nMade by `make bench`; nothing here is edited by hand.\n\n{}\n", self.machine);
        text.push_str("| workload | connections | | answers/s | spread | fencepost ÷ this | p50 ms | p99 ms | p99.9 ms | CPU s / 100,000 | bytes written each | memory MiB |\n");
        text.push_str("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n");
        for (row, samples) in &self.rows {
            let ours = self.median(Row { peer: "fencepost", ..*row }, |sample| sample.rate).unwrap_or(f64::NAN);
            let of = |value: fn(&Sample) -> f64| self.median(*row, value).unwrap_or(f64::NAN);
            let rate = of(|sample| sample.rate);
            let spread = samples.iter().map(|sample| sample.rate);
            let (low, high) = spread.fold((f64::MAX, 0.0_f64), |(low, high), rate| (low.min(rate), high.max(rate)));
            let ratio = if row.peer == "fencepost" { String::new() } else { format!("**{:.2}**", ours / rate) };
            // Writing to a String cannot fail.
            let _ = writeln!(
                text,
                "| {} | {} | {} | {rate:.0} | {low:.0}–{high:.0} | {ratio} | {:.2} | {:.2} | {:.2} | {:.2} | {:.0} | {:.0} |",
                row.workload,
                row.connections,
                row.peer,
                of(|sample| sample.p50),
                of(|sample| sample.p99),
                of(|sample| sample.p999),
                of(|sample| sample.cpu),
                of(|sample| sample.written),
                of(|sample| sample.memory),
            );
        }
        text
    }

    /// Writes the document, if this is run in the repository.
    pub(crate) fn write(&self, text: &str) -> Result<(), String> {
        if !Path::new("docs").is_dir() {
            return Ok(());
        }
        fs::write(DOCUMENT, text).map_err(|error| format!("{DOCUMENT}: {error}"))
    }
}

fn machine(home: &Path, rounds: usize, time: Timing) -> String {
    let field = |path: &str, word: &str| {
        let text = fs::read_to_string(path).unwrap_or_default();
        let found = text.lines().find(|line| line.starts_with(word)).and_then(|line| line.split(':').nth(1));
        found.unwrap_or("unknown").trim().to_owned()
    };
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let memory: u64 =
        field("/proc/meminfo", "MemTotal").split(' ').next().and_then(|kib| kib.parse().ok()).unwrap_or(0);
    format!(
        "{cores} cores of {}, {} GiB of memory, Linux {}. Values of {VALUE} bytes, {RESOURCES} resources, every answered write durable. \
         {rounds} rounds, interleaved, of {:.0} s each after {:.0} s of warm-up; medians, and the lowest and highest round. The load generator runs on the same \
         machine, on one thread (pgbench for PostgreSQL). One `fdatasync` after a write of 4 KiB took {:.0} µs (median of 200) on the file system all \
         of them used. CPU and bytes are those of the server, children included.\n\n\
         *fencepost* is the gateway on RocksDB. *bare hyper* reads the body and answers `ok`, and keeps nothing: the most that any HTTP service could do here. \
         *Redis* 7 checks the fence in Lua, with `appendfsync always`. *PostgreSQL* 15 does a fenced upsert as a prepared statement.\n",
        field("/proc/cpuinfo", "model name"),
        memory >> 20,
        fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim(),
        time.duration.as_secs_f64(),
        time.warm_up.as_secs_f64(),
        fsync(home).unwrap_or(f64::NAN),
    )
}

/// Microseconds of a small durable append.
fn fsync(home: &Path) -> std::io::Result<f64> {
    let mut file = fs::File::create(home.join("fsync"))?;
    let mut times = Vec::new();
    for _ in 0..200 {
        let started = Instant::now();
        file.write_all(&[b'x'; 4096])?;
        file.sync_data()?;
        times.push(started.elapsed().as_secs_f64() * 1e6);
    }
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() / 2])
}
