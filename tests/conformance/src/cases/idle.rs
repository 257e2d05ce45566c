//! R08: resources that are idle while very many others are created.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::crashes::look;
use super::{Ended, Trial};
use crate::op::{Op, Verb};
use crate::wait;

pub(super) fn many_others(t: &Trial<'_>) -> Result<(), Ended> {
    const CLIENTS: u32 = 8;
    // The number depends on the speed of the resource: at least this many, however long it takes, …
    const FEWEST: u64 = 2_000;
    const LONGEST: Duration = Duration::from_secs(180);
    // … 10,000 if they can be created in this time, …
    const LONG: Duration = Duration::from_secs(60);
    // … and more, up to 100,000, in this.
    const ENOUGH: Duration = Duration::from_secs(10);
    const IDLE: Duration = Duration::from_secs(1);
    let (many, most) = (t.scaled(10_000).max(FEWEST), t.scaled(100_000).max(FEWEST));
    let kept: Vec<String> = (0..10).map(|_| t.resource()).collect();
    for (number, res) in (0..).zip(&kept) {
        t.accepted(0, t.write_op(0, res, 5))?;
        // The record of a deleted resource is the first that a collector removes.
        let last = match number % 2 == 1 && t.has(Verb::Delete) {
            true => Op::delete(res, 9, &t.holder(1)),
            false => t.write_op(1, res, 9),
        };
        t.accepted(1, last)?;
    }
    let (begun, done) = (AtomicU64::new(0), AtomicU64::new(0));
    let began = Instant::now();
    let base = t.resource();
    t.parallel(CLIENTS, |client| {
        let holder = t.holder(client);
        loop {
            let number = begun.fetch_add(1, Ordering::Relaxed);
            let (done_so_far, elapsed) = (done.load(Ordering::Relaxed), began.elapsed());
            let limit = match done_so_far {
                few if few < FEWEST => LONGEST,
                some if some < many => LONG,
                _ => ENOUGH,
            };
            if number >= most || elapsed > limit {
                return Ok(());
            }
            let answer = t.ask(client, &Op::write(&format!("{base}-{number}"), 3, &holder, "filler"))?;
            done.fetch_add(u64::from(answer.is_ok()), Ordering::Relaxed);
        }
    })?;
    wait::pause(IDLE);
    kept.iter().try_for_each(|res| look(t, res))?;
    let done = done.into_inner();
    if done < FEWEST {
        return Err(Ended::Unknown(format!("only {done} other resources could be written, {FEWEST} are needed")));
    }
    t.remark(format!("{done} other resources were written meanwhile"));
    Ok(())
}
