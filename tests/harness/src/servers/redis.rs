//! Redis, one server or a primary and its replica.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use super::certificates::{Certificates, Clients, Signed};
use super::{ServerProcess, free_port, loopback, program};
use fencepost_conformance::wait;

/// A Redis server that loses no confirmed write.
pub struct RedisServer {
    data: TempDir,
    port: u16,
    encrypted: Option<u16>,
    arguments: Vec<String>,
    process: Option<ServerProcess>,
}

impl RedisServer {
    /// Starts an empty server. `arguments` are added to its command line.
    pub fn start(arguments: &[&str]) -> RedisServer {
        let data = TempDir::new().expect("a temporary directory can be made");
        let arguments = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        let mut server = RedisServer { data, port: free_port(), encrypted: None, arguments, process: None };
        server.launch();
        server
    }

    /// Starts an empty server that uses TLS at [`encrypted_address`](RedisServer::encrypted_address).
    pub fn with_certificates(certificates: &Certificates, clients: Clients) -> RedisServer {
        let port = free_port();
        let path = |file: &Path| file.to_str().expect("temporary directories have plain names").to_owned();
        let (root, Signed { certificate, key }) = (path(&certificates.root()), certificates.server());
        let known = if clients == Clients::Known { "yes" } else { "no" };
        let (certificate, key, at) = (path(certificate), path(key), port.to_string());
        let files = ["--tls-cert-file", &certificate, "--tls-key-file", &key, "--tls-ca-cert-file", &root];
        let mut server = RedisServer::start(&[&["--tls-port", &at, "--tls-auth-clients", known], &files[..]].concat());
        server.encrypted = Some(port);
        server
    }

    /// The address with TLS.
    pub fn encrypted_address(&self) -> SocketAddr {
        loopback(self.encrypted.expect("a server with certificates"))
    }

    /// A replica of another server, with all its data.
    pub fn replica_of(primary: &RedisServer) -> RedisServer {
        let replica = RedisServer::start(&["--replicaof", "127.0.0.1", &primary.port.to_string()]);
        wait::until("the replica to be in step", Duration::from_secs(30), || {
            replica.cli(&["INFO", "replication"]).contains("master_link_status:up").then_some(())
        });
        replica
    }

    fn launch(&mut self) {
        let mut command = Command::new(program("redis-server", &[]));
        command.args(["--port", &self.port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "yes"]);
        command.args(["--appendfsync", "always", "--repl-diskless-sync-delay", "0"]);
        command.arg("--dir").arg(self.data.path()).args(&self.arguments).current_dir(self.data.path());
        self.process = Some(ServerProcess::start(command, self.port));
        wait::until("Redis to have read its data", Duration::from_secs(30), || {
            (!self.cli(&["PING"]).contains("LOADING")).then_some(())
        });
    }

    /// The address it listens on.
    pub fn address(&self) -> SocketAddr {
        loopback(self.port)
    }

    /// The running process.
    pub fn process(&self) -> &ServerProcess {
        self.process.as_ref().expect("a server runs unless it was killed")
    }

    /// Runs one command as `redis-cli` does, and returns its output.
    pub fn cli(&self, command: &[&str]) -> String {
        let mut cli = Command::new(program("redis-cli", &[]));
        let output = cli.args(["-h", "127.0.0.1", "-p", &self.port.to_string()]).args(command).output();
        let output = output.expect("redis-cli can be started");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
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

    /// Disconnects this replica from its primary: it misses every write from now on.
    pub fn cut_off(&self) {
        assert_eq!(self.cli(&["REPLICAOF", "127.0.0.1", "1"]), "OK");
    }

    /// A failover: the primary is killed, and this replica takes over its role and its address.
    pub fn take_over(&mut self, mut primary: RedisServer) {
        primary.kill();
        assert_eq!(self.cli(&["REPLICAOF", "NO", "ONE"]), "OK");
        self.move_to(primary.port);
    }

    /// A planned failover: the replica becomes the primary, at this server's address, and this server becomes its
    /// replica at another address. Connections to this server stay open.
    pub fn hand_over(&mut self, replica: &mut RedisServer) {
        let port = self.port;
        // The primary does not recognise a newly started replica at once.
        wait::until("the failover to begin", Duration::from_secs(30), || {
            (self.cli(&["FAILOVER", "TO", "127.0.0.1", &replica.port.to_string()]) == "OK").then_some(())
        });
        wait::until("the roles to change", Duration::from_secs(30), || {
            self.cli(&["INFO", "replication"]).contains("role:slave").then_some(())
        });
        self.move_to(free_port());
        replica.move_to(port);
    }

    fn move_to(&mut self, port: u16) {
        assert_eq!(self.cli(&["CONFIG", "SET", "port", &port.to_string()]), "OK");
        self.port = port;
        assert_eq!(self.cli(&["PING"]), "PONG");
    }
}
