//! Writes stop for good after a commit that failed or whose outcome is unknown (G8).

use std::sync::{Arc, OnceLock};

/// Set once, never cleared. Only a restart, which replays what is durable, recovers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Poison(Arc<OnceLock<String>>);

impl Poison {
    /// Why writes have stopped, if they have.
    pub(crate) fn reason(&self) -> Option<&str> {
        self.0.get().map(String::as_str)
    }

    /// Stops writes. The first reason stays.
    pub(crate) fn set(&self, reason: String) {
        if self.0.set(reason).is_ok() {
            tracing::error!(reason = self.reason(), "writes have stopped until restart");
        }
    }
}
