//! Ends a run from outside, as by a signal.

use std::sync::{Arc, OnceLock};

/// Ends a run: the current case makes no more requests, and no further case begins. Clones end the same run.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<OnceLock<String>>);

impl Stop {
    /// Ends the run for this reason; the first reason counts. `false`: it was ended before.
    pub fn now(&self, why: &str) -> bool {
        self.0.set(why.to_owned()).is_ok()
    }

    /// The reason, if the run was ended.
    pub fn asked(&self) -> Option<&str> {
        self.0.get().map(String::as_str)
    }
}
