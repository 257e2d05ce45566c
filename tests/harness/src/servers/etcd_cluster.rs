//! An etcd cluster of three members.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::etcd::etcd;
use super::{ServerProcess, free_port, loopback};
use crate::http::Client;
use fencepost_conformance::wait;

const MEMBERS: usize = 3;

/// The time limit of a leader election on a busy machine.
const ELECTION: Duration = Duration::from_secs(60);

/// An etcd cluster for one test.
pub struct EtcdCluster {
    _dir: TempDir,
    ports: [u16; MEMBERS],
    processes: [Option<ServerProcess>; MEMBERS],
}

impl EtcdCluster {
    /// Starts all members, empty, and waits until they have a leader.
    pub fn start() -> EtcdCluster {
        let dir = TempDir::new().expect("a temporary directory can be made");
        let (ports, peers) = ([0; MEMBERS].map(|_| free_port()), [0; MEMBERS].map(|_| free_port()));
        let peer = |member: usize| format!("http://127.0.0.1:{}", peers[member]);
        let cluster: Vec<_> = (0..MEMBERS).map(|member| format!("m{member}={}", peer(member))).collect();
        let launch = |member: usize| {
            let client = format!("http://127.0.0.1:{}", ports[member]);
            let mut command = etcd();
            // Long timeouts, so that members that stall for a moment do not depose their leader.
            command.args(["--heartbeat-interval=300", "--election-timeout=3000"]);
            command.args(["--name", &format!("m{member}"), "--data-dir"]).arg(dir.path().join(member.to_string()));
            command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
            command.args(["--listen-peer-urls", &peer(member), "--initial-advertise-peer-urls", &peer(member)]);
            command.args(["--initial-cluster", &cluster.join(",")]);
            Some(ServerProcess::start(command, ports[member]))
        };
        let cluster = EtcdCluster { processes: [launch(0), launch(1), launch(2)], _dir: dir, ports };
        cluster.leader();
        cluster
    }

    /// The addresses for clients.
    pub fn addresses(&self) -> [SocketAddr; MEMBERS] {
        self.ports.map(loopback)
    }

    /// The index of the leader.
    pub fn leader(&self) -> usize {
        wait::until("a leader", ELECTION, || {
            (0..MEMBERS).filter(|member| self.processes[*member].is_some()).find(|member| {
                let status = self.status(*member).unwrap_or_default();
                status["leader"].is_string() && status["leader"] == status["header"]["member_id"]
            })
        })
    }

    fn status(&self, member: usize) -> Option<Value> {
        let mut client = Client::try_connect(&loopback(self.ports[member]).to_string()).ok()?;
        client.set_timeout(Duration::from_secs(5));
        let body = json!({}).to_string();
        let answer = client.try_request("POST", "/v3/maintenance/status", &[], body.as_bytes()).ok()?;
        (answer.status == 200).then(|| answer.json())
    }

    /// `kill -9` of one member.
    pub fn kill(&mut self, member: usize) {
        drop(self.processes[member].take());
    }
}
