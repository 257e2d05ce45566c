//! Reading the configuration again while the gateway runs. Only the rules of guards change.

use std::sync::{Mutex, PoisonError};

use fencepost_core::wire::ReloadAnswer;
use fencepost_core::{Guards, Policy};
use fencepost_store::{MappingDiffers, Store};

use crate::config::{Config, ConfigError, Flags};

/// Why nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// It maps keys to other resources.
    #[error(transparent)]
    Mapping(#[from] MappingDiffers),
}

/// What the gateway was started with.
pub struct Reload {
    flags: Flags,
    running: Config,
    /// One reload at a time.
    turn: Mutex<()>,
}

impl Reload {
    /// Remembers how the gateway was started.
    pub fn new(flags: Flags, running: Config) -> Reload {
        Reload { flags, running, turn: Mutex::new(()) }
    }

    /// Reads the configuration again. If anything is wrong with it the old rules stay.
    pub fn run(&self, store: &Store) -> Result<ReloadAnswer, ReloadError> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let read = Config::load(&self.flags)?;
        let changed = changes(&store.guards(), &read.guards);
        store.set_rules(read.guards.clone())?;
        Ok(ReloadAnswer { changed, needs_restart: differences(&self.running, &read) })
    }
}

/// Guards whose rules differ, in words.
fn changes(before: &Guards, after: &Guards) -> Vec<String> {
    let rules = |guards: &Guards| -> Vec<(String, Policy)> {
        guards.list().iter().map(|guard| (guard.spec().keys.clone(), guard.spec().policy)).collect()
    };
    let pairs = rules(before).into_iter().zip(rules(after)).enumerate();
    pairs
        .filter(|(_, ((_, old), (_, new)))| old != new)
        .map(|(at, ((keys, old), (_, new)))| format!("guard {} ({keys}): {old} -> {new}", at + 1))
        .collect()
}

/// Other settings that differ from those in use.
fn differences(running: &Config, read: &Config) -> Vec<String> {
    let settings = |config: &Config| -> Vec<String> {
        config.to_string().lines().filter(|line| !line.starts_with("guard ")).map(str::to_owned).collect()
    };
    let pairs = settings(running).into_iter().zip(settings(read));
    let squeezed = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    pairs.filter(|(old, new)| old != new).map(|(_, new)| squeezed(&new)).collect()
}
