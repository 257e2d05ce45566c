//! `fencepost migrate`: the schema of the engine `postgres`, made by an account that may do so.

use clap::Args;
use fencepost_store::engines::{Place, postgres};

use super::exit::Failed;
use super::stopped_store::EngineArgs;
use crate::config::{Config, Flags};

#[derive(Args)]
pub(super) struct Migrate {
    #[command(flatten)]
    engine: EngineArgs,
    #[command(flatten)]
    flags: Box<Flags>,
}

impl Migrate {
    pub(super) fn run(self) -> Result<(), Failed> {
        let config = Config::load(&self.flags).map_err(Failed::usage)?;
        let engine = self.engine.find(&config)?;
        let url = match config.place_of(&engine) {
            Place::Server(url) => url,
            Place::Directory(_) => {
                return Err(Failed::usage(format!(
                    "nothing needs migrating: the engine `{}` keeps no data in a database. Give the URL of a database: \
                     --engine postgres://user@host:port/database",
                    engine
                )));
            }
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Failed::other)?;
        let migrated = runtime.block_on(postgres::migrate(&url)).map_err(Failed::other)?;
        super::print(&migrated.to_string())
    }
}
