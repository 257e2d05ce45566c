//! `fencepost remap`: another guard mapping for a stopped store.

use clap::Args;
use fencepost_store::Remapped;

use super::exit::Failed;
use crate::config::{Config, Flags};

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
        let config = Config::load(&self.flags).map_err(Failed::usage)?;
        let kind = config.engine_kind().map_err(Failed::usage)?;
        // Opening makes a store where there is none; this command must not.
        if !kind.durable || !config.data.join("FENCEPOST").exists() {
            let data = config.data.display();
            return Err(Failed::usage(format!(
                "there is no store in {data}; it takes its mapping when it is first served"
            )));
        }
        if !self.yes {
            return Err(Failed::usage(format!(
                "nothing was changed. With --yes this makes “{}” the guard mapping of {}; if that differs from the stored one, \
                 a new generation starts: every token handed out so far is refused, and every lock holder must read the fence \
                 and acquire again. Stop the gateway first",
                config.guards.mapping(),
                config.data.display()
            )));
        }
        let engine = (kind.open)(&config.data, &config.engine_options).map_err(Failed::other)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Failed::other)?;
        match runtime.block_on(fencepost_store::remap(engine.as_ref(), &config.guards)).map_err(Failed::other)? {
            Remapped::Unchanged { generation } => super::print(&format!(
                "nothing to do: this is the stored mapping already (base generation {generation})"
            )),
            Remapped::Changed { from, to, generation } => super::print(&format!(
                "mapping changed\n  from: {from}\n  to:   {to}\nbase generation is now {generation}"
            )),
        }
    }
}
