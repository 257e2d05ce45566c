//! Programs of the resource under test: each leads a process group of its own, and no group outlives the run.

use std::collections::BTreeSet;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};

use crate::harness::wait;
use crate::subject::Broken;

/// How often it is looked whether a process has ended.
const LOOK: Duration = Duration::from_millis(2);

/// How long a killed group may take to be gone.
const GONE: Duration = Duration::from_secs(10);

/// The groups that run now.
static RUNNING: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());

fn running() -> MutexGuard<'static, BTreeSet<i32>> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Kills every program that was started here: for the end of the run, also by a signal.
pub fn kill_all() {
    for leader in std::mem::take(&mut *running()) {
        if let Some(leader) = Pid::from_raw(leader) {
            // It may be gone already.
            let _ = kill_process_group(leader, Signal::KILL);
        }
    }
}

/// A program with everything it starts. Dropping it kills all of them.
pub struct Program {
    child: Child,
    leader: Pid,
}

impl Program {
    /// Starts it in a group of its own.
    pub fn start(mut command: Command) -> Result<Program, Broken> {
        use std::os::unix::process::CommandExt;
        let shown = command.get_program().to_string_lossy().into_owned();
        let child = command.process_group(0).spawn();
        let child = child.map_err(|error| Broken(format!("`{shown}` cannot be started: {error}")))?;
        let leader = Pid::from_child(&child);
        running().insert(leader.as_raw_nonzero().get());
        Ok(Program { child, leader })
    }

    /// Its pipes, and its number.
    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Has it ended?
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Sends a signal to the whole group; a group that is gone is no error.
    pub fn signal(&self, signal: Signal) -> Result<(), Broken> {
        match kill_process_group(self.leader, signal) {
            Ok(()) | Err(Errno::SRCH) => Ok(()),
            Err(error) => Err(Broken(format!("process group {:?} cannot be signalled: {error}", self.leader))),
        }
    }

    /// Kills the whole group and waits until nothing of it is left.
    pub fn kill(&mut self) -> Result<(), Broken> {
        self.signal(Signal::KILL)?;
        let _ = self.child.wait();
        let deadline = Instant::now() + GONE;
        while test_kill_process_group(self.leader).is_ok() {
            if Instant::now() > deadline {
                return Err(Broken(format!("processes of group {:?} survive SIGKILL", self.leader)));
            }
            wait::pause(LOOK);
        }
        running().remove(&self.leader.as_raw_nonzero().get());
        Ok(())
    }

    /// Asks it to end (SIGTERM), and kills what is left after `patience`.
    pub fn stop(&mut self, patience: Duration) -> Result<(), Broken> {
        self.signal(Signal::TERM)?;
        let deadline = Instant::now() + patience;
        // A shell may be gone before the program that it started.
        while (self.ended().is_none() || test_kill_process_group(self.leader).is_ok()) && Instant::now() < deadline {
            wait::pause(LOOK);
        }
        self.kill()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Nothing more can be done about one that cannot be killed.
        let _ = self.kill();
    }
}
