//! A server started on loopback, and stopped with its handle.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A child process, killed when it is dropped.
pub(crate) struct Server {
    child: Child,
    pub(crate) address: SocketAddr,
}

/// A port that was free a moment ago.
pub(crate) fn free_port() -> Result<u16, String> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(|error| error.to_string())?;
    listener.local_addr().map(|address| address.port()).map_err(|error| error.to_string())
}

impl Server {
    /// Starts a server that will listen on this port, and waits until it does.
    pub(crate) fn start(command: Command, port: u16) -> Result<Server, String> {
        Server::start_until(command, port, Duration::from_millis(50), |address| TcpStream::connect(address).is_ok())
    }

    /// Starts a server, and checks at this interval until it is ready.
    pub(crate) fn start_until(
        mut command: Command,
        port: u16,
        every: Duration,
        mut ready: impl FnMut(SocketAddr) -> bool,
    ) -> Result<Server, String> {
        let what = format!("{:?}", command.get_program());
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let mut child = command.spawn().map_err(|error| format!("{what} cannot be started: {error}"))?;
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            if ready(address) {
                return Ok(Server { child, address });
            }
            if let Ok(Some(ended)) = child.try_wait() {
                return Err(format!("{what} ended: {ended}"));
            }
            if Instant::now() > deadline {
                let _ = child.kill();
                return Err(format!("{what} is not ready on {address}"));
            }
            pause(every);
        }
    }

    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }

    /// Sends SIGINT, then waits: PostgreSQL stops its children and exits at once, without waiting for its clients.
    pub(crate) fn terminate(&mut self) {
        let _ =
            rustix::process::kill_process(rustix::process::Pid::from_child(&self.child), rustix::process::Signal::INT);
        let _ = self.child.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[allow(clippy::disallowed_methods, reason = "between two looks at a server that starts")]
pub(crate) fn pause(time: Duration) {
    std::thread::sleep(time);
}
