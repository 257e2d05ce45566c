//! How far a store's history extends, so that an older copy of it is detected (trap 40).

use crate::engine::Engine;
use crate::own_record::{OpenError, read_meta};
use crate::record::RecordKey;
use crate::store::Store;

/// A point in a store's history. Both numbers only grow, and both were durable when they were read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// Identifies the store.
    pub store_id: [u8; 16],
    /// The store's base generation. A restore raises it above every earlier one, so earlier positions are behind it.
    pub base_generation: u32,
    /// The engine's last durable commit.
    pub sequence: u64,
}

impl Position {
    /// Returns whether this position is before another one of the same store.
    pub fn is_behind(&self, other: &Position) -> bool {
        self.store_id == other.store_id
            && (self.base_generation, self.sequence) < (other.base_generation, other.sequence)
    }
}

/// The position of the store in an engine, before it is opened. `None`: there is no store yet, or the engine reports no
/// position.
pub async fn position(engine: &dyn Engine) -> Result<Option<Position>, OpenError> {
    let loaded = engine.load(&[RecordKey::meta()]).await?;
    let (Some(record), Some(sequence)) = (loaded.records.first().and_then(Option::as_ref), engine.position()) else {
        return Ok(None);
    };
    let meta = read_meta(&record.bytes)?;
    Ok(Some(Position { store_id: meta.store_id, base_generation: meta.base_generation, sequence }))
}

impl Store {
    /// The store's current position. `None`: the engine reports none, or a commit may be changing the base generation.
    pub fn position(&self) -> Option<Position> {
        let base_generation = self.base.get()?;
        Some(Position { store_id: self.store_id(), base_generation, sequence: self.engine.position()? })
    }
}
