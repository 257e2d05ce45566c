//! The setting `engine`: the name of an engine, or the URL of the server that it uses. A URL may hold a password, which
//! is never shown.

use std::fmt;
use std::path::Path;

use fencepost_remote::ServerUrl;
use fencepost_store::engines::{self, DEFAULT_ENGINE, ENGINES, EngineKind, Place};
use serde::Deserialize;

use super::ConfigError;

/// The settings of a URL that are shown, because they tell stores apart. Others may be secret: PostgreSQL has a setting
/// `password`.
const SHOWN: [&str; 3] = ["schema", "durability", "dialect"];

/// The setting as it was written. `Debug` omits it, because it may hold a password.
#[derive(Clone, Deserialize)]
#[serde(transparent)]
pub struct EngineText(String);

impl From<String> for EngineText {
    fn from(text: String) -> EngineText {
        EngineText(text)
    }
}

impl Default for EngineText {
    fn default() -> EngineText {
        EngineText(DEFAULT_ENGINE.to_owned())
    }
}

impl fmt::Debug for EngineText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EngineText(…)")
    }
}

impl EngineText {
    /// Whether it may hold a password.
    pub(super) fn may_hold_a_secret(&self) -> bool {
        match ServerUrl::parse(&self.0) {
            Ok(url) => matches!(&url.user, Some((_, Some(_)))) || url.setting("password").is_some(),
            // A password could be any part of it.
            Err(_) => self.0.contains([':', '@']),
        }
    }

    /// The engine of this build that it names.
    pub(crate) fn read(&self) -> Result<EngineSetting, ConfigError> {
        let Some(kind) = engines::find(&self.0) else { return Err(self.unknown()) };
        let server = match (kind.is_shared(), self.0.contains("://")) {
            (false, _) => None,
            (true, true) => Some(ServerUrl::parse(&self.0).map_err(ConfigError::EngineServer)?),
            (true, false) => return Err(ConfigError::EngineUrl(kind.name, kind.written.to_owned())),
        };
        Ok(EngineSetting { kind, server })
    }

    /// The error for a text that names no engine. It is shown only if it cannot be, or contain, a password.
    fn unknown(&self) -> ConfigError {
        let name = self.0.split_once("://").map_or(self.0.as_str(), |(scheme, _)| scheme);
        let choices: Vec<&str> = ENGINES.iter().map(|kind| kind.written).collect();
        let choices = choices.join(", ");
        match name {
            DEFAULT_ENGINE => ConfigError::EngineNotBuilt(DEFAULT_ENGINE, choices),
            "etcd" | "etcds" => ConfigError::EngineNotBuilt("etcd", choices),
            "postgres" | "postgresql" => ConfigError::EngineNotBuilt("postgres", choices),
            _ if name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_')) => {
                ConfigError::Engine(name.to_owned(), choices)
            }
            _ => ConfigError::NoEngine(choices),
        }
    }
}

/// The long help of the flag, with every engine of this build.
pub(super) fn help() -> String {
    let engines: Vec<String> = ENGINES.iter().map(|kind| format!("- {}: {}", kind.name, kind.summary)).collect();
    format!(
        "Engine that keeps the data, by its name or by the URL of its server [default: {DEFAULT_ENGINE}]\n\n\
         Engines:\n{}\n\n\
         A URL with a password belongs in FENCEPOST_ENGINE, or in a configuration file that only its owner can read: \
         other users can see the command line",
        engines.join("\n")
    )
}

/// An engine of this build, and the server that it uses. `Display` and `Debug` omit the password.
#[derive(Clone)]
pub struct EngineSetting {
    kind: &'static EngineKind,
    server: Option<ServerUrl>,
}

impl EngineSetting {
    /// The engine.
    pub fn kind(&self) -> &'static EngineKind {
        self.kind
    }

    /// The URL of its server, if it has one.
    pub(crate) fn server(&self) -> Option<&ServerUrl> {
        self.server.as_ref()
    }

    /// The place of its records: its server, or this data directory.
    pub(super) fn place(&self, data: &Path) -> Place {
        match &self.server {
            Some(url) => Place::Server(url.clone()),
            None => Place::Directory(data.to_owned()),
        }
    }
}

impl fmt::Display for EngineSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.server {
            Some(url) => f.write_str(&without_secrets(url)),
            None => f.write_str(self.kind.name),
        }
    }
}

impl fmt::Debug for EngineSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EngineSetting({self})")
    }
}

/// The URL without its password, and with the settings that tell stores apart.
pub(crate) fn without_secrets(url: &ServerUrl) -> String {
    let shown = url.query.iter().filter(|(name, _)| SHOWN.contains(&name.as_str()));
    let shown: Vec<String> = shown.map(|(name, value)| format!("{name}={value}")).collect();
    if shown.is_empty() { url.to_string() } else { format!("{url}?{}", shown.join("&")) }
}
