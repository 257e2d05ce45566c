//! `fencepost remap`: another guard mapping for a stopped store.

use clap::Args;
use fencepost_store::{Remapped, generation_by_clock};

use super::exit::Failed;
use super::stopped_store::StoppedStore;
use crate::config::Flags;

#[derive(Args)]
pub(super) struct Remap {
    /// Really do it; without this, only say what would happen
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    flags: Box<Flags>,
}

impl Remap {
    pub(super) fn run(self) -> Result<(), Failed> {
        let store = StoppedStore::configured(&self.flags, "it takes its mapping when it is first served")?;
        let guards = &store.config.guards;
        if !self.yes {
            return Err(Failed::usage(format!(
                "nothing was changed. With --yes this makes “{}” the guard mapping of {}; if that differs from the stored one, \
                 a new generation starts: every token handed out so far is refused, and every lock holder must read the fence \
                 and acquire again. Stop {} first",
                guards.mapping(),
                store.place(),
                if store.is_shared() { "every gateway on this server" } else { "the gateway" }
            )));
        }
        let (runtime, engine) = store.open()?;
        store.check_position(engine.as_ref(), &runtime).map_err(Failed::other)?;
        let remapped = runtime.block_on(fencepost_store::remap(engine.as_ref(), guards, generation_by_clock()));
        match remapped.map_err(Failed::other)? {
            Remapped::Unchanged { generation } => super::print(&format!(
                "nothing to do: this is the stored mapping already (base generation {generation})"
            )),
            Remapped::Changed { from, to, generation } => {
                store.check_position(engine.as_ref(), &runtime).map_err(Failed::other)?;
                super::print(&format!(
                    "mapping changed\n  from: {from}\n  to:   {to}\nbase generation is now {generation}"
                ))
            }
        }
    }
}
