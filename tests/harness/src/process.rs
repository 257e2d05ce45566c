//! The real `fencepost` binary as a process.

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};

use crate::http::Client;
use fencepost_conformance::wait;

const STATE_DIR: &str = "FENCEPOST_STATE_DIR";

/// The binary next to this test in the target directory.
pub fn binary() -> PathBuf {
    let test = std::env::current_exe().expect("a test knows its own path");
    let release = test.parent().and_then(Path::parent).expect("tests run from target/release/deps");
    let binary = release.join("fencepost");
    assert!(
        binary.exists(),
        "{} is missing: run `make test`, or `cargo build --release --workspace --bins` first",
        binary.display()
    );
    binary
}

/// Runs the binary until it exits.
pub fn run(arguments: &[&str]) -> std::process::Output {
    let mut command = Command::new(binary());
    command.args(arguments).stdin(Stdio::null());
    note_nothing(&mut command);
    command.output().expect("fencepost runs")
}

/// Keeps test stores from recording their positions in the home directory of the user who runs the tests.
fn note_nothing(command: &mut Command) {
    if !command.get_envs().any(|(name, _)| name == STATE_DIR) {
        command.env(STATE_DIR, "off");
    }
}

/// A gateway that is killed when it is dropped.
pub struct GatewayProcess {
    child: Child,
    url: String,
    stdout: Arc<Mutex<String>>,
    stderr: Arc<Mutex<String>>,
}

impl GatewayProcess {
    /// Starts a gateway on a free port with its data in `data`, and waits until it listens.
    pub fn start(data: &Path, arguments: &[&str]) -> GatewayProcess {
        let mut command = Command::new(binary());
        command.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(data).args(arguments);
        GatewayProcess::spawn(command).unwrap_or_else(|output| panic!("the gateway did not start:\n{output}"))
    }

    /// Starts a prepared command that ends up in `fencepost serve`. `Err`: it exited instead, with this output.
    pub fn spawn(mut command: Command) -> Result<GatewayProcess, String> {
        note_nothing(&mut command);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the gateway can be started");
        let (stdout, out) = follow(child.stdout.take().expect("stdout is piped"));
        let (stderr, err) = follow(child.stderr.take().expect("stderr is piped"));
        let url = wait::until("the gateway to listen", Duration::from_secs(60), || {
            let said = stdout.lock().clone();
            if let Some(rest) = said.split("listening on ").nth(1) {
                return rest.split_whitespace().next().map(|url| Ok(url.to_owned()));
            }
            child.try_wait().expect("a child can be waited for").map(Err)
        });
        match url {
            Ok(url) => Ok(GatewayProcess { child, url, stdout, stderr }),
            Err(ended) => {
                // Its last output may still be in the pipes.
                let read = || (out.is_finished() && err.is_finished()).then_some(());
                wait::until("the gateway's last words", wait::PATIENCE, read);
                let said = |pipe: &Mutex<String>| pipe.lock().clone();
                Err(format!("{ended}\n{}{}", said(&stdout), said(&stderr)))
            }
        }
    }

    /// `http://127.0.0.1:port`
    pub fn url(&self) -> &str {
        &self.url
    }

    /// `127.0.0.1:port`
    pub fn address(&self) -> &str {
        self.url.trim_start_matches("http://")
    }

    /// The address of its S3 front end, as soon as that listens.
    pub fn s3_address(&self) -> SocketAddr {
        wait::until("the S3 front end to listen", wait::PATIENCE, || {
            self.stdout().split("S3 on http://").nth(1)?.split_whitespace().next()?.parse().ok()
        })
    }

    /// Opens a new connection to it.
    pub fn client(&self) -> Client {
        Client::connect(self.address())
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its standard output so far.
    pub fn stdout(&self) -> String {
        self.stdout.lock().clone()
    }

    /// Its log so far.
    pub fn stderr(&self) -> String {
        self.stderr.lock().clone()
    }

    /// True if it has accepted every connection, and read every byte that was sent.
    pub fn has_read_everything(&self) -> bool {
        let table = std::fs::read_to_string(format!("/proc/{}/net/tcp", self.pid())).expect("Linux has /proc");
        let port: u16 = self.address().rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port");
        let local = format!(":{port:04X}");
        // Fields: number, local address, remote address, state, transmit and receive queue, … The queue of a listener
        // counts connections, that of a connection counts bytes.
        table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>()).all(|fields| match fields[..] {
            [_, ours, _, _, queues, ..] => !ours.ends_with(&local) || queues.ends_with(":00000000"),
            _ => true,
        })
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).expect("our own child can be signalled");
    }

    /// Sends SIGKILL, and waits for the exit.
    pub fn kill(mut self) {
        self.child.kill().expect("our own child can be killed");
        self.child.wait().expect("our own child can be waited for");
    }

    /// Waits for it to exit by itself.
    pub fn wait(mut self, limit: Duration) -> ExitStatus {
        wait::until("the gateway to end", limit, || self.child.try_wait().expect("a child can be waited for"))
    }

    /// The exit status, if it has exited.
    pub fn has_ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("a child can be waited for")
    }
}

impl Drop for GatewayProcess {
    fn drop(&mut self) {
        // It may have exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The output of a pipe so far, and the thread that reads it to its end.
fn follow(pipe: impl Read + Send + 'static) -> (Arc<Mutex<String>>, JoinHandle<()>) {
    let said = Arc::new(Mutex::new(String::new()));
    let writer = said.clone();
    let reader = std::thread::spawn(move || {
        for line in BufReader::new(pipe).lines().map_while(Result::ok) {
            let mut said = writer.lock();
            said.push_str(&line);
            said.push('\n');
        }
    });
    (said, reader)
}
