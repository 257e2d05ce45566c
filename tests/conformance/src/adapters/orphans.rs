//! Processes that programs of the resource leave behind outside their process groups: with `setsid`, as a daemon does.
//!
//! Only for a process that does nothing but run the suite: all of its descendants are assumed to belong to the run.

use std::fs;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, getpid, kill_process, set_child_subreaper, waitid};

use crate::wait;

/// How often to check whether killed processes are gone.
const LOOK: Duration = Duration::from_millis(2);

/// How long killed processes may take to disappear.
const GONE: Duration = Duration::from_secs(10);

/// Whether this process adopts orphans.
static ADOPTED: AtomicBool = AtomicBool::new(false);

/// While this exists, descendants that lose their parent become children of this process. Drop it after everything that
/// was started: it kills the remaining processes.
pub struct Orphans(());

impl Orphans {
    /// Makes this process adopt orphans.
    pub fn adopt() -> io::Result<Orphans> {
        set_child_subreaper(Some(getpid()))?;
        ADOPTED.store(true, Ordering::SeqCst);
        Ok(Orphans(()))
    }
}

impl Drop for Orphans {
    fn drop(&mut self) {
        let ended = end();
        if ended > 0 {
            eprintln!(
                "fencepost: {ended} processes were left behind outside of their groups, and were killed. What shall outlive \
                 the run must not be started by it"
            );
        }
    }
}

/// Kills adopted processes, if any, when the whole process is about to exit.
pub(super) fn end_adopted() {
    if ADOPTED.load(Ordering::SeqCst) {
        end();
    }
}

/// Kills all children, and processes that become children by that, until none is left. Returns how many were killed.
///
/// Only children are killed: their ids are not reused before they are waited for.
fn end() -> usize {
    let deadline = Instant::now() + GONE;
    let mut killed = Vec::new();
    loop {
        let mut left = false;
        for (child, has_ended) in children() {
            if has_ended {
                // A child that another thread waits for may be gone by now.
                let _ = waitid(WaitId::Pid(child), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
                continue;
            }
            left = true;
            if kill_process(child, Signal::KILL).is_ok() && !killed.contains(&child) {
                killed.push(child);
            }
        }
        if !left || Instant::now() > deadline {
            return killed.len();
        }
        wait::pause(LOOK);
    }
}

/// The children of this process, and whether each has ended.
fn children() -> Vec<(Pid, bool)> {
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    let numbers = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let ours = getpid().as_raw_nonzero().get();
    let child = |number: i32| {
        let stat = fs::read_to_string(format!("/proc/{number}/stat")).ok()?;
        // Process id, name in brackets, state, parent, …; a name may contain anything.
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
        let state = fields.next()?;
        (fields.next()?.parse() == Ok(ours)).then_some((Pid::from_raw(number)?, matches!(state, "Z" | "X")))
    };
    numbers.filter_map(child).collect()
}
