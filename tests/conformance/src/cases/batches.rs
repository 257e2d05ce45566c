//! Group M: writes to several resources, all or none.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::{Case, Ended, Need, Trial};
use crate::answer::Answer;
use crate::evidence::Minimum;
use crate::op::{Op, Verb, Write};
use crate::subject::Hook;
use crate::verdict::Level;

pub(super) const CASES: &[Case] = &[
    Case {
        id: "M01",
        title: "a batch does all its writes",
        rule: "A batch that is accepted has written every value and raised every fence.",
        why: "A batch that checks its fences and raises only the first leaves the others open to the old holder.",
        level: Level::L1,
        needs: &[Need::Verb(Verb::Batch)],
        minima: &[Minimum::Accepted(3), Minimum::Refused(10)],
        run: all,
    },
    Case {
        id: "M02",
        title: "a batch with one stale token does nothing",
        rule: "If one write of a batch is behind its fence the batch is refused, and no value changes.",
        why: "Half a transfer is money lost: the debit was current, the credit was fenced off.",
        level: Level::L1,
        needs: &[Need::Verb(Verb::Batch)],
        minima: &[Minimum::Accepted(6), Minimum::Refused(6)],
        run: none_when_one_is_stale,
    },
    Case {
        id: "M03",
        title: "a refused batch raises no fence",
        rule: "After a batch was refused the fences of its other resources are where they were.",
        why: "A zombie that names the right resource with a high token, and one more, would lock everybody out.",
        level: Level::L1,
        needs: &[Need::Verb(Verb::Batch)],
        minima: &[Minimum::Accepted(9), Minimum::Refused(3)],
        run: no_fence_raised,
    },
    Case {
        id: "M04",
        title: "readers never see half a batch",
        rule: "Who has seen one write of a batch sees all of them from then on.",
        why: "A reader between two halves copies a state that never was.",
        level: Level::L2,
        needs: &[Need::Verb(Verb::Batch), Need::Verb(Verb::Read), Need::FreshReads],
        minima: &[Minimum::Accepted(50), Minimum::Read(200), Minimum::Overlapping(200)],
        run: readers_see_whole_batches,
    },
    Case {
        id: "M05",
        title: "killed in the middle of a batch",
        rule: "After a crash a batch that was in flight is there as a whole or not at all.",
        why: "Writes that are logged one by one are replayed one by one, up to the point of the crash.",
        level: Level::L3,
        needs: &[Need::Verb(Verb::Batch), Need::Hook(Hook::Kill), Need::Hook(Hook::Restart)],
        minima: &[Minimum::Accepted(20), Minimum::KillsInFlight(4), Minimum::Restarts(8)],
        run: killed_in_the_middle,
    },
    Case {
        id: "M06",
        title: "one resource twice in a batch",
        rule: "A batch that names a resource twice is done in its order or not at all, and never lowers the fence.",
        why: "A batch that is checked first and applied after lets its second write through on the fence from before \
              its first.",
        level: Level::L1,
        needs: &[Need::Verb(Verb::Batch)],
        minima: &[Minimum::Accepted(4), Minimum::Refused(2)],
        run: one_resource_twice,
    },
    Case {
        id: "M07",
        title: "batches in opposite order",
        rule: "Batches that name the same resources in opposite order are all answered, and one of them is done.",
        why: "Locks taken in the order of the request deadlock under load, and a timeout turns each into an unknown \
              outcome.",
        level: Level::L2,
        needs: &[Need::Verb(Verb::Batch)],
        minima: &[Minimum::Accepted(40), Minimum::Overlapping(200)],
        run: opposite_order,
    },
];

/// A batch of this client: one write of a new value for each resource and token.
fn batch<R: AsRef<str>>(t: &Trial<'_>, client: u32, writes: impl IntoIterator<Item = (R, u64)>) -> Op {
    let holder = t.holder(client);
    let write = |(res, token): (R, u64)| Write::new(res.as_ref(), token, &holder, &t.value());
    Op::Batch { writes: writes.into_iter().map(write).collect() }
}

fn resources(t: &Trial<'_>, count: usize) -> Vec<String> {
    (0..count).map(|_| t.resource()).collect()
}

fn all(t: &Trial<'_>) -> Result<(), Ended> {
    let mut random = t.random(0);
    for count in [1, 2, 3, 8] {
        let all = resources(t, count);
        let tokens: Vec<u64> = all.iter().map(|_| 5 + random.below(100)).collect();
        t.accepted(0, batch(t, 0, all.iter().zip(tokens.iter().copied())))?;
        for (res, token) in all.iter().zip(tokens) {
            t.peek(1, res)?;
            t.call(1, t.write_op(1, res, token - 1))?;
            t.call(1, t.write_op(1, res, token + 1))?;
        }
    }
    Ok(())
}

fn none_when_one_is_stale(t: &Trial<'_>) -> Result<(), Ended> {
    for count in [2, 3, 5] {
        for stale in 0..count {
            let all = resources(t, count);
            // One of the resources was never written.
            for res in &all[..count - 1] {
                t.accepted(0, t.write_op(0, res, 5))?;
            }
            t.accepted(1, t.write_op(1, &all[stale], 9))?;
            let tokens = (0..count).map(|index| if index == stale { 8 } else { 20 });
            t.call(2, batch(t, 2, all.iter().zip(tokens)))?;
            for res in &all {
                t.peek(3, res)?;
            }
            t.call(3, t.write_op(3, &all[stale], 8))?;
        }
    }
    Ok(())
}

fn no_fence_raised(t: &Trial<'_>) -> Result<(), Ended> {
    for stale in 0..3 {
        let all = resources(t, 3);
        for (index, res) in all.iter().enumerate() {
            // The last resource has no fence, unless it is the stale one.
            if index < 2 || index == stale {
                t.accepted(0, t.write_op(0, res, if index == stale { 30 } else { 5 }))?;
            }
        }
        let tokens = (0..3).map(|index| if index == stale { 29 } else { 20 });
        t.call(1, batch(t, 1, all.iter().zip(tokens)))?;
        for (index, res) in all.iter().enumerate() {
            t.peek(2, res)?;
            if index != stale {
                t.call(2, t.write_op(2, res, 10))?;
            }
        }
    }
    Ok(())
}

fn readers_see_whole_batches(t: &Trial<'_>) -> Result<(), Ended> {
    let mut random = t.random(0);
    for _ in t.races(40) {
        let pair = resources(t, 2);
        let write = |token| batch(t, 0, pair.iter().map(|res| (res, token)));
        t.call(0, write(1))?;
        for step in 0..3 {
            let reads = (1..5).map(|client| (client, random.below(2) as usize)).collect::<Vec<_>>();
            let first = reads.iter().map(|(client, index)| (*client, Op::read(&pair[*index])));
            t.race(first.chain([(0, write(2 + step))]).collect())?;
        }
        // Long batches; each reader reads both resources.
        let done = AtomicBool::new(false);
        t.parallel(3, |client| {
            if client == 0 {
                let written = (0..6).try_for_each(|step| t.call(0, write(10 + step)).map(drop));
                done.store(true, Ordering::Release);
                return written;
            }
            for look in 0..20 {
                if look > 2 && done.load(Ordering::Acquire) {
                    break;
                }
                let first = (look + client as usize) % 2;
                t.call(client, Op::read(&pair[first]))?;
                t.call(client, Op::read(&pair[1 - first]))?;
            }
            Ok(())
        })?;
    }
    Ok(())
}

fn killed_in_the_middle(t: &Trial<'_>) -> Result<(), Ended> {
    const CLIENTS: u32 = 3;
    let mut random = t.random(0);
    for _ in t.rounds(12) {
        let base = t.resource();
        let made = AtomicU64::new(0);
        // A new set every few batches, so that no history gets long.
        let name = |set: u64, index: u64| format!("{base}-{set}-{index}");
        t.crash_under_load(CLIENTS, &mut random, |client| {
            let number = made.fetch_add(1, Ordering::Relaxed);
            let set = (0..4).map(|index| (name(number / 12, index), 10 + number));
            t.call(client, batch(t, client, set)).map(drop)
        })?;
        let sets = made.load(Ordering::Relaxed).div_ceil(12);
        for set in sets.saturating_sub(2)..sets {
            for index in 0..4 {
                let res = name(set, index);
                t.peek(CLIENTS, &res)?;
                // Just behind the last batch: if that was done, this is refused.
                t.call(CLIENTS, t.write_op(CLIENTS, &res, 8 + made.load(Ordering::Relaxed)))?;
                t.peek(CLIENTS, &res)?;
            }
        }
    }
    Ok(())
}

fn one_resource_twice(t: &Trial<'_>) -> Result<(), Ended> {
    // Rising, falling, and with another resource between.
    for tokens in [[5, 6], [9, 7]] {
        for between in [false, true] {
            let (res, other) = (t.resource(), t.resource());
            t.accepted(0, t.write_op(0, &res, 3))?;
            let mut writes = vec![(&res, tokens[0]), (&res, tokens[1])];
            if between {
                writes.insert(1, (&other, 5));
            }
            let said = t.call(1, batch(t, 1, writes))?;
            t.peek(2, &res)?;
            t.peek(2, &other)?;
            let highest = tokens[0].max(tokens[1]);
            if said.is_ok() {
                t.call(2, t.write_op(2, &res, highest - 1))?;
            }
            t.call(2, t.write_op(2, &res, highest + 1))?;
            t.call(2, t.write_op(2, &res, highest))?;
        }
    }
    Ok(())
}

fn opposite_order(t: &Trial<'_>) -> Result<(), Ended> {
    const CLIENTS: u32 = 4;
    // This many races, each on different resources, must lose several answers. A stall of the machine affects only one.
    const DEADLOCKS: usize = 3;
    let mut random = t.random(0);
    let alone = resources(t, 3);
    t.accepted(0, batch(t, 0, alone.iter().map(|res| (res, 1))))?;
    // For each race that lost several answers: its first unanswered batch.
    let mut stuck: Vec<u64> = Vec::new();
    'rounds: for _ in t.races(20) {
        let three = resources(t, 3);
        let mut token = 1;
        for _ in 0..6 {
            let requests = (0..CLIENTS).map(|client| {
                let token = token + random.below(3);
                let forth = three.iter().map(|res| (res, token));
                let op = if client % 2 == 0 { batch(t, client, forth) } else { batch(t, client, forth.rev()) };
                (client, op)
            });
            let requests = requests.collect();
            let answers = t.race(requests)?;
            token += 3;
            // One answer may get lost. Several lost in one race suggest a deadlock, unless the whole resource was
            // stalled.
            let lost = answers.iter().filter(|answer| answer.is_unknown()).count();
            if let Some(lost) = answers.iter().position(Answer::is_unknown).filter(|_| lost > 1) {
                let number = t.last(lost as u32);
                let said = crate::words::answer(&answers[lost]);
                let after =
                    t.call(CLIENTS, batch(t, CLIENTS, alone.iter().map(|res| (res, 2 + stuck.len() as u64))))?;
                if after.is_unknown() {
                    return Err(Ended::Unknown(format!(
                        "batch #{number} was {said}, and one that was alone was not answered either"
                    )));
                }
                stuck.push(number);
                if stuck.len() < DEADLOCKS {
                    // These resources may stay locked for long, so the next sign must come from others.
                    continue 'rounds;
                }
                let others: Vec<String> = stuck.iter().map(|number| format!("#{number}")).collect();
                let sentence = format!(
                    "batches {} were sent together with others that name the same resources in opposite order, in {} races \
                     about different resources, and none of them was answered ({said}); each time one that was sent alone \
                     after it was.",
                    others.join(", "),
                    stuck.len()
                );
                return Err(t.fail(&stuck, sentence));
            }
        }
        t.call(CLIENTS, batch(t, CLIENTS, three.iter().map(|res| (res, token))))?;
        t.peek(CLIENTS, &three[0])?;
    }
    match stuck.first() {
        None => Ok(()),
        Some(number) => Err(Ended::Unknown(format!(
            "{} races lost several answers, the first that of batch #{number}, and answered one that was alone after it; a \
             resource that stood still for a while does that too, so {DEADLOCKS} are needed for a verdict",
            stuck.len()
        ))),
    }
}
