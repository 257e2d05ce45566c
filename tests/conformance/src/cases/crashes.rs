//! Group R: the process ends, and comes back.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use super::backups::older_backup;
use super::clock::wrong_clock;
use super::{Case, Ended, Need, Trial, idle, steps};
use crate::answer::Answer;
use crate::evidence::Minimum;
use crate::manifest::Policy;
use crate::op::{Op, Verb, Write};
use crate::random::Random;
use crate::subject::Hook;
use crate::verdict::Level;

const KILLABLE: &[Need] = &[Need::Hook(Hook::Kill), Need::Hook(Hook::Restart)];

pub(super) const CASES: &[Case] = &[
    Case {
        id: "R01",
        title: "restarted in order",
        rule: "Values and fences are the same after the process was stopped and started.",
        why: "A fence that lives in memory is gone with the first deployment, and the oldest zombie gets in.",
        level: Level::L3,
        needs: &[Need::Hook(Hook::Restart)],
        minima: &[Minimum::Accepted(6), Minimum::Refused(3), Minimum::Restarts(2)],
        run: restarted,
    },
    Case {
        id: "R02",
        title: "killed after an answer",
        rule: "What was answered as done is there after a crash, with its fence.",
        why: "An answer that comes before the write is safe on disk is a promise that a crash breaks.",
        level: Level::L3,
        needs: KILLABLE,
        minima: &[Minimum::Accepted(10), Minimum::Refused(5), Minimum::Restarts(3)],
        run: killed_after_ok,
    },
    Case {
        id: "R03",
        title: "a refusal survives a crash",
        rule: "Who was refused before a crash is refused after it, also if the write that fenced it off was still in flight.",
        why: "A client that was told that its lock is lost must not be let in after a crash, when the one that took it over \
              was never told that it had it. A fence that is raised in memory before it is on disk is one way to get there.",
        level: Level::L3,
        needs: KILLABLE,
        // The minima cannot require that the fencing write was still in flight: a resource that refuses only on the
        // basis of data on disk has often answered that write by then. A pass reports how often it happened
        // (`CaseResult::note`). If it happens every time, from the first write on, hardly anything is accepted.
        minima: &[Minimum::Accepted(5), Minimum::Refused(10), Minimum::Restarts(5)],
        run: refusal_survives,
    },
    Case {
        id: "R04",
        title: "a fence that was reported survives a crash",
        rule: "A fence or value that a read has shown is there after a crash.",
        why: "Somebody acts on what it read; a crash must not make it something that never happened.",
        level: Level::L3,
        needs: &[Need::Verb(Verb::Read), Need::Hook(Hook::Kill), Need::Hook(Hook::Restart)],
        // As for R03.
        minima: &[Minimum::Read(10), Minimum::Refused(5), Minimum::Restarts(5)],
        run: report_survives,
    },
    Case {
        id: "R05",
        title: "value and fence are never torn",
        rule: "After a crash the value of a write is not there without its fence.",
        why: "Two commits, one for the value and one for the token, leave a new value that the old holder may overwrite.",
        level: Level::L3,
        needs: KILLABLE,
        minima: &[Minimum::Accepted(40), Minimum::KillsInFlight(8), Minimum::Restarts(10)],
        run: never_torn,
    },
    Case {
        id: "R06",
        title: "killed while it starts",
        rule: "A crash during recovery loses nothing either.",
        why: "Crashes come in rows: a recovery that cuts its log before it has used it survives the first one only.",
        level: Level::L3,
        needs: &[Need::Hook(Hook::Start), Need::Hook(Hook::Kill), Need::Hook(Hook::Restart)],
        minima: &[Minimum::Accepted(40), Minimum::Refused(10), Minimum::Restarts(2)],
        run: killed_while_it_starts,
    },
    Case {
        id: "R07",
        title: "a storm of fifty kills",
        rule: "However often and at whatever moment the process is killed, one order of all operations explains every answer.",
        why: "The moment that breaks a resource is a few microseconds wide; it takes many kills to meet it.",
        level: Level::L3,
        needs: KILLABLE,
        minima: &[Minimum::Accepted(100), Minimum::Refused(20), Minimum::KillsInFlight(20), Minimum::Restarts(25)],
        run: storm,
    },
    Case {
        id: "R08",
        title: "very many other resources, and idle",
        rule: "The fence of a resource that nobody has used for long, or that was deleted, is still there, however many others \
               came since.",
        why: "A bounded cache, an expiry of idle keys or a collector of what was deleted forgets exactly the fences that zombies \
              come back to.",
        level: Level::L3,
        needs: &[],
        minima: &[Minimum::Accepted(10), Minimum::Refused(10)],
        run: idle::many_others,
    },
    Case {
        id: "R09",
        title: "killed at each step",
        rule: "At whichever write, sync, rename or answer the process is killed: what was answered is there, and what was \
               not is there with its fence, or not at all.",
        why: "The moment between two system calls is too short for a random kill: a file that is removed before its \
              successor has its name, a fence in a second file.",
        level: Level::L3,
        needs: KILLABLE,
        minima: &[
            Minimum::Accepted(20),
            Minimum::Refused(5),
            Minimum::KillsInFlight(steps::SEEN),
            Minimum::Restarts(3),
        ],
        run: steps::killed_at_each,
    },
    Case {
        id: "R10",
        title: "a clock that is set wrong",
        rule: "The fence does not look at the clock: what was refused stays refused and newer tokens are accepted, whatever time \
               the process believes it is.",
        why: "Where the later wall clock wins, or a fence expires by it, a step of the clock lets a zombie in or locks the next \
              holder out.",
        level: Level::L3,
        needs: &[Need::Clock, Need::Hook(Hook::Restart)],
        minima: &[Minimum::Accepted(15), Minimum::Refused(10), Minimum::Restarts(3)],
        run: wrong_clock,
    },
    Case {
        id: "R11",
        title: "an older backup is restored",
        rule: "What was fenced off when a backup was made is fenced off after it is restored, and no newer value comes with an older \
               fence.",
        why: "A backup of the values without their fences lets everybody in; and whoever was fenced off since the backup comes back \
              with it, unless somebody raises the fences first.",
        level: Level::L3,
        needs: &[],
        minima: &[Minimum::Accepted(5), Minimum::Refused(5)],
        run: older_backup,
    },
];

/// Writes in every way the resource has, each to a resource of its own, all at once with token 9. Returns those
/// resources.
pub(super) fn write_in_every_way(t: &Trial<'_>) -> Result<Vec<String>, Ended> {
    let ways = [Verb::Write, Verb::Claim, Verb::Cas, Verb::Delete, Verb::Batch];
    let mut resources = Vec::new();
    let mut requests = Vec::new();
    for (client, verb) in (0..).zip(ways.into_iter().filter(|verb| t.has(*verb))) {
        let (res, holder) = (t.resource(), t.holder(client));
        let before = t.value();
        t.accepted(client, Op::write(&res, 5, &holder, &before))?;
        requests.push((
            client,
            match verb {
                Verb::Claim => Op::claim(&res, 9, &holder),
                Verb::Cas => Op::cas(&res, 9, &holder, Some(&before), &t.value()),
                Verb::Delete => Op::delete(&res, 9, &holder),
                Verb::Batch => {
                    let (other, value) = (t.resource(), t.value());
                    resources.push(other.clone());
                    let writes = vec![Write::new(&res, 9, &holder, &value), Write::new(&other, 9, &holder, &value)];
                    Op::Batch { writes }
                }
                Verb::Write | Verb::Read | Verb::CheckedRead => Op::write(&res, 9, &holder, &t.value()),
            },
        ));
        resources.push(res);
    }
    t.race(requests)?;
    Ok(resources)
}

/// Checks that a resource has its value and its fence of 9.
pub(super) fn look(t: &Trial<'_>, res: &str) -> Result<(), Ended> {
    const SOMEBODY: u32 = 20;
    t.peek(SOMEBODY, res)?;
    t.call(SOMEBODY, t.write_op(SOMEBODY, res, 8))?;
    t.call(SOMEBODY, t.write_op(SOMEBODY, res, 10))?;
    t.peek(SOMEBODY, res)?;
    Ok(())
}

fn restarted(t: &Trial<'_>) -> Result<(), Ended> {
    for _ in t.rounds(3) {
        let resources = write_in_every_way(t)?;
        t.restart()?;
        resources.iter().try_for_each(|res| look(t, res))?;
    }
    Ok(())
}

fn killed_after_ok(t: &Trial<'_>) -> Result<(), Ended> {
    for _ in t.rounds(8) {
        let resources = write_in_every_way(t)?;
        t.crash()?;
        resources.iter().try_for_each(|res| look(t, res))?;
    }
    Ok(())
}

/// Client 0 changes a resource repeatedly, with tokens 10, 20, 30 and so on. Client 1 asks about the change in flight;
/// `ask` gets its token, and how often it was asked about before. The process is killed as soon as an answer shows a
/// change that is still in flight. If that does not happen, it is killed during one of the last changes. Returns the
/// token that was shown last.
fn kill_in_flight(
    t: &Trial<'_>,
    change: impl Fn(u64) -> Op + Sync,
    ask: impl Fn(u64, u64) -> Op + Sync,
    shows: impl Fn(&Answer, u64) -> bool + Sync,
) -> Result<u64, Ended> {
    const CHANGES: u64 = 40;
    const LAST: u64 = 30;
    const ASKED: u64 = 120;
    let (in_flight, shown, done) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    t.parallel(2, |client| {
        if client == 0 {
            let rising = (1..=CHANGES).map(|number| 10 * number).take_while(|_| !done.load(Ordering::Acquire));
            let changed = rising.map(|token| {
                in_flight.store(token, Ordering::Release);
                let changed = t.call(0, change(token)).map(drop);
                in_flight.store(0, Ordering::Release);
                changed
            });
            let changed = changed.collect();
            done.store(true, Ordering::Release);
            return changed;
        }
        let (mut asked, mut latest, mut about_it) = (0, 0, 0);
        while asked < ASKED && !done.load(Ordering::Acquire) {
            let token = in_flight.load(Ordering::Acquire);
            if token == 0 {
                thread::yield_now();
                continue;
            }
            if token >= 10 * LAST {
                break;
            }
            asked += 1;
            about_it = if token == latest { about_it + 1 } else { 0 };
            latest = token;
            if shows(&t.call(1, ask(token, about_it))?, token) {
                shown.store(token, Ordering::Relaxed);
                if in_flight.load(Ordering::Acquire) == token {
                    break;
                }
            }
        }
        done.store(true, Ordering::Release);
        t.crash()
    })?;
    Ok(shown.into_inner())
}

fn refusal_survives(t: &Trial<'_>) -> Result<(), Ended> {
    for _ in t.rounds(15) {
        let res = t.resource();
        let newer = |token| t.write_op(0, &res, token);
        let older = |token: u64, asked: u64| match t.manifest().policy {
            Policy::Ge => t.write_op(1, &res, token - 1),
            // A used token is refused for being used, so each request takes a new one, up to the last before the newer
            // write.
            Policy::Gt => t.write_op(1, &res, token - 9_u64.saturating_sub(asked).max(1)),
        };
        let shown = kill_in_flight(t, newer, older, |answer, _| answer.is_stale())?;
        t.call(1, t.write_op(1, &res, shown.max(2) - 1))?;
        t.peek(2, &res)?;
    }
    Ok(())
}

fn report_survives(t: &Trial<'_>) -> Result<(), Ended> {
    for round in t.rounds(15) {
        let (res, base) = (t.resource(), t.value());
        let value = |token: u64| format!("{base}-{token}");
        let change = |token| match round % 2 == 0 && t.has(Verb::Claim) {
            true => Op::claim(&res, token, &t.holder(0)),
            false => Op::write(&res, token, &t.holder(0), &value(token)),
        };
        let shows = |answer: &Answer, token| {
            answer.high() == Some(token) || answer.value() == Some(Some(value(token).as_str()))
        };
        let shown = kill_in_flight(t, change, |_, _| Op::read(&res), shows)?;
        t.peek(1, &res)?;
        t.call(1, t.write_op(1, &res, shown.max(2) - 1))?;
        t.peek(1, &res)?;
    }
    Ok(())
}

fn never_torn(t: &Trial<'_>) -> Result<(), Ended> {
    const CLIENTS: u32 = 4;
    let mut random = t.random(0);
    for _ in t.rounds(20) {
        let base = t.resource();
        let made: Vec<AtomicU64> = (0..CLIENTS).map(|_| AtomicU64::new(0)).collect();
        // Each client has resources of its own, a new one every few writes.
        let name = |client: u32, number: u64| format!("{base}-{client}-{}", number / 16);
        t.crash_under_load(CLIENTS, &mut random, |client| {
            let number = made[client as usize].fetch_add(1, Ordering::Relaxed);
            let res = name(client, number);
            let write = match number % 4 {
                3 => t.large_op(client, &res, 10 + number),
                _ => t.write_op(client, &res, 10 + number),
            };
            t.call(client, write).map(drop)
        })?;
        for (client, made) in (0..CLIENTS).zip(&made) {
            let Some(last) = made.load(Ordering::Relaxed).checked_sub(1) else { continue };
            let res = name(client, last);
            // The latest write was in flight: if its value is there, the token before it must be refused.
            t.peek(client, &res)?;
            t.call(client, t.write_op(client, &res, 9 + last))?;
            t.peek(client, &res)?;
        }
    }
    Ok(())
}

fn killed_while_it_starts(t: &Trial<'_>) -> Result<(), Ended> {
    const CLIENTS: u32 = 4;
    let mut random = t.random(0);
    for _ in t.rounds(3) {
        let base = t.resource();
        let name = |client: u32, number: u64| format!("{base}-{client}-{number}");
        t.parallel(CLIENTS, |client| {
            (0..10).try_for_each(|number| {
                let res = name(client, number);
                [5, 7, 9].into_iter().try_for_each(|token| t.call(client, t.write_op(client, &res, token)).map(drop))
            })
        })?;
        t.crash_again(3, &mut random)?;
        for client in 0..CLIENTS {
            (0..10).try_for_each(|number| look(t, &name(client, number)))?;
        }
    }
    Ok(())
}

/// One request of any kind the resource has.
fn any(t: &Trial<'_>, random: &mut Random, client: u32, res: &str, token: u64) -> Op {
    let verbs = [Verb::Read, Verb::Claim, Verb::Delete, Verb::CheckedRead];
    match verbs[random.below(4) as usize] {
        verb if !t.has(verb) || random.chance(60) => match random.below(8) {
            0 => t.large_op(client, res, token),
            _ => t.write_op(client, res, token),
        },
        Verb::Read => Op::read(res),
        Verb::Claim => Op::claim(res, token, &t.holder(client)),
        Verb::CheckedRead => Op::checked_read(res, token),
        _ => Op::delete(res, token, &t.holder(client)),
    }
}

fn storm(t: &Trial<'_>) -> Result<(), Ended> {
    const CLIENTS: u32 = 4;
    // The number of requests to a resource before moving on to the next one.
    const EACH: u64 = 24;
    let mut random = t.random(0);
    let ledger = t.resource();
    for round in t.rounds(50) {
        let base = t.resource();
        let made = AtomicU64::new(0);
        let name = |number: u64| format!("{base}-{}", number / EACH);
        t.crash_under_load(CLIENTS, &mut random, |client| {
            let number = made.fetch_add(1, Ordering::Relaxed);
            let mut random = t.random((round << 32) + number);
            let token = 10 + number - random.below(4);
            t.call(client, any(t, &mut random, client, &name(number), token)).map(drop)
        })?;
        let last = made.load(Ordering::Relaxed).saturating_sub(1);
        let res = name(last);
        t.peek(0, &res)?;
        // Behind everything that was accepted there, then just behind the latest.
        t.call(0, t.write_op(0, &res, 6 + last / EACH * EACH))?;
        t.call(0, t.write_op(0, &res, 9 + last))?;
        t.peek(0, &res)?;
        // One resource is used in all rounds: tokens fenced off in the round before must still be refused.
        t.call(1, t.write_op(1, &ledger, 8 + round))?;
        t.call(1, t.write_op(1, &ledger, 10 + round))?;
    }
    Ok(())
}
