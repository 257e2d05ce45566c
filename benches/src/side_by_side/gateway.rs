//! The gateway as a peer of the comparison: one on its embedded engine, or several over one server.

use std::path::Path;
use std::process::Command;

use fencepost_gateway::bench::{self, Http, Load, Workload};

use crate::server::{Server, free_port};
use crate::{Outcome, Peer, RESOURCES, Timing, VALUE};

/// The gateway on its embedded engine.
pub(crate) const EMBEDDED: &str = "fencepost";

pub(crate) struct Gateways {
    servers: Vec<Server>,
    name: &'static str,
    behind: Vec<u32>,
}

impl Gateways {
    /// One gateway on its embedded engine.
    pub(crate) fn embedded(home: &Path) -> Result<Gateways, String> {
        Gateways::start(home, EMBEDDED, 1, "rocksdb", Vec::new())
    }

    /// Gateways over a server, whose processes are behind them.
    pub(crate) fn over(
        home: &Path,
        name: &'static str,
        count: usize,
        engine: &str,
        behind: Vec<u32>,
    ) -> Result<Gateways, String> {
        Gateways::start(home, name, count, engine, behind)
    }

    fn start(
        home: &Path,
        name: &'static str,
        count: usize,
        engine: &str,
        behind: Vec<u32>,
    ) -> Result<Gateways, String> {
        let program = std::env::current_exe().map_err(|error| error.to_string())?.with_file_name("fencepost");
        let mut servers = Vec::new();
        for number in 1..=count {
            let port = free_port()?;
            let mut command = Command::new(&program);
            command.args(["serve", "--log", "warn", "--engine", engine, "--listen", &format!("127.0.0.1:{port}")]);
            command.arg("--data").arg(home.join(format!("{}-{number}", name.replace(' ', "-"))));
            servers.push(Server::start(command, port)?);
        }
        let gateways = Gateways { servers, name, behind };
        gateways.fill(&program)?;
        Ok(gateways)
    }

    /// Writes the fence and the value of every resource, through the first gateway.
    fn fill(&self, program: &Path) -> Result<(), String> {
        let url = self.servers.first().map(|server| format!("http://{}", server.address)).unwrap_or_default();
        let (resources, value) = (RESOURCES.to_string(), VALUE.to_string());
        let filled = Command::new(program)
            .args(["bench", "healthz", "--yes", "--duration", "1ms", "--warm-up", "0s", "--url", &url])
            .args(["--resources", &resources, "--value-size", &value])
            .output()
            .map_err(|error| error.to_string())?;
        if filled.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&filled.stderr).into_owned()) }
    }
}

impl Peer for Gateways {
    fn name(&self) -> &'static str {
        self.name
    }

    fn offers(&self, _: Workload) -> bool {
        true
    }

    fn measure(&mut self, workload: Workload, connections: usize, time: Timing) -> Result<Outcome, String> {
        let speaker = |number| Http::new(workload, number, RESOURCES, VALUE, "bench/");
        let addresses: Vec<_> = self.servers.iter().map(|server| server.address).collect();
        load(&addresses, (0..connections as u64).map(speaker).collect(), time)
    }

    fn http(&self) -> Option<std::net::SocketAddr> {
        self.servers.first().map(|server| server.address)
    }

    fn processes(&self) -> Vec<u32> {
        self.servers.iter().map(Server::process).collect()
    }

    fn behind(&self) -> Vec<u32> {
        self.behind.clone()
    }
}

/// Runs any load, on one thread, spread evenly over servers.
pub(crate) fn load<P: bench::Protocol>(
    addresses: &[std::net::SocketAddr],
    speakers: Vec<P>,
    time: Timing,
) -> Result<Outcome, String> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| error.to_string())?;
    let load = Load { addresses: addresses.to_vec(), warm_up: time.warm_up, duration: time.duration };
    let measured = runtime.block_on(bench::run(load, speakers)).map_err(|error| error.to_string())?;
    if measured.unexpected > 0 {
        return Err(format!("{} answers were not as expected", measured.unexpected));
    }
    let (p50, p99, p999) = (measured.millis(0.5), measured.millis(0.99), measured.millis(0.999));
    Ok(Outcome { rate: measured.rate(), p50, p99, p999, answers: measured.answered as f64 })
}
