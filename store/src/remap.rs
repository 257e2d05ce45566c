//! Changing the guard mapping of a stopped store.
//!
//! A key that moves to another resource leaves its fence behind. So the new mapping starts in a generation above every
//! stored one: every token that a zombie may still hold is retired there (G1).

use fencepost_core::{Guards, SameMapping};

use crate::engine::{Batch, Change, Commit, Engine, EngineError, Purpose, Scan};
use crate::own_record::{OpenError, read_meta};
use crate::record::{self, Meta, RecordKey, Undecodable};

/// The result of a remap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Remapped {
    /// The stored mapping is already this one.
    Unchanged {
        /// The base generation.
        generation: u32,
    },
    /// The mapping was replaced.
    Changed {
        /// The previous mapping.
        from: String,
        /// The new mapping.
        to: String,
        /// The base generation from now on.
        generation: u32,
    },
}

/// Why a stopped store was not changed, by a remap or after a restore. Nothing was changed, unless the outcome is
/// unknown.
#[derive(Debug, thiserror::Error)]
pub enum RemapError {
    /// There is no store yet.
    #[error("there is no store here yet; it takes its mapping from the configuration when it is first served")]
    NoStore,
    /// Every generation has been used.
    #[error("the highest generation, {0}, is in use; there is none above it")]
    NoGeneration(u32),
    /// The store cannot be read.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The commit was refused.
    #[error("nothing was changed: {0}")]
    NotWritten(String),
    /// The commit may or may not have happened.
    #[error("it is unknown whether it was changed: {0}; run the command again")]
    Unknown(String),
}

impl From<EngineError> for RemapError {
    fn from(error: EngineError) -> RemapError {
        RemapError::Open(error.into())
    }
}

impl From<Undecodable> for RemapError {
    fn from(error: Undecodable) -> RemapError {
        RemapError::Open(error.into())
    }
}

/// Stores the guards' mapping, in a generation that is above every stored one and at least `at_least`. The engine must
/// not serve requests meanwhile.
pub async fn remap(engine: &dyn Engine, guards: &Guards, at_least: u32) -> Result<Remapped, RemapError> {
    let mapping = guards.mapping();
    let loaded = engine.load(&[RecordKey::meta()]).await?;
    let record = loaded.records.first().and_then(Option::as_ref).ok_or(RemapError::NoStore)?;
    let meta = read_meta(&record.bytes)?;
    if let SameMapping::Yes | SameMapping::OldForm = mapping.compare(&meta.mapping_hash) {
        return Ok(Remapped::Unchanged { generation: meta.base_generation });
    }
    let generation = next_generation(engine, &meta, at_least).await?;
    let from = fencepost_core::describe_mapping(&meta.mapping_text);
    let to = mapping.to_string();
    let changed = Meta {
        base_generation: generation,
        highest_generation: generation,
        mapping_hash: mapping.hash,
        mapping_text: mapping.text,
        ..meta
    };
    let batch = Batch {
        as_of: loaded.as_of,
        shared: vec![(RecordKey::meta(), record.version)],
        compare: Vec::new(),
        changes: vec![(RecordKey::meta(), Change::Put(changed.encode()))],
        purpose: Purpose::Store,
    };
    commit(engine, batch).await?;
    Ok(Remapped::Changed { from, to, generation })
}

/// A generation that is above every stored one and at least `at_least`.
pub(crate) async fn next_generation(engine: &dyn Engine, meta: &Meta, at_least: u32) -> Result<u32, RemapError> {
    let highest = highest_generation(engine).await?.max(meta.base_generation).max(meta.highest_generation);
    Ok(highest.checked_add(1).ok_or(RemapError::NoGeneration(highest))?.max(at_least))
}

/// Commits a change to a stopped store.
pub(crate) async fn commit(engine: &dyn Engine, batch: Batch) -> Result<(), RemapError> {
    match engine.commit(batch).await {
        Ok(Commit::Done { .. }) => Ok(()),
        Ok(Commit::Conflict) => Err(RemapError::NotWritten("another process changed the store; try again".into())),
        Ok(Commit::NoSpace { free, floor }) => {
            Err(RemapError::NotWritten(format!("{free} bytes are free, and {floor} must stay free")))
        }
        Ok(Commit::TooLarge(why) | Commit::Unavailable(why)) => Err(RemapError::NotWritten(why)),
        Err(error) => Err(RemapError::Unknown(error.to_string())),
    }
}

async fn highest_generation(engine: &dyn Engine) -> Result<u32, RemapError> {
    let prefix = record::fence_prefix("");
    let (mut from, mut inclusive, mut highest) = (prefix.clone(), true, 0);
    loop {
        let scan = Scan { from, inclusive, prefix: prefix.clone(), limit: 10_000, max_bytes: 8 << 20 };
        let scanned = engine.scan(scan).await?;
        for (_, record) in &scanned.records {
            highest = highest.max(record::decode_fence(&record.bytes)?.generation);
        }
        match scanned.records.into_iter().next_back() {
            Some((last, _)) if scanned.more => (from, inclusive) = (last, false),
            _ => return Ok(highest),
        }
    }
}
