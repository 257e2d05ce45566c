//! A ZooKeeper server.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use super::certificates::{Certificates, Clients, Signed};
use super::{ServerProcess, free_port, loopback, program};
use fencepost_conformance::wait;

/// Debian's package; the jar names the others that it needs.
const JAR: &str = "/usr/share/java/zookeeper.jar";

/// What the jar does not name and TLS needs; they come with its package.
const NETTY: &str = "/usr/share/java/netty-codec.jar:/usr/share/java/netty-resolver.jar";

/// From listening to serving.
const PATIENCE: Duration = Duration::from_secs(60);

/// For one answer. A connection that was made before it serves is never answered.
const ANSWER: Duration = Duration::from_millis(500);

/// A ZooKeeper server of one node. Ticks are half a second long, sessions last at least one second and at most ten.
pub struct ZooKeeper {
    directory: TempDir,
    port: u16,
    encrypted: Option<u16>,
    process: ServerProcess,
}

impl ZooKeeper {
    /// Starts it, empty.
    pub fn start() -> ZooKeeper {
        ZooKeeper::with("minSessionTimeout=1000\n")
    }

    /// Starts it with more settings.
    pub fn with(settings: &str) -> ZooKeeper {
        ZooKeeper::in_directory(TempDir::new().expect("a temporary directory can be made"), settings)
    }

    /// Starts one that is spoken to over TLS at [`encrypted_address`](ZooKeeper::encrypted_address).
    pub fn with_certificates(certificates: &Certificates, clients: Clients) -> ZooKeeper {
        let directory = TempDir::new().expect("a temporary directory can be made");
        let read = |file: &Path| std::fs::read_to_string(file).expect("a certificate can be read");
        let Signed { certificate, key } = certificates.server();
        // It knows PEM by the end of the name.
        let (server, root) = (directory.path().join("server.pem"), directory.path().join("root.pem"));
        for (file, text) in [(&server, read(key) + &read(certificate)), (&root, read(&certificates.root()))] {
            std::fs::write(file, text).expect("a temporary directory can be written");
        }
        let known = if clients == Clients::Known { "need" } else { "none" };
        let (port, server, root) = (free_port(), server.display(), root.display());
        let settings = format!(
            "minSessionTimeout=1000\nserverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n\
             secureClientPort={port}\nsecureClientPortAddress=127.0.0.1\nssl.clientAuth={known}\n\
             ssl.keyStore.location={server}\nssl.trustStore.location={root}\n"
        );
        let mut zookeeper = ZooKeeper::in_directory(directory, &settings);
        zookeeper.encrypted = Some(port);
        zookeeper
    }

    fn in_directory(directory: TempDir, settings: &str) -> ZooKeeper {
        let port = free_port();
        let data = directory.path().join("data");
        let config = format!(
            "tickTime=500\ndataDir={}\nclientPort={port}\nclientPortAddress=127.0.0.1\nadmin.enableServer=false\n\
             maxClientCnxns=0\n4lw.commands.whitelist=srvr,wchs\n{settings}",
            data.display()
        );
        std::fs::write(directory.path().join("zoo.cfg"), config).expect("a temporary directory can be written");
        let process = launch(directory.path(), port);
        ZooKeeper { directory, port, encrypted: None, process }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        loopback(self.port)
    }

    /// Where it speaks TLS.
    pub fn encrypted_address(&self) -> SocketAddr {
        loopback(self.encrypted.expect("a server with certificates"))
    }

    /// `kill -9`, and starts it again with what it has on disk.
    pub fn restart(&mut self) {
        self.process.kill();
        self.process = launch(self.directory.path(), self.port);
    }

    /// `kill -9`, and starts it again without any data: an ensemble that was re-created.
    pub fn wipe(&mut self) {
        self.process.kill();
        std::fs::remove_dir_all(self.directory.path().join("data")).expect("its data can be removed");
        self.process = launch(self.directory.path(), self.port);
    }

    /// What it answers to one of its four-letter commands.
    pub fn ask(&self, command: &str) -> String {
        wait::until("ZooKeeper to answer", PATIENCE, || ask(self.port, command))
    }
}

fn launch(directory: &Path, port: u16) -> ServerProcess {
    assert!(Path::new(JAR).is_file(), "{JAR} is missing: run `scripts/setup test`");
    let mut command = Command::new(program("java", &[]));
    command.args(["-Xmx64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"]);
    // The log grows by this many kilobytes at a time, instead of 64 megabytes.
    command.args(["-Dzookeeper.preAllocSize=64", "-cp", &format!("{JAR}:{NETTY}")]);
    command.arg("org.apache.zookeeper.server.ZooKeeperServerMain").arg(directory.join("zoo.cfg"));
    let process = ServerProcess::start(command, port);
    // It listens before it serves.
    wait::until("ZooKeeper to serve", PATIENCE, || ask(port, "srvr").filter(|said| said.contains("Zxid")));
    process
}

fn ask(port: u16, command: &str) -> Option<String> {
    let mut stream = TcpStream::connect(loopback(port)).ok()?;
    stream.set_read_timeout(Some(ANSWER)).ok()?;
    stream.write_all(command.as_bytes()).ok()?;
    let mut said = String::new();
    stream.read_to_string(&mut said).ok()?;
    Some(said)
}
