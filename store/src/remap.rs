//! Changing the guard mapping of a stopped store.
//!
//! A key that moves to another resource leaves its fence behind. So the new mapping starts in a generation above every
//! stored one: every token that a zombie may still hold is retired there (G1). The same holds for a key that moves to
//! another engine, so the stores of all engines start in a generation above every one stored in any of them, also a
//! store that is made for the first time.

use std::collections::BTreeSet;

use fencepost_core::{EngineName, Guards, SameMapping, engines_of_mapping};

use crate::engine::{AsOf, Batch, Change, Commit, Engine, EngineError, Purpose, Scan, Version};
use crate::own_record::{OpenError, make_meta, read_meta};
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
    /// The store was not there yet, beside others that were, and was made.
    Made {
        /// Its mapping.
        to: String,
        /// Its base generation.
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
    /// The stored mapping keeps resources on an engine that is not among these. A gateway that was forgotten would go on
    /// serving them there.
    #[error(
        "nothing was changed: the stored mapping keeps resources on the engine `{0}`, which the configuration no longer has. Name its \
         server with `--retire {0}=URL`, so that no gateway that was forgotten goes on serving them; or, if its database is \
         gone for good, `--retire {0}`"
    )]
    EngineMissing(String),
    /// The store cannot be read.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The commit was refused.
    #[error("nothing was changed: {0}")]
    NotWritten(String),
    /// The commit may or may not have happened.
    #[error("it is unknown whether it was changed: {0}; run the command again")]
    Unknown(String),
    /// Some of several stores were changed.
    #[error(
        "only the first {done} of the stores were changed: {why}. Run the command again until all of them are; no gateway serves before"
    )]
    Partly {
        /// How many were.
        done: usize,
        /// Why the next one was not.
        why: String,
    },
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
    let mut remapped = remap_all(&[(engine, guards.clone())], &[], at_least).await?;
    remapped.pop().ok_or(RemapError::NoStore)
}

/// The same for the stores of several engines, each with the guards of its engine, as one: if any of them has another
/// mapping, or is not there yet, all of them start a generation that is above every one stored in any of them. An engine that
/// the stored mapping names is among them, or it is `gone` for good. After an interruption it can be run again from the start.
pub async fn remap_all(
    engines: &[(&dyn Engine, Guards)],
    gone: &[EngineName],
    at_least: u32,
) -> Result<Vec<Remapped>, RemapError> {
    let mut found = Vec::with_capacity(engines.len());
    for (engine, _) in engines {
        found.push(Found::load(*engine).await?);
    }
    if found.iter().all(|found| found.store.is_none()) {
        return Err(RemapError::NoStore);
    }
    if let Some(unchanged) = engines.iter().zip(&found).map(|((_, guards), found)| found.unchanged(guards)).collect() {
        return Ok(unchanged);
    }
    let listed = engines.iter().filter_map(|(_, guards)| guards.engine()).chain(gone);
    let listed: BTreeSet<&str> = listed.map(EngineName::as_str).collect();
    for (_, meta) in found.iter().filter_map(|found| found.store.as_ref()) {
        if let Some(missing) = engines_of_mapping(&meta.mapping_text).difference(&listed).next() {
            return Err(RemapError::EngineMissing((*missing).to_owned()));
        }
    }
    let mut generation = at_least;
    for ((engine, _), found) in engines.iter().zip(&found) {
        if let Some((_, meta)) = &found.store {
            generation = next_generation(*engine, meta, generation).await?;
        }
    }
    let mut remapped = Vec::with_capacity(engines.len());
    for ((engine, guards), found) in engines.iter().zip(found) {
        match found.change(*engine, guards, generation).await {
            Ok(changed) => remapped.push(changed),
            Err(why) if remapped.is_empty() => return Err(why),
            Err(why) => return Err(RemapError::Partly { done: remapped.len(), why: why.to_string() }),
        }
    }
    Ok(remapped)
}

/// What is in an engine: the store's own record with its version, if there is a store.
struct Found {
    as_of: AsOf,
    store: Option<(Version, Meta)>,
}

impl Found {
    async fn load(engine: &dyn Engine) -> Result<Found, RemapError> {
        let loaded = engine.load(&[RecordKey::meta()]).await?;
        let store = loaded.records.first().and_then(Option::as_ref);
        let store = store.map(|record| read_meta(&record.bytes).map(|meta| (record.version, meta))).transpose()?;
        Ok(Found { as_of: loaded.as_of, store })
    }

    /// The result, if the stored mapping is that of the guards already.
    fn unchanged(&self, guards: &Guards) -> Option<Remapped> {
        let (_, meta) = self.store.as_ref()?;
        match guards.mapping().compare(&meta.mapping_hash) {
            SameMapping::Yes | SameMapping::OldForm => Some(Remapped::Unchanged { generation: meta.base_generation }),
            SameMapping::No | SameMapping::Ambiguous => None,
        }
    }

    /// Stores the mapping and the generation.
    async fn change(self, engine: &dyn Engine, guards: &Guards, generation: u32) -> Result<Remapped, RemapError> {
        let (mapping, to) = (guards.mapping(), guards.mapping().to_string());
        let Some((version, meta)) = self.store else {
            return match make_meta(engine, guards, generation, self.as_of).await? {
                Some(_) => Ok(Remapped::Made { to, generation }),
                None => Err(RemapError::NotWritten("another process made the store; try again".into())),
            };
        };
        let from = fencepost_core::describe_mapping(&meta.mapping_text);
        let changed = Meta {
            base_generation: generation,
            highest_generation: generation,
            mapping_hash: mapping.hash,
            mapping_text: mapping.text,
            ..meta
        };
        let batch = Batch {
            as_of: self.as_of,
            shared: vec![(RecordKey::meta(), version)],
            compare: Vec::new(),
            changes: vec![(RecordKey::meta(), Change::Put(changed.encode()))],
            purpose: Purpose::Store,
        };
        commit(engine, batch).await?;
        Ok(Remapped::Changed { from, to, generation })
    }
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
