//! Random commands on a few keys under different guards.

use std::num::NonZeroU64;

use bytes::Bytes;
use fencepost_core::{Claim, Equal, GuardSpec, Guards, Holder, Issuer, Key, Mode, Policy, Presented, Resource, Token};
use fencepost_store::{ClaimKeys, Condition, Delete, Put, Store};
use proptest::prelude::*;

use super::reference::{Versions, WriteId};
use crate::testbed::Ended;

/// The most bytes a claim may read; some bodies are longer.
pub(crate) const MAX_CLAIM_BYTES: usize = 40;

#[derive(Clone, Debug)]
pub(crate) struct Command {
    pub(crate) key: &'static str,
    pub(crate) presented: Option<Presented>,
    pub(crate) verb: Verb,
}

#[derive(Clone, Debug)]
pub(crate) enum Verb {
    Put { id: WriteId, when: When, bytes: usize },
    Delete { when: When },
    Claim,
}

/// A condition in the words of the model.
#[derive(Clone, Copy, Debug)]
pub(crate) enum When {
    Always,
    Absent,
    Exists,
    /// It is still the value that was current before this group.
    Unchanged,
    /// It is a value that may have been replaced since.
    Once(WriteId),
}

/// Keys that share a resource, strict keys, observed keys and plain ones.
const KEYS: [&str; 6] = ["a/1", "a/2", "strict", "required", "observed", "plain"];

pub(crate) fn guards() -> Guards {
    let spec = |keys: &str, resource: Option<&str>, policy| GuardSpec {
        keys: keys.into(),
        resource: resource.map(str::to_owned),
        policy,
    };
    Guards::new(vec![
        spec("a/*", Some("a"), Policy::default()),
        spec("strict", None, Policy { equal: Equal::Reject, max_jump: NonZeroU64::new(3), ..Policy::default() }),
        spec("required", None, Policy { claim: Claim::Required, ..Policy::default() }),
        spec("observed", None, Policy { mode: Mode::Observe, ..Policy::default() }),
    ])
    .unwrap()
}

fn any_presented() -> impl Strategy<Value = Option<Presented>> {
    let generation = prop_oneof![12 => Just(0u32), 1 => Just(1u32)];
    let holder = prop_oneof![3 => Just(None), 2 => Just(Some("A#1")), 1 => Just(Some("B#2"))];
    let issuer = prop_oneof![6 => Just(None), 2 => Just(Some("etcd:1")), 1 => Just(Some("redis:1"))];
    let presented = (generation, 1u64..9, holder, issuer).prop_map(|(generation, number, holder, issuer)| Presented {
        token: Token::new(generation, number).unwrap(),
        holder: holder.map(|holder| Holder::new(holder).unwrap()),
        issuer: issuer.map(|issuer| Issuer::new(issuer).unwrap()),
    });
    prop_oneof![1 => Just(None), 20 => presented.prop_map(Some)]
}

fn any_when() -> impl Strategy<Value = When> {
    prop_oneof![
        6 => Just(When::Always),
        1 => Just(When::Absent),
        1 => Just(When::Exists),
        2 => Just(When::Unchanged),
        1 => (0u64..60).prop_map(|id| When::Once(WriteId(id))),
    ]
}

fn any_command() -> impl Strategy<Value = Command> {
    let verb = prop_oneof![
        6 => (any_when(), 0usize..60).prop_map(|(when, bytes)| Verb::Put { id: WriteId(0), when, bytes }),
        2 => any_when().prop_map(|when| Verb::Delete { when }),
        3 => Just(Verb::Claim),
    ];
    (prop::sample::select(&KEYS[..]), any_presented(), verb).prop_map(|(key, presented, verb)| Command {
        key,
        presented,
        verb,
    })
}

/// Groups of commands; each put has an id of its own.
pub(crate) fn any_history() -> impl Strategy<Value = Vec<Vec<Command>>> {
    prop::collection::vec(prop::collection::vec(any_command(), 1..12), 1..8).prop_map(|mut history| {
        let puts = history.iter_mut().flatten().filter_map(|command| match &mut command.verb {
            Verb::Put { id, .. } => Some(id),
            Verb::Delete { .. } | Verb::Claim => None,
        });
        for (next, id) in (0..).zip(puts) {
            *id = WriteId(next);
        }
        history
    })
}

/// The body of a put, which tells which put it was.
pub(crate) fn body_of(id: WriteId, bytes: usize) -> Bytes {
    format!("{}:{}", id.0, "v".repeat(bytes)).into()
}

impl Command {
    /// Sends it to the store.
    pub(crate) async fn send(&self, store: &Store, versions: &Versions) -> Ended {
        let (key, presented) = (Key::new(self.key).unwrap(), self.presented.clone());
        let condition = |when: &When| match *when {
            When::Always => Condition::Always,
            When::Absent => Condition::Absent,
            When::Exists => Condition::Exists,
            When::Unchanged => Condition::AnyOf(versions.before(self.key).into_iter().collect()),
            When::Once(id) => Condition::AnyOf(versions.of(id).into_iter().collect()),
        };
        let result = match &self.verb {
            Verb::Put { id, when, bytes } => {
                let (condition, body) = (condition(when), body_of(*id, *bytes));
                store.put(Put { key, presented, condition, content_type: None, body }).await
            }
            Verb::Delete { when } => store.delete(Delete { key, presented, condition: condition(when) }).await,
            Verb::Claim => {
                let resource = guards().of_key(&key).unwrap().resource;
                let keys = self.claimed_keys();
                store.claim(ClaimKeys { resource, presented, keys, max_bytes: MAX_CLAIM_BYTES }).await
            }
        };
        result.map(|named| named.unwrap())
    }

    /// A claim of `a` asks for both of its keys.
    pub(crate) fn claimed_keys(&self) -> Vec<Key> {
        let resource: Resource = guards().of_key(&Key::new(self.key).unwrap()).unwrap().resource;
        let of_it = |key: &Key| guards().of_key(key).unwrap().resource == resource;
        KEYS.iter().map(|name| Key::new(name).unwrap()).filter(of_it).collect()
    }
}
