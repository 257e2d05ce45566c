//! The built-in lock service.

use std::net::SocketAddr;
use std::time::Duration;

use fencepost_client::locks::Lease;
use fencepost_conformance::harness::http::Client;
use fencepost_conformance::harness::process::GatewayProcess;
use fencepost_core::Resource;
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
    const TTL: Duration = Duration::from_secs(1);

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

    /// The built-in service reads the fence itself, in the commit that grants.
    fn raise_fence(&self, resource: &Resource, floor: u64, lease: &Lease) {
        let mut client = Client::connect(&self.address.to_string());
        let (token, issuer) = (floor.to_string(), lease.issuer.as_str());
        let headers = [("fencing-token", token.as_str()), ("fencing-holder", "claimer#1"), ("fencing-issuer", issuer)];
        let claimed = client.request("POST", &format!("/v1/claim/{resource}"), &headers, b"");
        assert_eq!(claimed.status, 200, "{}", claimed.text());
    }
}

suite!(super::BuiltIn);
