//! The records that a batch needs.

use std::hash::Hash;

use fencepost_core::{Key, Resource};
use foldhash::{HashMap, HashMapExt};

use crate::command::{Action, Command};
use crate::engine::{Want, Wanted};
use crate::record::{OutcomeKey, RecordKey};

/// The records that a batch needs, each once. The store's own record comes first.
pub(crate) struct Plan {
    pub(crate) wanted: Vec<Wanted>,
    /// How many bytes of values may be loaded. Always enough for the first command.
    pub(crate) spare: usize,
    pub(super) fences: HashMap<Resource, usize>,
    pub(super) values: HashMap<Key, usize>,
    pub(super) locks: HashMap<Resource, usize>,
    pub(super) outcomes: HashMap<OutcomeKey, usize>,
    pub(super) indexes: HashMap<RecordKey, usize>,
    pub(super) objects: HashMap<RecordKey, usize>,
}

impl Plan {
    /// A plan for commands that read about `read_bytes` bytes of values together.
    pub(crate) fn of(commands: &[Command], read_bytes: usize) -> Plan {
        let mut plan = Plan {
            wanted: vec![Wanted::bytes(RecordKey::meta())],
            spare: commands.first().map_or(0, Command::read_bytes).max(read_bytes),
            fences: HashMap::with_capacity(commands.len()),
            values: HashMap::new(),
            locks: HashMap::new(),
            outcomes: HashMap::new(),
            indexes: HashMap::new(),
            objects: HashMap::new(),
        };
        for command in commands {
            for judged in &command.judged {
                add(&mut plan.fences, &mut plan.wanted, &judged.guarded.resource, Want::Bytes, RecordKey::fence);
            }
            for (key, want) in command.reads() {
                add(&mut plan.values, &mut plan.wanted, key, want, RecordKey::value);
            }
            if let Some(resource) = command.lock() {
                add(&mut plan.locks, &mut plan.wanted, resource, Want::Bytes, RecordKey::lock);
            }
            // Loaded with the command's other records, so that its absence holds at the same instant.
            if let Some(outcome) = command.outcome() {
                add(&mut plan.outcomes, &mut plan.wanted, &outcome, Want::Bytes, RecordKey::outcome);
            }
            match &command.action {
                Action::Forget { index, .. } => {
                    add(&mut plan.indexes, &mut plan.wanted, index, Want::Version, RecordKey::clone);
                }
                Action::Objects(change, _) => {
                    for (key, _) in &change.require {
                        add(&mut plan.objects, &mut plan.wanted, key, Want::Bytes, RecordKey::clone);
                    }
                }
                _ => {}
            }
        }
        plan
    }
}

/// Adds a record, or widens what is wanted of one that is already in the plan.
fn add<T: Hash + Eq + Clone>(
    places: &mut HashMap<T, usize>,
    wanted: &mut Vec<Wanted>,
    name: &T,
    want: Want,
    record: impl Fn(&T) -> RecordKey,
) {
    match places.get(name) {
        Some(&at) => wanted[at].want = wanted[at].want.max(want),
        None => {
            places.insert(name.clone(), wanted.len());
            wanted.push(Wanted { key: record(name), want });
        }
    }
}
