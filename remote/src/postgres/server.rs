//! The settings in a URL: PostgreSQL's own, and those of the caller.

use std::fmt;
use std::str::FromStr;

use tokio_postgres::Config;
use tokio_postgres::config::TargetSessionAttrs;
use tokio_postgres_rustls::MakeRustlsConnect;

use super::{TIMEOUT, explained, tls};
use crate::tls::Terms;
use crate::{ServerUrl, Unusable};

/// How to connect to a server. `Debug` omits the password.
#[derive(Clone)]
pub struct Server {
    pub(super) config: Config,
    /// The same for each host alone, if the URL names several.
    pub(super) members: Vec<Config>,
    pub(super) tls: MakeRustlsConnect,
    pub(super) terms: Terms,
    shown: String,
}

impl Server {
    /// Reads a URL and the certificates that it names, without connecting. `ours` are the settings that the caller
    /// reads itself; all others must be PostgreSQL's.
    pub fn read(url: &ServerUrl, ours: &[&str]) -> Result<Server, Unusable> {
        let shown = url.to_string();
        let (ssl_mode, tls, terms) = tls::read(url)?;
        let read = |text: &str| {
            let config = Config::from_str(&without(text, ours));
            let mut config = config.map_err(|error| Unusable::url(&shown, &explained(&error)))?;
            config.ssl_mode(ssl_mode);
            if config.get_connect_timeout().is_none() {
                config.connect_timeout(TIMEOUT);
            }
            if config.get_application_name().is_none() {
                config.application_name("fencepost");
            }
            // A standby cannot write; of several hosts, use the primary.
            if config.get_target_session_attrs() == TargetSessionAttrs::Any {
                config.target_session_attrs(TargetSessionAttrs::ReadWrite);
            }
            Ok(config)
        };
        let config = read(&url.text)?;
        let members = match url.hosts.len() {
            0 | 1 => Vec::new(),
            _ => url.one_by_one().iter().map(|text| read(text)).collect::<Result<_, Unusable>>()?,
        };
        Ok(Server { config, members, tls, terms, shown })
    }

    /// The URL without its password, for messages.
    pub fn shown(&self) -> &str {
        &self.shown
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Server({})", self.shown)
    }
}

/// The URL without these settings and those of TLS, as PostgreSQL's own clients would read it.
fn without(text: &str, ours: &[&str]) -> String {
    let Some((address, query)) = text.split_once('?') else { return text.to_owned() };
    let is_theirs = |setting: &&str| {
        let name = setting.split('=').next().unwrap_or_default();
        !ours.contains(&name) && !tls::SETTINGS.contains(&name)
    };
    let theirs: Vec<_> = query.split('&').filter(is_theirs).collect();
    match theirs.is_empty() {
        true => address.to_owned(),
        false => format!("{address}?{}", theirs.join("&")),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio_postgres::config::SslMode;

    use super::*;

    const OURS: &[&str] = &["mode", "table"];

    fn read(text: &str) -> Result<Server, String> {
        ServerUrl::parse(text).and_then(|url| Server::read(&url, OURS)).map_err(|error| error.to_string())
    }

    #[test]
    fn settings_of_the_caller_and_of_tls_are_taken_out() {
        let server =
            read("postgres://bob:pw@h:1/db?mode=x&application_name=me&table=a.b&sslmode=require&connect_timeout=9");
        let server = server.unwrap();
        assert_eq!(server.config.get_application_name(), Some("me"));
        assert_eq!(server.config.get_ssl_mode(), SslMode::Require);
        assert_eq!(server.config.get_connect_timeout(), Some(&Duration::from_secs(9)));
        assert_eq!(without("postgres://h/db?mode=lease", OURS), "postgres://h/db");
        assert_eq!(without("postgres://h/db?mode=lease&user=bob", OURS), "postgres://h/db?user=bob");
        assert_eq!(without("postgres://h/db", OURS), "postgres://h/db");
    }

    #[test]
    fn what_the_url_leaves_open() {
        let server = read("postgres://h/db").unwrap();
        assert_eq!(server.config.get_application_name(), Some("fencepost"));
        assert_eq!(server.config.get_ssl_mode(), SslMode::Prefer);
        assert_eq!(server.config.get_connect_timeout(), Some(&TIMEOUT));
        assert_eq!(server.config.get_target_session_attrs(), TargetSessionAttrs::ReadWrite);
    }

    #[test]
    fn the_password_is_not_shown() {
        let server = read("postgres://bob:secret@h:1/db?mode=x").unwrap();
        assert_eq!(server.shown(), "postgres://bob:…@h:1/db");
        assert!(!format!("{server:?}").contains("secret"));
    }

    #[test]
    fn mistakes_are_named_and_the_password_is_not() {
        for (text, said) in [
            ("postgres://bob:secret@h/db?tabel=x", "tabel"),
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
