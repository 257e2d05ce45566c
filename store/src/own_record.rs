//! Opening a store: checks its own record, or creates it on first use.

use bytes::Bytes;
use fencepost_core::{Guards, SameMapping};

use crate::engine::{AsOf, Batch, Change, Commit, Engine, EngineError, Purpose, Record, Scan, Version};
use crate::record::{FORMAT, Meta, RecordKey, Undecodable};

/// Why a store did not open.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The configured guards map keys to other resources than the stored mapping does.
    #[error(
        "the guard mapping differs from the stored one: a key that moves to another resource would forget its fence.\n  \
         stored:     {stored}\n  configured: {configured}\n\
         Restore the old guards, or run `fencepost remap` with the new configuration: it starts a new generation, so every \
         lock holder must read the fence and acquire again"
    )]
    MappingChanged {
        /// The stored mapping.
        stored: String,
        /// The configured mapping.
        configured: String,
    },
    /// The stored mapping cannot be distinguished from another one.
    #[error(
        "the guard mapping was stored by an earlier version in a form that has two meanings, because a name in it contains ` -> `: \
         {0}\nRun `fencepost remap` with this configuration: it starts a new generation, so every lock holder must read the fence \
         and acquire again"
    )]
    MappingAmbiguous(String),
    /// The store was written by a later version.
    #[error("the store has format {found}, and this version of fencepost reads up to {known}: use a newer fencepost")]
    NewerFormat {
        /// The store's format.
        found: u32,
        /// The newest format that this version reads.
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

/// How often it is tried to create the record while others create it, too.
const ATTEMPTS: usize = 8;

/// Reads the store's own record, or creates it on first use.
pub(crate) async fn open_meta(engine: &dyn Engine, guards: &Guards) -> Result<Meta, OpenError> {
    for _ in 0..ATTEMPTS {
        let loaded = engine.load(&[RecordKey::meta()]).await?;
        if let Some(record) = loaded.records.first().and_then(Option::as_ref) {
            return known_meta(engine, guards, record, loaded.as_of).await;
        }
        // Another gateway may create it at the same time.
        if let Some(meta) = make_meta(engine, guards, 0, loaded.as_of).await? {
            return Ok(meta);
        }
    }
    Err(OpenError::Engine("other processes make and remove this store; try again".into()))
}

/// Whether there is a store in an engine.
pub async fn has_store(engine: &dyn Engine) -> Result<bool, OpenError> {
    let loaded = engine.load(&[RecordKey::meta()]).await?;
    Ok(loaded.records.first().is_some_and(Option::is_some))
}

/// Whether there is a fence in an engine.
pub async fn has_fences(engine: &dyn Engine) -> Result<bool, OpenError> {
    let prefix = crate::record::fence_prefix("");
    let scan = Scan { from: prefix.clone(), inclusive: true, prefix, limit: 1, max_bytes: 1 };
    Ok(!engine.scan(scan).await?.records.is_empty())
}

/// Decodes the record, and compares its mapping with the configured one.
async fn known_meta(engine: &dyn Engine, guards: &Guards, record: &Record, as_of: AsOf) -> Result<Meta, OpenError> {
    let (mapping, meta) = (guards.mapping(), read_meta(&record.bytes)?);
    match mapping.compare(&meta.mapping_hash) {
        SameMapping::Yes => Ok(meta),
        SameMapping::OldForm => renew_hash(engine, meta, mapping.hash, as_of, record.version).await,
        SameMapping::Ambiguous => Err(OpenError::MappingAmbiguous(mapping.to_string())),
        SameMapping::No => {
            let stored = fencepost_core::describe_mapping(&meta.mapping_text);
            Err(OpenError::MappingChanged { stored, configured: mapping.to_string() })
        }
    }
}

/// Creates the record, with this base generation. `None`: another process was faster.
pub(crate) async fn make_meta(
    engine: &dyn Engine,
    guards: &Guards,
    generation: u32,
    as_of: AsOf,
) -> Result<Option<Meta>, OpenError> {
    let mapping = guards.mapping();
    let mut store_id = [0; 16];
    getrandom::fill(&mut store_id).map_err(|error| OpenError::Engine(error.to_string()))?;
    let meta = Meta {
        format: FORMAT,
        store_id,
        base_generation: generation,
        highest_generation: generation,
        mapping_hash: mapping.hash,
        mapping_text: mapping.text,
    };
    let batch = Batch {
        as_of,
        shared: Vec::new(),
        compare: vec![(RecordKey::meta(), None)],
        changes: vec![(RecordKey::meta(), Change::Put(meta.encode()))],
        purpose: Purpose::Store,
    };
    match engine.commit(batch).await? {
        Commit::Done { .. } => Ok(Some(meta)),
        Commit::Conflict => Ok(None),
        Commit::NoSpace { free, floor } => {
            Err(OpenError::Engine(format!("{free} bytes are free, and {floor} must stay free (free_space_floor)")))
        }
        Commit::TooLarge(why) | Commit::Unavailable(why) => Err(OpenError::Engine(why)),
    }
}

/// Replaces the stored hash of the same mapping with its present form. If that fails, the next start tries again.
async fn renew_hash(
    engine: &dyn Engine,
    meta: Meta,
    hash: [u8; 32],
    as_of: AsOf,
    version: Version,
) -> Result<Meta, OpenError> {
    let renewed = Meta { mapping_hash: hash, ..meta.clone() };
    let batch = Batch {
        as_of,
        shared: vec![(RecordKey::meta(), version)],
        compare: Vec::new(),
        changes: vec![(RecordKey::meta(), Change::Put(renewed.encode()))],
        purpose: Purpose::Store,
    };
    match engine.commit(batch).await? {
        Commit::Done { .. } => Ok(renewed),
        Commit::Conflict | Commit::NoSpace { .. } | Commit::TooLarge(_) | Commit::Unavailable(_) => Ok(meta),
    }
}

/// Decodes the store's own record and rejects a newer format.
pub(crate) fn read_meta(bytes: &Bytes) -> Result<Meta, OpenError> {
    let meta = Meta::decode(bytes)?;
    if meta.format > FORMAT {
        return Err(OpenError::NewerFormat { found: meta.format, known: FORMAT });
    }
    Ok(meta)
}
