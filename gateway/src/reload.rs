//! Reading the configuration again while the gateway runs. Only the rules of guards and the keys of the S3 front end
//! change.

use fencepost_core::wire::ReloadAnswer;
use fencepost_core::{Guards, Policy};
use fencepost_store::{MappingDiffers, Stores};
use parking_lot::Mutex;

use crate::config::{Config, ConfigError, Flags};
use crate::credentials::S3Credentials;
use crate::credentials::mac_keys::MacKeyError;

/// Why a reload changed nothing.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The configuration maps keys to other resources.
    #[error(transparent)]
    Mapping(#[from] MappingDiffers),
    /// The gateway's own MAC key cannot be used.
    #[error(transparent)]
    MacKeys(#[from] MacKeyError),
}

/// Reloads, based on what the gateway was started with.
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

    /// Reads the configuration again. If it is not valid, the old rules and keys stay.
    pub fn run(&self, stores: &Stores, s3: Option<&S3Credentials>) -> Result<ReloadAnswer, ReloadError> {
        let _turn = self.turn.lock();
        let read = Config::load(&self.flags)?;
        let keys = s3.map(|s3| read.s3.keyring(&self.running.data).map(|keyring| (s3, keyring))).transpose()?;
        let mut changed = changes(&stores.guards(), &read.guards);
        stores.set_rules(&read.guards)?;
        if let Some((s3, keyring)) = keys {
            changed.extend(s3.replace(keyring));
        }
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

/// What a reload changes; everything else waits for the next start.
const RELOADED: [&str; 3] = ["guard ", "s3.mac_keys ", "s3.key "];

/// Other settings that differ from those in use.
fn differences(running: &Config, read: &Config) -> Vec<String> {
    let fixed = |line: &&str| !RELOADED.iter().any(|reloaded| line.starts_with(reloaded));
    let settings =
        |config: &Config| -> Vec<String> { config.to_string().lines().filter(fixed).map(str::to_owned).collect() };
    let pairs = settings(running).into_iter().zip(settings(read));
    let squeezed = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    pairs.filter(|(old, new)| old != new).map(|(_, new)| squeezed(&new)).collect()
}
