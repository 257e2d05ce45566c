//! Reads: committed records as of one instant, without the sequencer.

use bytes::Bytes;
use fencepost_core::{
    Access, FenceState, Guarded, Holder, IdempotencyKey, Key, NameError, Presented, Reason, Refusal, Resource, Step,
    Timestamp, Token, Verdict, decide,
};

use crate::command::{Action, Write};
use crate::engine::{EngineError, Ownership, Record, Scan, Version, Wanted};
use crate::outcome::{FinalOutcome, Held};
use crate::record::{self, Lease, LockRecord, Meta, OutcomeKey, RecordKey, Recorded, Undecodable, Value};
use crate::store::{Store, WrongResource};
use crate::unsettled::Unsettled;

/// A read that failed; nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The engine failed, or a record cannot be decoded.
    #[error("{0}")]
    Failed(String),
    /// The server that has the records cannot be read at the moment.
    #[error("the store is unavailable: {0}")]
    Unreachable(String),
    /// Another process changed the stored mapping, so this one no longer knows which resource protects which key.
    #[error("the stored guard mapping was changed by another process")]
    MappingChanged,
    /// A name cannot be used where a resource is expected.
    #[error(transparent)]
    WrongResource(#[from] WrongResource),
}

impl From<NameError> for ReadError {
    fn from(error: NameError) -> ReadError {
        WrongResource::from(error).into()
    }
}

impl From<Undecodable> for ReadError {
    fn from(error: Undecodable) -> ReadError {
        ReadError::Failed(error.to_string())
    }
}

/// A key's value and the fence that protects it, as of one instant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    /// The resource that protects the key.
    pub resource: Resource,
    /// The resource's state.
    pub state: FenceState,
    /// The key's version and value.
    pub value: Option<(Version, Value)>,
    /// The presented token is above the fence, so the fence does not yet protect what was read.
    pub unclaimed: bool,
    /// Why the read would have been refused if the guard did not merely observe.
    pub observed: Option<Reason>,
}

/// A key's value without its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyInfo {
    /// The key's name.
    pub key: Key,
    /// The value's version.
    pub version: Version,
    /// The token of the write that made it.
    pub token: Option<Token>,
    /// The value's media type.
    pub content_type: Option<String>,
    /// The value's size in bytes.
    pub size: u64,
}

/// A lock that is held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockInfo {
    /// The lock's resource.
    pub resource: Resource,
    /// The holder of the lock.
    pub holder: Holder,
    /// The token of the grant.
    pub token: Token,
    /// How long the lease lasts unless it is renewed.
    pub ttl_ms: u64,
    /// How long the lease lasts at most, unless it is renewed.
    pub remaining_ms: u64,
    /// Number of waiters for the lock on this gateway.
    pub waiting: usize,
}

/// The recorded outcome of a request with an idempotency key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedOutcome {
    /// How it ended.
    pub outcome: FinalOutcome,
    /// When it was recorded.
    pub at: Timestamp,
}

/// A page of entries, ordered by name.
#[derive(Clone, Debug)]
pub struct Page<T> {
    /// The entries of this page.
    pub entries: Vec<T>,
    /// Where the next page begins, if there is one.
    pub next: Option<String>,
}

/// The most bytes that one page of a list reads.
const MAX_PAGE_BYTES: usize = 8 << 20;

impl Store {
    /// Why a read failed: a server may be reached again soon, and a failing disk should be looked at.
    pub(crate) fn failed(&self, EngineError(why): EngineError) -> ReadError {
        match self.engine.ownership() {
            Ownership::Exclusive => ReadError::Failed(why),
            Ownership::Shared => ReadError::Unreachable(why),
        }
    }

    /// Reads a key as of one instant. A token is checked against the fence, but never raises it.
    pub async fn read(
        &self,
        key: &Key,
        presented: Option<&Presented>,
    ) -> Result<Result<Read, Box<Refusal>>, ReadError> {
        let guarded = self.guards().of_key(key)?;
        let keys: Vec<Wanted> = [RecordKey::fence(&guarded.resource), RecordKey::value(key)].map(Wanted::bytes).into();
        let (base, records) = self.load_under_base(keys.clone()).await?;
        match self.judged_read(presented, guarded.clone(), base, records)? {
            // The holder would stop because of it, so it must not come from a server that was replaced.
            Err(refusal) if !refusal.reason.is_final() && !self.engine.load_is_proof() => {
                self.prove().await?;
                let (base, records) = self.load_to_prove(keys).await?;
                self.judged_read(presented, guarded, base, records)
            }
            read => Ok(read),
        }
    }

    /// Proves that the engine commits where `load_to_change` reads: a server that was replaced cannot.
    async fn prove(&self) -> Result<(), ReadError> {
        let nothing = Write { conditions: Vec::new(), operations: Vec::new(), max_bytes: 0, _body: Bytes::new() };
        let proved = self.entry.submit(Vec::new(), None, |reply| Action::Write(nothing, reply)).await;
        proved.map(|_| ()).map_err(|failure| ReadError::Unreachable(failure.to_string()))
    }

    fn judged_read(
        &self,
        presented: Option<&Presented>,
        guarded: Guarded,
        base: u32,
        records: Vec<Option<Record>>,
    ) -> Result<Result<Read, Box<Refusal>>, ReadError> {
        let mut records = records.into_iter();
        let (fence, value) = (records.next().flatten(), records.next().flatten());
        let state = state_of(base, fence.as_ref())?;
        let value =
            value.map(|record| Value::decode(&record.bytes).map(|value| (record.version, value))).transpose()?;
        let mut read = Read { resource: guarded.resource, state, value, unclaimed: false, observed: None };
        if presented.is_some() {
            match decide(&read.state, presented, Access::CheckedRead, &guarded.policy) {
                Verdict::Admit(step) => read.unclaimed = step == Step::Raise,
                Verdict::Observe(reason) => read.observed = Some(reason),
                Verdict::Refuse(reason) => {
                    let (resource, presented, found) = (read.resource, presented.cloned(), read.state);
                    let refusal = Refusal { reason, resource, presented, found, at_least: false };
                    return Ok(Err(Box::new(refusal)));
                }
            }
        }
        Ok(Ok(read))
    }

    /// Records and the base generation as of one instant, if all of it is at hand.
    pub(crate) fn at_hand_under_base(&self, keys: &[Wanted], spare: usize) -> Option<(u32, Vec<Option<Record>>)> {
        let base = self.own_base()?;
        let loaded = self.engine.at_hand(keys, spare)?;
        // If the base was changed meanwhile, it may be older than the records.
        (self.own_base() == Some(base)).then_some((base, loaded.records))
    }

    /// Loads records, and the base generation, as of one instant, where commits are made.
    async fn load_to_prove(&self, mut keys: Vec<Wanted>) -> Result<(u32, Vec<Option<Record>>), ReadError> {
        keys.push(Wanted::bytes(RecordKey::meta()));
        let mut records = self.engine.load_to_change(&keys, 0).await.map_err(|error| self.failed(error))?.records;
        let base = self.base_generation(records.pop().flatten().as_ref())?;
        Ok((base, records))
    }

    /// Loads records, and the base generation, as of one instant.
    async fn load_under_base(&self, mut keys: Vec<Wanted>) -> Result<(u32, Vec<Option<Record>>), ReadError> {
        if let Some(found) = self.at_hand_under_base(&keys, 0) {
            return Ok(found);
        }
        if let Some(base) = self.own_base() {
            let loaded = self.engine.load_wanted(&keys, 0).await.map_err(|error| self.failed(error))?;
            if self.own_base() == Some(base) {
                return Ok((base, loaded.records));
            }
        }
        keys.push(Wanted::bytes(RecordKey::meta()));
        let mut records = self.engine.load_wanted(&keys, 0).await.map_err(|error| self.failed(error))?.records;
        let base = self.base_generation(records.pop().flatten().as_ref())?;
        Ok((base, records))
    }

    /// A resource's state, even if the resource was never seen.
    pub async fn fence(&self, resource: &Resource) -> Result<FenceState, ReadError> {
        self.resource(resource)?;
        let keys = [RecordKey::meta(), RecordKey::fence(resource)].map(Wanted::bytes);
        let loaded = self.engine.load_wanted(&keys, 0).await.map_err(|error| self.failed(error))?;
        let base = self.base_generation(loaded.records.first().and_then(Option::as_ref))?;
        Ok(state_of(base, loaded.records.get(1).and_then(Option::as_ref))?)
    }

    /// Fences, ordered by name.
    pub async fn fences(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Page<(Resource, FenceState)>, ReadError> {
        let loaded = self.engine.load(&[RecordKey::meta()]).await.map_err(|error| self.failed(error))?;
        let base = self.base_generation(loaded.records.first().and_then(Option::as_ref))?;
        self.page(record::fence_prefix, prefix, after, limit, |name, record| {
            let resource = Resource::new(name).map_err(|error| ReadError::Failed(error.to_string()))?;
            Ok((resource, state_of(base, Some(record))?))
        })
        .await
    }

    /// The lease of a lock, if it is held.
    pub async fn lock(&self, resource: &Resource) -> Result<Option<LockInfo>, ReadError> {
        self.resource(resource)?;
        let loaded = self.engine.load(&[RecordKey::lock(resource)]).await.map_err(|error| self.failed(error))?;
        let record = loaded.records.first().and_then(Option::as_ref);
        let lock = record.map(|record| self.lock_info(resource, record)).transpose()?.flatten();
        Ok(self.unless_over(lock.into_iter().collect()).await?.pop())
    }

    /// Sets the remaining time to 0 for leases whose tokens the fence refuses: the next acquirer gets these locks.
    async fn unless_over(&self, mut locks: Vec<LockInfo>) -> Result<Vec<LockInfo>, ReadError> {
        if locks.is_empty() {
            return Ok(locks);
        }
        let fences = locks.iter().map(|lock| RecordKey::fence(&lock.resource));
        let keys: Vec<_> = [RecordKey::meta()].into_iter().chain(fences).collect();
        let loaded = self.engine.load(&keys).await.map_err(|error| self.failed(error))?;
        let base = self.base_generation(loaded.records.first().and_then(Option::as_ref))?;
        for (lock, fence) in locks.iter_mut().zip(loaded.records.iter().skip(1)) {
            let presented =
                Presented { token: lock.token, holder: Some(lock.holder.clone()), issuer: Some(self.issuer()) };
            // A lock whose name is no longer a resource cannot be acquired.
            let Ok(guarded) = self.resource(&lock.resource) else { continue };
            let state = state_of(base, fence.as_ref())?;
            if let Verdict::Refuse(_) = decide(&state, Some(&presented), Access::Claim, &guarded.policy) {
                lock.remaining_ms = 0;
            }
        }
        Ok(locks)
    }

    /// Locks that are held, ordered by name.
    pub async fn locks(&self, prefix: &str, after: Option<&str>, limit: usize) -> Result<Page<LockInfo>, ReadError> {
        let page = self.page(record::lock_prefix, prefix, after, limit, |name, record| {
            let resource = Resource::new(name).map_err(|error| ReadError::Failed(error.to_string()))?;
            Ok(self.lock_info(&resource, record)?)
        });
        let Page { entries, next } = page.await?;
        Ok(Page { entries: self.unless_over(entries.into_iter().flatten().collect()).await?, next })
    }

    fn lock_info(&self, resource: &Resource, record: &Record) -> Result<Option<LockInfo>, Undecodable> {
        let Some(Lease { holder, token, ttl_ms, .. }) = LockRecord::decode(&record.bytes)?.lease else {
            return Ok(None);
        };
        let held = Held { holder, token, ttl_ms, version: record.version };
        let remaining_ms = self.remaining_ms(resource, &held);
        let waiting = self.locks.waiting(resource);
        Ok(Some(LockInfo { resource: resource.clone(), holder: held.holder, token, ttl_ms, remaining_ms, waiting }))
    }

    /// The recorded outcome of a request; `None` if nothing is recorded, which is not final.
    pub async fn outcome(&self, caller: &str, key: &IdempotencyKey) -> Result<Option<RecordedOutcome>, ReadError> {
        let loaded = self
            .engine
            .load(&[RecordKey::outcome(&OutcomeKey::new(caller, key))])
            .await
            .map_err(|error| self.failed(error))?;
        let Some(record) = loaded.records.first().and_then(Option::as_ref) else { return Ok(None) };
        let Recorded { at, outcome, .. } = Recorded::decode(&record.bytes, record.version)?;
        Ok(Some(RecordedOutcome { outcome: outcome.settle(None), at }))
    }

    /// Keys that have a value, ordered by name.
    pub async fn keys(&self, prefix: &str, after: Option<&str>, limit: usize) -> Result<Page<KeyInfo>, ReadError> {
        self.page(record::value_prefix, prefix, after, limit, |name, record| {
            let key = Key::new(name).map_err(|error| ReadError::Failed(error.to_string()))?;
            let Value { token, content_type, body } = Value::decode(&record.bytes)?;
            Ok(KeyInfo { key, version: record.version, token, content_type, size: body.len() as u64 })
        })
        .await
    }

    /// The base generation, if only this process can change it and no commit may be changing it now.
    fn own_base(&self) -> Option<u32> {
        self.base.get().filter(|_| self.engine.ownership() == Ownership::Exclusive)
    }

    fn base_generation(&self, meta: Option<&Record>) -> Result<u32, ReadError> {
        let record = meta.ok_or_else(|| ReadError::Failed("the store's own record is missing".into()))?;
        let meta = Meta::decode(&record.bytes)?;
        if meta.mapping_hash == self.mapping_hash() { Ok(meta.base_generation) } else { Err(ReadError::MappingChanged) }
    }

    pub(crate) async fn page<T>(
        &self,
        under: fn(&str) -> Vec<u8>,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
        entry: impl Fn(&str, &Record) -> Result<T, ReadError>,
    ) -> Result<Page<T>, ReadError> {
        let from = under(after.unwrap_or(prefix));
        self.page_from(under(prefix), from, after.is_none(), limit, entry).await
    }

    pub(crate) async fn page_from<T>(
        &self,
        prefix: Vec<u8>,
        from: Vec<u8>,
        inclusive: bool,
        limit: usize,
        entry: impl Fn(&str, &Record) -> Result<T, ReadError>,
    ) -> Result<Page<T>, ReadError> {
        let scan = Scan { from, inclusive, prefix, limit, max_bytes: MAX_PAGE_BYTES };
        // Each scan holds up to a page of values until its entries are built.
        let _turn = self.scans.acquire().await.map_err(|_| ReadError::Failed("the store is closed".into()))?;
        let scanned = self.engine.scan(scan).await.map_err(|error| self.failed(error))?;
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

pub(crate) fn state_of(base: u32, fence: Option<&Record>) -> Result<FenceState, Undecodable> {
    let stored = fence.map(|record| record::decode_fence(&record.bytes)).transpose()?;
    Ok(FenceState::under(stored.as_ref(), base).into_owned())
}
