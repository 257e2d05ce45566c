//! The gateway as a peer of the comparison.

use std::path::Path;
use std::process::Command;

use fencepost_gateway::bench::{self, Http, Load, Workload};

use crate::server::{Server, free_port};
use crate::{Outcome, Peer, RESOURCES, Timing, VALUE};

/// The gateway on its embedded engine, and on the server that the peer PostgreSQL is, too.
pub(crate) const EMBEDDED: &str = "fencepost";
pub(crate) const ON_POSTGRES: &str = "fencepost on PostgreSQL";

pub(crate) struct Gateway {
    server: Server,
    name: &'static str,
}

impl Gateway {
    pub(crate) fn start(home: &Path) -> Result<Gateway, String> {
        Gateway::with(home, EMBEDDED, "rocksdb")
    }

    pub(crate) fn on_postgres(home: &Path, url: &str) -> Result<Gateway, String> {
        Gateway::with(home, ON_POSTGRES, url)
    }

    fn with(home: &Path, name: &'static str, engine: &str) -> Result<Gateway, String> {
        let program = std::env::current_exe().map_err(|error| error.to_string())?.with_file_name("fencepost");
        let port = free_port()?;
        let mut command = Command::new(&program);
        command.args([
            "serve",
            "--log",
            "warn",
            "--engine",
            engine,
            "--listen",
            &format!("127.0.0.1:{port}"),
            "--data",
        ]);
        command.arg(home.join(name.replace(' ', "-")));
        let server = Server::start(command, port)?;
        let url = format!("http://{}", server.address);
        let (resources, value) = (RESOURCES.to_string(), VALUE.to_string());
        let filled = Command::new(&program)
            .args(["bench", "healthz", "--yes", "--duration", "1ms", "--warm-up", "0s", "--url", &url])
            .args(["--resources", &resources, "--value-size", &value])
            .output()
            .map_err(|error| error.to_string())?;
        if !filled.status.success() {
            return Err(String::from_utf8_lossy(&filled.stderr).into_owned());
        }
        Ok(Gateway { server, name })
    }
}

impl Peer for Gateway {
    fn name(&self) -> &'static str {
        self.name
    }

    fn offers(&self, workload: Workload) -> bool {
        self.name == EMBEDDED || matches!(workload, Workload::Put | Workload::Stale | Workload::Get | Workload::Claim)
    }

    fn measure(&mut self, workload: Workload, connections: usize, time: Timing) -> Result<Outcome, String> {
        http(self.server.address, workload, connections, time)
    }

    fn http(&self) -> Option<std::net::SocketAddr> {
        (self.name == EMBEDDED).then_some(self.server.address)
    }

    fn process(&self) -> u32 {
        self.server.process()
    }
}

/// Runs the load of `fencepost bench` on any HTTP server.
pub(crate) fn http(
    address: std::net::SocketAddr,
    workload: Workload,
    connections: usize,
    time: Timing,
) -> Result<Outcome, String> {
    let speaker = |number| Http::new(workload, number, RESOURCES, VALUE, "bench/");
    load(address, (0..connections as u64).map(speaker).collect(), time)
}

/// Runs any load, on one thread.
pub(crate) fn load<P: bench::Protocol>(
    address: std::net::SocketAddr,
    speakers: Vec<P>,
    time: Timing,
) -> Result<Outcome, String> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| error.to_string())?;
    let load = Load { address, warm_up: time.warm_up, duration: time.duration };
    let measured = runtime.block_on(bench::run(load, speakers)).map_err(|error| error.to_string())?;
    if measured.unexpected > 0 {
        return Err(format!("{} answers were not as expected", measured.unexpected));
    }
    let (p50, p99, p999) = (measured.millis(0.5), measured.millis(0.99), measured.millis(0.999));
    Ok(Outcome { rate: measured.rate(), p50, p99, p999, answers: measured.answered as f64 })
}
