//! The store: the one door to fences and data.

use std::sync::Arc;
use std::thread::JoinHandle;

use bytes::Bytes;
use fencepost_core::{Guards, Key, Mode, NameError, Presented, Resource};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, mpsc, oneshot};

use crate::command::{Action, Command, Condition, Failure, Outcome, Rejected};
use crate::engine::Engine;
use crate::fence_cache::FenceCache;
use crate::opening::{OpenError, open_meta};
use crate::poison::Poison;
use crate::sequencer::{BatchReport, Observer, Queued, Sequencer};

/// Lists that may read at once; each takes up to a page of memory.
const MAX_SCANS: usize = 4;

/// Bounds of a store's memory and work.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// How many writes may wait; one more is rejected.
    pub queue: usize,
    /// How many commands share a commit at the most.
    pub batch_commands: usize,
    /// A batch takes no further command once its bodies have this many bytes.
    pub batch_bytes: usize,
    /// A batch takes no further command once this many values are to be read for conditions and claims.
    pub batch_reads: usize,
    /// How many fences are kept to refuse stale writers quickly.
    pub cached_fences: usize,
}

impl Default for StoreOptions {
    fn default() -> StoreOptions {
        StoreOptions { queue: 4096, batch_commands: 1024, batch_bytes: 8 << 20, batch_reads: 64, cached_fences: 65_536 }
    }
}

/// A name that cannot be used where a resource is expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WrongResource {
    /// The name is a key of this resource.
    Belongs {
        /// What was named.
        name: String,
        /// What protects it.
        resource: Resource,
    },
    /// The resource's name would break the rules.
    Name(NameError),
}

impl From<NameError> for WrongResource {
    fn from(error: NameError) -> WrongResource {
        WrongResource::Name(error)
    }
}

/// Can the store take writes?
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// Yes.
    Ready,
    /// Not until restart (G8).
    Poisoned(String),
}

/// A write of a value.
#[derive(Clone, Debug)]
pub struct Put {
    /// Which key.
    pub key: Key,
    /// By which token.
    pub presented: Option<Presented>,
    /// Only if this holds.
    pub condition: Condition,
    /// The value's media type.
    pub content_type: Option<String>,
    /// The value.
    pub body: Bytes,
}

/// A removal of a value. The fence stays.
#[derive(Clone, Debug)]
pub struct Delete {
    /// Which key.
    pub key: Key,
    /// By which token.
    pub presented: Option<Presented>,
    /// Only if this holds.
    pub condition: Condition,
}

/// Raise and read, in one step.
#[derive(Clone, Debug)]
pub struct ClaimKeys {
    /// Which resource.
    pub resource: Resource,
    /// By which token.
    pub presented: Option<Presented>,
    /// What to read in the same instant.
    pub keys: Vec<Key>,
    /// The most bytes the values may have together.
    pub max_bytes: usize,
}

/// An observer that looks away.
pub struct NoObserver;

impl Observer for NoObserver {
    fn batch(&self, _: BatchReport) {}
}

/// Fences and data, durably.
pub struct Store {
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) guards: Guards,
    queue: mpsc::Sender<Queued>,
    cache: Arc<FenceCache>,
    poison: Poison,
    committer: JoinHandle<()>,
    store_id: [u8; 16],
    pub(crate) mapping_hash: [u8; 32],
    pub(crate) scans: Semaphore,
}

impl Store {
    /// Opens a store over an engine. Must be called on a tokio runtime, which also serves the engine.
    pub async fn open(
        engine: Arc<dyn Engine>,
        guards: Guards,
        options: StoreOptions,
        observer: Arc<dyn Observer>,
    ) -> Result<Store, OpenError> {
        let meta = open_meta(engine.as_ref(), &guards).await?;
        let (queue, receiver) = mpsc::channel(options.queue.max(1));
        let cache = Arc::new(FenceCache::new(options.cached_fences));
        let poison = Poison::default();
        let sequencer = Sequencer {
            engine: engine.clone(),
            cache: cache.clone(),
            poison: poison.clone(),
            observer,
            mapping_hash: meta.mapping_hash,
            max_commands: options.batch_commands.max(1),
            max_bytes: options.batch_bytes.max(1),
            max_reads: options.batch_reads.max(1),
        };
        let committer =
            sequencer.start(&Handle::current(), receiver).map_err(|error| OpenError::Engine(error.to_string()))?;
        Ok(Store {
            engine,
            guards,
            queue,
            cache,
            poison,
            committer,
            store_id: meta.store_id,
            mapping_hash: meta.mapping_hash,
            scans: Semaphore::new(MAX_SCANS),
        })
    }

    /// Finishes what is queued, then closes the engine.
    pub async fn close(self) {
        let Store { queue, committer, engine, .. } = self;
        drop(queue);
        // A panic of the thread has already poisoned and been logged.
        let _ = tokio::task::spawn_blocking(move || {
            let _ = committer.join();
            drop(engine);
        })
        .await;
    }

    /// Identifies this store; chosen at random when it was made.
    pub fn store_id(&self) -> [u8; 16] {
        self.store_id
    }

    /// Can it take writes?
    pub fn health(&self) -> Health {
        if self.poison.reason().is_none()
            && let Some(fault) = self.engine.fault()
        {
            self.poison.set(fault);
        }
        self.poison.reason().map_or(Health::Ready, |reason| Health::Poisoned(reason.to_owned()))
    }

    /// How many writes wait now.
    pub fn queue_depth(&self) -> usize {
        self.queue.max_capacity() - self.queue.capacity()
    }

    /// Writes a value, if the fence admits it.
    pub async fn put(&self, put: Put) -> Result<Result<Outcome, WrongResource>, Failure> {
        let guarded = match self.guards.of_key(&put.key) {
            Ok(guarded) => guarded,
            Err(error) => return Ok(Err(error.into())),
        };
        let Put { key, presented, condition, content_type, body } = put;
        self.submit(Command { guarded, presented, action: Action::Put { key, condition, content_type, body } })
            .await
            .map(Ok)
    }

    /// Removes a value, if the fence admits it.
    pub async fn delete(&self, delete: Delete) -> Result<Result<Outcome, WrongResource>, Failure> {
        let guarded = match self.guards.of_key(&delete.key) {
            Ok(guarded) => guarded,
            Err(error) => return Ok(Err(error.into())),
        };
        let Delete { key, presented, condition } = delete;
        self.submit(Command { guarded, presented, action: Action::Delete { key, condition } }).await.map(Ok)
    }

    /// Raises the fence and reads, in one durable step.
    pub async fn claim(&self, claim: ClaimKeys) -> Result<Result<Outcome, WrongResource>, Failure> {
        let guarded = match self.guards.of_resource(&claim.resource) {
            Ok(Ok(guarded)) => guarded,
            Ok(Err(resource)) => {
                return Ok(Err(WrongResource::Belongs { name: claim.resource.to_string(), resource }));
            }
            Err(error) => return Ok(Err(error.into())),
        };
        for key in &claim.keys {
            match self.guards.of_key(key) {
                Ok(found) if found.resource == claim.resource => {}
                Ok(found) => {
                    return Ok(Err(WrongResource::Belongs { name: key.to_string(), resource: found.resource }));
                }
                Err(error) => return Ok(Err(error.into())),
            }
        }
        let ClaimKeys { presented, keys, max_bytes, .. } = claim;
        self.submit(Command { guarded, presented, action: Action::Claim { keys, max_bytes } }).await.map(Ok)
    }

    async fn submit(&self, command: Command) -> Result<Outcome, Failure> {
        if let Some(reason) = self.poison.reason() {
            return Err(Rejected::Poisoned(reason.to_owned()).into());
        }
        let (resource, policy) = (&command.guarded.resource, &command.guarded.policy);
        if let Some(refusal) = self.cache.refuse(resource, command.presented.as_ref(), command.access(), policy) {
            return Ok(Outcome::Refused(Box::new(refusal)));
        }
        let observed = (policy.mode == Mode::Observe).then(|| (resource.clone(), command.presented.clone()));
        let (reply, answer) = oneshot::channel();
        self.queue.try_send((command, reply)).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => Rejected::Overloaded { limit: self.queue.max_capacity() },
            mpsc::error::TrySendError::Closed(_) => {
                Rejected::Poisoned(self.poison.reason().unwrap_or("the store is closed").to_owned())
            }
        })?;
        // No answer means the committer died with the command in hand.
        let outcome =
            answer.await.unwrap_or_else(|_| Err(Failure::Unknown("the committer stopped before it answered".into())));
        if let (Some((resource, presented)), Ok(outcome)) = (observed, &outcome) {
            record_observed(&resource, presented.as_ref(), outcome);
        }
        outcome
    }
}

/// Observe mode: writes down who would have been refused, so that a roll-out can find them.
fn record_observed(resource: &Resource, presented: Option<&Presented>, outcome: &Outcome) {
    let (reason, fence) = match outcome {
        Outcome::Applied(applied) => (applied.observed, applied.fence),
        Outcome::Claimed(claimed) => (claimed.observed, claimed.state.token()),
        Outcome::Refused(_) | Outcome::ConditionFailed { .. } | Outcome::TooLarge { .. } => return,
    };
    if let Some(reason) = reason {
        let shown = |text: Option<String>| text.unwrap_or_else(|| "none".to_owned());
        tracing::info!(
            reason = reason.as_str(),
            %resource,
            presented = shown(presented.map(|presented| presented.token.to_string())),
            holder = shown(presented.and_then(|presented| presented.holder.as_ref()).map(ToString::to_string)),
            fence = shown(fence.map(|fence| fence.to_string())),
            "observed: would be refused"
        );
    }
}
