//! System calls and context switches of the gateway per request, under a fixed load: wake-ups that creep in show here
//! and in no instruction count.
//!
//! System calls are counted by strace, which slows the gateway down and so makes its batches larger; context switches are
//! read from /proc in a run without it. Both vary from run to run, so the tolerance is wide.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use fencepost_gateway::bench::{self, Http, Load, Workload};

/// The path of the document.
pub(crate) const DOCUMENT: &str = "docs/system-calls.md";

/// The workloads that are counted, at 64 connections and at one.
const ROWS: &[(Workload, u64)] = &[
    (Workload::Put, 64),
    (Workload::Put, 1),
    (Workload::Stale, 64),
    (Workload::Get, 64),
    (Workload::Claim, 64),
    (Workload::Healthz, 64),
];

/// The calls with a column of their own.
const NAMED: &[&str] = &["recvfrom", "writev", "epoll_wait", "futex", "fdatasync", "pwrite64"];

/// How much a count may grow, in percent.
const TOLERANCE: f64 = 30.0;

/// Counts of less than this per request vary for no relevant reason.
const SLACK: f64 = 0.1;

const RESOURCES: u64 = 1_000;
const VALUE: usize = 256;
const DURATION: Duration = Duration::from_secs(3);

/// The counts of one workload, per request.
#[derive(Clone, Debug, PartialEq)]
struct Counted {
    name: String,
    calls: BTreeMap<String, f64>,
    total: f64,
    switches: f64,
}

/// Counts every workload and writes the document.
pub(crate) fn record() -> Result<(), String> {
    fs::write(DOCUMENT, markdown(&counted()?)).map_err(|error| format!("{DOCUMENT}: {error}"))?;
    println!("{DOCUMENT} is written");
    Ok(())
}

/// Counts every workload and compares with the document.
pub(crate) fn check() -> Result<(), String> {
    let text =
        fs::read_to_string(DOCUMENT).map_err(|error| format!("{DOCUMENT}: {error}; `hot-path record` writes it"))?;
    let mut above = Vec::new();
    for now in counted()? {
        let Some((total, switches)) = recorded(&text, &now.name) else {
            println!("{}: not recorded yet; run `make bench-instructions ARGS=record`", now.name);
            continue;
        };
        for (what, now_is, was) in [("system calls", now.total, total), ("context switches", now.switches, switches)] {
            if has_grown(was, now_is) {
                above.push(format!("{}: {now_is:.2} {what} per request, recorded are {was:.2}", now.name));
            }
        }
    }
    match above.as_slice() {
        [] => {
            println!("system calls and context switches are within their tolerance ({DOCUMENT})");
            Ok(())
        }
        above => Err(format!("more system calls or wake-ups than recorded.\n  {}", above.join("\n  "))),
    }
}

fn has_grown(recorded: f64, counted: f64) -> bool {
    counted > recorded * (1.0 + TOLERANCE / 100.0) + SLACK
}

fn counted() -> Result<Vec<Counted>, String> {
    ROWS.iter()
        .map(|(workload, connections)| {
            let (calls, total) = system_calls(*workload, *connections)?;
            let switches = switches(*workload, *connections)?;
            let name = format!("{workload} {connections}");
            eprintln!("{name:<12} {total:>6.2} system calls, {switches:>6.2} context switches per request");
            Ok(Counted { name, calls, total, switches })
        })
        .collect()
}

fn system_calls(workload: Workload, connections: u64) -> Result<(BTreeMap<String, f64>, f64), String> {
    let home = tempfile::tempdir().map_err(|error| error.to_string())?;
    let summary = home.path().join("summary");
    let mut strace = Command::new("strace");
    strace.args(["-f", "-c", "-U", "calls,name", "-o"]).arg(&summary);
    let gateway = Gateway::start(Some(strace), home.path())?;
    let answers = gateway.load(workload, connections)?;
    gateway.stop()?;
    let text = fs::read_to_string(&summary).map_err(|error| error.to_string())?;
    let mut calls = BTreeMap::new();
    for line in text.lines() {
        if let [count, name] = line.split_whitespace().collect::<Vec<_>>()[..]
            && let Ok(count) = count.parse::<f64>()
            && name != "total"
        {
            calls.insert(name.to_owned(), count / answers);
        }
    }
    let total = calls.values().sum();
    if total > 0.0 { Ok((calls, total)) } else { Err(format!("strace said:\n{text}")) }
}

fn switches(workload: Workload, connections: u64) -> Result<f64, String> {
    let home = tempfile::tempdir().map_err(|error| error.to_string())?;
    let gateway = Gateway::start(None, home.path())?;
    let before = gateway.switches();
    let answers = gateway.load(workload, connections)?;
    let after = gateway.switches();
    gateway.stop()?;
    Ok((after - before) / answers)
}

/// A gateway with a store of its own, filled.
struct Gateway {
    child: Child,
    process: u32,
    address: SocketAddr,
}

impl Gateway {
    fn start(traced_by: Option<Command>, home: &Path) -> Result<Gateway, String> {
        let program = std::env::current_exe().map_err(|error| error.to_string())?.with_file_name("fencepost");
        let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        let address = free.map_err(|error| error.to_string())?;
        let data = home.join("data");
        let mut command = match traced_by {
            Some(mut tracer) => {
                tracer.arg(&program);
                tracer
            }
            None => Command::new(&program),
        };
        command.args([
            "serve",
            "--debuggable",
            "--log",
            "warn",
            "--state-dir",
            "off",
            "--listen",
            &address.to_string(),
        ]);
        command.arg("--data").arg(&data).stdin(Stdio::null()).stdout(Stdio::null());
        let child =
            command.spawn().map_err(|error| format!("{:?} cannot be started: {error}", command.get_program()))?;
        let mut gateway = Gateway { child, process: 0, address };
        let deadline = Instant::now() + Duration::from_secs(60);
        while TcpStream::connect(address).is_err() {
            if Instant::now() > deadline {
                return Err(format!("the gateway is not ready on {address}"));
            }
            pause();
        }
        let owner = fs::read_to_string(data.join("LOCK")).map_err(|error| error.to_string())?;
        gateway.process = owner.trim().parse().map_err(|_| "the gateway's process is not known".to_owned())?;
        // The same keys and tokens as those of the load.
        gateway.fill(&program)?;
        Ok(gateway)
    }

    fn fill(&self, program: &Path) -> Result<(), String> {
        let filled = Command::new(program)
            .args(["bench", "healthz", "--yes", "--duration", "1ms", "--warm-up", "0s", "--url"])
            .arg(format!("http://{}", self.address))
            .args(["--resources", &RESOURCES.to_string(), "--value-size", &VALUE.to_string()])
            .output()
            .map_err(|error| error.to_string())?;
        if filled.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&filled.stderr).into_owned()) }
    }

    /// Runs the load on one thread, and returns the number of answers.
    fn load(&self, workload: Workload, connections: u64) -> Result<f64, String> {
        let speakers = (0..connections).map(|number| Http::new(workload, number, RESOURCES, VALUE, "bench/")).collect();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let load = Load { addresses: vec![self.address], warm_up: Duration::ZERO, duration: DURATION };
        let measured = runtime.map_err(|error| error.to_string())?.block_on(bench::run(load, speakers));
        let measured = measured.map_err(|error| error.to_string())?;
        if measured.unexpected > 0 {
            return Err(format!("{} answers were not as expected", measured.unexpected));
        }
        Ok(measured.answered as f64)
    }

    /// Context switches of all threads so far.
    fn switches(&self) -> f64 {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.process)).into_iter().flatten().filter_map(Result::ok);
        let status = tasks.map(|task| fs::read_to_string(task.path().join("status")).unwrap_or_default());
        let of = |status: String| -> f64 {
            let lines = status.lines().filter(|line| line.contains("ctxt_switches"));
            lines.filter_map(|line| line.split_whitespace().nth(1)?.parse::<f64>().ok()).sum()
        };
        status.map(of).sum()
    }

    /// Stops the gateway; strace writes its summary then.
    fn stop(mut self) -> Result<(), String> {
        let process = i32::try_from(self.process).ok().and_then(rustix::process::Pid::from_raw);
        let process = process.ok_or("the gateway's process is not known")?;
        rustix::process::kill_process(process, rustix::process::Signal::TERM).map_err(|error| error.to_string())?;
        self.child.wait().map(drop).map_err(|error| error.to_string())
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // It may have exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[allow(clippy::disallowed_methods, reason = "between two looks at a server that starts")]
fn pause() {
    std::thread::sleep(Duration::from_millis(50));
}

fn markdown(rows: &[Counted]) -> String {
    let mut text = format!(
        "# System calls of the hot path\n\n\
         <!-- Generated by `make bench-instructions ARGS=record`. Edit nothing here: the guard reads it back. -->\n\n\
         Generated by `make bench-instructions ARGS=record`; `make bench-instructions` counts again, and fails if a total or the context switches have grown by more than {TOLERANCE} %.\n\n\
         Per request, over {} s of load by one thread, at the number of connections in the first column. System calls are counted by strace, which slows the gateway down; context switches in a run without it.\n\n\
         | workload | system calls | context switches | {} | others |\n| --- | --: | --: |{}\n",
        DURATION.as_secs(),
        NAMED.join(" | "),
        " --: |".repeat(NAMED.len() + 1),
    );
    for Counted { name, calls, total, switches } in rows {
        let of = |name: &&str| calls.get(*name).copied().unwrap_or(0.0);
        let named: Vec<String> = NAMED.iter().map(|name| format!("{:.2}", of(name))).collect();
        let others = total - NAMED.iter().map(of).sum::<f64>();
        // Writing to a String cannot fail.
        let _ = writeln!(text, "| `{name}` | {total:.2} | {switches:.2} | {} | {others:.2} |", named.join(" | "));
    }
    text
}

/// The total and the context switches of a row of the document.
fn recorded(text: &str, name: &str) -> Option<(f64, f64)> {
    let row = text.lines().find_map(|line| line.strip_prefix(&format!("| `{name}` |")))?;
    let mut cells = row.split('|').map(str::trim);
    Some((cells.next()?.parse().ok()?, cells.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let calls = BTreeMap::from([("futex".to_owned(), 0.5), ("mmap".to_owned(), 0.25)]);
        let row = Counted { name: "put 64".to_owned(), calls, total: 0.75, switches: 0.3 };
        let text = markdown(std::slice::from_ref(&row));
        assert_eq!(recorded(&text, "put 64"), Some((0.75, 0.3)));
        assert_eq!(recorded(&text, "put 1"), None);
        assert!(text.contains("| 0.50 |") && text.contains("| 0.25 |"), "{text}");
    }

    #[test]
    fn only_growth_beyond_the_tolerance_counts() {
        assert!(!has_grown(1.0, 1.3) && !has_grown(0.0, 0.1) && has_grown(1.0, 1.5) && has_grown(0.0, 0.2));
    }
}
