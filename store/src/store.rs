//! The store: the single entry point to fences and data.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use fencepost_core::{Access, Guarded, Guards, Issuer, Key, NameError, Presented, Resource, SameMapping};
use parking_lot::RwLock;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, mpsc};

use crate::batch_size::Bounds;
use crate::command::{Action, Condition, Judged, NewValue, Once, Operation, Step, Write, WriteOne};
use crate::dispatcher::Dispatcher;
use crate::engine::{Engine, Ownership, Wanted};
use crate::entry::Entry;
use crate::failure::{Failure, Rejected};
use crate::fence_cache::FenceCache;
use crate::forgetter::{self, Forgetter};
use crate::known_base::KnownBase;
use crate::known_records::KnownRecords;
use crate::lane::Lane;
use crate::lock_queue::Locks;
use crate::lock_watch::LockWatch;
use crate::outcome::{TransactOutcome, WriteOutcome};
use crate::own_record::{OpenError, open_meta};
use crate::poison::Poison;
use crate::record::{Meta, RecordKey};
use crate::sequencer::{BatchReport, Observer, Sequencer, current_meta};

/// Maximum number of concurrent list reads; each uses up to a page of memory.
const MAX_SCANS: usize = 4;

/// Maximum number of concurrent transactions without tokens or writes; each uses up to the memory of its request and
/// its answer.
const MAX_VIEWS: usize = 8;

/// How long a probe of the engine waits for an answer.
const PROBE_PATIENCE: Duration = Duration::from_secs(2);

/// The most bytes that a transaction with an idempotency key may read: its answer is stored for retries.
pub const MAX_RECORDED_BYTES: usize = 64 << 10;

/// Bounds of a store's memory and work.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// Capacity of the queue of writes; one more is rejected.
    pub queue: usize,
    /// Maximum number of commands that share a commit.
    pub batch_commands: usize,
    /// A batch takes no further command once its bodies have this many bytes.
    pub batch_bytes: usize,
    /// A batch takes no further command once it has this many values to read for conditions and claims.
    pub batch_reads: usize,
    /// A batch reads no further values once they have this many bytes, unless a single command needs more.
    pub batch_read_bytes: usize,
    /// Number of fences cached to refuse stale writers quickly.
    pub cached_fences: usize,
    /// Bytes for the records of fences that commits are judged on without a load. Used with a shared engine only.
    pub known_bytes: usize,
    /// How long outcomes are kept for retries and queries.
    pub outcome_retention: Duration,
    /// How much longer than its TTL a lease is respected when it is not renewed.
    pub lock_delay: Duration,
}

impl Default for StoreOptions {
    fn default() -> StoreOptions {
        StoreOptions {
            queue: 4096,
            batch_commands: 1024,
            batch_bytes: 8 << 20,
            batch_reads: 64,
            batch_read_bytes: 8 << 20,
            cached_fences: 65_536,
            known_bytes: 64 << 20,
            outcome_retention: Duration::from_secs(24 * 3600),
            lock_delay: Duration::ZERO,
        }
    }
}

/// A name that cannot be used where a resource is expected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WrongResource {
    /// The name is a key of this resource.
    #[error("`{name}` is not a resource of its own: it is protected by `{resource}`")]
    Belongs {
        /// The name in the request.
        name: String,
        /// The resource that protects it.
        resource: Resource,
    },
    /// A token was given for a resource that no key of the transaction belongs to.
    #[error("there is a token for `{0}`, but no key of the transaction belongs to it")]
    Unused(Resource),
    /// The resource's name would not be valid.
    #[error(transparent)]
    Name(#[from] NameError),
}

/// New rules came with a different mapping. The mapping is stored state and cannot be replaced this way.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the guard mapping differs from the stored one, and a reload changes rules only.\n  stored:     {stored}\n  \
     configured: {configured}\nRestore the old `keys` and `resource` lines, or stop the gateway and run `fencepost remap`"
)]
pub struct MappingDiffers {
    stored: String,
    configured: String,
}

/// Whether the store accepts writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// Writes are accepted.
    Ready,
    /// Writes are rejected until restart (G8).
    Poisoned(String),
}

/// A request to write a value.
#[derive(Clone, Debug)]
pub struct Put {
    /// The key to write.
    pub key: Key,
    /// The token, with its holder and issuer.
    pub presented: Option<Presented>,
    /// Must hold for the write to apply.
    pub condition: Condition,
    /// The value's media type.
    pub content_type: Option<String>,
    /// The value.
    pub body: Bytes,
    /// Makes a retry safe.
    pub once: Option<Once>,
}

/// A request to remove a value. The fence stays.
#[derive(Clone, Debug)]
pub struct Delete {
    /// The key to remove.
    pub key: Key,
    /// The token, with its holder and issuer.
    pub presented: Option<Presented>,
    /// Must hold for the removal to apply.
    pub condition: Condition,
    /// Makes a retry safe.
    pub once: Option<Once>,
}

/// A request to raise a fence and read keys, in one step.
#[derive(Clone, Debug)]
pub struct ClaimKeys {
    /// The resource to claim.
    pub resource: Resource,
    /// The token, with its holder and issuer.
    pub presented: Option<Presented>,
    /// The keys to read at the same instant.
    pub keys: Vec<Key>,
    /// The most bytes that the values may have together.
    pub max_bytes: usize,
}

/// Conditions, then operations, over any number of keys and resources: all or nothing.
#[derive(Clone, Debug)]
pub struct Transaction {
    /// The token presented to each resource.
    pub tokens: Vec<(Resource, Presented)>,
    /// All of these must hold.
    pub conditions: Vec<(Key, Condition)>,
    /// Each key at most once.
    pub operations: Vec<(Key, Operation)>,
    /// The most bytes that `Get` operations may return together.
    pub max_bytes: usize,
    /// The request body that the transaction was parsed from. Kept until the transaction ends, so that memory
    /// accounting includes it that long.
    pub body: Bytes,
    /// Makes a retry safe.
    pub once: Option<Once>,
}

/// An observer that ignores every report.
pub struct NoObserver;

impl Observer for NoObserver {
    fn batch(&self, _: BatchReport) {}
}

/// Fences and data, stored durably.
pub struct Store {
    pub(crate) engine: Arc<dyn Engine>,
    guards: RwLock<Arc<Guards>>,
    pub(crate) entry: Entry,
    pub(crate) locks: Arc<Locks>,
    committer: JoinHandle<()>,
    /// How many commands were taken from the queue and are in no batch yet.
    pending: Arc<AtomicUsize>,
    forgetter: Forgetter,
    /// On a shared engine.
    lock_watch: Option<LockWatch>,
    meta: Meta,
    pub(crate) base: KnownBase,
    pub(crate) scans: Semaphore,
    pub(crate) views: Semaphore,
}

impl Store {
    /// Opens a store over an engine. Must be called on a Tokio runtime, which also drives the engine.
    pub async fn open(
        engine: Arc<dyn Engine>,
        guards: Guards,
        options: StoreOptions,
        observer: Arc<dyn Observer>,
    ) -> Result<Store, OpenError> {
        let meta = open_meta(engine.as_ref(), &guards).await?;
        let (queue, receiver) = mpsc::channel(options.queue.max(1));
        let cache = Arc::new(FenceCache::new(options.cached_fences));
        let is_shared = engine.ownership() == Ownership::Shared;
        let entry = Entry { queue, cache, poison: Poison::default(), under_way: Arc::default(), is_shared };
        let locks = Arc::new(Locks::new(options.lock_delay, engine.ownership()));
        let mut index_id = [0; 8];
        getrandom::fill(&mut index_id).map_err(|error| OpenError::Engine(error.to_string()))?;
        let base = KnownBase::new(meta.base_generation);
        let limits = engine.limits();
        let (lanes, known) = match engine.ownership() {
            Ownership::Exclusive => (Vec::new(), None),
            Ownership::Shared => {
                let lanes = (0..limits.lanes.max(1)).map(|_| Lane::new()).collect::<Result<_, _>>();
                let known = RefCell::new(KnownRecords::new(options.known_bytes));
                (lanes.map_err(|error| OpenError::Engine(error.to_string()))?, Some(known))
            }
        };
        let sequencer = Sequencer {
            engine: engine.clone(),
            base: base.clone(),
            cache: entry.cache.clone(),
            poison: entry.poison.clone(),
            locks: locks.clone(),
            observer,
            mapping_hash: meta.mapping_hash,
            index_id: AtomicU64::new(u64::from_le_bytes(index_id)),
            max_read_bytes: options.batch_read_bytes,
            known,
        };
        let bounds = Bounds {
            commands: options.batch_commands.max(1),
            bytes: options.batch_bytes.max(1),
            reads: options.batch_reads.max(1),
            limits,
        };
        let pending = Arc::<AtomicUsize>::default();
        let dispatcher = Dispatcher { sequencer, bounds, lanes, pending: pending.clone() };
        let committer = dispatcher
            .start(entry.poison.clone(), &Handle::current(), receiver)
            .map_err(|error| OpenError::Engine(error.to_string()))?;
        let forgetter = forgetter::start(&engine, &entry, options.outcome_retention);
        let lock_watch = match engine.ownership() {
            Ownership::Exclusive => None,
            Ownership::Shared => Some(LockWatch::start(&engine, &locks)),
        };
        Ok(Store {
            engine,
            guards: RwLock::new(Arc::new(guards)),
            entry,
            locks,
            committer,
            pending,
            forgetter,
            lock_watch,
            meta,
            base,
            scans: Semaphore::new(MAX_SCANS),
            views: Semaphore::new(MAX_VIEWS),
        })
    }

    /// Completes the queued commands, then closes the engine.
    pub async fn close(self) {
        let Store { entry, committer, engine, forgetter, lock_watch, .. } = self;
        forgetter.stop().await;
        if let Some(lock_watch) = lock_watch {
            lock_watch.stop().await;
        }
        drop(entry);
        // A panic of the thread has already been logged and has poisoned the store.
        let _ = tokio::task::spawn_blocking(move || {
            let _ = committer.join();
            drop(engine);
        })
        .await;
    }

    /// Identifies this store; chosen at random when the store was created.
    pub fn store_id(&self) -> [u8; 16] {
        self.meta.store_id
    }

    /// The issuer of tokens that the built-in lock service numbers.
    pub fn issuer(&self) -> Issuer {
        self.meta.issuer()
    }

    pub(crate) fn mapping_hash(&self) -> [u8; 32] {
        self.meta.mapping_hash
    }

    /// The current guards: mapping and rules.
    pub fn guards(&self) -> Arc<Guards> {
        self.guards.read().clone()
    }

    /// Replaces the rules. The mapping is stored state and must be the same; if it is not, nothing changes.
    pub fn set_rules(&self, guards: Guards) -> Result<(), MappingDiffers> {
        self.check_mapping(&guards)?;
        *self.guards.write() = Arc::new(guards);
        Ok(())
    }

    /// Fails if the mapping of these guards is not the stored one.
    pub(crate) fn check_mapping(&self, guards: &Guards) -> Result<(), MappingDiffers> {
        // A hash in the old form may remain if it could not be rewritten.
        match guards.mapping().compare(&self.meta.mapping_hash) {
            SameMapping::Yes | SameMapping::OldForm => Ok(()),
            SameMapping::No | SameMapping::Ambiguous => {
                let stored = fencepost_core::describe_mapping(&self.meta.mapping_text);
                Err(MappingDiffers { stored, configured: guards.mapping().to_string() })
            }
        }
    }

    /// The rules of a resource. Fails if the name is not a resource.
    pub(crate) fn resource(&self, resource: &Resource) -> Result<Guarded, WrongResource> {
        match self.guards().of_resource(resource)? {
            Ok(guarded) => Ok(guarded),
            Err(found) => Err(WrongResource::Belongs { name: resource.to_string(), resource: found }),
        }
    }

    /// Whether the store accepts writes.
    pub fn health(&self) -> Health {
        if self.entry.poison.reason().is_none()
            && let Some(fault) = self.engine.fault()
        {
            self.entry.poison.set(fault);
        }
        self.entry.poison.reason().map_or(Health::Ready, |reason| Health::Poisoned(reason.to_owned()))
    }

    /// Whether the engine answers, where commits are made, and has the mapping of this gateway. One in this process always
    /// does.
    pub async fn reach_engine(&self) -> Result<(), Rejected> {
        if self.engine.ownership() == Ownership::Exclusive {
            return Ok(());
        }
        let probe = [Wanted::bytes(RecordKey::meta())];
        match tokio::time::timeout(PROBE_PATIENCE, self.engine.load_to_change(&probe, 0)).await {
            Ok(Ok(loaded)) => current_meta(&loaded, &self.mapping_hash()).map(|_| ()),
            Ok(Err(error)) => Err(Rejected::Unavailable(error.to_string())),
            Err(_) => Err(Rejected::Unavailable(format!("no answer within {} s", PROBE_PATIENCE.as_secs()))),
        }
    }

    /// Number of queued writes.
    pub fn queue_depth(&self) -> usize {
        self.entry.queue.max_capacity() - self.entry.queue.capacity() + self.pending.load(Ordering::Relaxed)
    }

    /// Writes a value, if the fence admits it.
    pub async fn put(&self, put: Put) -> Result<WriteOutcome, Failure> {
        let Put { key, presented, condition, content_type, body, once } = put;
        let value = Some(NewValue { content_type, body });
        self.write_one(presented, once, WriteOne { key, condition, value }).await
    }

    /// Removes a value, if the fence admits it.
    pub async fn delete(&self, delete: Delete) -> Result<WriteOutcome, Failure> {
        let Delete { key, presented, condition, once } = delete;
        self.write_one(presented, once, WriteOne { key, condition, value: None }).await
    }

    async fn write_one(
        &self,
        presented: Option<Presented>,
        once: Option<Once>,
        write: WriteOne,
    ) -> Result<WriteOutcome, Failure> {
        let guarded = self.guards().of_key(&write.key)?;
        let judged = vec![Judged { guarded, presented, access: Access::Write }];
        if let Some(refusal) = self.entry.known_refusal(&judged, once.as_ref())? {
            return Ok(WriteOutcome::Refused(Box::new(refusal)));
        }
        self.entry.submit(judged, once, |reply| Action::WriteOne(write, reply)).await
    }

    /// Applies everything or nothing, if every fence admits it. A transaction that has no writes, no tokens and no
    /// idempotency key is a read as of one instant, and delays no writer.
    pub async fn transact(&self, transaction: Transaction) -> Result<TransactOutcome, Failure> {
        let (judged, once, write) = self.plan(transaction)?;
        if judged.is_empty() && once.is_none() && write.only_reads() {
            return self.view(write).await;
        }
        if let Some(refusal) = self.entry.known_refusal(&judged, once.as_ref())? {
            return Ok(TransactOutcome::Refused(vec![refusal]));
        }
        self.entry.submit(judged, once, |reply| Action::Write(write, reply)).await
    }

    /// Determines which resources a transaction is judged on: those it writes, and those it presents a token for.
    fn plan(&self, transaction: Transaction) -> Result<(Vec<Judged>, Option<Once>, Write), WrongResource> {
        let Transaction { tokens, conditions, operations, max_bytes, body, once } = transaction;
        let guards = self.guards();
        // The answer is stored, and read again with every retry.
        let max_bytes = if once.is_some() { max_bytes.min(MAX_RECORDED_BYTES) } else { max_bytes };
        let mut judged = Vec::with_capacity(tokens.len());
        for (resource, presented) in tokens {
            let guarded = self.resource(&resource)?;
            judged.push(Judged { guarded, presented: Some(presented), access: Access::Claim });
        }
        let mut named = vec![false; judged.len()];
        for (key, _) in &conditions {
            let resource = guards.of_key(key)?.resource;
            if let Some(at) = judged.iter().position(|judged| judged.guarded.resource == resource) {
                named[at] = true;
            }
        }
        let mut steps = Vec::with_capacity(operations.len());
        for (key, operation) in operations {
            let guarded = guards.of_key(&key)?;
            let mut at = judged.iter().position(|judged| judged.guarded.resource == guarded.resource);
            if at.is_none() && operation.writes() {
                judged.push(Judged { guarded, presented: None, access: Access::Write });
                named.push(true);
                at = Some(judged.len() - 1);
            }
            if let Some(at) = at {
                named[at] = true;
                if operation.writes() {
                    judged[at].access = Access::Write;
                }
            }
            steps.push(Step { key, operation, judged: at });
        }
        if let Some((unused, _)) = judged.iter().zip(&named).find(|(_, named)| !**named) {
            return Err(WrongResource::Unused(unused.guarded.resource.clone()));
        }
        Ok((judged, once, Write { conditions, operations: steps, max_bytes, _body: body }))
    }
}
