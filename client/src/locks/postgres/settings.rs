//! The settings in a URL: PostgreSQL's own, and those of this crate.

use std::str::FromStr;

use tokio_postgres::Config;
use tokio_postgres::config::TargetSessionAttrs;
use tokio_postgres_rustls::MakeRustlsConnect;

use super::super::tls::Terms;
use super::super::url::wrong;
use super::session::explained;
use super::table::Table;
use super::{LockError, LockUrl, TIMEOUT, tls};

/// Settings that are read here and not passed on.
const OURS: &[&str] = &["mode", "table", "sslmode", "sslrootcert", "sslcert", "sslkey"];

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
    pub(super) config: Config,
    pub(super) tls: MakeRustlsConnect,
    pub(super) terms: Terms,
    pub(super) mode: Mode,
    pub(super) table: Table,
    /// The URL without its password, for messages.
    pub(super) service: String,
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
        let mut config =
            Config::from_str(&without_ours(&url.text)).map_err(|error| wrong(&shown, &explained(&error)))?;
        let (ssl_mode, tls, terms) = tls::read(url)?;
        config.ssl_mode(ssl_mode);
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(TIMEOUT);
        }
        if config.get_application_name().is_none() {
            config.application_name("fencepost");
        }
        // A standby cannot grant locks; of several hosts, use the primary.
        if config.get_target_session_attrs() == TargetSessionAttrs::Any {
            config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        }
        Ok(Settings { config, tls, terms, mode, table, service: shown })
    }
}

/// The URL without the settings of this crate, as PostgreSQL's own clients would read it.
fn without_ours(text: &str) -> String {
    let Some((address, query)) = text.split_once('?') else { return text.to_owned() };
    let name = |setting: &&str| setting.split('=').next().unwrap_or_default().to_owned();
    let theirs: Vec<_> = query.split('&').filter(|setting| !OURS.contains(&name(setting).as_str())).collect();
    match theirs.is_empty() {
        true => address.to_owned(),
        false => format!("{address}?{}", theirs.join("&")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Settings, String> {
        LockUrl::parse(text).and_then(|url| Settings::read(&url)).map_err(|error| error.to_string())
    }

    #[test]
    fn ours_are_taken_out() {
        let settings =
            read("postgres://bob:pw@h:1/db?mode=advisory&application_name=me&table=a.b&sslmode=require").unwrap();
        assert_eq!((settings.mode, settings.service.as_str()), (Mode::Advisory, "postgres://bob:…@h:1/db"));
        assert_eq!(settings.config.get_application_name(), Some("me"));
        assert_eq!(settings.config.get_ssl_mode(), tokio_postgres::config::SslMode::Require);
        assert_eq!(without_ours("postgres://h/db?mode=lease"), "postgres://h/db");
        assert_eq!(without_ours("postgres://h/db"), "postgres://h/db");
    }

    #[test]
    fn mistakes_are_named_and_the_password_is_not() {
        for (text, said) in [
            ("postgres://bob:secret@h/db?mode=leese", "leese"),
            ("postgres://bob:secret@h/db?tabel=x", "tabel"),
            ("postgres://bob:secret@h/db?table=a;drop", "table"),
            ("postgres://bob:secret@h/db?sslmode=yes", "verify-full"),
            ("postgres://bob:secret@h/db?sslmode=verify-full&sslrootcert=/nowhere/root.crt", "/nowhere/root.crt"),
            ("postgres://bob:secret@h/db?sslcert=/nowhere/bob.crt&sslkey=/nowhere/bob.key", "`sslcert`"),
            ("postgres://bob:sec/ret@h/db", "%2F"),
            ("postgres://bob:sec?ret@h/db", "%3F"),
        ] {
            let Err(error) = read(text) else { panic!("{text} was taken") };
            assert!(error.contains(said), "{error}");
            assert!(!error.contains("sec"), "{error}");
        }
    }
}
