//! Commits whose answers were lost: what the lane says of them.

use super::engine::{Batch, Engine, Record, Version};
use super::gateway::{Draft, Lane, Task, Work};
use super::mistake::Mistake;
use super::names::{Named, Names};
use super::world::World;

/// After so many looks that had to be proved, a gateway can only give up: the patience of the code, which is a time there.
const MAX_MEANINGS: usize = 3;

/// A commit whose answer was lost.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Doubt {
    pub(super) task: Task,
    pub(super) batch: Batch,
    pub(super) draft: Draft,
    /// What it means if the lane has this number: from the one after the commit's on, each that was sent.
    meanings: Vec<Meaning>,
}

/// What became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Meaning {
    Applied(Version),
    Not,
    HistoryLost,
}

/// What a look says.
pub(super) enum Looked {
    Settled(Meaning, Option<Record<u8>>),
    /// A commit of the lane has to prove it.
    Bump(Batch, Meaning),
    /// Nothing more can be sent.
    Patience,
}

impl Doubt {
    pub(super) fn new(task: Task, batch: Batch, draft: Draft) -> Doubt {
        Doubt { task, batch, draft, meanings: Vec::new() }
    }

    pub(super) fn look(&mut self, lane: &Lane, engine: &Engine, world: &World) -> Looked {
        let record = engine.lane(lane.id);
        let (number, version) = (record.map_or(0, |record| record.of), record.map(|record| record.version));
        let attempt = lane.number + 1;
        let meaning = match (number.checked_sub(attempt), version) {
            (None, _) if number == lane.number && version == lane.version => Meaning::Not,
            (Some(0), Some(version)) => Meaning::Applied(version),
            (Some(step), _) if step > 0 => {
                self.meanings.get(usize::from(step) - 1).copied().unwrap_or(Meaning::HistoryLost)
            }
            _ => Meaning::HistoryLost,
        };
        let is_proof = world.load_is_proof || world.has(Mistake::UnprovedLookTakenForProof);
        if meaning == Meaning::HistoryLost && is_proof
            || number >= attempt && world.load_is_proof
            || world.has(Mistake::SettledByALook)
        {
            return Looked::Settled(meaning, record);
        }
        if meaning == Meaning::HistoryLost {
            // With the number that is there: a higher one would say that nothing is missing.
            return Looked::Bump(lane.over(version, number, world), meaning);
        }
        if self.meanings.len() == MAX_MEANINGS {
            return Looked::Patience;
        }
        self.meanings.push(meaning);
        let number = match world.has(Mistake::BumpTakesTheNumberOfTheCommit) {
            true => attempt,
            false => attempt + self.meanings.len() as u8,
        };
        Looked::Bump(lane.over(version, number, world), meaning)
    }
}

/// Whether the lane says less than was confirmed, so that a gateway whose commit conflicted has to stop; or to make sure of it
/// first, where a load proves nothing.
pub(super) fn check(task: Task, lane: &Lane, engine: &Engine, world: &World) -> Option<Work> {
    let record = engine.lane(lane.id);
    let version = record.map(|record| record.version);
    if version == lane.version || world.has(Mistake::LaneNotCompared) {
        return None;
    }
    let number = match world.has(Mistake::ProofOfALossTakesANewNumber) {
        true => lane.number + 1,
        false => record.map_or(0, |record| record.of),
    };
    match world.load_is_proof || world.has(Mistake::UnprovedLookTakenForProof) {
        true => Some(Work::Poisoned),
        false => Some(Work::Prove(task, lane.over(version, number, world))),
    }
}

impl Named for Doubt {
    fn name(&mut self, names: &mut Names) {
        self.batch.name(names);
        self.meanings.iter_mut().for_each(|meaning| meaning.name(names));
    }
}

impl Named for Meaning {
    fn name(&mut self, names: &mut Names) {
        if let Meaning::Applied(version) = self {
            names.version(version);
        }
    }
}
