//! A position in the search: the steps taken, the state they led to, and the steps still to come.

use super::model::{Call, Cell, Change, Outcome, Part, Value};
use super::prepare::{Optional, Prepared, Step};
use crate::history::Time;
use crate::random::Random;

/// What can be placed, by index.
#[derive(Clone, Copy, Debug)]
pub(super) enum What {
    /// A step.
    Take(usize),
    /// An optional operation, as done.
    Do(usize),
    /// An optional operation that only raises the fence.
    Raise(usize),
}

/// A possible move, and what it changes.
pub(super) struct Move {
    pub(super) what: What,
    pub(super) change: Change,
}

/// A move that was made, and the state before it.
pub(super) struct Undo {
    pub(super) what: What,
    before: Change,
    newest_call: Time,
}

/// Precomputed facts about a step.
pub(super) struct Facts {
    key: u128,
    /// By resource: the highest fence that the step allows before it, which is also the fence after it.
    bounds: Vec<(usize, u64)>,
    sees: Option<usize>,
}

/// A position in the search. Moves are made and undone in place; it is never copied.
pub(super) struct Position<'p> {
    pub(super) prepared: &'p Prepared<'p>,
    pub(super) facts: Vec<Facts>,
    /// The steps not taken, as a doubly linked list in the order of their calls; the last entry is both ends.
    after: Vec<usize>,
    before: Vec<usize>,
    pub(super) left: usize,
    placed: Vec<bool>,
    pub(super) cells: Vec<Cell>,
    /// The latest call time among the placed operations.
    newest_call: Time,
    /// By resource: the bounds of all steps, rising; and how many of them were passed.
    bounds: Vec<Vec<u64>>,
    passed: Vec<usize>,
    /// By value: how many steps must still see it, and how many operations may still write it. The absence of a value
    /// is counted separately for each resource.
    to_see: Vec<u32>,
    to_write: Vec<u32>,
    /// By resource: the raises that can wait for ever, lowest token first.
    pub(super) patient: Vec<Vec<usize>>,
    /// Optional operations that cannot wait for ever, or that do more than raise.
    pub(super) pressing: Vec<usize>,
    deadlines: Vec<Time>,
    hash: u128,
}

impl<'p> Position<'p> {
    pub(super) fn new(prepared: &'p Prepared<'p>) -> Position<'p> {
        let (steps, optional) = (&prepared.steps, &prepared.optional);
        let count = prepared.resources.len();
        let facts: Vec<Facts> = steps.iter().enumerate().map(|(index, step)| facts(prepared, index, step)).collect();
        let mut bounds = vec![Vec::new(); count];
        let mut to_see = vec![0; prepared.slots()];
        let mut to_write = vec![0; prepared.slots()];
        for fact in &facts {
            fact.bounds.iter().for_each(|(resource, bound)| bounds[*resource].push(*bound));
            fact.sees.iter().for_each(|slot| to_see[*slot] += 1);
        }
        bounds.iter_mut().for_each(|bounds| bounds.sort_unstable());
        let writing = steps.iter().filter(|step| step.writes()).map(|step| &step.call);
        for call in writing.chain(optional.iter().filter(|optional| optional.open).map(|optional| &optional.call)) {
            call.parts().iter().for_each(|part| to_write[prepared.slot(part.resource, part.value)] += 1);
        }
        // A refused batch may report the fence of one resource because of another; then one raise is not enough.
        let mut tangled = vec![false; count];
        let refused = |step: &&Step| matches!(step.outcome, Outcome::Refused { high: Some(_) });
        for resources in steps.iter().filter(refused).map(|step| step.call.resources()).filter(|all| all.len() > 1) {
            resources.into_iter().for_each(|resource| tangled[resource] = true);
        }
        let mut patient = vec![Vec::new(); count];
        let mut pressing = Vec::new();
        for (index, optional) in optional.iter().enumerate() {
            let waits = !optional.open && optional.latest == Time::MAX;
            match optional.call.tokens().as_slice() {
                [(resource, token)] if waits && !tangled[*resource] => {
                    patient[*resource].push((*token, index));
                }
                _ => pressing.push(index),
            }
        }
        let patient = patient.into_iter().map(|mut raises| {
            raises.sort_unstable();
            raises.into_iter().map(|(_, index)| index).collect()
        });
        let mut deadlines: Vec<Time> =
            optional.iter().map(|optional| optional.latest).filter(|latest| *latest < Time::MAX).collect();
        deadlines.sort_unstable();
        let ends = steps.len();
        Position {
            prepared,
            facts,
            after: (1..=ends).chain([0]).collect(),
            before: std::iter::once(ends).chain(0..ends).collect(),
            left: ends,
            placed: vec![false; optional.len()],
            cells: vec![Cell::default(); count],
            newest_call: 0,
            bounds,
            passed: vec![0; count],
            to_see,
            to_write,
            patient: patient.collect(),
            pressing,
            deadlines,
            hash: 0,
        }
    }

    /// The steps that may come next by their times, and the time by which one of them must have come.
    pub(super) fn candidates(&self) -> (Vec<usize>, Time) {
        let steps = &self.prepared.steps;
        let (mut found, mut until) = (Vec::new(), Time::MAX);
        let mut index = self.after[steps.len()];
        while index < steps.len() && steps[index].called <= until {
            found.push(index);
            until = until.min(steps[index].latest);
            index = self.after[index];
        }
        (found, until)
    }

    pub(super) fn has_its_chance(&self, index: usize, until: Time) -> bool {
        let optional = &self.prepared.optional[index];
        optional.called <= until && optional.latest >= self.newest_call && !self.placed[index]
    }

    /// Whether placing an operation with this call time would be too late for an optional operation that can still be
    /// placed.
    pub(super) fn ends_a_chance(&self, called: Time) -> bool {
        self.dead(called) > self.dead(self.newest_call)
    }

    /// How many optional operations must come before every operation with this call time.
    fn dead(&self, called: Time) -> usize {
        self.deadlines.partition_point(|deadline| *deadline < called)
    }

    /// Whether the search can continue after this change: later steps need a fence that is low enough, and the values
    /// they saw.
    pub(super) fn allows(&self, change: &Change, facts: Option<&Facts>, call: &Call) -> bool {
        let own = facts.map_or(&[][..], |facts| &facts.bounds);
        let next = |resource: usize, skip: usize| self.bounds[resource].get(self.passed[resource] + skip);
        let before =
            |resource: usize, place: usize| own[..place].iter().filter(|(other, _)| *other == resource).count();
        let in_order = own
            .iter()
            .enumerate()
            .all(|(place, (resource, bound))| next(*resource, before(*resource, place)) == Some(bound));
        in_order
            && change.iter().all(|(resource, after)| {
                let low = next(*resource, before(*resource, own.len())).is_none_or(|bound| after.high <= Some(*bound));
                let gone = self.cells[*resource].value;
                low && (gone == after.value || gone == Value::UNSEEN || {
                    let slot = self.prepared.slot(*resource, gone);
                    let seen_by_itself = u32::from(facts.is_some_and(|facts| facts.sees == Some(slot)));
                    let same = |part: &&Part| part.resource == *resource && part.value == gone;
                    let written_by_itself = call.parts().iter().filter(same).count() as u32;
                    self.to_see[slot] == seen_by_itself || self.to_write[slot] > written_by_itself
                })
            })
    }

    pub(super) fn place(&mut self, next: Move) -> Undo {
        let Move { what, change } = next;
        let newest_call = self.newest_call;
        let called = match what {
            What::Take(index) => {
                let (after, before) = (self.after[index], self.before[index]);
                self.after[before] = after;
                self.before[after] = before;
                self.left -= 1;
                self.hash ^= self.facts[index].key;
                for (resource, _) in &self.facts[index].bounds {
                    self.passed[*resource] += 1;
                }
                self.prepared.steps[index].called
            }
            What::Do(index) | What::Raise(index) => {
                self.placed[index] = true;
                self.prepared.optional[index].called
            }
        };
        self.count(what, u32::wrapping_sub);
        self.newest_call = newest_call.max(called);
        let before = change.into_iter().map(|(resource, cell)| (resource, self.set(resource, cell))).collect();
        Undo { what, before, newest_call }
    }

    pub(super) fn undo(&mut self, undo: Undo) {
        for (resource, cell) in undo.before {
            self.set(resource, cell);
        }
        self.newest_call = undo.newest_call;
        self.count(undo.what, u32::wrapping_add);
        match undo.what {
            What::Take(index) => {
                let (after, before) = (self.after[index], self.before[index]);
                self.after[before] = index;
                self.before[after] = index;
                self.left += 1;
                self.hash ^= self.facts[index].key;
                for (resource, _) in &self.facts[index].bounds {
                    self.passed[*resource] -= 1;
                }
            }
            What::Do(index) | What::Raise(index) => self.placed[index] = false,
        }
    }

    /// Updates the counts of steps that must see, and operations that may write, a value.
    fn count(&mut self, what: What, by: fn(u32, u32) -> u32) {
        let call = match what {
            What::Take(index) => {
                if let Some(slot) = self.facts[index].sees {
                    self.to_see[slot] = by(self.to_see[slot], 1);
                }
                let step: &Step = &self.prepared.steps[index];
                step.writes().then_some(&step.call)
            }
            What::Do(index) | What::Raise(index) => {
                let optional: &Optional = &self.prepared.optional[index];
                optional.open.then_some(&optional.call)
            }
        };
        for part in call.into_iter().flat_map(Call::parts) {
            let slot = self.prepared.slot(part.resource, part.value);
            self.to_write[slot] = by(self.to_write[slot], 1);
        }
    }

    fn set(&mut self, resource: usize, cell: Cell) -> Cell {
        let before = std::mem::replace(&mut self.cells[resource], cell);
        self.hash ^= cell_key(resource, &before) ^ cell_key(resource, &cell);
        before
    }

    pub(super) fn place_key(&self) -> u128 {
        let mut key = self.hash ^ fold(&[3, self.dead(self.newest_call) as u64]);
        for &index in &self.pressing {
            let optional = &self.prepared.optional[index];
            let over = || {
                let tokens = optional.call.tokens();
                tokens.into_iter().any(|(resource, token)| self.cells[resource].high > Some(token))
            };
            if optional.open && self.placed[index] && !over() {
                key ^= fold(&[2, index as u64]);
            }
        }
        key
    }
}

fn facts(prepared: &Prepared<'_>, index: usize, step: &Step) -> Facts {
    let rules = prepared.rules;
    let tokens = step.call.tokens();
    let reported = |resource: usize, high: Option<u64>| high.filter(|_| rules.exact()).map(|high| (resource, high));
    let bounds = match (&step.call, step.outcome) {
        (Call::Claim { .. } | Call::Write(_) | Call::Cas { .. } | Call::Batch(_), Outcome::Done { .. }) => tokens,
        (Call::Cas { .. }, Outcome::Mismatched { .. }) if rules.mismatch_raises => tokens,
        (Call::Read { resource } | Call::CheckedRead { resource, .. }, Outcome::Done { high, .. }) => {
            reported(*resource, high).into_iter().collect()
        }
        (Call::Batch(_), Outcome::Refused { .. }) => Vec::new(),
        (_, Outcome::Refused { high }) => {
            tokens.first().and_then(|(resource, _)| reported(*resource, high)).into_iter().collect()
        }
        (_, Outcome::Mismatched { .. } | Outcome::Raised) => Vec::new(),
    };
    let sees = match (&step.call, step.outcome) {
        (Call::Cas { expect, .. }, Outcome::Done { .. }) => Some(*expect),
        (Call::Write(_) | Call::Batch(_), _) => None,
        (_, Outcome::Done { value, .. }) => value,
        (_, Outcome::Mismatched { current }) => current,
        (_, Outcome::Refused { .. } | Outcome::Raised) => None,
    };
    let sees = sees.zip(step.call.resources().first()).map(|(value, resource)| prepared.slot(*resource, value));
    Facts { key: fold(&[1, index as u64]), bounds, sees }
}

fn cell_key(resource: usize, cell: &Cell) -> u128 {
    let holder = cell.holder.map_or(0, |holder| u64::from(holder) + 1);
    let high = cell.high.map_or([0, 0], |high| [1, high]);
    fold(&[0, resource as u64, high[0], high[1], u64::from(cell.used), holder, u64::from(cell.value.0)])
}

/// A hash of these numbers: two different lists collide with a probability of 2⁻¹²⁸.
fn fold(numbers: &[u64]) -> u128 {
    let lane = |start: u64| numbers.iter().fold(start, |sum, number| Random::from_seed(sum ^ *number).draw());
    (u128::from(lane(0x5bf0_3635)) << 64) | u128::from(lane(0x9e6c_63d0))
}
