//! An independent, naive implementation of the specification: try every order.

use std::collections::BTreeMap;

use crate::answer::Answer;
use crate::history::{History, Operation};
use crate::manifest::{Equal, High, Manifest, Policy, Reads};
use crate::op::{Op, Write};
use crate::token::Token;

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Record {
    pub(super) high: Option<u64>,
    used: bool,
    holder: Option<String>,
    pub(super) value: Option<String>,
}

pub(super) type World = BTreeMap<String, Record>;

pub(super) fn record(world: &World, res: &str) -> Record {
    world.get(res).cloned().unwrap_or_default()
}

fn same(m: &Manifest, s: &Record, holder: &str) -> bool {
    m.equal == Equal::Any || s.holder.as_ref().is_none_or(|found| found == holder)
}

pub(super) fn admit(m: &Manifest, s: &Record, token: u64, holder: &str) -> bool {
    let Some(high) = s.high else { return true };
    token > high || (token == high && same(m, s, holder) && (m.policy == Policy::Ge || !s.used))
}

pub(super) fn reach(m: &Manifest, s: &Record, token: u64, holder: &str) -> bool {
    let Some(high) = s.high else { return true };
    token > high || (token == high && same(m, s, holder))
}

impl Record {
    pub(super) fn rise(&mut self, token: u64, holder: &str) {
        *self = raise(self, token, holder);
    }

    /// Writes a value. Call it after `rise`.
    pub(super) fn write(&mut self, value: Option<&str>) {
        self.used = true;
        self.value = value.map(str::to_owned);
    }
}

fn raise(s: &Record, token: u64, holder: &str) -> Record {
    let mut s = s.clone();
    if s.high.is_none_or(|high| token > high) {
        s.high = Some(token);
        s.used = false;
        s.holder = Some(holder.to_owned());
    } else if s.holder.is_none() {
        s.holder = Some(holder.to_owned());
    }
    s
}

fn put(s: &Record, token: u64, holder: &str, value: Option<&str>) -> Record {
    let mut s = raise(s, token, holder);
    s.used = true;
    s.value = value.map(str::to_owned);
    s
}

fn reported(m: &Manifest, s: &Record, high: Option<u64>) -> bool {
    match (high, m.high) {
        (None, _) => true,
        (Some(0), _) if s.high.is_none() => true,
        (Some(high), High::Exact) => s.high == Some(high),
        (Some(high), High::AtLeast) => s.high.is_some_and(|fence| high <= fence),
    }
}

fn shown(s: &Record, value: &Option<Option<String>>) -> bool {
    value.as_ref().is_none_or(|value| *value == s.value)
}

fn with(world: &World, res: &str, s: Record) -> World {
    let mut world = world.clone();
    world.insert(res.to_owned(), s);
    world
}

fn number(token: &Token) -> u64 {
    token.number().unwrap()
}

/// The state after the batch, if it is admitted. `forgiving`: a second use of a token in one batch does not count as
/// one.
pub(super) fn batch(m: &Manifest, world: &World, writes: &[Write], forgiving: bool) -> Option<World> {
    let mut now = world.clone();
    for (index, write) in writes.iter().enumerate() {
        let s = record(&now, &write.res);
        let named = writes[..index].iter().any(|other| other.res == write.res);
        let judged = Record { used: s.used && !(forgiving && named), ..s.clone() };
        if !admit(m, &judged, number(&write.token), &write.holder) {
            return None;
        }
        now = with(&now, &write.res, put(&s, number(&write.token), &write.holder, Some(&write.value)));
    }
    Some(now)
}

fn raise_all(world: &World, op: &Op) -> World {
    let mut now = world.clone();
    let mut up = |res: &str, token: &Token, holder: &str| {
        let s = raise(&record(&now, res), number(token), holder);
        now.insert(res.to_owned(), s);
    };
    match op {
        Op::Write(write) => up(&write.res, &write.token, &write.holder),
        Op::Claim { res, token, holder } | Op::Cas { res, token, holder, .. } | Op::Delete { res, token, holder } => {
            up(res, token, holder);
        }
        Op::Batch { writes } => writes.iter().for_each(|write| up(&write.res, &write.token, &write.holder)),
        Op::Read { .. } | Op::CheckedRead { .. } => {}
    }
    now
}

/// Every state after the operation that is consistent with this answer.
fn after(m: &Manifest, world: &World, op: &Op, answer: &Answer) -> Vec<World> {
    let mut ends = Vec::new();
    match answer {
        Answer::Unknown { .. } | Answer::Error { definite: false, .. } => {
            let done = Answer::ok();
            ends.extend(after(m, world, op, &done));
            ends.push(raise_all(world, op));
        }
        Answer::Error { definite: true, .. } => ends.extend([world.clone(), raise_all(world, op)]),
        Answer::Unsupported => ends.push(world.clone()),
        Answer::Ok { value, high } => ends.extend(accepted(m, world, op, value, *high)),
        Answer::Stale { high } => {
            let fits = |s: &Record| reported(m, s, *high);
            let justified = match op {
                Op::Read { .. } => false,
                Op::Write(Write { res, token, holder, .. })
                | Op::Cas { res, token, holder, .. }
                | Op::Delete { res, token, holder } => {
                    let s = record(world, res);
                    !admit(m, &s, number(token), holder) && fits(&s)
                }
                Op::Claim { res, token, holder } => {
                    let s = record(world, res);
                    !reach(m, &s, number(token), holder) && fits(&s)
                }
                Op::CheckedRead { res, token } => {
                    let s = record(world, res);
                    s.high.is_some_and(|high| number(token) < high) && fits(&s)
                }
                Op::Batch { writes } => {
                    let halfway = (0..writes.len()).rev().find_map(|count| batch(m, world, &writes[..count], false));
                    let some = halfway
                        .into_iter()
                        .chain([world.clone()])
                        .any(|world| writes.iter().any(|write| fits(&record(&world, &write.res))));
                    batch(m, world, writes, false).is_none() && some
                }
            };
            ends.extend(justified.then(|| world.clone()));
        }
        Answer::Mismatch { current } => {
            if let Op::Cas { res, token, holder, expect, .. } = op {
                let s = record(world, res);
                if admit(m, &s, number(token), holder) && s.value != *expect && shown(&s, current) {
                    let raised = with(world, res, raise(&s, number(token), holder));
                    ends.push(if m.mismatch_raises { raised } else { world.clone() });
                }
            }
        }
    }
    ends
}

fn accepted(m: &Manifest, world: &World, op: &Op, value: &Option<Option<String>>, high: Option<u64>) -> Option<World> {
    match op {
        Op::Read { res } => {
            let s = record(world, res);
            (shown(&s, value) && reported(m, &s, high)).then(|| world.clone())
        }
        Op::CheckedRead { res, token } => {
            let s = record(world, res);
            let fresh = s.high.is_none_or(|high| number(token) >= high);
            (fresh && shown(&s, value) && reported(m, &s, high)).then(|| world.clone())
        }
        Op::Claim { res, token, holder } => {
            let s = record(world, res);
            let next = raise(&s, number(token), holder);
            (reach(m, &s, number(token), holder) && shown(&s, value) && reported(m, &next, high))
                .then(|| with(world, res, next))
        }
        Op::Write(Write { res, token, holder, value }) => {
            let s = record(world, res);
            let next = put(&s, number(token), holder, Some(value));
            (admit(m, &s, number(token), holder) && reported(m, &next, high)).then(|| with(world, res, next))
        }
        Op::Cas { res, token, holder, expect, value } => {
            let s = record(world, res);
            let next = put(&s, number(token), holder, Some(value));
            (admit(m, &s, number(token), holder) && s.value == *expect && reported(m, &next, high))
                .then(|| with(world, res, next))
        }
        Op::Delete { res, token, holder } => {
            let s = record(world, res);
            let next = put(&s, number(token), holder, None);
            (admit(m, &s, number(token), holder) && reported(m, &next, high)).then(|| with(world, res, next))
        }
        Op::Batch { writes } => batch(m, world, writes, true)
            .filter(|next| writes.iter().any(|write| reported(m, &record(next, &write.res), high))),
    }
}

/// Whether there is an order, by trying all.
pub(super) fn explained(history: &History) -> bool {
    let m = &history.manifest;
    let usable = |token: &&Token| token.number().is_some_and(|number| number <= m.token_max);
    let (sound, broken): (Vec<&Operation>, Vec<&Operation>) =
        history.operations.iter().partition(|operation| operation.op.tokens().iter().all(usable));
    if broken.iter().any(|operation| operation.answer.is_ok()) {
        return false;
    }
    let loose = |operation: &Operation| matches!(operation.op, Op::Read { .. }) && m.reads == Reads::StaleOk;
    let (stale, rest): (Vec<&Operation>, Vec<&Operation>) = sound.into_iter().partition(|operation| loose(operation));
    stale.iter().all(|read| stale_read(m, read, &rest)) && orders(m, &World::new(), rest)
}

/// Whether a read that may be stale is possible: its value and fence may have existed at some time.
fn stale_read(m: &Manifest, read: &Operation, rest: &[&Operation]) -> bool {
    let Op::Read { res } = &read.op else { return true };
    let before = || rest.iter().filter(|operation| operation.called <= read.returned);
    let Answer::Ok { value, high } = &read.answer else {
        return read.answer.is_unknown() || matches!(read.answer, Answer::Error { .. } | Answer::Unsupported);
    };
    let wrote = |operation: &&&Operation, value: &str| {
        (operation.answer.is_ok() || operation.answer.is_unknown())
            && match &operation.op {
                Op::Write(write) => write.res == *res && write.value == value,
                Op::Cas { res: at, value: new, .. } => at == res && new == value,
                Op::Batch { writes } => writes.iter().any(|write| write.res == *res && write.value == value),
                _ => false,
            }
    };
    let raised = |operation: &&&Operation, high: u64| {
        let changes = !matches!(operation.op, Op::CheckedRead { .. } | Op::Read { .. })
            && !operation.answer.is_stale()
            && operation.answer != Answer::Unsupported
            && (m.mismatch_raises || !matches!(operation.answer, Answer::Mismatch { .. }));
        let reaches = |token: u64| if m.high == High::Exact { token == high } else { token >= high };
        changes
            && match &operation.op {
                Op::Batch { writes } => writes.iter().any(|write| write.res == *res && reaches(number(&write.token))),
                op => op.resources().contains(res.as_str()) && op.tokens().iter().any(|token| reaches(number(token))),
            }
    };
    let value = match value {
        Some(Some(value)) => before().any(|operation| wrote(&operation, value)),
        Some(None) | None => true,
    };
    value && high.is_none_or(|high| high == 0 || before().any(|operation| raised(&operation, high)))
}

fn orders(m: &Manifest, world: &World, remaining: Vec<&Operation>) -> bool {
    let optional = |operation: &Operation| operation.answer.is_unknown();
    if remaining.iter().all(|operation| optional(operation)) {
        return true;
    }
    remaining.iter().any(|next| {
        let waits = remaining.iter().any(|other| !optional(other) && other.id != next.id && other.precedes(next));
        let rest = || {
            let left = remaining.iter().filter(|other| other.id != next.id && !other.precedes(next));
            left.copied().collect::<Vec<_>>()
        };
        !waits && after(m, world, &next.op, &next.answer).iter().any(|world| orders(m, world, rest()))
    })
}
