//! The stores of several engines, and which of them keeps a name.
//!
//! Resources are disjoint, so a guard may choose the engine of its resources. A name leads to exactly one store, with a
//! sequencer of its own; no commit spans two of them. What concerns all names asks every store, always in the same
//! order: the one without a name first, then the others by name.

mod lists;
mod outcomes;
mod rotations;

use std::collections::BTreeMap;
use std::sync::Arc;

use fencepost_core::{EngineName, Guards, UNNAMED_ENGINE};

use crate::failure::{Failure, Rejected};
use crate::reads::ReadError;
use crate::store::{ClaimKeys, MappingDiffers, Store, Transaction};

pub use rotations::EngineRotated;

/// The names of one request are kept on two engines, so no commit covers them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{}` is kept on the engine `{}`, and `{}` on the engine `{}`", first.0, first.1, second.0, second.1)]
pub struct SeveralEngines {
    /// A name, and its engine.
    pub first: (String, String),
    /// Another name, and its engine.
    pub second: (String, String),
}

/// Two engines keep the same store.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the engines `{0}` and `{1}` are one and the same store: give each a database, schema or prefix of its own")]
pub struct SameStore(String, String);

/// A store for each engine.
pub struct Stores {
    /// The store of the engine without a name. Its guards decide which store keeps a name.
    unnamed: Arc<Store>,
    /// The others. Usually there is none, and then nothing is decided.
    named: BTreeMap<EngineName, Arc<Store>>,
}

impl Stores {
    /// A single store.
    pub fn one(store: Arc<Store>) -> Stores {
        Stores { unnamed: store, named: BTreeMap::new() }
    }

    /// Several stores, each opened with the guards of its engine.
    pub fn new(unnamed: Arc<Store>, named: BTreeMap<EngineName, Arc<Store>>) -> Result<Stores, SameStore> {
        let stores = Stores { unnamed, named };
        let all: Vec<_> = stores.each().collect();
        for (at, (name, store)) in all.iter().enumerate() {
            if let Some((other, _)) = all[..at].iter().find(|(_, other)| other.store_id() == store.store_id()) {
                return Err(SameStore((*other).to_owned(), (*name).to_owned()));
            }
        }
        Ok(stores)
    }

    /// Whether there is only the engine without a name.
    pub fn is_one(&self) -> bool {
        self.named.is_empty()
    }

    /// Every store with the name of its engine, in the order in which they are asked.
    pub fn each(&self) -> impl Iterator<Item = (&str, &Arc<Store>)> {
        let named = self.named.iter().map(|(name, store)| (name.as_str(), store));
        std::iter::once((UNNAMED_ENGINE, &self.unnamed)).chain(named)
    }

    /// The store of the engine without a name.
    pub fn unnamed(&self) -> &Arc<Store> {
        &self.unnamed
    }

    /// The store that keeps a key or a resource of this name.
    pub fn of(&self, name: &str) -> &Arc<Store> {
        self.find(name).1
    }

    /// The same, with the name of its engine.
    fn find(&self, name: &str) -> (&str, &Arc<Store>) {
        let unnamed = (UNNAMED_ENGINE, &self.unnamed);
        if self.is_one() {
            return unnamed;
        }
        let guards = self.unnamed.guards();
        // A name of an engine that is missing here would be refused by the store without a name.
        let found = guards.engine_of(name).and_then(|engine| self.named.get_key_value(engine));
        found.map_or(unnamed, |(engine, store)| (engine.as_str(), store))
    }

    /// The store that keeps all these names. The first of them is enough if there is only one store.
    fn of_all<'n>(&self, mut names: impl Iterator<Item = &'n str>) -> Result<&Arc<Store>, SeveralEngines> {
        let Some(first) = names.next().filter(|_| !self.is_one()) else { return Ok(&self.unnamed) };
        let (engine, store) = self.find(first);
        for name in names {
            let (other, _) = self.find(name);
            if other != engine {
                let (first, second) = ((first, engine), (name, other));
                let owned = |(name, engine): (&str, &str)| (name.to_owned(), engine.to_owned());
                return Err(SeveralEngines { first: owned(first), second: owned(second) });
            }
        }
        Ok(store)
    }

    /// The store of a transaction, which is judged and committed by one.
    pub fn of_transaction(&self, transaction: &Transaction) -> Result<&Arc<Store>, SeveralEngines> {
        let Transaction { tokens, conditions, operations, .. } = transaction;
        let operations = operations.iter().map(|(key, _)| key.as_str());
        let conditions = conditions.iter().map(|(key, _)| key.as_str());
        let tokens = tokens.iter().map(|(resource, _)| resource.as_str());
        self.of_all(operations.chain(conditions).chain(tokens))
    }

    /// The store of a claim.
    pub fn of_claim(&self, claim: &ClaimKeys) -> Result<&Arc<Store>, SeveralEngines> {
        self.of_all(std::iter::once(claim.resource.as_str()).chain(claim.keys.iter().map(|key| key.as_str())))
    }

    /// The current guards: mapping and rules.
    pub fn guards(&self) -> Arc<Guards> {
        self.unnamed.guards()
    }

    /// Replaces the rules of every store. The mapping must be the stored one in all of them; if it is not, nothing changes.
    pub fn set_rules(&self, guards: &Guards) -> Result<(), MappingDiffers> {
        let named = self.named.iter().map(|(engine, store)| (guards.of_engine(Some(engine)), store));
        let all: Vec<_> = std::iter::once((guards.of_engine(None), &self.unnamed)).chain(named).collect();
        for (guards, store) in &all {
            store.check_mapping(guards)?;
        }
        all.into_iter().try_for_each(|(guards, store)| store.set_rules(guards))
    }

    /// Number of queued writes.
    pub fn queue_depth(&self) -> usize {
        self.each().map(|(_, store)| store.queue_depth()).sum()
    }

    /// Number of waiters for locks.
    pub fn waiters(&self) -> usize {
        self.each().map(|(_, store)| store.waiters()).sum()
    }

    /// Ends all waiting for locks.
    pub fn stop_waiting(&self) {
        self.each().for_each(|(_, store)| store.stop_waiting());
    }

    /// The stores, to be closed.
    pub fn into_stores(self) -> impl Iterator<Item = Arc<Store>> {
        std::iter::once(self.unnamed).chain(self.named.into_values())
    }
}

/// The failure of a command that all stores were asked for, with the engine that failed.
fn on_engine(engine: &str, failure: Failure) -> Failure {
    let named = |why: String| format!("engine `{engine}`: {why}");
    match failure {
        Failure::Unknown(why) => Failure::Unknown(named(why)),
        Failure::Rejected(Rejected::Unavailable(why)) => Rejected::Unavailable(named(why)).into(),
        Failure::Rejected(Rejected::Poisoned(why)) => Rejected::Poisoned(named(why)).into(),
        Failure::Rejected(rejected) => rejected.into(),
    }
}

/// The failure of a command that had to read first.
fn not_read(error: ReadError) -> Failure {
    match error {
        ReadError::MappingChanged => Rejected::MappingChanged.into(),
        ReadError::WrongResource(wrong) => wrong.into(),
        ReadError::Failed(why) | ReadError::Unreachable(why) => Rejected::Unavailable(why).into(),
    }
}

/// The failure of a read that all stores were asked for, with the engine that failed.
fn read_on_engine(engine: &str, error: ReadError) -> ReadError {
    let named = |why: String| format!("engine `{engine}`: {why}");
    match error {
        ReadError::Failed(why) => ReadError::Failed(named(why)),
        ReadError::Unreachable(why) => ReadError::Unreachable(named(why)),
        other => other,
    }
}
