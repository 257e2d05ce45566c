//! Processes that programs of the resource leave behind outside of their groups: with `setsid`, as a daemon does.
//!
//! For a program that only runs the suite: everything below it is taken to belong to the run.

use std::fs;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, getpid, kill_process, set_child_subreaper, waitid};

use crate::wait;

/// How often it is looked whether killed processes are gone.
const LOOK: Duration = Duration::from_millis(2);

/// How long they may take.
const GONE: Duration = Duration::from_secs(10);

/// Are they adopted?
static ADOPTED: AtomicBool = AtomicBool::new(false);

/// From its making on, processes below this one that lose their parent become its children. Dropped after everything
/// that was started, it kills what is left.
pub struct Orphans(());

impl Orphans {
    /// Begins to adopt.
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

/// Kills them, if they are adopted, when the whole process is about to end.
pub(super) fn end_adopted() {
    if ADOPTED.load(Ordering::SeqCst) {
        end();
    }
}

/// Kills all children, and what becomes a child by that, until none is left. How many were killed.
///
/// Only children: their numbers are not given to others before they are waited for.
fn end() -> usize {
    let deadline = Instant::now() + GONE;
    let mut killed = Vec::new();
    loop {
        let mut left = false;
        for (child, has_ended) in children() {
            if has_ended {
                // One that somebody else waits for may be gone by now.
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
        // Number, name in brackets, state, parent, …; a name may contain anything.
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
        let state = fields.next()?;
        (fields.next()?.parse() == Ok(ours)).then_some((Pid::from_raw(number)?, matches!(state, "Z" | "X")))
    };
    numbers.filter_map(child).collect()
}
