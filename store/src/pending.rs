//! Commands that wait for a batch, and which of them can go into the next one.

use std::collections::VecDeque;
use std::collections::hash_map::Entry;
use std::hash::BuildHasher;

use foldhash::quality::RandomState;
use foldhash::{HashMap, HashMapExt, HashSet, HashSetExt};
use tokio::time::Instant;

use crate::batch_size::{BatchSize, Bounds};
use crate::command::{Action, Command};
use crate::failure::Rejected;

/// Commands in the order in which they came.
pub(crate) struct Pending {
    commands: VecDeque<One>,
    /// How many of them touch each key.
    waiting: HashMap<u64, usize>,
    /// How many may.
    most_of_a_key: usize,
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
    /// It changes the store's own record, which every batch reads: nothing of another kind is under way meanwhile.
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
    /// Nothing yet. Of the commands about one key, at most this many may wait.
    pub(crate) fn new(most_of_a_key: usize) -> Pending {
        let most_of_a_key = most_of_a_key.max(1);
        Pending { commands: VecDeque::new(), waiting: HashMap::new(), most_of_a_key, hasher: RandomState::default() }
    }

    pub(crate) fn len(&self) -> usize {
        self.commands.len()
    }

    /// Adds commands. One about a key for which too many wait is rejected.
    pub(crate) fn extend(&mut self, commands: impl Iterator<Item = Command>) {
        let since = Instant::now();
        for mut command in commands {
            let keys = keys(&command, &self.hasher);
            match self.count(&keys) {
                true => self.commands.push_back(One { command, keys, since }),
                false => command.fail(&Rejected::Overloaded { limit: self.most_of_a_key }.into()),
            }
        }
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
            let chosen_so_far = chosen.as_ref().map_or(0, |(_, chosen)| chosen.places.len());
            if of == Kind::Alone && !(is_alone && at == chosen_so_far) {
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
        let (mut taken, mut places) = (Vec::with_capacity(places.len()), places.iter().peekable());
        for at in 0..self.commands.len() {
            let Some(one) = self.commands.pop_front() else { break };
            if places.next_if_eq(&&at).is_some() {
                self.forget(&one.keys);
                taken.push(one.command);
            } else {
                self.commands.push_back(one);
            }
        }
        taken
    }

    /// Counts a command as waiting. `false`: too many wait for one of its keys.
    fn count(&mut self, keys: &[u64]) -> bool {
        let has_room = |key| self.waiting.get(key).is_none_or(|waiting| *waiting < self.most_of_a_key);
        let has_room = keys.iter().all(has_room);
        if has_room {
            for key in keys {
                *self.waiting.entry(*key).or_default() += 1;
            }
        }
        has_room
    }

    fn forget(&mut self, keys: &[u64]) {
        for key in keys {
            if let Entry::Occupied(mut waiting) = self.waiting.entry(*key) {
                *waiting.get_mut() -= 1;
                if *waiting.get() == 0 {
                    waiting.remove();
                }
            }
        }
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
