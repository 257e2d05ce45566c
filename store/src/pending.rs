//! Commands that wait for a batch, and which of them can go into the next one.

use std::collections::VecDeque;
use std::hash::BuildHasher;

use foldhash::quality::RandomState;
use foldhash::{HashSet, HashSetExt};
use tokio::time::Instant;

use crate::batch_size::{BatchSize, Bounds};
use crate::command::{Action, Command};

/// Commands in the order in which they came.
#[derive(Default)]
pub(crate) struct Pending {
    commands: VecDeque<One>,
    hasher: RandomState,
}

struct One {
    command: Command,
    /// Hashes of everything that it reads or writes. Two keys with the same hash only wait for each other.
    keys: Vec<u64>,
    since: Instant,
}

/// What a batch is made for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Requests of clients.
    Request,
    /// Nobody waits for it, and its conflicts should send nobody back.
    Housekeeping,
    /// It changes the store's own record, which every batch reads: nothing else is under way meanwhile.
    Alone,
}

/// The commands of a batch.
pub(crate) struct Chosen {
    /// Where they are, in ascending order.
    pub(crate) places: Vec<usize>,
    /// What they read and write.
    pub(crate) keys: Vec<u64>,
    /// When the first of them came.
    pub(crate) since: Instant,
}

impl Pending {
    pub(crate) fn len(&self) -> usize {
        self.commands.len()
    }

    pub(crate) fn extend(&mut self, commands: impl Iterator<Item = Command>) {
        let since = Instant::now();
        let Pending { commands: all, hasher } = self;
        all.extend(commands.map(|command| One { keys: keys(&command, hasher), command, since }));
    }

    /// When the first of them came.
    pub(crate) fn oldest(&self) -> Option<Instant> {
        self.commands.front().map(|one| one.since)
    }

    /// The commands from the front on that touch none of these keys, and that go together. What touches a key of a command
    /// that is passed over has to wait behind it.
    pub(crate) fn choose(&self, busy: &HashSet<u64>, is_alone: bool, bounds: &Bounds) -> Option<Chosen> {
        let (mut passed, mut size) = (HashSet::<u64>::new(), BatchSize::default());
        let mut chosen: Option<(Kind, Chosen)> = None;
        for (at, one) in self.commands.iter().enumerate() {
            let of = kind(&one.command);
            if of == Kind::Alone {
                if at == 0 && is_alone {
                    return Some(Chosen { places: vec![0], keys: one.keys.clone(), since: one.since });
                }
                break;
            }
            let is_free = !one.keys.iter().any(|key| busy.contains(key) || passed.contains(key));
            if !is_free || chosen.as_ref().is_some_and(|(kind, _)| *kind != of) {
                passed.extend(&one.keys);
                continue;
            }
            if !size.has_room_for(&one.command, bounds) {
                break;
            }
            size.add(&one.command, bounds);
            let none = || (of, Chosen { places: Vec::new(), keys: Vec::new(), since: one.since });
            let (_, chosen) = chosen.get_or_insert_with(none);
            chosen.places.push(at);
            chosen.keys.extend(&one.keys);
        }
        chosen.map(|(_, chosen)| chosen)
    }

    /// Removes the commands at these places.
    pub(crate) fn take(&mut self, places: &[usize]) -> Vec<Command> {
        if places.len() == self.commands.len() {
            return self.commands.drain(..).map(|one| one.command).collect();
        }
        let (mut taken, mut places) = (Vec::with_capacity(places.len()), places.iter().peekable());
        let all = std::mem::take(&mut self.commands).into_iter().enumerate();
        self.commands = all
            .filter_map(|(at, one)| match places.next_if_eq(&&at) {
                Some(_) => {
                    taken.push(one.command);
                    None
                }
                None => Some(one),
            })
            .collect();
        taken
    }
}

fn kind(command: &Command) -> Kind {
    match command.action {
        Action::Rotate { .. } | Action::RotateAll { .. } => Kind::Alone,
        Action::Forget { .. } => Kind::Housekeeping,
        _ => Kind::Request,
    }
}

/// Everything that a command reads or writes. A lock is covered by the fence of its resource.
fn keys(command: &Command, hasher: &RandomState) -> Vec<u64> {
    let mut keys = Vec::with_capacity(2 * command.judged.len() + 1);
    let fences = command.judged.iter().map(|judged| hasher.hash_one((b'f', &judged.guarded.resource)));
    keys.extend(fences);
    keys.extend(command.reads().map(|(key, _)| hasher.hash_one((b'v', key))));
    keys.extend(command.outcome().map(|outcome| hasher.hash_one((b'o', &outcome))));
    match &command.action {
        Action::WriteOne(write, _) => keys.push(hasher.hash_one((b'v', &write.key))),
        Action::Write(write, _) => {
            let written = write.operations.iter().filter(|step| step.operation.writes());
            keys.extend(written.map(|step| hasher.hash_one((b'v', &step.key))));
        }
        Action::Objects(change, _) => {
            let required = change.require.iter().map(|(key, _)| key);
            keys.extend(
                required.chain(change.edits.iter().map(|(key, _)| key)).map(|key| hasher.hash_one((b'r', key))),
            );
        }
        Action::Forget { index, outcomes, .. } => {
            keys.push(hasher.hash_one((b'r', index)));
            keys.extend(outcomes.iter().map(|outcome| hasher.hash_one((b'o', outcome))));
        }
        _ => {}
    }
    keys.sort_unstable();
    keys.dedup();
    keys
}
