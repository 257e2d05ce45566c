//! Searches for an order, depth first, and never visits the same place twice (Wing, Gong, Lowe).
//!
//! A place is the set of steps that were taken and the state they led to. Several rules keep the number of places
//! small:
//!
//! - A step that fits, changes nothing and would change nothing later is taken at once.
//! - A fence never falls. So accepted tokens and exactly reported fences can only come in rising order, and a raise
//!   beyond the lowest of those that are still to come is a dead end.
//! - A value that a later step must see is not overwritten, unless it can be written again.
//! - The next move is searched among the operations that share resources with the most urgent step. All others that may
//!   come before it touch other resources, so they may as well come after it.
//! - A raise that can wait for ever waits until a step needs it, and then the lowest that helps is as good as any.
//! - An optional operation that was placed can do nothing more once the fence is above its token, so places differ by
//!   it only until then.
use std::collections::HashSet;
use std::time::Instant;

use super::model::{Call, Cell, Outcome};
use super::position::{Move, Position, Undo, What};
use super::prepare::Prepared;
use crate::history::Time;

/// The result of a search.
#[derive(Debug)]
pub(super) enum Found {
    /// There is an order.
    Order,
    /// There is no order; this is the furthest the search got.
    Nothing(Stuck),
    /// Undecided after this many places: time ran out, or there were too many to remember.
    GivenUp { places: usize },
}

/// The longest order that explains a part of the answers.
#[derive(Debug, Default)]
pub(super) struct Stuck {
    /// The operations in that order, by their place in the component.
    pub(super) order: Vec<usize>,
    /// The state they led to.
    pub(super) cells: Vec<Cell>,
    /// The operations that would have to come next; none of them fits.
    pub(super) next: Vec<usize>,
}

/// The number of iterations between two looks at the clock.
const STEPS_BETWEEN_LOOKS: u64 = 512;

/// The most places that are remembered: about 300 MB.
pub(super) const MOST_PLACES: usize = 8_000_000;

/// Searches for an order until the deadline.
pub(super) fn search(prepared: &Prepared<'_>, deadline: Instant) -> Found {
    Position::new(prepared).search(deadline)
}

struct Frame {
    moves: std::vec::IntoIter<Move>,
    taken: Option<Undo>,
}

/// The resources among which the next move is searched.
struct Near {
    everything: bool,
    resources: Vec<usize>,
}

impl Near {
    fn holds(&self, call: &Call) -> bool {
        self.everything || call.resources().iter().any(|resource| self.resources.contains(resource))
    }
}

impl Position<'_> {
    fn search(mut self, deadline: Instant) -> Found {
        if self.left == 0 {
            return Found::Order;
        }
        let mut seen = HashSet::new();
        let mut stuck = Stuck::default();
        let mut fewest_left = usize::MAX;
        let mut looks = 0_u64;
        let mut stack: Vec<Frame> = Vec::new();
        let moves = self.moves();
        stack.push(Frame { moves: moves.into_iter(), taken: None });
        while let Some(depth) = stack.len().checked_sub(1) {
            looks += 1;
            let late = looks.is_multiple_of(STEPS_BETWEEN_LOOKS) && Instant::now() >= deadline;
            if late || seen.len() >= MOST_PLACES {
                return Found::GivenUp { places: seen.len() };
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
            if !seen.insert(self.place_key()) {
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

    /// The resources of the most urgent step, and those connected to them by operations that may come before it.
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
}
