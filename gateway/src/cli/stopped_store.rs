//! A store that no gateway serves, for commands that change it as a whole.

use std::sync::Arc;

use fencepost_store::engine::Engine;
use fencepost_store::engines::EngineOptions;
use tokio::runtime::Runtime;

use super::exit::Failed;
use crate::config::{Config, Flags};
use crate::data_directory;
use crate::position_file::{PositionError, PositionFile};

/// A store in a data directory or on a server, and the configuration that names it.
pub(super) struct StoppedStore {
    pub(super) config: Config,
}

impl StoppedStore {
    /// Finds the store. A missing one in a directory is not created; `hint` is the advice for that case. Whether a
    /// server has a store shows when it is read.
    pub(super) fn configured(flags: &Flags, hint: &str) -> Result<StoppedStore, Failed> {
        let store = StoppedStore { config: Config::load(flags).map_err(Failed::usage)? };
        let is_missing = !store.is_shared() && !store.config.data.join("FENCEPOST").exists();
        if !store.config.engine.kind().durable || is_missing {
            return Err(Failed::usage(format!("there is no store in {}; {hint}", store.config.data.display())));
        }
        Ok(store)
    }

    /// Whether other gateways may use it, too.
    pub(super) fn is_shared(&self) -> bool {
        self.config.engine.kind().is_shared()
    }

    /// The directory or the server, for messages.
    pub(super) fn place(&self) -> String {
        if self.is_shared() { self.config.engine.to_string() } else { self.config.data.display().to_string() }
    }

    /// Opens the engine. It has a data directory to itself. It must be dropped before its runtime.
    pub(super) fn open(&self) -> Result<(Runtime, Arc<dyn Engine>), Failed> {
        if !self.is_shared() {
            data_directory::check(&self.config.data, self.config.data_mode_ok).map_err(Failed::usage)?;
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Failed::other)?;
        let (kind, place) = (self.config.engine.kind(), self.config.place());
        let options = EngineOptions { make: false, ..self.config.engine_options.clone() };
        let engine = runtime.block_on((kind.open)(&place, &options)).map_err(Failed::other)?;
        Ok((runtime, engine))
    }

    /// Compares the store with its note, and updates the note.
    pub(super) fn check_position(&self, engine: &dyn Engine, runtime: &Runtime) -> Result<(), PositionError> {
        let place = self.config.place();
        let checked = PositionFile::check(engine, &self.config.state_dir, &place);
        runtime.block_on(checked).map(|_| ())
    }
}
