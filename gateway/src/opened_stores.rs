//! The stores of a configuration, opened: that of the engine without a name, and one for each named engine.

use std::collections::BTreeMap;
use std::sync::Arc;

use fencepost_core::EngineName;
use fencepost_store::engine::Engine;
use fencepost_store::engines::{EngineOpenError, EngineOptions};
use fencepost_store::{Observer, OpenError, SameStore, Store, StoreOptions, Stores, has_fences, has_store};

use crate::config::{Config, EngineSetting};
use crate::position_file::{PositionError, PositionFile, PositionKeeper};
use crate::sole_owner::sole_owner;

/// Why the stores of a configuration are not served.
#[derive(Debug, thiserror::Error)]
pub enum NotOpened {
    /// The engine cannot be used.
    #[error("{0}{1}")]
    Engine(Named, EngineOpenError),
    /// The store is older than it was, or its position cannot be noted.
    #[error("{0}{1}")]
    Position(Named, PositionError),
    /// The store in the engine cannot be used.
    #[error("{0}{1}")]
    Store(Named, OpenError),
    /// The other stores have been served with this engine, and its store is gone: its fences would be forgotten.
    #[error(
        "the engine `{name}` has no store on {place}, although guards were served with it before. If the URL is wrong, \
         correct it. If the database was lost, put a backup back and run `fencepost restored --yes --engine-name {name}`; or \
         begin with an empty one by `fencepost remap --yes`, which starts a new generation of all resources, so every lock \
         holder must read the fence and acquire again"
    )]
    Missing {
        /// The name of the engine.
        name: EngineName,
        /// Its server.
        place: String,
    },
    /// The engine without a name has no store, and another one has fences: it is lost, or its place is wrong.
    #[error(
        "the engine without a name has no store, although the engine `{name}` has fences. Several gateways share one: \
         `engine` is the same URL for all. If its URL or directory is wrong, \
         correct it. If it was lost, put a backup back and run `fencepost restored --yes`; or begin with an empty one by \
         `fencepost remap --yes`, which starts a new generation of all resources, so every lock holder must read the fence \
         and acquire again"
    )]
    UnnamedMissing {
        /// The name of the engine that has fences.
        name: EngineName,
    },
    /// Two engines are one store.
    #[error(transparent)]
    Same(#[from] SameStore),
}

/// The name of an engine in front of a message. The engine without a name has none.
#[derive(Debug)]
pub struct Named(Option<EngineName>);

impl std::fmt::Display for Named {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.as_ref().map_or(Ok(()), |name| write!(f, "engine `{name}`: "))
    }
}

/// An engine of the configuration, before its store is opened.
struct Opening<'c> {
    name: Option<&'c EngineName>,
    setting: &'c EngineSetting,
    engine: Arc<dyn Engine>,
}

impl Opening<'_> {
    fn named(&self) -> Named {
        Named(self.name.cloned())
    }
}

/// Opens every engine of a configuration, and the stores in them. If one cannot be opened, the others are closed again.
pub async fn open(config: &Config, observer: Arc<dyn Observer>) -> Result<Stores, NotOpened> {
    let mut engines = Vec::new();
    let options = share(config);
    for (name, setting) in config.each_engine() {
        let named = || Named(name.cloned());
        let place = config.place_of(setting);
        let opened = (setting.kind().open)(&place, &options.0).await;
        let engine = opened.map_err(|error| NotOpened::Engine(named(), error))?;
        // Before anything is committed: an older copy of the store must not be served.
        let checked = PositionFile::check(engine.as_ref(), &config.state_dir, &place).await;
        checked.map_err(|error| NotOpened::Position(named(), error))?;
        engines.push(Opening { name, setting, engine });
    }
    let mut stores = BTreeMap::new();
    let opened = open_stores(config, &options.1, engines, &observer, &mut stores).await;
    let opened = opened.and_then(|()| Ok(together(&stores)?));
    if opened.is_err() {
        close_all(stores.into_values()).await;
    }
    opened
}

fn together(stores: &BTreeMap<Option<EngineName>, Arc<Store>>) -> Result<Stores, SameStore> {
    let Some(unnamed) = stores.get(&None) else { unreachable!("every configuration has an engine without a name") };
    let named = stores.iter().filter_map(|(name, store)| Some((name.clone()?, store.clone())));
    Stores::new(unnamed.clone(), named.collect())
}

/// Opens the stores in these engines, that of the engine without a name first. If there are named engines and it has no
/// store yet, it comes last: so its store shows that all others have been made, and one that is missing later is lost.
async fn open_stores(
    config: &Config,
    options: &StoreOptions,
    mut engines: Vec<Opening<'_>>,
    observer: &Arc<dyn Observer>,
    stores: &mut BTreeMap<Option<EngineName>, Arc<Store>>,
) -> Result<(), NotOpened> {
    let mut is_first_start = false;
    if let [unnamed, _, ..] = engines.as_slice() {
        let found = has_store(unnamed.engine.as_ref()).await;
        is_first_start = !found.map_err(|error| NotOpened::Store(unnamed.named(), error))?;
    }
    if is_first_start {
        for opening in &engines {
            let Some(name) = opening.name.filter(|_| opening.setting.kind().durable) else { continue };
            let found = has_fences(opening.engine.as_ref()).await;
            if found.map_err(|error| NotOpened::Store(opening.named(), error))? {
                return Err(NotOpened::UnnamedMissing { name: name.clone() });
            }
        }
        engines.rotate_left(1);
    }
    for opening in engines {
        if let (Some(name), false, true) = (opening.name, is_first_start, opening.setting.kind().durable) {
            let found = has_store(opening.engine.as_ref()).await;
            if !found.map_err(|error| NotOpened::Store(opening.named(), error))? {
                return Err(NotOpened::Missing { name: name.clone(), place: opening.setting.to_string() });
            }
        }
        let (guards, named) = (config.guards.of_engine(opening.name), opening.named());
        let store = Store::open(opening.engine, guards, options.clone(), observer.clone()).await;
        let store = store.map_err(|error| NotOpened::Store(named, error))?;
        stores.insert(opening.name.cloned(), Arc::new(store));
    }
    Ok(())
}

/// The bounds of each store. The cache is shared out, so that the memory of all of them is bounded as that of one.
fn share(config: &Config) -> (EngineOptions, StoreOptions) {
    let count = 1 + config.engines.len();
    let engine =
        EngineOptions { cache_bytes: config.engine_options.cache_bytes / count, ..config.engine_options.clone() };
    let store = StoreOptions { known_bytes: config.store.known_bytes / count, ..config.store.clone() };
    (engine, store)
}

/// Closes stores that nothing else uses. Their threads must be gone before the process ends.
pub async fn close(stores: Arc<Stores>) {
    if let Some(stores) = sole_owner(stores).await {
        close_all(stores.into_stores()).await;
    }
}

async fn close_all(stores: impl Iterator<Item = Arc<Store>>) {
    for store in stores {
        if let Some(store) = sole_owner(store).await {
            store.close().await;
        }
    }
}

/// Keeps the notes of the positions of all stores up to date.
pub struct PositionKeepers(Vec<PositionKeeper>);

impl PositionKeepers {
    /// Notes the position of every store, and starts to update the notes at intervals. A store that was just made had no
    /// position before.
    pub fn start(config: &Config, stores: &Stores) -> Result<PositionKeepers, PositionError> {
        let mut keepers = PositionKeepers(Vec::new());
        for ((_, setting), (_, store)) in config.each_engine().zip(stores.each()) {
            if let Some(file) = PositionFile::of_store(store, &config.state_dir, &config.place_of(setting))? {
                keepers.0.push(PositionKeeper::start(file, store));
            }
        }
        Ok(keepers)
    }

    /// Stops, and notes the positions for the last time.
    pub async fn stop(self) {
        for keeper in self.0 {
            keeper.stop().await;
        }
    }
}

/// Where the data of a configuration are, for people.
pub fn whereabouts(config: &Config) -> String {
    let place = match (config.engine.kind().is_shared(), config.engine.kind().durable) {
        (true, _) => format!("data on {}", config.engine),
        (false, true) => format!("data in {}", config.data.display()),
        (false, false) => "nothing is kept".to_owned(),
    };
    let named = config.engines.iter().map(|(name, setting)| format!(", {name} on {setting}"));
    place + &named.collect::<String>()
}
