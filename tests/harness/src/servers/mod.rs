//! Lock services for one test: real servers on loopback, on free ports, with their data in a temporary directory.
//!
//! `scripts/setup test` installs them. A server that is missing fails the test.

pub mod certificates;
pub mod etcd;
pub mod etcd_cluster;
pub mod postgres;
pub mod redis;
pub mod zk;

use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use fencepost_conformance::adapters::hooks::free_ports;
use fencepost_conformance::wait;

/// The time limit for a server to listen; ZooKeeper's Java is slow on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server process, killed when it is dropped.
pub struct ServerProcess {
    child: Child,
}

impl ServerProcess {
    /// Starts a server and waits until it listens on this port.
    pub fn start(command: Command, port: u16) -> ServerProcess {
        ServerProcess::start_at(command, loopback(port))
    }

    /// Starts a server and waits until it listens at this address.
    pub fn start_at(mut command: Command, address: SocketAddr) -> ServerProcess {
        let what = format!("{:?}", command.get_program());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{what} cannot be started: {error}"));
        wait::until(&format!("{what} to listen"), PATIENCE, || {
            if let Ok(Some(ended)) = child.try_wait() {
                panic!("{what} ended: {ended}");
            }
            TcpStream::connect(address).ok()
        });
        ServerProcess { child }
    }

    /// The process id.
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        // The process may have exited.
        let _ = kill_process(self.pid(), signal);
    }

    /// Sends SIGKILL, and waits for the exit.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Sends SIGTERM, and waits for the exit.
    pub fn terminate(&mut self) {
        self.signal(Signal::TERM);
        let _ = self.child.wait();
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A port that is not in use, and is not assigned to another program before its server starts or while that restarts.
pub fn free_port() -> u16 {
    free_ports(1).expect("loopback has free ports")[0]
}

/// 127.0.0.1 with this port.
pub fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

/// The path of a program in PATH or in one of these directories.
pub fn program(name: &str, directories: &[&str]) -> PathBuf {
    let path = std::env::var("PATH").unwrap_or_default();
    let everywhere = path.split(':').chain(directories.iter().copied());
    let found = everywhere.map(|directory| Path::new(directory).join(name)).find(|file| file.is_file());
    found.unwrap_or_else(|| panic!("{name} is missing: run `scripts/setup test`"))
}
