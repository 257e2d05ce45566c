//! An etcd cluster of three members.

use std::net::SocketAddr;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::etcd::etcd;
use super::{ServerProcess, free_port, loopback};
use crate::http::Client;
use crate::networks::Machine;
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
    /// A machine for each member. Otherwise all are on this one.
    machines: Option<[Machine; MEMBERS]>,
}

impl EtcdCluster {
    /// Starts all members, empty, and waits until they have a leader.
    pub fn start() -> EtcdCluster {
        EtcdCluster::with(&PATIENT)
    }

    /// The same with these arguments, and with etcd's own timeouts unless they say otherwise.
    pub fn with(arguments: &[&str]) -> EtcdCluster {
        EtcdCluster::on(None, arguments)
    }

    /// The same, each member on a machine of its own, so that it can be cut off from the others. Clients reach all of them.
    pub fn on_machines() -> EtcdCluster {
        EtcdCluster::on(Some([1, 2, 3].map(Machine::new)), &[])
    }

    fn on(machines: Option<[Machine; MEMBERS]>, arguments: &[&str]) -> EtcdCluster {
        let dir = TempDir::new().expect("a temporary directory can be made");
        let (ports, peers) = ([0; MEMBERS].map(|_| free_port()), [0; MEMBERS].map(|_| free_port()));
        let arguments = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        let mut cluster = EtcdCluster { dir, ports, peers, arguments, processes: [None, None, None], machines };
        (0..MEMBERS).for_each(|member| cluster.restart(member));
        cluster.leader();
        cluster
    }

    /// Starts a member, with the data that it has.
    pub fn restart(&mut self, member: usize) {
        let peer = |member: usize| format!("http://{}", self.at(member, self.peers[member]));
        let cluster: Vec<_> = (0..MEMBERS).map(|member| format!("m{member}={}", peer(member))).collect();
        let address = self.at(member, self.ports[member]);
        let client = format!("http://{address}");
        let mut command = etcd();
        command.args(&self.arguments);
        command.args(["--name", &format!("m{member}"), "--data-dir"]).arg(self.dir.path().join(member.to_string()));
        command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        command.args(["--listen-peer-urls", &peer(member), "--initial-advertise-peer-urls", &peer(member)]);
        command.args(["--initial-cluster", &cluster.join(",")]);
        let command = match &self.machines {
            Some(machines) => machines[member].wrap(&command),
            None => command,
        };
        self.processes[member] = Some(ServerProcess::start_at(command, address));
    }

    /// The address of a member with this port.
    fn at(&self, member: usize, port: u16) -> SocketAddr {
        match &self.machines {
            Some(machines) => SocketAddr::from((machines[member].address(), port)),
            None => loopback(port),
        }
    }

    /// Cuts a member off from the others. Clients still reach it.
    pub fn cut_off(&self, member: usize) {
        self.others(member).for_each(|(one, other)| one.cut_off(other));
    }

    /// Ends that.
    pub fn join(&self, member: usize) {
        self.others(member).for_each(|(one, other)| one.join(other));
    }

    fn others(&self, member: usize) -> impl Iterator<Item = (&Machine, &Machine)> {
        let machines = self.machines.as_ref().expect("each member has a machine");
        (0..MEMBERS).filter(move |other| *other != member).map(move |other| (&machines[member], &machines[other]))
    }

    /// The addresses for clients.
    pub fn addresses(&self) -> [SocketAddr; MEMBERS] {
        [0, 1, 2].map(|member| self.at(member, self.ports[member]))
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
        let mut client = Client::try_connect(&self.at(member, self.ports[member]).to_string()).ok()?;
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
