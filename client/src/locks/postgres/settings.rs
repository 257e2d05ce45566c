//! The settings in a URL: those of locks, and how to connect.

use fencepost_remote::postgres::Server;

use super::super::url::wrong;
use super::table::Table;
use super::{LockError, LockUrl};

/// Settings that are read here; all others are PostgreSQL's.
const OURS: &[&str] = &["mode", "table"];

/// How a lock is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// By a row, until it expires.
    Lease,
    /// By a session, as long as it is open.
    Advisory,
}

impl Mode {
    pub(super) fn name(self) -> &'static str {
        match self {
            Mode::Lease => "lease",
            Mode::Advisory => "advisory",
        }
    }
}

/// How to connect to a server, and which table and mode to use.
pub(super) struct Settings {
    pub(super) server: Server,
    pub(super) mode: Mode,
    pub(super) table: Table,
}

impl Settings {
    pub(super) fn read(url: &LockUrl) -> Result<Settings, LockError> {
        let shown = url.to_string();
        let mode = match url.setting("mode") {
            None | Some("lease") => Mode::Lease,
            Some("advisory") => Mode::Advisory,
            Some(other) => {
                return Err(wrong(&shown, &format!("mode=`{other}` is unknown; it is `lease` or `advisory`")));
            }
        };
        let table = Table::named(url.setting("table").unwrap_or("fencepost_locks"))
            .map_err(|why| wrong(&shown, &format!("its table {why}")))?;
        Ok(Settings { server: Server::read(url, OURS)?, mode, table })
    }

    /// The URL without its password, for messages.
    pub(super) fn service(&self) -> &str {
        self.server.shown()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Settings, String> {
        let url = LockUrl::parse(text).map_err(|error| error.to_string())?;
        Settings::read(&url).map_err(|error| error.to_string())
    }

    #[test]
    fn settings_of_locks() {
        let settings = read("postgres://bob:pw@h:1/db?mode=advisory&application_name=me&table=a.b").unwrap();
        assert_eq!((settings.mode, settings.service()), (Mode::Advisory, "postgres://bob:…@h:1/db"));
        assert_eq!(settings.table.in_sql("LOCKS"), "\"a\".\"b\"");
        let settings = read("postgres://h/db").unwrap();
        assert_eq!((settings.mode, settings.table.in_sql("LOCKS")), (Mode::Lease, "\"fencepost_locks\"".to_owned()));
    }

    #[test]
    fn mistakes_are_named_and_the_password_is_not() {
        for (text, said) in [
            ("postgres://bob:secret@h/db?mode=leese", "leese"),
            ("postgres://bob:secret@h/db?tabel=x", "tabel"),
            ("postgres://bob:secret@h/db?table=a;drop", "table"),
        ] {
            let Err(error) = read(text) else { panic!("{text} was taken") };
            assert!(error.contains(said), "{error}");
            assert!(!error.contains("sec"), "{error}");
        }
    }
}
