//! Fault injection at chosen system calls of one thread of the gateway, by `strace -e inject`.
//!
//! strace counts calls per thread, from the moment it attaches. For one commit, the committer thread makes these calls,
//! in this order: `statfs` (free space), `pwrite64` and `fdatasync` of the journal, `pwrite64` of the `committed`
//! mark. The first commit after a start writes and syncs the head of the journal's file before. Then it wakes the waiting callers, with `futex` or a `write` to an eventfd.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::NamedTempFile;

use crate::process::{GatewayProcess, binary};
use fencepost_conformance::wait;

/// The thread that commits.
pub const COMMITTER: &str = "fp-committer";
/// RocksDB's thread that writes full buffers into tables.
pub const FLUSHER: &str = "rocksdb:high";
/// RocksDB's thread that merges tables.
pub const COMPACTOR: &str = "rocksdb:low";

/// Starts a gateway that strace may attach to without root privileges.
///
/// Ubuntu lets a process trace only its descendants, unless the traced process agrees (Yama, `PR_SET_PTRACER`). Only
/// the process itself can agree, so a line of Perl does that and then executes the gateway.
pub fn start_traceable(data: &Path, arguments: &[&str]) -> GatewayProcess {
    let prctl = if cfg!(target_arch = "aarch64") { 167 } else { 157 };
    let agreeing = format!("syscall({prctl}, 0x59616d61, -1, 0, 0, 0); exec {{$ARGV[0]}} @ARGV or die");
    let needed = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").is_ok_and(|scope| scope.trim() == "1");
    let mut command = if needed { Command::new("perl") } else { Command::new(binary()) };
    if needed {
        command.args(["-e", &agreeing]).arg(binary());
    }
    command.args(["serve", "--debuggable", "--listen", "127.0.0.1:0", "--data"]).arg(data).args(arguments);
    GatewayProcess::spawn(command).unwrap_or_else(|output| panic!("the gateway did not start:\n{output}"))
}

/// Starts a gateway that is killed at the n-th such call of any one of its threads. `Err`: that happened before it
/// listened.
pub fn start_to_die_at(call: &str, n: u64, data: &Path, arguments: &[&str]) -> Result<GatewayProcess, String> {
    let mut command = Command::new("strace");
    // -D: strace runs as a detached grandchild, so the gateway is our own child.
    command.args(["-D", "-f", "-o", "/dev/null", "-e", &format!("trace={call}")]);
    command.args(["-e", &format!("inject={call}:signal=KILL:when={n}")]).arg(binary());
    command.args(["serve", "--debuggable", "--listen", "127.0.0.1:0", "--data"]).arg(data).args(arguments);
    assert_installed();
    GatewayProcess::spawn(command)
}

fn assert_installed() {
    let found = Command::new("strace").arg("--version").stdin(Stdio::null()).output();
    assert!(found.is_ok(), "strace cannot be started: `scripts/setup test` installs it, or apt-get install strace");
}

/// The gateway's thread of this name. A thread sets its name shortly after it starts.
pub fn thread(gateway: &GatewayProcess, name: &str) -> u32 {
    wait::until(&format!("a thread called {name}"), wait::PATIENCE, || {
        let tasks = fs::read_dir(format!("/proc/{}/task", gateway.pid())).expect("a running process has tasks");
        let found = tasks
            .filter_map(Result::ok)
            .find(|task| fs::read_to_string(task.path().join("comm")).is_ok_and(|found| found.trim_end() == name))?;
        found.file_name().to_string_lossy().parse().ok()
    })
}

/// The file of the journal that is written, or will be after a restart.
pub fn current_journal(data: &Path) -> PathBuf {
    let files = fs::read_dir(data.join("journal")).expect("the store has a journal").filter_map(Result::ok);
    files.map(|file| file.path()).max().expect("the journal has a file")
}

/// The file that marks what was committed.
pub fn committed_mark(data: &Path) -> PathBuf {
    data.join("committed")
}

/// strace, attached to one thread.
pub struct Strace {
    child: Child,
    calls: NamedTempFile,
}

impl Strace {
    /// Attaches to a thread and injects faults into its calls as `inject` specifies (`fdatasync:error=EIO:when=2`).
    /// With `path`, only calls on that file count. The output has the calls with injected faults, and each `write`,
    /// `pwrite64` and `fdatasync`.
    pub fn attach(thread: u32, path: Option<&Path>, inject: &[&str]) -> Strace {
        let calls = NamedTempFile::new().expect("a temporary file can be made");
        let mut command = Command::new("strace");
        command.args(["-y", "-ttt", "-s", "8", "-p", &thread.to_string(), "-o"]).arg(calls.path());
        let names: Vec<&str> = inject.iter().filter_map(|rule| rule.split(':').next()).collect();
        command.args(["-e", &format!("trace=write,pwrite64,fdatasync,{}", names.join(","))]);
        for rule in inject {
            command.args(["-e", &format!("inject={rule}")]);
        }
        if let Some(path) = path {
            command.arg("-P").arg(path);
        }
        assert_installed();
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
        let mut child = child.expect("strace was found a moment ago");
        let mut said = String::new();
        let mut stderr = BufReader::new(child.stderr.take().expect("stderr is piped"));
        // From this line on, strace sees every call of the thread.
        while !said.contains(" attached") {
            let read = stderr.read_line(&mut said).expect("strace says something");
            assert!(
                read > 0,
                "strace cannot attach to thread {thread}: {said}It needs the right to trace: run as root, give the \
                 container the capability SYS_PTRACE, or `sudo sysctl kernel.yama.ptrace_scope=1`"
            );
        }
        // Drain the pipe, so that strace never blocks on it.
        std::thread::spawn(move || stderr.lines().count());
        Strace { child, calls }
    }

    /// Detaches, and returns the calls that were seen.
    pub fn detach(mut self) -> String {
        self.stop();
        self.calls()
    }

    /// Waits for the thread to end, and returns the calls that were seen.
    pub fn wait(mut self) -> String {
        wait::until("strace to end", wait::PATIENCE, || {
            self.child.try_wait().expect("our own child can be waited for")
        });
        self.calls()
    }

    /// The calls that were seen so far.
    pub fn calls(&self) -> String {
        fs::read_to_string(self.calls.path()).expect("strace writes a file")
    }

    fn stop(&mut self) {
        if self.child.try_wait().expect("our own child can be waited for").is_none() {
            // On SIGTERM strace detaches first. It may exit by itself in between.
            let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        }
        let _ = self.child.wait();
    }
}

impl Drop for Strace {
    fn drop(&mut self) {
        self.stop();
    }
}
