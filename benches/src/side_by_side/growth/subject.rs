//! A gateway on a data directory, started and stopped as often as needed.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use fencepost_gateway::bench::{Http, Workload};

use crate::gateway::load;
use crate::server::{Server, free_port, pause};
use crate::usage::Usage;
use crate::{Outcome, Timing};

/// More than the load opens, plus those of readiness probes.
const MAX_CONNECTIONS: &str = "8192";

/// A running gateway.
pub(crate) struct Subject {
    server: Server,
    /// When its process was started.
    started: Instant,
    /// The time from there until `/readyz` answered with 200.
    pub(crate) ready: Duration,
}

/// The load to apply.
#[derive(Clone, Copy)]
pub(crate) struct Charge<'a> {
    pub(crate) workload: Workload,
    pub(crate) connections: u64,
    pub(crate) prefix: &'a str,
    pub(crate) resources: u64,
    pub(crate) value: usize,
    /// The number of the first request, so that no two measurements send the same requests.
    pub(crate) starting_at: u64,
}

impl Subject {
    pub(crate) fn start(data: &Path) -> Result<Subject, String> {
        let program = std::env::current_exe().map_err(|error| error.to_string())?.with_file_name("fencepost");
        let port = free_port()?;
        let mut command = Command::new(program);
        command.args(["serve", "--log", "warn", "--listen", &format!("127.0.0.1:{port}"), "--data"]).arg(data);
        command.args(["--max-connections", MAX_CONNECTIONS, "--queue", MAX_CONNECTIONS]);
        let started = Instant::now();
        let ready = |address| answers(address, "GET /readyz", "", "200");
        let server = Server::start_until(command, port, Duration::from_millis(1), ready)?;
        Ok(Subject { server, started, ready: started.elapsed() })
    }

    /// Measures it under load for some time.
    pub(crate) fn measure(&self, charge: Charge<'_>, time: Timing) -> Result<Outcome, String> {
        let Charge { workload, connections, prefix, resources, value, starting_at } = charge;
        let speaker = |number| Http::new(workload, number, resources, value, prefix).starting_at(starting_at);
        load(&[self.server.address], (0..connections).map(speaker).collect(), time)
    }

    /// Sends a write now, and returns the time from the start of the process until it was answered as durable.
    pub(crate) fn first_write(&self, key: &str) -> Result<Duration, String> {
        let request = format!("PUT /v1/kv/{key}");
        match answers(self.server.address, &request, "fencing-token: 1000000\r\ncontent-length: 1\r\n", "204") {
            true => Ok(self.started.elapsed()),
            false => Err("the first write was not applied".into()),
        }
    }

    /// Its memory in MiB.
    pub(crate) fn memory(&self) -> f64 {
        Usage::of(&[self.server.process()]).memory
    }

    /// Waits until its background work is done.
    pub(crate) fn settle(&self) {
        let deadline = Instant::now() + Duration::from_secs(300);
        let mut quiet = 0;
        while quiet < 3 && Instant::now() < deadline {
            let before = Usage::of(&[self.server.process()]).cpu;
            pause(Duration::from_millis(500));
            quiet = if Usage::of(&[self.server.process()]).cpu - before < 0.05 { quiet + 1 } else { 0 };
        }
    }

    /// Kills it with SIGKILL under a load of writes.
    pub(crate) fn kill_under_load(self, charge: Charge<'_>) {
        let time = Timing { warm_up: Duration::ZERO, duration: Duration::from_secs(30) };
        std::thread::scope(|scope| {
            let (address, server) = (self.server.address, self.server);
            let Charge { workload, connections, prefix, resources, value, starting_at } = charge;
            scope.spawn(move || {
                let speaker = |number| Http::new(workload, number, resources, value, prefix).starting_at(starting_at);
                // The load ends with broken connections, as intended.
                let _ = load(&[address], (0..connections).map(speaker).collect(), time);
            });
            pause(Duration::from_secs(2));
            drop(server);
        });
    }

    /// Stops it gracefully.
    pub(crate) fn stop(mut self) {
        self.server.terminate();
    }
}

/// True if a request is answered with this status.
fn answers(address: SocketAddr, request: &str, headers: &str, status: &str) -> bool {
    let ask = || -> std::io::Result<bool> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        let body = if headers.is_empty() { "" } else { "x" };
        write!(stream, "{request} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{headers}\r\n{body}")?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        Ok(answer.starts_with(format!("HTTP/1.1 {status}").as_bytes()))
    };
    ask().unwrap_or(false)
}

/// The size of a directory on the disk in MiB.
pub(crate) fn disk(directory: &Path) -> f64 {
    use std::os::unix::fs::MetadataExt as _;
    let entries = std::fs::read_dir(directory).into_iter().flatten().filter_map(Result::ok);
    let size = |entry: std::fs::DirEntry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => disk(&entry.path()),
        Ok(metadata) => metadata.blocks() as f64 * 512.0 / f64::from(1 << 20),
        Err(_) => 0.0,
    };
    entries.map(size).sum()
}
