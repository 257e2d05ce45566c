//! The store: the one door to fences and data.

use std::sync::Arc;
use std::thread::JoinHandle;

use bytes::Bytes;
use fencepost_core::{
    Access, FenceState, Guards, Key, NameError, Presented, Reason, Refusal, Resource, Step, Verdict, decide,
};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};

use crate::command::{Action, Command, Condition, Failure, Outcome, Rejected};
use crate::engine::{Batch, Change, Commit, Engine, EngineError, Scan, Version};
use crate::fence_cache::FenceCache;
use crate::poison::Poison;
use crate::record::{self, FORMAT, Meta, RecordKey, Undecodable, Value};
use crate::sequencer::{BatchReport, Observer, Queued, Sequencer};

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

/// Why a store did not open.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The guards in the configuration map keys to other resources than before.
    #[error(
        "the guard mapping differs from the stored one: a key that moves to another resource would forget its fence.\n  \
         stored:     {stored}\n  configured: {configured}\n\
         Restore the old guards, or run `fencepost remap` with the new configuration: it starts a new generation, so every \
         lock holder must read the fence and acquire again"
    )]
    MappingChanged {
        /// What is stored.
        stored: String,
        /// What is configured.
        configured: String,
    },
    /// Written by a later version.
    #[error("the store has format {found}, and this version of fencepost reads up to {known}: use a newer fencepost")]
    NewerFormat {
        /// Its format.
        found: u32,
        /// Ours.
        known: u32,
    },
    /// The engine failed.
    #[error("the store cannot be opened: {0}")]
    Engine(String),
}

impl From<EngineError> for OpenError {
    fn from(error: EngineError) -> OpenError {
        OpenError::Engine(error.to_string())
    }
}

impl From<Undecodable> for OpenError {
    fn from(error: Undecodable) -> OpenError {
        OpenError::Engine(error.to_string())
    }
}

/// A read that failed; nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The engine, or what it holds, cannot be read.
    #[error("{0}")]
    Failed(String),
    /// Another process changed the stored mapping, so this one no longer knows what protects what.
    #[error("the stored guard mapping was changed by another process")]
    MappingChanged,
}

impl From<EngineError> for ReadError {
    fn from(error: EngineError) -> ReadError {
        ReadError::Failed(error.to_string())
    }
}

impl From<Undecodable> for ReadError {
    fn from(error: Undecodable) -> ReadError {
        ReadError::Failed(error.to_string())
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

/// What a key holds, and the fence that protects it, as of one instant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    /// What protects the key.
    pub resource: Resource,
    /// Its state.
    pub state: FenceState,
    /// What the key holds.
    pub value: Option<(Version, Value)>,
    /// A token was given, and it is above the fence: nothing protects what was read.
    pub unclaimed: bool,
    /// Why the read would have been refused, had the guard not merely observed.
    pub observed: Option<Reason>,
}

/// A run of entries in order of name.
#[derive(Clone, Debug)]
pub struct Page<T> {
    /// The entries.
    pub entries: Vec<T>,
    /// Where the next page begins, if there is one.
    pub next: Option<String>,
}

/// An observer that looks away.
pub struct NoObserver;

impl Observer for NoObserver {
    fn batch(&self, _: BatchReport) {}
}

/// Fences and data, durably.
pub struct Store {
    engine: Arc<dyn Engine>,
    guards: Guards,
    queue: mpsc::Sender<Queued>,
    cache: Arc<FenceCache>,
    poison: Poison,
    committer: JoinHandle<()>,
    store_id: [u8; 16],
    mapping_hash: [u8; 32],
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
        let (reply, answer) = oneshot::channel();
        self.queue.try_send((command, reply)).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => Rejected::Overloaded { limit: self.queue.max_capacity() },
            mpsc::error::TrySendError::Closed(_) => {
                Rejected::Poisoned(self.poison.reason().unwrap_or("the store is closed").to_owned())
            }
        })?;
        // No answer means the committer died with the command in hand.
        answer.await.unwrap_or_else(|_| Err(Failure::Unknown("the committer stopped before it answered".into())))
    }

    /// Reads a key as of one instant. With a token the read is checked, and never raises.
    pub async fn read(
        &self,
        key: &Key,
        presented: Option<&Presented>,
    ) -> Result<Result<Result<Read, Box<Refusal>>, WrongResource>, ReadError> {
        let guarded = match self.guards.of_key(key) {
            Ok(guarded) => guarded,
            Err(error) => return Ok(Err(error.into())),
        };
        let keys = [RecordKey::meta(), RecordKey::fence(&guarded.resource), RecordKey::value(key)];
        let mut records = self.engine.load(&keys).await?.records.into_iter();
        let (meta, fence, value) = (records.next().flatten(), records.next().flatten(), records.next().flatten());
        let state = state_of(self.base_generation(meta.as_ref())?, fence.as_ref())?;
        let value =
            value.map(|record| Value::decode(&record.bytes).map(|value| (record.version, value))).transpose()?;
        let mut read = Read { resource: guarded.resource, state, value, unclaimed: false, observed: None };
        if presented.is_some() {
            match decide(&read.state, presented, Access::CheckedRead, &guarded.policy) {
                Verdict::Admit(step) => read.unclaimed = step == Step::Raise,
                Verdict::Observe(reason) => read.observed = Some(reason),
                Verdict::Refuse(reason) => {
                    let refusal =
                        Refusal { reason, resource: read.resource, presented: presented.cloned(), found: read.state };
                    return Ok(Ok(Err(Box::new(refusal))));
                }
            }
        }
        Ok(Ok(Ok(read)))
    }

    /// A resource's state, also if it was never seen.
    pub async fn fence(&self, resource: &Resource) -> Result<Result<FenceState, WrongResource>, ReadError> {
        match self.guards.of_resource(resource) {
            Ok(Ok(_)) => {}
            Ok(Err(found)) => return Ok(Err(WrongResource::Belongs { name: resource.to_string(), resource: found })),
            Err(error) => return Ok(Err(error.into())),
        }
        let loaded = self.engine.load(&[RecordKey::meta(), RecordKey::fence(resource)]).await?;
        let base = self.base_generation(loaded.records.first().and_then(Option::as_ref))?;
        Ok(Ok(state_of(base, loaded.records.get(1).and_then(Option::as_ref))?))
    }

    /// Fences in order of name.
    pub async fn fences(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Page<(Resource, FenceState)>, ReadError> {
        let loaded = self.engine.load(&[RecordKey::meta()]).await?;
        let base = self.base_generation(loaded.records.first().and_then(Option::as_ref))?;
        self.page(record::fence_prefix, prefix, after, limit, |name, record| {
            let resource = Resource::new(name).map_err(|error| ReadError::Failed(error.to_string()))?;
            Ok((resource, state_of(base, Some(record))?))
        })
        .await
    }

    /// Keys that have a value, in order of name.
    pub async fn keys(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Page<(Key, Version, Value)>, ReadError> {
        self.page(record::value_prefix, prefix, after, limit, |name, record| {
            let key = Key::new(name).map_err(|error| ReadError::Failed(error.to_string()))?;
            Ok((key, record.version, Value::decode(&record.bytes)?))
        })
        .await
    }

    fn base_generation(&self, meta: Option<&crate::engine::Record>) -> Result<u32, ReadError> {
        let record = meta.ok_or_else(|| ReadError::Failed("the store's own record is missing".into()))?;
        let meta = Meta::decode(&record.bytes)?;
        if meta.mapping_hash == self.mapping_hash { Ok(meta.base_generation) } else { Err(ReadError::MappingChanged) }
    }

    async fn page<T>(
        &self,
        under: fn(&str) -> Vec<u8>,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
        entry: impl Fn(&str, &crate::engine::Record) -> Result<T, ReadError>,
    ) -> Result<Page<T>, ReadError> {
        let scan = Scan {
            from: under(after.unwrap_or(prefix)),
            inclusive: after.is_none(),
            prefix: under(prefix),
            limit,
            max_bytes: MAX_PAGE_BYTES,
        };
        let scanned = self.engine.scan(scan).await?;
        let mut page = Page { entries: Vec::with_capacity(scanned.records.len()), next: None };
        for (key, record) in &scanned.records {
            page.entries.push(entry(record::name_of(key)?, record)?);
        }
        if scanned.more
            && let Some((last, _)) = scanned.records.last()
        {
            page.next = Some(record::name_of(last)?.to_owned());
        }
        Ok(page)
    }
}

/// The most bytes that one page of a list reads.
const MAX_PAGE_BYTES: usize = 8 << 20;

fn state_of(base: u32, fence: Option<&crate::engine::Record>) -> Result<FenceState, Undecodable> {
    let stored = fence.map(|record| record::decode_fence(&record.bytes)).transpose()?;
    Ok(FenceState::under(stored.as_ref(), base).into_owned())
}

/// Reads the store's own record, and makes it on the first day.
async fn open_meta(engine: &dyn Engine, guards: &Guards) -> Result<Meta, OpenError> {
    let mapping = guards.mapping();
    let loaded = engine.load(&[RecordKey::meta()]).await?;
    if let Some(record) = loaded.records.first().and_then(Option::as_ref) {
        let meta = read_meta(&record.bytes)?;
        if meta.mapping_hash != mapping.hash {
            let stored = fencepost_core::describe_mapping(&meta.mapping_text);
            return Err(OpenError::MappingChanged { stored, configured: mapping.to_string() });
        }
        return Ok(meta);
    }
    let mut store_id = [0; 16];
    getrandom::fill(&mut store_id).map_err(|error| OpenError::Engine(error.to_string()))?;
    let meta =
        Meta { format: FORMAT, store_id, base_generation: 0, mapping_hash: mapping.hash, mapping_text: mapping.text };
    let batch = Batch {
        as_of: loaded.as_of,
        compare: vec![(RecordKey::meta(), None)],
        changes: vec![(RecordKey::meta(), Change::Put(meta.encode()))],
    };
    match engine.commit(batch).await? {
        Commit::Done { .. } => Ok(meta),
        Commit::Conflict => Err(OpenError::Engine("another process is making this store; try again".into())),
        Commit::NoSpace { free, floor } => {
            Err(OpenError::Engine(format!("{free} bytes are free, and {floor} must stay free (free_space_floor)")))
        }
        Commit::Unavailable(why) => Err(OpenError::Engine(why)),
    }
}

/// Decodes the store's own record and refuses a newer format.
pub(crate) fn read_meta(bytes: &Bytes) -> Result<Meta, OpenError> {
    let meta = Meta::decode(bytes)?;
    if meta.format > FORMAT {
        return Err(OpenError::NewerFormat { found: meta.format, known: FORMAT });
    }
    Ok(meta)
}
