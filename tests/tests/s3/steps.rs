//! The gateway's steps on disk, one by one: strace briefly holds each of its calls that changes a file before it is
//! made, so that a test can count them, see what each concerns, and kill the process before any of them.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Long enough to be seen by a poll every few milliseconds.
const HELD_US: u32 = 40_000;

/// Calls that change what is on disk, with their numbers. The first argument of each is a descriptor.
#[cfg(target_arch = "x86_64")]
const CALLS: [(&str, &str); 9] = [
    ("write", "1"),
    ("pwrite64", "18"),
    ("fsync", "74"),
    ("fdatasync", "75"),
    ("mkdirat", "258"),
    ("unlinkat", "263"),
    ("renameat", "264"),
    ("copy_file_range", "326"),
    ("openat2", "437"),
];
#[cfg(target_arch = "aarch64")]
const CALLS: [(&str, &str); 9] = [
    ("write", "64"),
    ("pwrite64", "68"),
    ("fsync", "82"),
    ("fdatasync", "83"),
    ("mkdirat", "34"),
    ("unlinkat", "35"),
    ("renameat", "38"),
    ("copy_file_range", "285"),
    ("openat2", "437"),
];

/// A process whose steps are held.
pub(crate) struct Steps {
    _strace: Injected,
    pid: u32,
    root: PathBuf,
    /// Calls that are being held or made: thread, and call with its arguments.
    held: BTreeSet<(String, String)>,
    /// The steps seen so far, in order.
    pub(crate) seen: Vec<String>,
}

impl Steps {
    /// Holds the steps of a process on files below `root`.
    pub(crate) fn hold(pid: u32, root: &Path) -> Steps {
        let strace = Injected::delay(pid, &CALLS.map(|(name, _)| name).join(","), HELD_US);
        Steps { _strace: strace, pid, root: root.to_owned(), held: BTreeSet::new(), seen: Vec::new() }
    }

    /// Looks for calls that are new since the last look, and records them.
    pub(crate) fn look(&mut self) {
        let mut held = BTreeSet::new();
        let Ok(tasks) = fs::read_dir(format!("/proc/{}/task", self.pid)) else { return };
        for task in tasks.filter_map(Result::ok) {
            // A thread may end between two looks.
            let Ok(call) = fs::read_to_string(task.path().join("syscall")) else { continue };
            let mut words = call.split_whitespace();
            let number = words.next().unwrap_or_default();
            let Some((name, _)) = CALLS.iter().find(|(_, known)| *known == number) else { continue };
            let thread = task.file_name().to_string_lossy().into_owned();
            let id = (thread, call.clone());
            if !self.held.contains(&id)
                && let Some(file) = words.next().and_then(|word| self.file(word))
            {
                self.seen.push(format!("{name} {file}"));
            }
            held.insert(id);
        }
        self.held = held;
    }

    /// The file behind a descriptor, if it is one whose content must survive.
    fn file(&self, descriptor: &str) -> Option<String> {
        let number = u32::from_str_radix(descriptor.trim_start_matches("0x"), 16).ok()?;
        let path = fs::read_link(format!("/proc/{}/fd/{number}", self.pid)).ok()?;
        let path = path.strip_prefix(&self.root).ok()?.to_string_lossy().into_owned();
        // RocksDB's own log is only informational.
        (!path.ends_with("/LOG")).then_some(path)
    }
}

/// strace, which injects a delay or an error into some calls of a process. Dropping it releases them.
pub(crate) struct Injected(Child);

impl Injected {
    /// Delays these calls.
    pub(crate) fn delay(pid: u32, calls: &str, microseconds: u32) -> Injected {
        Injected::attach(pid, calls, &format!("delay_enter={microseconds}"))
    }

    /// Makes these calls fail without being executed.
    pub(crate) fn error(pid: u32, calls: &str, error: &str) -> Injected {
        Injected::attach(pid, calls, &format!("error={error}"))
    }

    fn attach(pid: u32, calls: &str, what: &str) -> Injected {
        let mut command = Command::new("strace");
        command.args(["-f", "-p", &pid.to_string(), "-o", "/dev/null", "-e", &format!("trace={calls}")]);
        command.args(["-e", &format!("inject={calls}:{what}")]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut strace = command.spawn().expect("strace can be started: `scripts/setup test` installs it");
        let mut stderr = BufReader::new(strace.stderr.take().expect("stderr is piped"));
        let mut said = String::new();
        while !said.contains(" attached") {
            let read = stderr.read_line(&mut said).expect("strace says something");
            assert!(read > 0, "strace cannot attach to process {pid}: {said}");
        }
        // Drain the pipe, so that strace never blocks on it.
        std::thread::spawn(move || stderr.lines().count());
        Injected(strace)
    }
}

impl Drop for Injected {
    fn drop(&mut self) {
        // When strace is killed, the kernel releases everything it traced. On TERM, strace would wait for threads that
        // it holds itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
