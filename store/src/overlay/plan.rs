//! Which records a batch needs, each once.

use std::hash::Hash;

use fencepost_core::{Key, Resource};
use foldhash::{HashMap, HashMapExt};

use crate::command::{Action, Command};
use crate::record::{OutcomeKey, RecordKey};

/// Which records a batch needs, each once. The store's own record comes first.
pub(crate) struct Plan {
    pub(crate) keys: Vec<RecordKey>,
    pub(super) fences: HashMap<Resource, usize>,
    pub(super) values: HashMap<Key, usize>,
    pub(super) locks: HashMap<Resource, usize>,
    pub(super) outcomes: HashMap<OutcomeKey, usize>,
    pub(super) indexes: HashMap<RecordKey, usize>,
    pub(super) objects: HashMap<RecordKey, usize>,
}

impl Plan {
    pub(crate) fn of(commands: &[Command]) -> Plan {
        let mut plan = Plan {
            keys: vec![RecordKey::meta()],
            fences: HashMap::with_capacity(commands.len()),
            values: HashMap::new(),
            locks: HashMap::new(),
            outcomes: HashMap::new(),
            indexes: HashMap::new(),
            objects: HashMap::new(),
        };
        for command in commands {
            for judged in &command.judged {
                add(&mut plan.fences, &mut plan.keys, &judged.guarded.resource, RecordKey::fence);
            }
            for key in command.reads() {
                add(&mut plan.values, &mut plan.keys, key, RecordKey::value);
            }
            if let Some(resource) = command.lock() {
                add(&mut plan.locks, &mut plan.keys, resource, RecordKey::lock);
            }
            // With every other record of the command, so that its absence holds at the same instant.
            if let Some(outcome) = command.outcome() {
                add(&mut plan.outcomes, &mut plan.keys, &outcome, RecordKey::outcome);
            }
            match &command.action {
                Action::Forget { index, .. } => add(&mut plan.indexes, &mut plan.keys, index, RecordKey::clone),
                Action::Objects(change) => {
                    for (key, _) in &change.require {
                        add(&mut plan.objects, &mut plan.keys, key, RecordKey::clone);
                    }
                }
                _ => {}
            }
        }
        plan
    }
}

fn add<T: Hash + Eq + Clone>(
    places: &mut HashMap<T, usize>,
    keys: &mut Vec<RecordKey>,
    name: &T,
    record: impl Fn(&T) -> RecordKey,
) {
    if !places.contains_key(name) {
        places.insert(name.clone(), keys.len());
        keys.push(record(name));
    }
}
