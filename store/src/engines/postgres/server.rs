//! What a URL says: the server, the schema, and how durable a commit must be.

use std::fmt;

use fencepost_remote::postgres::Server as Address;
use fencepost_remote::{ServerUrl, Unusable};

use super::super::EngineOpenError;
use super::dialect::Dialect;
use super::past::Past;
use super::{locking, schema, serializable};

/// The settings in the URL that are not PostgreSQL's.
const OURS: &[&str] = &["schema", "durability", "dialect"];

/// The longest name of a schema, so that names made from it stay within PostgreSQL's limit.
const MAX_SCHEMA: usize = 40;

/// What has to have a commit before it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Durability {
    /// The primary alone. A standby that is promoted may lack commits, so it is refused until an operator accepts it.
    Primary,
    /// A synchronous standby, too. A standby that is promoted has every commit.
    Standby,
}

/// A server, and how it is used.
pub(super) struct Server {
    pub(super) address: Address,
    pub(super) schema: String,
    pub(super) durability: Durability,
    pub(super) accept_history: bool,
    /// The dialect that the URL asks for.
    pub(super) dialect: Option<Dialect>,
    pub(super) locking: locking::Statements,
    pub(super) serializable: serializable::Statements,
    /// What this process has seen of its history.
    pub(super) past: Past,
    /// The URL without its password.
    shown: String,
}

impl Server {
    pub(super) fn read(url: &ServerUrl, accept_history: bool) -> Result<Server, EngineOpenError> {
        let shown = url.to_string();
        let wrong = |why: String| EngineOpenError::Server { server: shown.clone(), why };
        let schema = url.setting("schema").unwrap_or("fencepost").to_owned();
        if !is_name(&schema) {
            return Err(wrong(format!(
                "`schema` must be a name of up to {MAX_SCHEMA} lower-case letters, digits and underscores"
            )));
        }
        let durability = match url.setting("durability") {
            None | Some("primary") => Durability::Primary,
            Some("standby") => Durability::Standby,
            Some(other) => return Err(wrong(format!("durability=`{other}` is unknown; it is `primary` or `standby`"))),
        };
        let address = Address::read(url, OURS).map_err(|Unusable(why)| wrong(why))?;
        let dialect = Dialect::read(url.setting("dialect")).map_err(wrong)?;
        let (locking, serializable) = (locking::Statements::of(&schema), serializable::Statements::of(&schema));
        let past = Past::default();
        Ok(Server { address, schema, durability, accept_history, dialect, locking, serializable, past, shown })
    }

    /// The schema's text with its name.
    pub(super) fn schema_text(&self) -> String {
        self.with_schema(schema::SCHEMA).replace("@LOCK@", &self.lock().to_string())
    }

    /// A text in which `fencepost.` stands for the name of the schema.
    pub(super) fn with_schema(&self, text: &str) -> String {
        text.replace("fencepost.", &format!("{}.", self.schema))
            .replace("CREATE SCHEMA IF NOT EXISTS fencepost;", &format!("CREATE SCHEMA IF NOT EXISTS {};", self.schema))
    }

    /// The number of the advisory lock. Two schemas in one database should not wait for each other.
    fn lock(&self) -> u32 {
        // FNV-1a, with room for a signed number; 0 is the lock of migrations.
        let hash =
            self.schema.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
        (hash >> 1).max(1)
    }

    pub(super) fn unusable(&self, why: impl Into<String>) -> EngineOpenError {
        EngineOpenError::Server { server: self.shown.clone(), why: why.into() }
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

fn is_name(name: &str) -> bool {
    let starts = name.starts_with(|first: char| first.is_ascii_lowercase() || first == '_');
    let rest = name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
    starts && rest && name.len() <= MAX_SCHEMA && !name.starts_with("pg_")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(settings: &str) -> Result<Server, String> {
        let url = ServerUrl::parse(&format!("postgres://bob:secret@h/db{settings}")).unwrap();
        Server::read(&url, false).map_err(|error| error.to_string())
    }

    #[test]
    fn settings_of_the_engine() {
        let server = read("?schema=orders_2&durability=standby&application_name=x").unwrap();
        assert_eq!((server.schema.as_str(), server.durability), ("orders_2", Durability::Standby));
        assert!(server.schema_text().contains("CREATE TABLE orders_2.records"));
        assert!(server.schema_text().contains("CREATE SCHEMA IF NOT EXISTS orders_2;"));
        assert!(!server.schema_text().contains("fencepost.") && !server.schema_text().contains('@'));
        assert_ne!(server.lock(), read("").unwrap().lock());
    }

    #[test]
    fn mistakes_are_named_and_the_password_is_not() {
        for (settings, said) in [
            ("?schema=a;drop", "`schema`"),
            ("?schema=Orders", "lower-case"),
            ("?schema=pg_x", "`schema`"),
            ("?durability=disk", "`primary` or `standby`"),
            ("?dialect=snapshot", "`locking` or `serializable`"),
            ("?shema=x", "shema"),
        ] {
            let error = read(settings).err().unwrap_or_default();
            assert!(error.contains(said) && !error.contains("secret"), "{settings}: {error}");
        }
    }
}
