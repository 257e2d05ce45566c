//! `fencepost remap`: another guard mapping for a stopped store, and for the stores of all named engines with it.

use std::sync::Arc;

use clap::Args;
use fencepost_core::{EngineName, Guards};
use fencepost_store::engine::Engine;
use fencepost_store::{Remapped, generation_by_clock, remap_all};

use super::exit::Failed;
use super::stopped_store::{EngineArgs, StoppedStore, runtime};
use crate::config::{EngineSetting, EngineText, Flags};

#[derive(Args)]
pub(super) struct Remap {
    /// Really do it; without this, only say what would happen
    #[arg(long)]
    yes: bool,
    /// An engine that the stored mapping names and the configuration no longer has, with its URL: its store gets the new mapping,
    /// too, so that no gateway that was forgotten goes on serving it. Without the URL if its database is gone for good
    #[arg(long, value_name = "NAME[=URL]", value_parser = Retired::read)]
    retire: Vec<Retired>,
    #[command(flatten)]
    flags: Box<Flags>,
}

/// An engine that the configuration no longer has. `Debug` omits the URL's password.
#[derive(Clone, Debug)]
struct Retired {
    name: EngineName,
    /// `None`: its database is gone.
    engine: Option<EngineSetting>,
}

impl Retired {
    fn read(text: &str) -> Result<Retired, String> {
        let (name, url) = text.split_once('=').map_or((text, None), |(name, url)| (name, Some(url)));
        let engine = url.map(|url| EngineText::from(url.to_owned()).read()).transpose();
        let engine = engine.map_err(|error| error.to_string())?;
        if engine.as_ref().is_some_and(|engine| !engine.kind().is_shared()) {
            return Err("a named engine is on a server: postgres://… or etcd://…".to_owned());
        }
        Ok(Retired { name: EngineName::new(name).map_err(|error| error.to_string())?, engine })
    }
}

impl Remap {
    pub(super) fn run(self) -> Result<(), Failed> {
        let hint = "it takes its mapping when it is first served";
        let stores = StoppedStore::configured(&self.flags, &EngineArgs::default(), hint)?.with_named();
        let retired = self.retire.iter().filter_map(|Retired { name, engine }| Some((name.clone(), engine.clone()?)));
        // First, so that what is done can be repeated: afterwards nothing names them any more.
        let stores = StoppedStore::after_retired(stores, retired.collect());
        let gone: Vec<EngineName> = self.retire.iter().map(|retired| retired.name.clone()).collect();
        if !self.yes {
            return Err(Failed::usage(what_would_happen(&stores)));
        }
        let runtime = runtime()?;
        // A guard may name an engine for the first time: then its store is made.
        let open = |store: &StoppedStore| store.open(&runtime, store.name().is_some() && !store.is_retired());
        let engines: Vec<Arc<dyn Engine>> = stores.iter().map(open).collect::<Result<_, _>>()?;
        let note = || {
            let mut both = stores.iter().zip(&engines);
            both.try_for_each(|(store, engine)| store.check_position(engine.as_ref(), &runtime).map_err(Failed::other))
        };
        note()?;
        let each = stores.iter().zip(&engines).map(|(store, engine)| (engine.as_ref(), store.guards()));
        let each: Vec<(&dyn Engine, Guards)> = each.collect();
        let remapped = runtime.block_on(remap_all(&each, &gone, generation_by_clock())).map_err(Failed::other)?;
        if remapped.iter().any(|remapped| !matches!(remapped, Remapped::Unchanged { .. })) {
            note()?;
        }
        let lines: Vec<String> = stores.iter().zip(&remapped).map(|(store, remapped)| line(store, remapped)).collect();
        super::print(&lines.join("\n"))
    }
}

fn what_would_happen(stores: &[StoppedStore]) -> String {
    let mappings: Vec<String> = stores.iter().map(|store| format!("“{}”", store.guards().mapping())).collect();
    let places: Vec<String> = stores.iter().map(StoppedStore::place).collect();
    let stop = match stores.iter().any(StoppedStore::is_shared) {
        true => "every gateway on this server",
        false => "the gateway",
    };
    format!(
        "nothing was changed. With --yes this makes {} the guard mapping of {}; if that differs from the stored one, \
         a new generation starts: every token handed out so far is refused, and every lock holder must read the fence \
         and acquire again. Stop {stop} first",
        mappings.join(" and "),
        places.join(" and ")
    )
}

fn line(store: &StoppedStore, remapped: &Remapped) -> String {
    let engine = store.name().map_or_else(String::new, |name| format!("engine {name}: "));
    match remapped {
        Remapped::Unchanged { generation } => {
            format!("{engine}nothing to do: this is the stored mapping already (base generation {generation})")
        }
        Remapped::Changed { from, to, generation } => {
            format!("{engine}mapping changed\n  from: {from}\n  to:   {to}\nbase generation is now {generation}")
        }
        Remapped::Made { to, generation } => {
            format!("{engine}store made\n  mapping: {to}\nbase generation is {generation}")
        }
    }
}
