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

/// The jar of Debian's package; it names the other jars that it needs.
const JAR: &str = "/usr/share/java/zookeeper.jar";

/// Jars that TLS needs and the main jar does not name; they come with its package.
const NETTY: &str = "/usr/share/java/netty-codec.jar:/usr/share/java/netty-resolver.jar";

/// The time limit from listening to serving.
const PATIENCE: Duration = Duration::from_secs(60);

/// The time limit of one answer. A connection made before the server serves is never answered.
const ANSWER: Duration = Duration::from_millis(500);

/// A ZooKeeper server of one node. Ticks take half a second, sessions last at least one second and at most ten.
pub struct ZooKeeper {
    directory: TempDir,
    port: u16,
    encrypted: Option<u16>,
    process: ServerProcess,
}

impl ZooKeeper {
    /// Starts an empty server.
    pub fn start() -> ZooKeeper {
        ZooKeeper::with("minSessionTimeout=1000\n")
    }

    /// Starts an empty server with more settings.
    pub fn with(settings: &str) -> ZooKeeper {
        ZooKeeper::in_directory(TempDir::new().expect("a temporary directory can be made"), settings)
    }

    /// Starts an empty server that uses TLS at [`encrypted_address`](ZooKeeper::encrypted_address).
    pub fn with_certificates(certificates: &Certificates, clients: Clients) -> ZooKeeper {
        let directory = TempDir::new().expect("a temporary directory can be made");
        let read = |file: &Path| std::fs::read_to_string(file).expect("a certificate can be read");
        let Signed { certificate, key } = certificates.server();
        // It recognises PEM files by their extension.
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

    /// The address it listens on.
    pub fn address(&self) -> SocketAddr {
        loopback(self.port)
    }

    /// The address with TLS.
    pub fn encrypted_address(&self) -> SocketAddr {
        loopback(self.encrypted.expect("a server with certificates"))
    }

    /// `kill -9`, then starts it again with its data.
    pub fn restart(&mut self) {
        self.process.kill();
        self.process = launch(self.directory.path(), self.port);
    }

    /// `kill -9`, then starts it again without any data: an ensemble that was re-created.
    pub fn wipe(&mut self) {
        self.process.kill();
        std::fs::remove_dir_all(self.directory.path().join("data")).expect("its data can be removed");
        self.process = launch(self.directory.path(), self.port);
    }

    /// The answer to one of its four-letter commands.
    pub fn ask(&self, command: &str) -> String {
        wait::until("ZooKeeper to answer", PATIENCE, || ask(self.port, command))
    }
}

fn launch(directory: &Path, port: u16) -> ServerProcess {
    assert!(Path::new(JAR).is_file(), "{JAR} is missing: run `scripts/setup test`");
    let mut command = Command::new(program("java", &[]));
    command.args(["-Xmx64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"]);
    // The transaction log grows in steps of this many kilobytes, instead of 64 megabytes.
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
