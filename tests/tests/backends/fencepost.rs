//! The built-in lock service.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use fencepost_client::locks::{Acquired, Lease};
use fencepost_core::Resource;
use fencepost_harness::http::Client;
use fencepost_harness::process::GatewayProcess;
use fencepost_harness::servers::{free_port, loopback};
use tempfile::TempDir;

use crate::suite::{
    RECOVERY, Service, ask, connect, connect_through, patiently, start, take, take_within, try_ask, until,
};

/// Longer than any test.
const LONG: Duration = Duration::from_secs(600);

struct BuiltIn {
    data: TempDir,
    process: Option<GatewayProcess>,
    address: SocketAddr,
}

impl BuiltIn {
    fn launch(data: &TempDir, listen: &str) -> GatewayProcess {
        let mut command = std::process::Command::new(fencepost_harness::process::binary());
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
        // The process is killed when it is dropped; only then does its port become free.
        drop(self.process.take());
        self.process = Some(BuiltIn::launch(&self.data, &self.address.to_string()));
    }

    fn waiting(&self, name: &str) -> Option<usize> {
        let lock = Client::connect(&self.address.to_string()).request("GET", &format!("/v1/locks/{name}"), &[], b"");
        assert_eq!(lock.status, 200, "{}", lock.text());
        lock.json()["waiting"].as_u64().map(|waiting| waiting as usize)
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

/// A waiter rejoins the queue when the gateway is back, for the rest of its wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_of_the_gateway_is_waited_out() {
    let mut service = start::<BuiltIn>();
    let (a, waiter) = (connect(&service.url()).await, connect(&service.url()).await);
    let held = take(a.as_ref(), "orders/1", "a#1", LONG).await;
    let waiting =
        tokio::spawn(async move { take_within(waiter.as_ref(), "orders/1", "b#1", LONG, RECOVERY * 2).await });
    let in_line = async |service: &BuiltIn| {
        let waits = || tokio::task::block_in_place(|| service.waiting("orders/1") == Some(1));
        until("somebody to stand in line", waits).await;
    };
    in_line(&service).await;
    tokio::task::block_in_place(|| service.restart());
    in_line(&service).await;
    let number = held.number;
    a.release(held).await.unwrap();
    let next = waiting.await.unwrap();
    assert!(next.number > number, "{} after {number}", next.number);
    // A gateway that was never reachable is not waited for.
    let nobody = connect(&format!("fencepost://{}", loopback(free_port()))).await;
    let since = Instant::now();
    let error = try_ask(nobody.as_ref(), "orders/1", "c#1", LONG, LONG).await.unwrap_err();
    assert!(error.is_transient() && since.elapsed() < LONG / 2, "{error} after {:?}", since.elapsed());
}

/// A lost answer does not restart the wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_reply_does_not_make_the_wait_longer() {
    let wait = Duration::from_secs(6);
    patiently(Duration::from_secs(1), || async move {
        let service = start::<BuiltIn>();
        let (proxy, b) = connect_through(&service).await;
        let a = connect(&service.url()).await;
        let _held = take(a.as_ref(), "orders/1", "a#1", LONG).await;
        let since = Instant::now();
        let cut = async {
            tokio::time::sleep(wait * 2 / 3).await;
            proxy.cut();
        };
        let (answer, ()) = tokio::join!(ask(b.as_ref(), "orders/1", "b#1", LONG, wait), cut);
        let waited = since.elapsed();
        assert!(matches!(answer, Acquired::Busy), "{answer:?}");
        assert!(waited >= wait && waited < wait * 3 / 2, "busy after {waited:?} instead of {wait:?}");
    })
    .await;
}
