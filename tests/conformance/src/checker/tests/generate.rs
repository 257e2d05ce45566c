//! Histories of a correct resource, with many clients, lost answers and crashes; and spoiled ones.

use super::brute::{World, admit, batch, reach, record};
use crate::answer::Answer;
use crate::history::{Event, History, Mark, Operation, Time};
use crate::manifest::{Equal, High, Kill, Manifest, Policy, Reads};
use crate::op::{Op, Verb, Write};
use crate::random::Random;
use crate::token::Token;

/// The kind of history to generate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) operations: u64,
    pub(crate) clients: u64,
    pub(crate) resources: u64,
    /// The percentage of unknown outcomes.
    pub(crate) unknown: u64,
    /// The percentage of batches.
    pub(crate) batches: u64,
    /// How far apart concurrent tokens are.
    pub(crate) spread: u64,
    /// The number of operations between kills; 0: never.
    pub(crate) kill_every: u64,
}

/// A random manifest.
pub(crate) fn manifest(random: &mut Random) -> Manifest {
    Manifest {
        caps: Verb::ALL.into_iter().collect(),
        policy: if random.chance(50) { Policy::Ge } else { Policy::Gt },
        equal: if random.chance(60) { Equal::Any } else { Equal::Holder },
        reads: if random.chance(85) { Reads::Linearizable } else { Reads::StaleOk },
        high: if random.chance(70) { High::Exact } else { High::AtLeast },
        mismatch_raises: random.chance(50),
        kill: if random.chance(50) { Kill::Everything } else { Kill::Process },
        ..Manifest::default()
    }
}

/// A history that some order explains: each operation takes effect at one moment.
pub(crate) fn right(random: &mut Random, shape: Shape, manifest: Manifest) -> History {
    let mut clocks: Vec<Time> = (0..shape.clients).map(|_| random.below(20)).collect();
    let mut kills: Vec<Time> = Vec::new();
    let mut operations: Vec<Operation> = Vec::new();
    let mut points: Vec<(Time, usize)> = Vec::new();
    for index in 0..shape.operations {
        let client = (0..clocks.len()).min_by_key(|client| clocks[*client]).unwrap();
        let called = clocks[client] + random.below(4);
        let long = if random.chance(5) { 200 } else { 20 };
        let returned = called + random.below(long);
        let op = match operations.last() {
            // The network duplicates some requests.
            Some(Operation { op, .. }) if random.chance(3) => op.clone(),
            _ => operation(random, shape, index, client as u64),
        };
        let lost = random.chance(shape.unknown);
        let answer = if lost { Answer::unknown("lost") } else { Answer::ok() };
        let point = match (lost, random.below(3)) {
            (true, 0) => None,
            (true, 1) => Some(returned + random.below(100)),
            _ => Some(called + random.below(returned - called + 1)),
        };
        let number = operations.len();
        points.extend(point.map(|point| (point, number)));
        let id = number as u64 + 1;
        operations.push(Operation {
            id,
            client: client as u32,
            op,
            called,
            returned,
            answer,
            dead_by: None,
            copy_of: None,
        });
        clocks[client] = returned + 1;
        if shape.kill_every > 0 && (index + 1).is_multiple_of(shape.kill_every) {
            // All clients stop at the kill and continue after it.
            let killed = clocks.iter().max().unwrap() + 1;
            kills.push(killed);
            clocks.iter_mut().for_each(|clock| *clock = killed + 10);
        }
    }
    if manifest.kill == Kill::Everything {
        for operation in operations.iter_mut().filter(|operation| operation.answer.is_unknown()) {
            operation.dead_by = kills.iter().copied().find(|killed| *killed >= operation.called);
        }
        points.retain(|(point, index)| operations[*index].dead_by.is_none_or(|dead| *point <= dead));
    }
    points.sort_by_key(|(point, index)| (*point, *index));
    let mut world = World::new();
    for (_, index) in points {
        let lost = operations[index].answer.is_unknown();
        let named = operations[index].op.resources().into_iter();
        let here: World = named.map(|res| (res.to_owned(), record(&world, res))).collect();
        let (answer, next) = serve(random, &manifest, &here, &operations[index].op);
        world.extend(next);
        if !lost {
            operations[index].answer = answer;
        }
    }
    operations.sort_by_key(|operation| (operation.called, operation.id));
    for (index, operation) in operations.iter_mut().enumerate() {
        operation.id = index as u64 + 1;
    }
    let marks = kills.into_iter().flat_map(|at| [Mark::new(at, Event::Killed), Mark::new(at + 5, Event::Restarted)]);
    History { case: "X01".to_owned(), seed: 0, manifest, operations, marks: marks.collect(), judged: None }
}

fn operation(random: &mut Random, shape: Shape, index: u64, client: u64) -> Op {
    let res = format!("r{}", random.below(shape.resources));
    let token = token(random, shape, index);
    let holder = format!("h{}", if shape.operations < 10 { random.below(2) } else { client });
    let value = format!("v{index}");
    if random.chance(shape.batches) {
        let parts = 1 + random.below(3);
        let writes = (0..parts).map(|part| {
            let res = format!("r{}", random.below(shape.resources));
            Write::new(&res, self::token(random, shape, index), &holder, &format!("v{index}.{part}"))
        });
        return Op::Batch { writes: writes.collect() };
    }
    match random.below(10) {
        0..=3 => Op::write(&res, token, &holder, &value),
        4 | 5 => Op::read(&res),
        6 => Op::checked_read(&res, token),
        7 => Op::claim(&res, token, &holder),
        8 => {
            let back = 1 + random.below(2 * shape.clients.max(2));
            let expect = index.checked_sub(back).map(|index| format!("v{index}"));
            Op::cas(&res, token, &holder, expect.as_deref(), &value)
        }
        _ => Op::delete(&res, token, &holder),
    }
}

/// Tokens rise slowly, and not every client has the newest.
fn token(random: &mut Random, shape: Shape, index: u64) -> u64 {
    1 + index / (4 * shape.resources.max(1)) + random.below(shape.spread)
}

/// The answer of a correct resource, and its new state.
fn serve(random: &mut Random, m: &Manifest, world: &World, op: &Op) -> (Answer, World) {
    let mut next = world.clone();
    let mut fence = |high: Option<u64>| {
        let high = high.filter(|_| random.chance(60))?;
        Some(if m.high == High::AtLeast { high - random.below(high.min(3) + 1) } else { high })
    };
    let change = |next: &mut World, res: &str, token: u64, holder: &str, value: Option<Option<&str>>| {
        let mut now = record(world, res);
        now.rise(token, holder);
        if let Some(value) = value {
            now.write(value);
        }
        next.insert(res.to_owned(), now);
    };
    let answer = match op {
        Op::Read { res } => {
            let now = record(world, res);
            Answer::Ok { value: Some(now.value.clone()), high: fence(now.high) }
        }
        Op::CheckedRead { res, token } => {
            let now = record(world, res);
            match now.high.is_some_and(|high| token.number().unwrap() < high) {
                true => Answer::Stale { high: fence(now.high) },
                false => Answer::Ok { value: Some(now.value.clone()), high: fence(now.high) },
            }
        }
        Op::Claim { res, token, holder } => {
            let (now, token) = (record(world, res), token.number().unwrap());
            if reach(m, &now, token, holder) {
                change(&mut next, res, token, holder, None);
                Answer::Ok { value: Some(now.value), high: fence(Some(token)) }
            } else {
                Answer::Stale { high: fence(now.high) }
            }
        }
        Op::Write(Write { res, token, holder, .. })
        | Op::Delete { res, token, holder }
        | Op::Cas { res, token, holder, .. } => {
            let (now, token) = (record(world, res), token.number().unwrap());
            let (value, expect) = match op {
                Op::Write(write) => (Some(write.value.as_str()), None),
                Op::Cas { expect, value, .. } => (Some(value.as_str()), Some(expect.clone())),
                _ => (None, None),
            };
            if !admit(m, &now, token, holder) {
                Answer::Stale { high: fence(now.high) }
            } else if expect.is_some_and(|expect| expect != now.value) {
                if m.mismatch_raises {
                    change(&mut next, res, token, holder, None);
                }
                Answer::Mismatch { current: fence(Some(1)).map(|_| now.value) }
            } else {
                change(&mut next, res, token, holder, Some(value));
                Answer::Ok { value: None, high: fence(Some(token)) }
            }
        }
        Op::Batch { writes } => match batch(m, world, writes, false) {
            Some(after) => {
                next = after;
                Answer::ok()
            }
            None => Answer::Stale { high: None },
        },
    };
    if random.chance(4) && !matches!(op, Op::Read { .. } | Op::CheckedRead { .. }) {
        let mut failed = world.clone();
        if let (Op::Write(Write { res, token, holder, .. }), true) = (op, random.chance(50)) {
            let mut now = record(world, res);
            now.rise(token.number().unwrap(), holder);
            failed.insert(res.clone(), now);
        }
        return (Answer::error("disk-full"), failed);
    }
    (answer, next)
}

/// Changes an answer or a time, so that the history may no longer be correct.
pub(crate) fn spoil(random: &mut Random, history: &mut History) {
    let count = history.operations.len() as u64;
    let other = history.operations[random.below(count) as usize].clone();
    let other_token = other.op.tokens().first().and_then(|token| token.number()).unwrap_or(1);
    let operation = &mut history.operations[random.below(count) as usize];
    let mutates = !matches!(operation.op, Op::Read { .. } | Op::CheckedRead { .. });
    match random.below(8) {
        0 => operation.answer = other.answer,
        1 => operation.answer = Answer::ok(),
        2 => operation.answer = Answer::Stale { high: random.chance(50).then_some(other_token) },
        3 if mutates => operation.answer = Answer::error("full"),
        4 => {
            if let Answer::Ok { value, high } = &mut operation.answer {
                *value = other.answer.value().map(|value| value.map(str::to_owned));
                *high = random.chance(50).then_some(other_token);
            }
        }
        5 => operation.answer = Answer::unknown("lost"),
        6 => {
            if let Op::Write(Write { token, .. }) | Op::Claim { token, .. } | Op::Delete { token, .. } =
                &mut operation.op
            {
                *token = Token::text("0x5");
            }
        }
        _ => {
            operation.called = operation.called.saturating_sub(random.below(30));
            operation.returned = operation.called + random.below(10);
        }
    }
    history.operations.sort_by_key(|operation| (operation.called, operation.id));
    for (index, operation) in history.operations.iter_mut().enumerate() {
        operation.id = index as u64 + 1;
    }
}
