//! Commands on a few keys under different guards, and how they are sent to the store.

use std::num::NonZeroU64;
use std::time::Duration;

use bytes::Bytes;
use fencepost_core::{
    Claim, Equal, GuardSpec, Guards, Holder, IdempotencyKey, Issuer, Key, Mode, Policy, Presented, Resource,
};
use fencepost_store::{AcquireLock, CallerId, ClaimKeys, Condition, Delete, Once, Operation, Put, Store, Transaction};

use super::known::Known;
use crate::testbed::{Ended, ended};

/// The most bytes a claim or a transaction may read; some bodies are longer.
pub(crate) const MAX_READ_BYTES: usize = 40;

/// Keys that share a resource, strict keys, observed keys and plain ones.
pub(crate) const KEYS: [&str; 6] = ["a/1", "a/2", "strict", "required", "observed", "plain"];
pub(crate) const RESOURCES: [&str; 5] = ["a", "strict", "required", "observed", "plain"];

/// Identifies what a command wrote; the store identifies it by a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct WriteId(pub(crate) u64);

/// Identifies a grant; the store identifies it by a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct GrantId(pub(crate) u64);

#[derive(Clone, Debug)]
pub(crate) enum Command {
    Write(Write),
    Claim { resource: &'static str, presented: Option<Presented> },
    Lock { resource: &'static str, verb: LockVerb },
    Rotate { resource: &'static str, from: u32, issuer: Option<Issuer> },
    RotateAll { from: u32 },
    Abandon { key: u8 },
}

/// A put, a delete or a transaction.
#[derive(Clone, Debug)]
pub(crate) struct Write {
    pub(crate) shape: Shape,
    pub(crate) tokens: Vec<(&'static str, Presented)>,
    pub(crate) conditions: Vec<(&'static str, When)>,
    pub(crate) steps: Vec<(&'static str, Step)>,
    pub(crate) retry: Option<Retry>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    Single,
    Transaction,
}

#[derive(Clone, Debug)]
pub(crate) enum Step {
    Put { id: WriteId, bytes: usize },
    Delete,
    Add { id: WriteId, by: i64, min: i64, max: i64 },
    Get,
}

impl Step {
    pub(crate) fn writes(&self) -> bool {
        !matches!(self, Step::Get)
    }
}

#[derive(Clone, Debug)]
pub(crate) enum LockVerb {
    Acquire { id: GrantId, holder: &'static str, retry: Option<Retry> },
    Renew(GrantId),
    Release(GrantId),
    ForceRelease,
}

/// An idempotency key and a number for the request. Requests with the same key and number are the same request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Retry {
    pub(crate) key: u8,
    pub(crate) request: u8,
}

impl Retry {
    /// The kind is part of the fingerprint, so requests of different kinds are never the same.
    fn once(self, kind: u8) -> Once {
        let key = self.idempotency_key();
        Once { caller: "anonymous".into(), key, fingerprint: [self.fingerprint(kind); 32] }
    }

    fn idempotency_key(self) -> IdempotencyKey {
        IdempotencyKey::new(&format!("k{}", self.key)).unwrap()
    }

    pub(crate) fn fingerprint(self, kind: u8) -> u8 {
        kind * 16 + self.request
    }
}

/// A condition in terms of the model.
#[derive(Clone, Copy, Debug)]
pub(crate) enum When {
    Always,
    Absent,
    Exists,
    /// The value is still the one that was current before this group.
    Unchanged,
    /// The value is this one, which may have been replaced since.
    Once(WriteId),
    /// The value is the text of this number.
    Is(i64),
    AtLeast(i64),
    AtMost(i64),
}

pub(crate) fn guards() -> Guards {
    let spec = |keys: &str, resource: Option<&str>, policy| GuardSpec {
        keys: keys.into(),
        resource: resource.map(str::to_owned),
        policy,
        engine: None,
    };
    Guards::new(vec![
        spec("a/*", Some("a"), Policy::default()),
        spec("strict", None, Policy { equal: Equal::Reject, max_jump: NonZeroU64::new(3), ..Policy::default() }),
        spec("required", None, Policy { claim: Claim::Required, ..Policy::default() }),
        spec("observed", None, Policy { mode: Mode::Observe, ..Policy::default() }),
    ])
    .unwrap()
}

pub(crate) fn key(name: &str) -> Key {
    Key::new(name).unwrap()
}

pub(crate) fn resource(name: &str) -> Resource {
    Resource::new(name).unwrap()
}

pub(crate) fn resource_of(name: &str) -> Resource {
    guards().of_key(&key(name)).unwrap().resource
}

/// A claim asks for all keys of its resource.
pub(crate) fn keys_of(name: &str) -> Vec<Key> {
    KEYS.iter().filter(|key| resource_of(key).as_str() == name).map(|name| key(name)).collect()
}

/// The body of a put, which identifies the put; a short one is a number.
pub(crate) fn body_of(id: WriteId, bytes: usize) -> Bytes {
    match bytes {
        0 => id.0.to_string().into(),
        bytes => format!("{}:{}", id.0, "v".repeat(bytes)).into(),
    }
}

impl Write {
    pub(crate) fn kind(&self) -> u8 {
        match self.shape {
            Shape::Single => 1,
            Shape::Transaction => 2,
        }
    }

    async fn send(&self, store: &Store, known: &Known) -> Ended {
        let once = self.retry.map(|retry| retry.once(self.kind()));
        let condition = |(name, when): &(&'static str, When)| (key(name), known.condition(name, *when));
        let presented = self.tokens.first().map(|(_, presented)| presented.clone());
        match (self.shape, &self.steps[..]) {
            (Shape::Single, [(name, Step::Put { id, bytes })]) => {
                let condition = self.conditions.first().map(condition).map_or(Condition::Always, |(_, when)| when);
                let (key, body) = (key(name), body_of(*id, *bytes));
                ended(store.put(Put { key, presented, condition, content_type: None, body, once }).await)
            }
            (Shape::Single, [(name, Step::Delete)]) => {
                let condition = self.conditions.first().map(condition).map_or(Condition::Always, |(_, when)| when);
                ended(store.delete(Delete { key: key(name), presented, condition, once }).await)
            }
            (Shape::Single, other) => unreachable!("a single {other:?}"),
            (Shape::Transaction, steps) => {
                let operation = |step: &Step| match step {
                    Step::Put { id, bytes } => Operation::Put { content_type: None, body: body_of(*id, *bytes) },
                    Step::Delete => Operation::Delete,
                    Step::Add { by, min, max, .. } => Operation::Add { by: *by, min: *min, max: *max },
                    Step::Get => Operation::Get,
                };
                let transaction = Transaction {
                    tokens: self.tokens.iter().map(|(name, given)| (resource(name), given.clone())).collect(),
                    conditions: self.conditions.iter().map(condition).collect(),
                    operations: steps.iter().map(|(name, step)| (key(name), operation(step))).collect(),
                    max_bytes: MAX_READ_BYTES,
                    body: Bytes::new(),
                    once,
                };
                ended(store.transact(transaction).await)
            }
        }
    }
}

impl Command {
    /// Sends the command to the store.
    pub(crate) async fn send(&self, store: &Store, known: &Known) -> Ended {
        match self {
            Command::Write(write) => write.send(store, known).await,
            Command::Claim { resource: name, presented } => {
                let (resource, presented, keys) = (resource(name), presented.clone(), keys_of(name));
                ended(store.claim(ClaimKeys { resource, presented, keys, max_bytes: MAX_READ_BYTES }).await)
            }
            Command::Lock { resource: name, verb } => verb.send(&resource(name), store, known).await,
            Command::Rotate { resource: name, from, issuer } => {
                ended(store.rotate(&resource(name), *from, issuer.clone()).await)
            }
            Command::RotateAll { from } => ended(store.rotate_all(*from).await),
            Command::Abandon { key } => {
                let retry = Retry { key: *key, request: 0 };
                ended(store.abandon("anonymous", &retry.idempotency_key()).await)
            }
        }
    }

    /// A lock is acquired by a separate task, and a read-only transaction is not queued. Their place in the order is
    /// known only if nothing runs beside them.
    pub(crate) fn stands_alone(&self) -> bool {
        match self {
            Command::Lock { verb: LockVerb::Acquire { .. }, .. } => true,
            Command::Write(Write { tokens, steps, retry, .. }) => {
                tokens.is_empty() && retry.is_none() && !steps.iter().any(|(_, step)| step.writes())
            }
            _ => false,
        }
    }
}

/// Leases outlast every history: nothing here depends on time.
const TTL: Duration = Duration::from_secs(3600);

impl LockVerb {
    pub(crate) const KIND: u8 = 3;

    async fn send(&self, resource: &Resource, store: &Store, known: &Known) -> Ended {
        match self {
            LockVerb::Acquire { holder, retry, .. } => {
                let once = retry.map(|retry| retry.once(LockVerb::KIND));
                let (resource, holder) = (resource.clone(), Holder::new(holder).unwrap());
                let caller = CallerId::default();
                ended(
                    store.acquire(AcquireLock { resource, holder, ttl: TTL, wait: Duration::ZERO, once, caller }).await,
                )
            }
            LockVerb::Renew(id) => ended(store.renew(resource, known.lease(*id), TTL).await),
            LockVerb::Release(id) => ended(store.release(resource, known.lease(*id)).await),
            LockVerb::ForceRelease => ended(store.force_release(resource).await),
        }
    }
}
