//! An etcd cluster of three members.

use std::net::SocketAddr;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::etcd::etcd;
use super::{ServerProcess, free_port, loopback};
use crate::http::Client;
use fencepost_conformance::wait;

const MEMBERS: usize = 3;

/// The time limit of a leader election on a busy machine.
const ELECTION: Duration = Duration::from_secs(60);

/// Long timeouts, so that members that stall for a moment do not depose their leader.
const PATIENT: [&str; 2] = ["--heartbeat-interval=300", "--election-timeout=3000"];

/// An etcd cluster for one test.
pub struct EtcdCluster {
    dir: TempDir,
    ports: [u16; MEMBERS],
    peers: [u16; MEMBERS],
    arguments: Vec<String>,
    processes: [Option<ServerProcess>; MEMBERS],
}

impl EtcdCluster {
    /// Starts all members, empty, and waits until they have a leader.
    pub fn start() -> EtcdCluster {
        EtcdCluster::with(&PATIENT)
    }

    /// The same with these arguments, and with etcd's own timeouts unless they say otherwise.
    pub fn with(arguments: &[&str]) -> EtcdCluster {
        let dir = TempDir::new().expect("a temporary directory can be made");
        let (ports, peers) = ([0; MEMBERS].map(|_| free_port()), [0; MEMBERS].map(|_| free_port()));
        let arguments = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        let mut cluster = EtcdCluster { dir, ports, peers, arguments, processes: [None, None, None] };
        (0..MEMBERS).for_each(|member| cluster.restart(member));
        cluster.leader();
        cluster
    }

    /// Starts a member, with the data that it has.
    pub fn restart(&mut self, member: usize) {
        let peer = |member: usize| format!("http://127.0.0.1:{}", self.peers[member]);
        let cluster: Vec<_> = (0..MEMBERS).map(|member| format!("m{member}={}", peer(member))).collect();
        let client = format!("http://127.0.0.1:{}", self.ports[member]);
        let mut command = etcd();
        command.args(&self.arguments);
        command.args(["--name", &format!("m{member}"), "--data-dir"]).arg(self.dir.path().join(member.to_string()));
        command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        command.args(["--listen-peer-urls", &peer(member), "--initial-advertise-peer-urls", &peer(member)]);
        command.args(["--initial-cluster", &cluster.join(",")]);
        self.processes[member] = Some(ServerProcess::start(command, self.ports[member]));
    }

    /// The addresses for clients.
    pub fn addresses(&self) -> [SocketAddr; MEMBERS] {
        self.ports.map(loopback)
    }

    /// The addresses for clients, with commas between.
    pub fn hosts(&self) -> String {
        self.addresses().map(|address| address.to_string()).join(",")
    }

    /// The index of the leader. No member may be stopped.
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

    /// Stops one member, as a machine that hangs. Its connections stay.
    pub fn stop(&self, member: usize) {
        self.signal(member, Signal::STOP);
    }

    /// Lets a stopped member go on.
    pub fn go_on(&self, member: usize) {
        self.signal(member, Signal::CONT);
    }

    fn signal(&self, member: usize, signal: Signal) {
        self.processes[member].as_ref().expect("the member runs").signal(signal);
    }
}
