//! Looks for an order, depth first, and never enters the same place twice (Wing, Gong, Lowe).
//!
//! A place is the set of steps that were taken and the state they led to. What keeps the number of places small:
//!
//! - A step that fits, changes nothing and would change nothing later is taken at once.
//! - A fence never falls. So accepted tokens and exactly reported fences can only come in rising order, and a raise beyond
//!   the lowest of those that are still to come is a dead end.
//! - A value that somebody has still to see is not overwritten, unless it can be written again.
//! - What must come next is looked for among the operations that share resources with the most urgent step. All others
//!   that may come before it touch other resources, so they may as well come after it.
//! - A raise that can wait for ever waits until a step needs it, and then the lowest that helps is as good as any.
//! - An optional operation that was placed can do nothing more once the fence is above its token, so places differ by it
//!   only until then.

use std::collections::HashSet;
use std::time::Instant;

use super::model::{Call, Cell, Change, Outcome, Part, Value};
use super::prepare::{Optional, Prepared, Step};
use crate::harness::seed::Random;
use crate::history::Time;

/// What the search found.
#[derive(Debug)]
pub(super) enum Found {
    /// An order.
    Order,
    /// There is none; this is as far as it got.
    Nothing(Stuck),
    /// Time ran out.
    OutOfTime,
}

/// The longest order that explains a part of the answers.
#[derive(Debug, Default)]
pub(super) struct Stuck {
    /// The operations in that order, by their place in the component.
    pub(super) order: Vec<usize>,
    /// The state they led to.
    pub(super) cells: Vec<Cell>,
    /// The operations that would have to come next, and none fits.
    pub(super) next: Vec<usize>,
}

/// How often the clock is looked at.
const STEPS_BETWEEN_LOOKS: u64 = 512;

/// Looks for an order until the deadline.
pub(super) fn search(prepared: &Prepared<'_>, deadline: Instant) -> Found {
    Search::new(prepared).run(deadline)
}

#[derive(Clone, Copy, Debug)]
enum What {
    Take(usize),
    Do(usize),
    Raise(usize),
}

struct Move {
    what: What,
    change: Change,
}

struct Undo {
    what: What,
    before: Change,
    newest_call: Time,
}

struct Frame {
    moves: std::vec::IntoIter<Move>,
    taken: Option<Undo>,
}

/// The resources among which the next move is looked for.
struct Near {
    everything: bool,
    resources: Vec<usize>,
}

impl Near {
    fn holds(&self, call: &Call) -> bool {
        self.everything || call.resources().iter().any(|resource| self.resources.contains(resource))
    }
}

/// What is known of a step beforehand.
struct Facts {
    key: u128,
    /// The fences that it allows before it at most, and leaves behind.
    bounds: Vec<(usize, u64)>,
    sees: Option<usize>,
}

struct Search<'p> {
    prepared: &'p Prepared<'p>,
    facts: Vec<Facts>,
    /// The steps not taken, linked in the order of their calls; the last entry is both ends.
    after: Vec<usize>,
    before: Vec<usize>,
    left: usize,
    placed: Vec<bool>,
    cells: Vec<Cell>,
    /// The latest call among what was placed.
    newest_call: Time,
    /// By resource: the bounds of all steps, rising; and how many of them are behind us.
    bounds: Vec<Vec<u64>>,
    passed: Vec<usize>,
    /// By value: how many steps have still to see it, and how many operations may still write it. That there is no value
    /// counts for each resource apart.
    to_see: Vec<u32>,
    to_write: Vec<u32>,
    /// By resource: the raises that can wait for ever, lowest token first.
    patient: Vec<Vec<usize>>,
    /// Optional operations that cannot, or that are not only raises.
    pressing: Vec<usize>,
    deadlines: Vec<Time>,
    hash: u128,
    seen: HashSet<u128>,
}

impl<'p> Search<'p> {
    fn new(prepared: &'p Prepared<'p>) -> Search<'p> {
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
        // A refused batch may report the fence of one resource because of another, and then one raise is not enough.
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
        Search {
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
            seen: HashSet::new(),
        }
    }

    fn run(mut self, deadline: Instant) -> Found {
        if self.left == 0 {
            return Found::Order;
        }
        let mut stuck = Stuck::default();
        let mut fewest_left = usize::MAX;
        let mut looks = 0;
        let mut stack: Vec<Frame> = Vec::new();
        let moves = self.moves();
        stack.push(Frame { moves: moves.into_iter(), taken: None });
        while let Some(depth) = stack.len().checked_sub(1) {
            looks += 1;
            if looks % STEPS_BETWEEN_LOOKS == 0 && Instant::now() >= deadline {
                return Found::OutOfTime;
            }
            if let Some(undo) = stack[depth].taken.take() {
                self.undo(undo);
            }
            let Some(next) = stack[depth].moves.next() else {
                if self.left < fewest_left {
                    fewest_left = self.left;
                    stuck = self.stuck(&stack[..depth]);
                }
                stack.pop();
                continue;
            };
            let undo = self.place(next);
            if self.left == 0 {
                return Found::Order;
            }
            let place = self.place_key();
            if !self.seen.insert(place) {
                self.undo(undo);
                continue;
            }
            stack[depth].taken = Some(undo);
            let moves = self.moves();
            stack.push(Frame { moves: moves.into_iter(), taken: None });
        }
        Found::Nothing(stuck)
    }

    fn stuck(&self, stack: &[Frame]) -> Stuck {
        let order = stack.iter().filter_map(|frame| frame.taken.as_ref()).map(|undo| match undo.what {
            What::Take(index) => self.prepared.steps[index].operation,
            What::Do(index) | What::Raise(index) => self.prepared.optional[index].operation,
        });
        let (candidates, until) = self.candidates();
        let near = self.near(&candidates, until);
        let steps = candidates.into_iter().map(|index| &self.prepared.steps[index]);
        let next = steps.filter(|step| near.holds(&step.call)).map(|step| step.operation);
        Stuck { order: order.collect(), cells: self.cells.clone(), next: next.collect() }
    }

    /// The steps that may come next by the clock, and the time by which one of them must have come.
    fn candidates(&self) -> (Vec<usize>, Time) {
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

    fn moves(&self) -> Vec<Move> {
        let prepared = self.prepared;
        let (candidates, until) = self.candidates();
        let near = self.near(&candidates, until);
        let mut moves = Vec::new();
        let mut blocked = Vec::new();
        for index in candidates {
            let step = &prepared.steps[index];
            match prepared.rules.step(&step.call, step.outcome, &self.cells) {
                Some(change) if !self.allows(&change, Some(&self.facts[index]), &step.call) => drop(change),
                Some(change) if change.is_empty() && !step.writes() && !self.ends_a_chance(step.called) => {
                    return vec![Move { what: What::Take(index), change }];
                }
                Some(change) if near.holds(&step.call) => moves.push(Move { what: What::Take(index), change }),
                None if near.holds(&step.call) => blocked.push(index),
                Some(_) | None => {}
            }
        }
        moves.sort_by_key(|found| match found.what {
            What::Take(index) => {
                let step = &prepared.steps[index];
                (step.call.tokens().first().map_or(0, |(_, token)| *token), step.latest)
            }
            What::Do(_) | What::Raise(_) => (u64::MAX, Time::MAX),
        });
        for index in blocked {
            self.raises_that_help(index, until, &mut moves);
        }
        for &index in &self.pressing {
            let optional = &prepared.optional[index];
            if !self.has_its_chance(index, until) || !near.holds(&optional.call) {
                continue;
            }
            let effects = [(What::Do(index), Outcome::SILENT), (What::Raise(index), Outcome::Raised)];
            for (what, outcome) in effects.into_iter().skip(usize::from(!optional.open)) {
                if let Some(change) = prepared.rules.step(&optional.call, outcome, &self.cells)
                    && !change.is_empty()
                    && self.allows(&change, None, &optional.call)
                {
                    moves.push(Move { what, change });
                }
            }
        }
        moves
    }

    fn has_its_chance(&self, index: usize, until: Time) -> bool {
        let optional = &self.prepared.optional[index];
        optional.called <= until && optional.latest >= self.newest_call && !self.placed[index]
    }

    /// The resources of the most urgent step, and those joined to them by what may come before it.
    fn near(&self, candidates: &[usize], until: Time) -> Near {
        let urgent = candidates.iter().find(|index| self.prepared.steps[**index].latest == until);
        let Some(urgent) = urgent.filter(|_| self.cells.len() > 1 && !self.ends_a_chance(until)) else {
            return Near { everything: true, resources: Vec::new() };
        };
        let mut resources = self.prepared.steps[*urgent].call.resources();
        let pressing = self.pressing.iter().filter(|index| self.has_its_chance(**index, until));
        let mut joining: Vec<Vec<usize>> = candidates
            .iter()
            .map(|index| &self.prepared.steps[*index].call)
            .chain(pressing.map(|index| &self.prepared.optional[*index].call))
            .filter(|call| matches!(call, Call::Batch(_)))
            .map(Call::resources)
            .collect();
        let mut grows = true;
        while grows {
            grows = false;
            joining.retain(|joined| {
                let meets = joined.iter().any(|resource| resources.contains(resource));
                if meets {
                    resources.extend(joined);
                    grows = true;
                }
                !meets
            });
        }
        Near { everything: false, resources }
    }

    /// Would placing something called then be too late for an optional operation that still has its chance?
    fn ends_a_chance(&self, called: Time) -> bool {
        self.dead(called) > self.dead(self.newest_call)
    }

    /// How many optional operations must come before everything called then.
    fn dead(&self, called: Time) -> usize {
        self.deadlines.partition_point(|deadline| *deadline < called)
    }

    fn raises_that_help(&self, blocked: usize, until: Time, moves: &mut Vec<Move>) {
        let prepared = self.prepared;
        let step = &prepared.steps[blocked];
        let mut cells = Vec::new();
        for resource in step.call.resources() {
            let mut lowest = None;
            for &index in &self.patient[resource] {
                let optional = &prepared.optional[index];
                let Some(&(_, token)) = optional.call.tokens().first() else { continue };
                if lowest.is_some_and(|lowest| token > lowest) {
                    break;
                }
                if Some(token) <= self.cells[resource].high || optional.called > until {
                    continue;
                }
                let Some(change) = prepared.rules.step(&optional.call, Outcome::Raised, &self.cells) else { continue };
                if !self.allows(&change, None, &optional.call) {
                    break;
                }
                cells.clone_from(&self.cells);
                change.iter().for_each(|(resource, cell)| cells[*resource] = *cell);
                if prepared.rules.step(&step.call, step.outcome, &cells).is_some() {
                    lowest = Some(token);
                    let again =
                        moves.iter().any(|other| matches!(other.what, What::Raise(_)) && other.change == change);
                    if !again {
                        moves.push(Move { what: What::Raise(index), change });
                    }
                }
            }
        }
    }

    /// Is there still a way from there? What must come later needs a fence that is low enough, and the values it saw.
    fn allows(&self, change: &Change, facts: Option<&Facts>, call: &Call) -> bool {
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

    fn place(&mut self, next: Move) -> Undo {
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

    fn undo(&mut self, undo: Undo) {
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

    /// Who has still to see and to write a value, one less or one more.
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

    fn place_key(&self) -> u128 {
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

/// A number that stands for these: two different lists share one with a chance of 2⁻¹²⁸.
fn fold(numbers: &[u64]) -> u128 {
    let lane = |start: u64| numbers.iter().fold(start, |sum, number| Random::from_seed(sum ^ *number).draw());
    u128::from(lane(0x5bf0_3635)) << 64 | u128::from(lane(0x9e6c_63d0))
}
