//! The program's process group, and its use of the terminal.
//!
//! A shell knows only our process group, so both groups are kept in the same state: if the program is stopped, we stop
//! too, and if we are continued, the program is continued.

use std::fs::File;
use std::io::IsTerminal;
use std::process::ExitStatus;

use nix::sys::signal::SigSet;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, getpgrp, getpid, getsid, kill_current_process_group, kill_process,
    kill_process_group, waitid,
};
use rustix::termios::{tcgetpgrp, tcsetpgrp};
use tokio::process::{Child, Command};
use tokio::signal::unix::SignalKind;

use super::signals::Signals;

/// A running program, with all processes that it starts.
pub(super) struct Job {
    pub(super) child: Child,
    /// The program's own process group.
    group: Option<Pid>,
    /// The terminal that we were started at, if there is one.
    terminal: Option<File>,
    /// Whether the program has the terminal.
    given: bool,
    changes: Signals,
}

/// What happened to the program, or to us.
pub(super) enum Change {
    /// The program ended.
    Ended(std::io::Result<ExitStatus>),
    /// The program may have been stopped.
    Program,
    /// We received a request to stop (TSTP).
    Stop,
    /// We were stopped and are continued (CONT).
    Continued,
}

impl Job {
    /// Starts a program in a group of its own, which has the terminal if we have it.
    pub(super) fn start(command: &mut Command) -> std::io::Result<Job> {
        // Before the program runs, so that no signal is missed.
        let stop = SignalKind::from_raw(Signal::TSTP.as_raw());
        let go_on = SignalKind::from_raw(Signal::CONT.as_raw());
        let changes = Signals::catch(&[SignalKind::child(), stop, go_on])?;
        let child = command.process_group(0).spawn()?;
        let group = child.id().and_then(|id| Pid::from_raw(id.try_into().unwrap_or(0)));
        let terminal = File::open("/dev/tty").ok();
        // SIGTTOU would stop us for writing to the terminal, or taking it back, while the program has it. It is blocked
        // only after the program was started, which would inherit the block.
        let mut tty_output = SigSet::empty();
        tty_output.add(nix::sys::signal::Signal::SIGTTOU);
        tty_output.thread_block().map_err(std::io::Error::from)?;
        let mut job = Job { child, group, terminal, given: false, changes };
        if has_whole_terminal() && job.give() {
            // The program may have been stopped for using the terminal too early.
            job.send(Signal::CONT);
        }
        Ok(job)
    }

    /// Sends a signal to the program and all it has started.
    pub(super) fn send(&self, signal: Signal) {
        if let Some(group) = self.group {
            // The group may have ended.
            let _ = kill_process_group(group, signal);
        }
    }

    /// Waits for something to happen.
    pub(super) async fn change(&mut self) -> Change {
        let number = tokio::select! {
            ended = self.child.wait() => return Change::Ended(ended),
            number = self.changes.next() => number,
        };
        match number {
            number if number == Signal::TSTP.as_raw() => Change::Stop,
            number if number == Signal::CONT.as_raw() => Change::Continued,
            _ => Change::Program,
        }
    }

    /// The program may have been stopped: by Ctrl-Z, or because it wants a terminal that it does not have.
    pub(super) fn follow(&mut self) {
        let Some(stopped_by) = self.stopped_by() else { return };
        let wants_terminal = [Signal::TTIN.as_raw(), Signal::TTOU.as_raw()].contains(&stopped_by);
        if wants_terminal && self.give() {
            return self.send(Signal::CONT);
        }
        let had_terminal = self.given && self.foreground() == self.group;
        if !wants_terminal && !had_terminal {
            // Stopped by another process, which will continue it.
            return;
        }
        self.take_back();
        if is_under_a_shell() {
            // Every process in our group: only then does the shell consider the job stopped.
            let _ = kill_current_process_group(Signal::STOP);
        } else if had_terminal {
            // Without a shell, nothing could continue it.
            self.give();
            self.send(Signal::CONT);
        }
    }

    /// Ctrl-Z reached us: the program stops too, because we cannot renew the lease while we are stopped.
    pub(super) fn stop(&mut self) {
        if is_under_a_shell() {
            self.send(Signal::TSTP);
            let _ = kill_process(getpid(), Signal::STOP);
        }
    }

    /// Continues the program after we were stopped, in the foreground or not.
    pub(super) fn resume(&mut self) {
        self.given = self.foreground() == self.group;
        if has_whole_terminal() {
            self.give();
        }
        self.send(Signal::CONT);
    }

    /// Takes the terminal back, for the process that uses it next.
    pub(super) fn take_back(&mut self) {
        if let (Some(terminal), true) = (&self.terminal, self.given) {
            self.given = false;
            // The terminal may be gone.
            let _ = tcsetpgrp(terminal, getpgrp());
        }
    }

    /// Gives the terminal to the program, if it is ours to give.
    fn give(&mut self) -> bool {
        let (Some(terminal), Some(group)) = (&self.terminal, self.group) else { return false };
        let foreground = tcgetpgrp(terminal).ok();
        self.given = foreground == Some(group) || foreground == Some(getpgrp()) && tcsetpgrp(terminal, group).is_ok();
        self.given
    }

    fn foreground(&self) -> Option<Pid> {
        tcgetpgrp(self.terminal.as_ref()?).ok()
    }

    /// The signal that has stopped the program, if one has.
    fn stopped_by(&self) -> Option<i32> {
        let stopped = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
        waitid(WaitId::Pid(self.group?), stopped).ok()??.stopping_signal()
    }
}

/// Whether both input and output are the terminal. In a pipeline, another process may be using it; there the program
/// gets it when it asks.
fn has_whole_terminal() -> bool {
    std::io::stdin().is_terminal() && std::io::stdout().is_terminal()
}

/// Whether there is a shell that sees our group stop, and can continue it. Without one, a stopped group is left for
/// ever.
fn is_under_a_shell() -> bool {
    let (group, Ok(session)) = (getpgrp(), getsid(None)) else { return false };
    let mut process = getpid();
    // The first ancestor in another group is the parent of our group's leader.
    while let Some(parent) = parent_of(process) {
        if getsid(Some(parent)) != Ok(session) {
            return false;
        }
        if rustix::process::getpgid(Some(parent)) != Ok(group) {
            return true;
        }
        process = parent;
    }
    false
}

fn parent_of(process: Pid) -> Option<Pid> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", process.as_raw_nonzero())).ok()?;
    // The fields are process id, name in parentheses, state, parent.
    let parent = stat.rsplit_once(')')?.1.split_whitespace().nth(1)?;
    Pid::from_raw(parent.parse().ok()?)
}
