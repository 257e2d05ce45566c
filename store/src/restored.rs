//! Run after an older copy of a store was restored: its fences are as old as the copy (G1, trap 27).
//!
//! Zombies may hold tokens of every generation that was used after the copy was taken, and the copy does not know which
//! those are. So the base generation is set above every generation in the copy *and* to at least the Unix time in
//! seconds. From there generations are raised by one at a time, so no earlier generation can be as high (trap 40).

use fencepost_core::Timestamp;

use crate::engine::{Batch, Change, Engine, Purpose, Scan};
use crate::own_record::read_meta;
use crate::record::{self, Meta, RecordKey};
use crate::remap::{RemapError, commit, next_generation};

/// The highest generation taken from the clock, reached in 2096. A wrong clock must not use up all generations.
const HIGHEST_BY_CLOCK: u64 = 4_000_000_000;

/// How many leases are dropped in one commit, if the engine takes that many.
const AT_ONCE: usize = 1_000;

/// The result of the operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Restored {
    /// The new base generation.
    pub generation: u32,
    /// Number of leases dropped.
    pub locks: usize,
}

/// The lowest generation for a raised base: the Unix time in seconds.
pub fn generation_by_clock() -> u32 {
    u32::try_from((Timestamp::now().0 / 1000).min(HIGHEST_BY_CLOCK)).unwrap_or(0)
}

/// Starts a generation that is above every stored one and at least `at_least`, then drops every lease. The engine must
/// not serve requests meanwhile. After an interruption it can be run again from the start.
pub async fn restored(engine: &dyn Engine, at_least: u32) -> Result<Restored, RemapError> {
    let loaded = engine.load(&[RecordKey::meta()]).await?;
    let found = loaded.records.first().and_then(Option::as_ref).ok_or(RemapError::NoStore)?;
    let meta = read_meta(&found.bytes)?;
    let generation = next_generation(engine, &meta, at_least).await?;
    let raised = Meta { base_generation: generation, highest_generation: generation, ..meta };
    let batch = Batch {
        as_of: loaded.as_of,
        shared: vec![(RecordKey::meta(), found.version)],
        compare: Vec::new(),
        changes: vec![(RecordKey::meta(), Change::Put(raised.encode()))],
        purpose: Purpose::Store,
    };
    commit(engine, batch).await?;
    Ok(Restored { generation, locks: drop_leases(engine).await? })
}

/// Removes the record of every lock. The numbers in them belong to a generation that is over.
async fn drop_leases(engine: &dyn Engine) -> Result<usize, RemapError> {
    let prefix = record::lock_prefix("");
    let limit = engine.limits().records.clamp(1, AT_ONCE);
    let mut dropped = 0;
    loop {
        let scan = Scan { from: prefix.clone(), inclusive: true, prefix: prefix.clone(), limit, max_bytes: 8 << 20 };
        let found = engine.scan(scan).await?.records;
        if found.is_empty() {
            return Ok(dropped);
        }
        dropped += found.len();
        let keys: Vec<RecordKey> = found.iter().map(|(key, _)| RecordKey::scanned(key.clone())).collect();
        let as_of = engine.load(&[]).await?.as_of;
        let compare = keys.iter().cloned().zip(found.iter().map(|(_, record)| Some(record.version))).collect();
        let changes = keys.into_iter().map(|key| (key, Change::Delete)).collect();
        commit(engine, Batch { as_of, shared: Vec::new(), compare, changes, purpose: Purpose::Free }).await?;
    }
}
