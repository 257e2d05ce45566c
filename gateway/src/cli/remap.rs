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
    #[arg(long, value_name = "NAME[=URL]")]
    retire: Vec<RetiredText>,
    #[command(flatten)]
    flags: Box<Flags>,
}

/// The option as it was written. It may hold a password, so it is read later: an error of the parser would repeat it.
#[derive(Clone)]
struct RetiredText(String);

impl From<String> for RetiredText {
    fn from(text: String) -> RetiredText {
        RetiredText(text)
    }
}

/// An engine that the configuration no longer has.
struct Retired {
    name: EngineName,
    /// `None`: its database is gone.
    engine: Option<EngineSetting>,
}

impl Retired {
    fn read(RetiredText(text): &RetiredText) -> Result<Retired, String> {
        let (name, url) = text.split_once('=').map_or((text.as_str(), None), |(name, url)| (name, Some(url)));
        let engine = url.map(|url| EngineText::from(url.to_owned()).read()).transpose();
        let engine = engine.map_err(|error| error.to_string())?;
        if engine.as_ref().is_some_and(|engine| !engine.kind().is_shared()) {
            return Err("a named engine is on a server: --retire NAME=postgres://… or NAME=etcd://…".to_owned());
        }
        let name = EngineName::new(name).map_err(|_| {
            // What stands there may be a URL without a name.
            "--retire takes NAME=URL; a name has 1 to 32 lower-case letters, digits, `-` and `_`".to_owned()
        })?;
        Ok(Retired { name, engine })
    }
}

impl Remap {
    pub(super) fn run(self) -> Result<(), Failed> {
        let hint = "it takes its mapping when it is first served";
        let stores = StoppedStore::configured(&self.flags, &EngineArgs::default(), hint)?.with_named();
        let retire: Vec<Retired> =
            self.retire.iter().map(Retired::read).collect::<Result<_, _>>().map_err(Failed::usage)?;
        let retired = retire.iter().filter_map(|Retired { name, engine }| Some((name.clone(), engine.clone()?)));
        // First, so that what is done can be repeated: afterwards nothing names them any more.
        let stores = StoppedStore::after_retired(stores, retired.collect());
        let gone: Vec<EngineName> = retire.iter().map(|retired| retired.name.clone()).collect();
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

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Retired, String> {
        Retired::read(&RetiredText(text.to_owned()))
    }

    #[test]
    #[cfg(feature = "postgres")]
    fn an_engine_to_retire_has_a_name_and_perhaps_a_server() {
        let retired = read("b=postgres://bob:hunter2@db/app?schema=b").unwrap_or_else(|why| panic!("{why}"));
        let shown = retired.engine.map(|engine| engine.to_string());
        assert_eq!((retired.name.as_str(), shown.as_deref()), ("b", Some("postgres://bob:…@db/app?schema=b")));
        assert!(read("b").is_ok_and(|retired| retired.engine.is_none()));
    }

    #[test]
    fn what_cannot_be_retired_is_named_without_its_password() {
        for (text, word) in [
            ("b=rocksdb", "on a server"),
            ("b=mysql://bob:hunter2@db", "there is no engine `mysql`"),
            ("bob:hunter2@db", "lower-case"),
        ] {
            let Err(why) = read(text) else { panic!("{text} was taken") };
            assert!(why.contains(word) && !why.contains("hunter2"), "{text}: {why}");
        }
    }
}
