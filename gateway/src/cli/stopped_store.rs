//! A store that no gateway serves, for commands that change it as a whole.

use std::sync::Arc;

use clap::Args;
use fencepost_core::{EngineName, Guards};
use fencepost_store::engine::Engine;
use fencepost_store::engines::EngineOptions;
use tokio::runtime::Runtime;

use super::exit::Failed;
use crate::config::{Config, EngineSetting, Flags};
use crate::data_directory;
use crate::position_file::{PositionError, PositionFile};

/// The choice of one of several engines.
#[derive(Args, Default)]
pub(super) struct EngineArgs {
    /// Named engine of the configuration whose store it is [default: the engine without a name]
    #[arg(long, value_name = "NAME", value_parser = EngineName::new)]
    engine_name: Option<EngineName>,
}

impl EngineArgs {
    /// Finds the engine in the configuration.
    pub(super) fn find(&self, config: &Config) -> Result<EngineSetting, Failed> {
        let Some(name) = &self.engine_name else { return Ok(config.engine.clone()) };
        let unknown = || Failed::usage(format!("there is no engine `{name}` in [engines] of the configuration"));
        config.engines.get(name).cloned().ok_or_else(unknown)
    }
}

/// A store in a data directory or on a server, and the configuration that names it.
pub(super) struct StoppedStore {
    pub(super) config: Config,
    name: Option<EngineName>,
    engine: EngineSetting,
    /// The configuration no longer has its engine.
    is_retired: bool,
}

impl StoppedStore {
    /// Finds the store. A missing one in a directory is not created; `hint` is the advice for that case. Whether a
    /// server has a store shows when it is read.
    pub(super) fn configured(flags: &Flags, args: &EngineArgs, hint: &str) -> Result<StoppedStore, Failed> {
        let config = Config::load(flags).map_err(Failed::usage)?;
        let engine = args.find(&config)?;
        let store = StoppedStore { config, name: args.engine_name.clone(), engine, is_retired: false };
        let is_missing = !store.is_shared() && !store.config.data.join("FENCEPOST").exists();
        if !store.engine.kind().durable || is_missing {
            return Err(Failed::usage(format!("there is no store in {}; {hint}", store.config.data.display())));
        }
        Ok(store)
    }

    /// This store, and those of all named engines.
    pub(super) fn with_named(self) -> Vec<StoppedStore> {
        let named = self.config.engines.iter().map(|(name, engine)| StoppedStore {
            config: self.config.clone(),
            name: Some(name.clone()),
            engine: engine.clone(),
            is_retired: false,
        });
        let named: Vec<_> = named.collect();
        std::iter::once(self).chain(named).collect()
    }

    /// The stores of engines that the configuration no longer has, and then these.
    pub(super) fn after_retired(
        stores: Vec<StoppedStore>,
        retired: Vec<(EngineName, EngineSetting)>,
    ) -> Vec<StoppedStore> {
        let Some(config) = stores.first().map(|store| store.config.clone()) else { return stores };
        let retired = retired.into_iter().map(|(name, engine)| StoppedStore {
            config: config.clone(),
            name: Some(name),
            engine,
            is_retired: true,
        });
        retired.chain(stores).collect()
    }

    /// Whether the configuration no longer has its engine.
    pub(super) fn is_retired(&self) -> bool {
        self.is_retired
    }

    /// The name of its engine, if it has one.
    pub(super) fn name(&self) -> Option<&EngineName> {
        self.name.as_ref()
    }

    /// The guards of its engine.
    pub(super) fn guards(&self) -> Guards {
        self.config.guards.of_engine(self.name())
    }

    /// Whether other gateways may use it, too.
    pub(super) fn is_shared(&self) -> bool {
        self.engine.kind().is_shared()
    }

    /// The directory or the server, for messages.
    pub(super) fn place(&self) -> String {
        if self.is_shared() { self.engine.to_string() } else { self.config.data.display().to_string() }
    }

    /// Opens the engine, and makes a place on its server if there is none and `make` is set. It has a data directory to
    /// itself. It must be dropped before the runtime.
    pub(super) fn open(&self, runtime: &Runtime, make: bool) -> Result<Arc<dyn Engine>, Failed> {
        if !self.is_shared() {
            data_directory::check(&self.config.data, self.config.data_mode_ok).map_err(Failed::usage)?;
        }
        let (kind, place) = (self.engine.kind(), self.config.place_of(&self.engine));
        let options = EngineOptions { make, ..self.config.engine_options.clone() };
        runtime.block_on((kind.open)(&place, &options)).map_err(Failed::other)
    }

    /// Compares the store with its note, and updates the note.
    pub(super) fn check_position(&self, engine: &dyn Engine, runtime: &Runtime) -> Result<(), PositionError> {
        let place = self.config.place_of(&self.engine);
        let checked = PositionFile::check(engine, &self.config.state_dir, &place);
        runtime.block_on(checked).map(|_| ())
    }
}

/// What drives the engines of stopped stores.
pub(super) fn runtime() -> Result<Runtime, Failed> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Failed::other)
}
