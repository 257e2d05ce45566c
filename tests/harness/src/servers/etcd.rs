//! An etcd server of one member.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use super::certificates::{Certificates, Clients, Signed};
use super::{ServerProcess, free_port, loopback, program};
use crate::http::Client;
use fencepost_conformance::wait;

/// An etcd server for one test.
pub struct Etcd {
    dir: TempDir,
    /// The number of its data directory; each wipe and each restore makes a new one.
    data: usize,
    port: u16,
    peer: u16,
    arguments: Vec<String>,
    encryption: Option<Encryption>,
    process: Option<ServerProcess>,
}

/// Settings of a server with TLS.
struct Encryption {
    /// The port of health and metrics, which stay without TLS.
    metrics: u16,
    /// The TLS arguments of `etcdctl`.
    access: Vec<String>,
}

impl Etcd {
    /// Starts an empty server.
    pub fn start() -> Etcd {
        Etcd::with(&[])
    }

    /// Starts an empty server with more arguments.
    pub fn with(arguments: &[&str]) -> Etcd {
        let dir = TempDir::new().expect("a temporary directory can be made");
        let arguments = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        Etcd::launched(dir, arguments, None)
    }

    /// Starts an empty server with TLS for its clients.
    pub fn with_certificates(certificates: &Certificates, clients: Clients) -> Etcd {
        let dir = TempDir::new().expect("a temporary directory can be made");
        let path = |file: &Path| file.to_str().expect("temporary directories have plain names").to_owned();
        let Signed { certificate, key } = certificates.server();
        let (root, metrics) = (path(&certificates.root()), free_port());
        let mut arguments = vec![format!("--listen-metrics-urls=http://127.0.0.1:{metrics}")];
        arguments.extend([format!("--cert-file={}", path(certificate)), format!("--key-file={}", path(key))]);
        if clients == Clients::Known {
            arguments.extend(["--client-cert-auth".to_owned(), format!("--trusted-ca-file={root}")]);
        }
        let Signed { certificate, key } = certificates.client("/O=etcdctl");
        let access =
            ["--cacert".to_owned(), root, "--cert".to_owned(), path(&certificate), "--key".to_owned(), path(&key)];
        Etcd::launched(dir, arguments, Some(Encryption { metrics, access: access.to_vec() }))
    }

    fn launched(dir: TempDir, arguments: Vec<String>, encryption: Option<Encryption>) -> Etcd {
        let (port, peer) = (free_port(), free_port());
        let mut etcd = Etcd { dir, data: 0, port, peer, arguments, encryption, process: None };
        etcd.launch();
        etcd
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join(format!("data-{}", self.data))
    }

    fn launch(&mut self) {
        let protocol = if self.encryption.is_some() { "https" } else { "http" };
        let (client, peer) =
            (format!("{protocol}://127.0.0.1:{}", self.port), format!("http://127.0.0.1:{}", self.peer));
        let mut command = etcd();
        command.arg("--data-dir").arg(self.data());
        command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        command.args(["--initial-cluster", &format!("default={peer}")]).args(&self.arguments);
        self.process = Some(ServerProcess::start(command, self.port));
        // It listens before it has a leader.
        let address = self.metrics_address().to_string();
        wait::until("etcd to be healthy", wait::PATIENCE, || {
            let mut client = Client::try_connect(&address).ok()?;
            client.set_timeout(Duration::from_secs(5));
            let answer = client.try_request("GET", "/health", &[], b"").ok()?;
            answer.text().contains("\"true\"").then_some(())
        });
    }

    /// The address for clients.
    pub fn address(&self) -> SocketAddr {
        loopback(self.port)
    }

    fn metrics_address(&self) -> SocketAddr {
        loopback(self.encryption.as_ref().map_or(self.port, |encryption| encryption.metrics))
    }

    /// The running process.
    pub fn process(&self) -> &ServerProcess {
        self.process.as_ref().expect("it runs")
    }

    /// `kill -9`.
    pub fn kill(&mut self) {
        drop(self.process.take());
    }

    /// `kill -9`, then starts it again with the same data at the same address.
    pub fn restart(&mut self) {
        self.kill();
        self.launch();
    }

    /// Restarts it at the same address, without its data.
    pub fn wipe(&mut self) {
        self.kill();
        self.data += 1;
        self.launch();
    }

    /// Writes a snapshot of its state to a file.
    pub fn snapshot(&self, file: &str) -> PathBuf {
        let file = self.dir.path().join(file);
        self.etcdctl(&["snapshot", "save", file.to_str().expect("temporary directories have plain names")]);
        file
    }

    /// Restarts it at the same address, with the state of a snapshot.
    pub fn restore(&mut self, file: &Path) {
        self.kill();
        self.data += 1;
        let peer = format!("http://127.0.0.1:{}", self.peer);
        let mut command = Command::new(program("etcdctl", &[]));
        command.env("ETCDCTL_API", "3").args(["snapshot", "restore"]).arg(file).arg("--data-dir").arg(self.data());
        command.args(["--name", "default", "--initial-cluster", &format!("default={peer}")]);
        command.args(["--initial-advertise-peer-urls", &peer]);
        let output = command.output().expect("etcdctl runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        self.launch();
    }

    /// Runs `etcdctl` against it, and returns the output.
    pub fn etcdctl(&self, arguments: &[&str]) -> String {
        let access = self.encryption.iter().flat_map(|encryption| &encryption.access).map(String::as_str);
        etcdctl(self.address(), &access.chain(arguments.iter().copied()).collect::<Vec<_>>())
    }

    /// Every key with this prefix, in the order of creation.
    pub fn keys(&self, prefix: &str) -> Vec<EtcdKey> {
        keys(self.address(), prefix)
    }

    /// The value of one of its metrics.
    pub fn metric(&self, name: &str) -> f64 {
        let text = self.metrics();
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("etcd has no metric {name}"))
    }

    fn metrics(&self) -> String {
        let mut stream = TcpStream::connect(self.metrics_address()).expect("etcd listens");
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").expect("etcd reads");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("etcd answers");
        text
    }

    /// Waits until it has done whatever was sent by clients whose processes have ended.
    pub fn wait_for_dead_clients(&self) {
        wait::until("connections of dead clients to end", wait::PATIENCE, || {
            (!is_any_half_closed(self.port)).then_some(())
        });
        wait::until("transactions to end", wait::PATIENCE, || {
            let text = self.metrics();
            let count = |name: &str| -> f64 {
                let lines = text.lines().filter(|line| line.starts_with(name) && line.contains("grpc_method=\"Txn\""));
                lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
            };
            (count("grpc_server_started_total{") == count("grpc_server_handled_total{")).then_some(())
        });
        // It comes behind whatever they have proposed.
        self.etcdctl(&["put", "barrier", "passed"]);
    }
}

/// Whether a server at this port has not closed a connection yet that its client has closed.
fn is_any_half_closed(port: u16) -> bool {
    const CLOSE_WAIT: &str = "08";
    let sockets = std::fs::read_to_string("/proc/net/tcp").expect("Linux lists its sockets");
    let local = format!(":{port:04X}");
    sockets.lines().any(|line| {
        let mut fields = line.split_whitespace();
        fields.nth(1).is_some_and(|address| address.ends_with(&local)) && fields.nth(1) == Some(CLOSE_WAIT)
    })
}

/// The command of a member that does not sync: writes survive `kill -9`, and a slow disk does not delay a member.
pub(super) fn etcd() -> Command {
    let mut command = Command::new(program("etcd", &[]));
    command.arg("--unsafe-no-fsync");
    command
}

/// Runs `etcdctl` against one member, and returns the output.
pub fn etcdctl(address: SocketAddr, arguments: &[&str]) -> String {
    let mut command = Command::new(program("etcdctl", &[]));
    command.env("ETCDCTL_API", "3").args(["--dial-timeout=60s", "--command-timeout=60s"]);
    command.arg("--endpoints").arg(address.to_string()).args(arguments);
    let output = command.output().expect("etcdctl runs");
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Every key with this prefix, in the order of creation, as one member reports them.
pub fn keys(address: SocketAddr, prefix: &str) -> Vec<EtcdKey> {
    let said = etcdctl(address, &["get", prefix, "--prefix", "--sort-by=CREATE", "--order=ASCEND", "-w=fields"]);
    let mut keys = Vec::new();
    for line in said.lines() {
        let Some((name, value)) = line.split_once(" : ") else { continue };
        let value = value.trim_matches('"').to_owned();
        match name.trim_matches('"') {
            "Key" => keys.push(EtcdKey { key: value, ..EtcdKey::default() }),
            "CreateRevision" => last(&mut keys).create_revision = value.parse().expect("a revision"),
            "Value" => last(&mut keys).value = value,
            "Lease" => last(&mut keys).lease = value.parse().expect("a lease"),
            _ => {}
        }
    }
    keys
}

/// A key in etcd.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EtcdKey {
    /// The name of the key.
    pub key: String,
    /// The value of the key.
    pub value: String,
    /// The revision that created the key.
    pub create_revision: u64,
    /// The lease of the key; 0 for none.
    pub lease: i64,
}

fn last(keys: &mut [EtcdKey]) -> &mut EtcdKey {
    keys.last_mut().expect("a key comes before what is said of it")
}
