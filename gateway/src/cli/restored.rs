//! `fencepost restored`: an older copy of a stopped store was put back, or a standby that lacked commits was promoted.

use clap::Args;
use fencepost_store::{Restored as Done, generation_by_clock};

use super::exit::Failed;
use super::stopped_store::{EngineArgs, StoppedStore, runtime};
use crate::config::Flags;

#[derive(Args)]
pub(super) struct Restored {
    /// Really do it; without this, only say what would happen
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    engine: EngineArgs,
    #[command(flatten)]
    flags: Box<Flags>,
}

impl Restored {
    pub(super) fn run(self) -> Result<(), Failed> {
        let mut store = StoppedStore::configured(&self.flags, &self.engine, "after a restore there is one")?;
        let stop_first = if store.is_shared() {
            "Stop every gateway on this server first: those that find another history refuse to serve until this is done"
        } else {
            "Stop the gateway first"
        };
        if !self.yes {
            return Err(Failed::usage(format!(
                "nothing was changed. With --yes this starts a generation in {} above every one that was ever used, and frees \
                 every lock: every token handed out so far is refused, and every lock holder must read the fence and acquire \
                 again. {stop_first}",
                store.place()
            )));
        }
        store.config.engine_options.accept_history = true;
        let runtime = runtime()?;
        let engine = store.open(&runtime, false)?;
        let restored = fencepost_store::restored(engine.as_ref(), generation_by_clock());
        let Done { generation, locks } = runtime.block_on(restored).map_err(Failed::other)?;
        // Only now: a gateway that starts earlier must still be refused.
        if let Err(error) = runtime.block_on(engine.accept_history()) {
            let done = format!("base generation is now {generation}, but the history of the server was not accepted");
            return Err(Failed::other(error).after(&done));
        }
        // The store is ahead of any earlier note now. It can be served without a note, so an error is only reported.
        if let Err(error) = store.check_position(engine.as_ref(), &runtime) {
            eprintln!("fencepost: {error}");
        }
        super::print(&format!("base generation is now {generation}; {locks} locks were freed"))
    }
}
