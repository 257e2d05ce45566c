//! A store that no gateway serves, for commands that change it as a whole.

use std::sync::Arc;

use fencepost_store::engine::Engine;
use fencepost_store::engines::EngineKind;
use tokio::runtime::Runtime;

use super::exit::Failed;
use crate::config::{Config, Flags};
use crate::data_directory;
use crate::position_file::{PositionError, PositionFile};

/// A store in a data directory, and the configuration that names it.
pub(super) struct StoppedStore {
    pub(super) config: Config,
    kind: &'static EngineKind,
}

impl StoppedStore {
    /// Finds the store. A missing one is not created; `hint` is the advice for that case.
    pub(super) fn configured(flags: &Flags, hint: &str) -> Result<StoppedStore, Failed> {
        let config = Config::load(flags).map_err(Failed::usage)?;
        let kind = config.engine_kind().map_err(Failed::usage)?;
        if !kind.durable || !config.data.join("FENCEPOST").exists() {
            return Err(Failed::usage(format!("there is no store in {}; {hint}", config.data.display())));
        }
        Ok(StoppedStore { config, kind })
    }

    /// Opens the engine, which then has the data directory to itself.
    pub(super) fn open(&self) -> Result<(Arc<dyn Engine>, Runtime), Failed> {
        data_directory::check(&self.config.data, self.config.data_mode_ok).map_err(Failed::usage)?;
        let engine = (self.kind.open)(&self.config.data, &self.config.engine_options).map_err(Failed::other)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Failed::other)?;
        Ok((engine, runtime))
    }

    /// Compares the store with its note, and updates the note.
    pub(super) fn check_position(&self, engine: &dyn Engine, runtime: &Runtime) -> Result<(), PositionError> {
        let checked = PositionFile::check(engine, &self.config.state_dir, &self.config.data);
        runtime.block_on(checked).map(|_| ())
    }
}
