//! Breadth-first search through all states of a world, so that the first counterexample is a shortest one.

use std::collections::HashSet;

use super::event::{Event, Step};
use super::promise::Broken;
use super::request::Answer;
use super::state::State;
use super::trace::Trace;
use super::world::World;

/// What a search has found.
pub(super) struct Explored {
    /// The states that differ.
    pub(super) states: usize,
    /// The steps to the last of them.
    pub(super) depth: usize,
    /// The answers that were given.
    pub(super) answers: HashSet<Answer>,
    pub(super) counterexample: Option<Counterexample>,
}

/// The steps to a broken promise.
pub(super) struct Counterexample {
    pub(super) broken: Broken,
    pub(super) steps: Vec<String>,
}

/// How a state was reached: from which, and by what.
struct Reached {
    from: u32,
    by: Event,
}

/// The place of the initial state among those reached.
const START: u32 = u32::MAX;

pub(super) fn explore(world: &World) -> Explored {
    let start = State::new(world);
    let mut seen: HashSet<u128> = HashSet::from([start.fingerprint()]);
    let mut reached: Vec<Reached> = Vec::new();
    let (mut level, mut next, mut events) = (vec![(START, start)], Vec::new(), Vec::new());
    let (mut depth, mut answers) = (0, HashSet::new());
    let counterexample = 'search: loop {
        for (at, state) in level.drain(..) {
            events.clear();
            state.events(world, &mut events);
            let is_kept = match state.is_stuck(&events) {
                true => Err(Broken::Stuck),
                false => step_of(&state, world).reads(),
            };
            if let Err(broken) = is_kept {
                break 'search Some(retold(world, &reached, at, None, broken));
            }
            for event in &events {
                let mut step = step_of(&state, world);
                if let Err(broken) = step.take(*event) {
                    break 'search Some(retold(world, &reached, at, Some(*event), broken));
                }
                answers.extend(step.answer);
                if seen.insert(step.state.fingerprint()) {
                    next.push((reached.len() as u32, step.state));
                    reached.push(Reached { from: at, by: *event });
                }
            }
        }
        if next.is_empty() {
            break None;
        }
        std::mem::swap(&mut level, &mut next);
        depth += 1;
    };
    Explored { states: seen.len(), depth, answers, counterexample }
}

fn step_of<'w>(state: &State, world: &'w World) -> Step<'w> {
    Step { state: state.clone(), world, trace: Trace::none(), answer: None }
}

/// Plays the steps again, in words.
fn retold(world: &World, reached: &[Reached], mut at: u32, last: Option<Event>, broken: Broken) -> Counterexample {
    let mut events: Vec<Event> = last.into_iter().collect();
    while let Some(Reached { from, by }) = reached.get(at as usize) {
        events.push(*by);
        at = *from;
    }
    let mut step = Step { state: State::new(world), world, trace: Trace::kept(), answer: None };
    let mut steps = Vec::new();
    for event in events.into_iter().rev() {
        let kept = step.take(event);
        steps.push(step.trace.take());
        if kept.is_err() {
            return Counterexample { broken, steps };
        }
    }
    let _ = step.reads();
    steps.push(step.trace.take());
    Counterexample { broken, steps }
}
