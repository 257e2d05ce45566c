//! R09: the process is killed at one system call after another.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::{Ended, Trial};
use crate::op::{Op, Verb, Write};
use crate::wait;

/// The number of kills, unless the process makes fewer steps, …
const KILLS: u64 = 60;

/// … or the kills would take longer than this many seconds; …
const SECONDS: u64 = 120;

/// … but at least this many.
const FEWEST: u64 = 10;

/// If fewer steps are seen, other processes do the work, and a kill proves nothing. As many kills must also meet a
/// request in flight.
pub(super) const SEEN: u64 = 3;

/// How often the steps are counted.
const LOOK: Duration = Duration::from_micros(200);

/// One client changes two resources in every possible way, and the process is killed at one of the steps that this
/// takes. The first run is not interrupted, to count the steps.
pub(super) fn killed_at_each(t: &Trial<'_>) -> Result<(), Ended> {
    let began = Instant::now();
    // Only the first attempt decides whether the case applies; later failures are handled in `killed_at`.
    t.subject().steps().map(drop).map_err(Ended::NotApplicable)?;
    let all = killed_at(t, u64::MAX)?;
    if all < SEEN {
        return Err(Ended::NotApplicable(format!(
            "strace saw its processes write, sync, rename or answer only {all} times: others do that, or they do it by io_uring or \
             in mapped memory"
        )));
    }
    let affordable = t.scaled(SECONDS) * 1000 / u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX).max(1);
    let kills = t.scaled(KILLS).min(affordable.max(FEWEST)).min(all);
    // If not every step can be tested, different seeds test different ones.
    let offset = t.random(0).below(all);
    let mut met = BTreeSet::new();
    for kill in t.exactly(kills) {
        met.insert(killed_at(t, 1 + (kill * all + offset) / kills)?.min(all));
    }
    let met = met.len() as u64;
    if met * 2 < kills {
        return Err(Ended::Unknown(format!(
            "{kills} kills should have met as many steps of the process, and met {met}: does the `kill` hook end it at once?"
        )));
    }
    let requests = work(t, "", "").len();
    t.remark(format!(
        "killed at {met} of the {all} steps (writes, syncs, renames, answers) that it made for {requests} requests"
    ));
    Ok(())
}

/// Kills the process at this step, or after the work if it makes fewer steps. Returns how many steps were begun.
fn killed_at(t: &Trial<'_>, step: u64) -> Result<u64, Ended> {
    let (res, other) = (t.resource(), t.resource());
    let work = work(t, &res, &other);
    let steps = t.subject().steps().map_err(Ended::Unknown)?;
    let (killed, done) = (AtomicBool::new(false), AtomicBool::new(false));
    t.parallel(2, |client| {
        if client == 0 {
            let mut going = work.iter().take_while(|_| !killed.load(Ordering::Acquire));
            let worked = going.try_for_each(|op| t.call(0, op.clone()).map(drop));
            done.store(true, Ordering::Release);
            return worked;
        }
        while steps.made() < step && !done.load(Ordering::Acquire) {
            wait::pause(LOOK);
        }
        killed.store(true, Ordering::Release);
        t.crash()
    })?;
    let made = steps.made();
    t.killed_before(steps.latest().filter(|_| made >= step));
    drop(steps);
    // Each of these tokens is just below one that may have been the last accepted.
    t.peek(1, &res)?;
    for token in [4, 6, 8, 10, 12, 14, 16] {
        t.call(1, t.write_op(1, &res, token))?;
    }
    t.peek(1, &res)?;
    t.peek(1, &other)?;
    for token in [12, 14] {
        t.call(1, t.write_op(1, &other, token))?;
    }
    Ok(made)
}

/// One request of each kind the resource has, to `res`, and a batch that includes `other`; tokens 5, 7, 9 and so on.
fn work(t: &Trial<'_>, res: &str, other: &str) -> Vec<Op> {
    let holder = t.holder(0);
    let (first, second) = (t.value(), t.value());
    let batch = |value: &str| Op::Batch {
        writes: vec![Write::new(res, 13, &holder, value), Write::new(other, 13, &holder, value)],
    };
    let all = [
        Op::write(res, 5, &holder, &first),
        Op::claim(res, 7, &holder),
        Op::cas(res, 9, &holder, Some(&first), &second),
        t.large_op(0, res, 11),
        batch(&t.value()),
        Op::delete(res, 15, &holder),
    ];
    all.into_iter().filter(|op| matches!(op.verb(), Verb::Write) || t.has(op.verb())).collect()
}
