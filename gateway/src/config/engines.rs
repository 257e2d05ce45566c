//! The table `engines`: engines that guards name, so that resources spread over several databases.

use std::collections::BTreeMap;

use fencepost_core::{EngineName, Guards};

use super::ConfigError;
use super::engine::{EngineSetting, EngineText};

/// The most named engines. Each has its own connections, its own queue, and a share of the cache.
const MAX_ENGINES: usize = 16;

/// Reads the table, and checks that it has exactly the engines that guards name.
pub(super) fn read(
    texts: BTreeMap<EngineName, EngineText>,
    guards: &Guards,
) -> Result<BTreeMap<EngineName, EngineSetting>, ConfigError> {
    if texts.len() > MAX_ENGINES {
        return Err(ConfigError::TooLarge("the number of [engines]", MAX_ENGINES as u64));
    }
    for (at, guard) in guards.list().iter().enumerate() {
        if let Some(engine) = guard.spec().engine.as_ref().filter(|engine| !texts.contains_key(*engine)) {
            return Err(ConfigError::NoSuchEngine(at + 1, engine.clone()));
        }
    }
    let used = guards.engines();
    let mut engines = BTreeMap::new();
    for (name, text) in texts {
        let setting = text.read().map_err(|error| ConfigError::Engines(name.clone(), Box::new(error)))?;
        let kind = setting.kind();
        // One process owns a directory, and a second one on the same machine would wait for the same disks.
        if kind.durable && !kind.is_shared() {
            return Err(ConfigError::EmbeddedEngine(name, kind.name));
        }
        if !used.contains(&name) {
            return Err(ConfigError::UnusedEngine(name));
        }
        engines.insert(name, setting);
    }
    Ok(engines)
}

#[cfg(test)]
mod tests {
    use crate::config::{Config, File, Flags};

    fn parse(text: &str) -> Result<Config, String> {
        let file: File = toml::from_str(text).map_err(|error| error.to_string())?;
        Config::merge(&Flags::default(), file).map_err(|error| error.to_string())
    }

    const ORDERS: &str = "[[guard]]\nkeys = 'orders/*/**'\nresource = 'orders/*'\nengine = 'b'\n";

    #[test]
    fn guards_name_engines() {
        let config = parse(&format!("[engines]\nb = 'memory'\n{ORDERS}[[guard]]\nkeys = 'stock/*'\n")).unwrap();
        assert_eq!(config.guards.engine_of("orders/1/lines").map(ToString::to_string).as_deref(), Some("b"));
        assert_eq!(config.guards.engine_of("stock/1"), None);
        let shown = config.to_string();
        assert!(shown.contains("\nengines          b = memory\n") && shown.contains(", on engine b\n"), "{shown}");
        assert!(parse("").unwrap().to_string().contains("\nengines          none\n"));
    }

    #[test]
    fn engines_and_guards_agree() {
        for (text, word) in [
            (ORDERS.to_owned(), "guard 1 names the engine `b`, and there is none"),
            ("[engines]\nb = 'memory'\n".to_owned(), "engines.b: no guard names this engine"),
            (format!("[engines]\nb = 'rocksdb'\n{ORDERS}"), "engines.b: the engine `rocksdb` cannot have a name"),
            (format!("[engines]\nb = 'mysql://a/b'\n{ORDERS}"), "engines.b: there is no engine `mysql`"),
            (format!("[engines]\nB = 'memory'\n{ORDERS}"), "lower-case letters"),
            (format!("[engines]\ndefault = 'memory'\n{ORDERS}"), "stands for the engine without a name"),
            (format!("[engines]\nb = 'memory'\n{ORDERS}[[guard]]\nkeys = 'x'\nresource = 'orders/*'"), "guard 2"),
        ] {
            let error = parse(&text).expect_err(&text);
            assert!(error.contains(word), "{text}: {error}");
        }
        let many: String = (0..17).map(|n| format!("e{n} = 'memory'\n")).collect();
        assert!(parse(&format!("[engines]\n{many}")).unwrap_err().contains("at most 16"));
    }

    #[test]
    fn two_guards_of_one_resource_name_one_engine() {
        let other = "[[guard]]\nkeys = 'old-orders/*'\nresource = 'orders/*'\n";
        let error = parse(&format!("[engines]\nb = 'memory'\n{ORDERS}{other}")).unwrap_err();
        assert!(error.contains("guards 1 and 2") && error.contains("different engines"), "{error}");
    }

    #[test]
    #[cfg(feature = "postgres")]
    fn a_password_in_a_url_is_not_shown() {
        let text = format!("[engines]\nb = 'postgres://bob:hunter2@db/app?schema=orders'\n{ORDERS}");
        let config = parse(&text).unwrap();
        let shown = format!("{config} {config:?}");
        assert!(shown.contains("b = postgres://bob:…@db/app?schema=orders") && !shown.contains("hunter2"), "{shown}");
        let error = parse(&text.replace("schema=orders", "schema=orders&sslmode=%zz")).err().unwrap_or_default();
        assert!(!error.contains("hunter2"), "{error}");
    }
}
