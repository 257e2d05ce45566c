//! Programs of the resource under test: each leads a process group of its own, and no group outlives the run.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use tempfile::TempDir;

use super::orphans;
use super::patience::Patience;
use crate::subject::Broken;
use crate::wait;

/// How often to check whether a process has ended.
const LOOK: Duration = Duration::from_millis(2);

/// How long a killed group may take to be gone.
const GONE: Duration = Duration::from_secs(60);

/// How long to wait for a stopped group to stand still before letting it run on for a moment.
const STILL: Duration = Duration::from_millis(200);

/// The prefix of the run's directory names.
pub(super) const PREFIX: &str = "fencepost-conform-";

/// Everything a run has started and created, so that `end_all` can clean it up.
static STARTED: Mutex<Started> = Mutex::new(Started { ended: false, groups: BTreeSet::new(), directories: Vec::new() });

struct Started {
    /// Nothing more may be started.
    ended: bool,
    /// The running groups. The leader of each was not waited for yet, so its id cannot be reused.
    groups: BTreeSet<i32>,
    directories: Vec<PathBuf>,
}

impl Started {
    /// Fails if the run was ended.
    fn go_on(&self) -> Result<(), Broken> {
        if self.ended { Err(Broken("the run was ended".to_owned())) } else { Ok(()) }
    }

    /// A temporary directory, created and recorded in one step with respect to `end_all`.
    fn directory(&mut self) -> Result<TempDir, Broken> {
        self.go_on()?;
        let made = tempfile::Builder::new().prefix(PREFIX).tempdir().map_err(|error| {
            Broken(format!(
                "no temporary directory can be made in {}: {error}; set TMPDIR to a directory that can be written",
                std::env::temp_dir().display()
            ))
        })?;
        self.directories.retain(|known| known.exists());
        self.directories.push(made.path().to_owned());
        Ok(made)
    }
}

fn started() -> MutexGuard<'static, Started> {
    STARTED.lock()
}

/// Ends the run on a signal: kills every program that was started here and removes the directories made for them.
pub fn end_all() {
    let mut started = started();
    started.ended = true;
    for leader in started.groups.iter().copied() {
        if let Some(leader) = Pid::from_raw(leader) {
            // The group may be gone already.
            let _ = kill_process_group(leader, Signal::KILL);
        }
    }
    orphans::end_adopted();
    for directory in &started.directories {
        // A dying process may still have written there, so try twice. Leftovers stay in the system's temporary
        // directory.
        let _ = fs::remove_dir_all(directory).or_else(|_| fs::remove_dir_all(directory));
    }
}

/// A temporary directory for programs.
pub fn directory() -> Result<TempDir, Broken> {
    started().directory()
}

/// A program with all processes it starts. Dropping it kills all of them.
pub struct Program {
    child: Child,
    leader: Pid,
    /// The exit status, once the process was reaped: from then on no signal is sent.
    over: Option<ExitStatus>,
}

impl Program {
    /// Starts the program in a process group of its own.
    pub fn start(mut command: Command) -> Result<Program, Broken> {
        let shown = command.get_program().to_string_lossy().into_owned();
        // Started and recorded in one step with respect to `end_all`.
        let mut started = started();
        started.go_on()?;
        let child = command.process_group(0).spawn();
        let child = child.map_err(|error| Broken(format!("`{shown}` cannot be started: {error}")))?;
        let leader = Pid::from_child(&child);
        started.groups.insert(leader.as_raw_nonzero().get());
        Ok(Program { child, leader, over: None })
    }

    /// The child, with its pipes and its process id.
    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// The exit status of the first process, if it has ended.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        if self.over.is_some() {
            return self.over;
        }
        // Look without reaping: until the process is waited for, no other group can get its id.
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let status = waitid(WaitId::Pid(self.leader), look).ok().flatten()?;
        let code = status.exit_status().map(|code| (code & 0xff) << 8);
        code.or(status.terminating_signal()).map(ExitStatus::from_raw)
    }

    /// Waits at most `patience` for the first process to end.
    pub fn wait(&mut self, patience: Duration) -> Option<ExitStatus> {
        self.wait_with(&mut Patience::of(patience))
    }

    fn wait_with(&mut self, patience: &mut Patience) -> Option<ExitStatus> {
        loop {
            match self.ended() {
                None if !patience.is_over() => patience.wait(|_| wait::pause(LOOK)),
                ended => return ended,
            }
        }
    }

    /// The ids of its processes that have not ended.
    pub fn processes(&self) -> Vec<i32> {
        if self.over.is_some() {
            return Vec::new();
        }
        members(self.number()).iter().filter_map(|process| process.file_name()?.to_str()?.parse().ok()).collect()
    }

    /// Sends a signal to the whole group; it is no error if the group is gone.
    pub fn signal(&self, signal: Signal) -> Result<(), Broken> {
        if self.over.is_some() {
            return Ok(());
        }
        match kill_process_group(self.leader, signal) {
            Ok(()) | Err(Errno::SRCH) => Ok(()),
            Err(error) => Err(Broken(format!("process group {} cannot be signalled: {error}", self.number()))),
        }
    }

    /// Stops the whole group (SIGSTOP), and waits until all of it stands still.
    pub fn pause(&self) -> Result<(), Broken> {
        let deadline = Instant::now() + GONE;
        let mut step = LOOK;
        loop {
            self.signal(Signal::STOP)?;
            let looked = Instant::now();
            while looked.elapsed() < STILL {
                if members(self.number()).iter().all(|process| stands(process)) {
                    return Ok(());
                }
                wait::pause(LOOK);
            }
            if Instant::now() > deadline {
                return Err(Broken(format!("processes of group {} go on after SIGSTOP", self.number())));
            }
            // A process stopped between vfork and exec keeps its parent in a sleep that no signal interrupts. Let the
            // group run for a moment, longer each time.
            self.signal(Signal::CONT)?;
            wait::pause(step);
            step *= 2;
        }
    }

    /// Kills the whole group and waits until it is gone.
    pub fn kill(&mut self) -> Result<(), Broken> {
        if self.over.is_some() {
            return Ok(());
        }
        self.signal(Signal::KILL)?;
        let deadline = Instant::now() + GONE;
        while self.ended().is_none() || lives(self.number()) {
            if Instant::now() > deadline {
                return Err(Broken(format!("processes of group {} survive SIGKILL", self.number())));
            }
            wait::pause(LOOK);
            // A process that was just being started may have missed the first signal.
            self.signal(Signal::KILL)?;
        }
        // Reaped and unregistered in one step with respect to `end_all`.
        let mut started = started();
        started.groups.remove(&self.number());
        let status = self.child.wait();
        self.over = Some(status.unwrap_or_default());
        Ok(())
    }

    /// Asks it to end (SIGTERM), and kills the rest after `patience`.
    pub fn stop(&mut self, patience: Duration) -> Result<(), Broken> {
        let mut patience = Patience::of(patience);
        self.signal(Signal::TERM)?;
        self.wait_with(&mut patience);
        // A shell may be gone before the program that it started.
        while lives(self.number()) && !patience.is_over() {
            patience.wait(|_| wait::pause(LOOK));
        }
        self.kill()
    }

    fn number(&self) -> i32 {
        self.leader.as_raw_nonzero().get()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Nothing can be done about a group that cannot be killed.
        let _ = self.kill();
    }
}

/// Whether the group has a process that has not ended. Zombie processes count as ended.
fn lives(group: i32) -> bool {
    !members(group).is_empty()
}

/// The processes of a group that have not ended.
fn members(group: i32) -> Vec<PathBuf> {
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    let numbered = processes
        .filter_map(Result::ok)
        .filter(|entry| entry.file_name().to_str().is_some_and(|name| name.bytes().all(|byte| byte.is_ascii_digit())));
    let belongs =
        |path: &PathBuf| status(path).is_some_and(|(state, found)| !matches!(state, 'Z' | 'X') && found == group);
    numbered.map(|entry| entry.path()).filter(belongs).collect()
}

/// Whether all threads of a process are stopped.
fn stands(process: &Path) -> bool {
    let Ok(threads) = fs::read_dir(process.join("task")) else { return true };
    let still = |thread: PathBuf| status(&thread).is_none_or(|(state, _)| matches!(state, 'T' | 't' | 'Z' | 'X'));
    threads.filter_map(Result::ok).all(|thread| still(thread.path()))
}

/// State and process group of a process or thread.
fn status(path: &Path) -> Option<(char, i32)> {
    let stat = fs::read_to_string(path.join("stat")).ok()?;
    // Process id, name in brackets, state, parent, group, …; a name may contain anything.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?.chars().next()?;
    Some((state, fields.nth(1)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};
    use std::time::Duration;

    use rustix::process::Signal;

    use super::{Program, Started, lives, members, stands};
    use crate::subject::Broken;
    use crate::wait;

    fn shell(script: &str) -> Program {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdout(Stdio::piped());
        Program::start(command).unwrap()
    }

    #[test]
    fn a_kill_takes_everything_that_was_started() {
        let mut program = shell("sleep 600 & echo up; sleep 600");
        let group = program.number();
        let mut line = String::new();
        BufReader::new(program.child().stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "up\n");
        assert!(lives(group));
        program.kill().unwrap();
        assert!(!lives(group));
    }

    #[test]
    fn what_its_leader_left_behind_is_killed_too() {
        let mut program = shell("sleep 600 & exit 7");
        let group = program.number();
        let ended = program.wait(Duration::from_secs(20)).unwrap();
        assert_eq!(ended.code(), Some(7));
        assert!(lives(group), "the sleep goes on");
        program.kill().unwrap();
        assert!(!lives(group));
        assert_eq!(program.ended().and_then(|status| status.code()), Some(7));
    }

    #[test]
    fn one_that_does_not_listen_is_killed() {
        let mut program = shell("trap '' TERM; echo up; while :; do sleep 600; done");
        let mut line = String::new();
        BufReader::new(program.child().stdout.take().unwrap()).read_line(&mut line).unwrap();
        program.stop(Duration::from_millis(50)).unwrap();
        assert!(!lives(program.number()));
    }

    #[test]
    fn when_the_run_was_ended_no_directory_is_made() {
        let mut started = Started { ended: false, groups: BTreeSet::new(), directories: Vec::new() };
        let made = started.directory().unwrap();
        assert_eq!(started.directories, [made.path()]);
        started.ended = true;
        assert_eq!(started.directory().map(drop), Err(Broken("the run was ended".to_owned())));
        assert_eq!(started.directories.len(), 1);
    }

    #[test]
    fn one_that_is_just_starting_others_can_be_paused() {
        let program = shell("while :; do /bin/true; done");
        // About one stop in thirty falls between vfork and exec.
        for round in 0..300 {
            wait::pause(Duration::from_micros(round % 40 * 100));
            program.pause().unwrap();
            assert!(members(program.number()).iter().all(|process| stands(process)));
            program.signal(Signal::CONT).unwrap();
        }
    }
}
