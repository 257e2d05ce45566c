//! The built-in lock service.

use std::net::SocketAddr;
use std::time::Duration;

use fencepost_conformance::harness::process::GatewayProcess;
use tempfile::TempDir;

use crate::suite::Service;

struct BuiltIn {
    data: TempDir,
    process: Option<GatewayProcess>,
    address: SocketAddr,
}

impl BuiltIn {
    fn launch(data: &TempDir, listen: &str) -> GatewayProcess {
        let mut command = std::process::Command::new(fencepost_conformance::harness::process::binary());
        command.args(["serve", "--listen", listen, "--data"]).arg(data.path().join("data"));
        GatewayProcess::spawn(command).unwrap_or_else(|said| panic!("the gateway did not start:\n{said}"))
    }
}

impl Service for BuiltIn {
    const TTL: Duration = Duration::from_millis(400);

    fn start() -> BuiltIn {
        let data = TempDir::new().unwrap();
        let process = BuiltIn::launch(&data, "127.0.0.1:0");
        let address = process.address().parse().unwrap();
        BuiltIn { data, process: Some(process), address }
    }

    fn address(&self) -> SocketAddr {
        self.address
    }

    fn url_at(&self, address: SocketAddr) -> String {
        format!("fencepost://{address}")
    }

    fn restart(&mut self) {
        // Killed when it is dropped; only then does its port become free.
        drop(self.process.take());
        self.process = Some(BuiltIn::launch(&self.data, &self.address.to_string()));
    }
}

suite!(super::BuiltIn);
