//! What a URL says: the cluster, the prefix of the keys, and what a transaction may hold.

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;

use fencepost_remote::etcd::Cluster;
use fencepost_remote::{ServerUrl, Unusable};

use super::super::EngineOpenError;
use super::keys::Keys;

/// The settings in the URL that are not TLS.
const OURS: &[&str] = &["max_ops", "max_bytes", "compaction"];

/// The prefix of a URL without a path.
const PREFIX: &str = "fencepost-store";

/// The prefix that the lock service in etcd uses if its URL has no path. Keys of both would be mixed.
const PREFIX_OF_LOCKS: &str = "fencepost";

/// The longest prefix, so that keys stay short beside what they hold.
const MAX_PREFIX: usize = 256;

/// etcd's own limit, unless its `--max-txn-ops` says otherwise.
const MAX_OPS: usize = 128;

/// 1.4 MiB. With [`RESERVE`] it is below etcd's own limit of 1.5 MiB (`--max-request-bytes`).
const MAX_BYTES: usize = 14 * (1 << 20) / 10;

/// Room in a transaction for keys, comparisons and framing.
pub(super) const RESERVE: usize = 100 << 10;

/// The sensible values of the settings.
const OPS: RangeInclusive<usize> = 16..=16_384;
const BYTES: RangeInclusive<usize> = 65_536..=67_108_864;

/// Who removes old revisions, which take space until then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Compaction {
    /// Gateways do. The cluster should be for fencepost then: this concerns the revisions of all its keys.
    Gateway,
    /// etcd itself, as its `--auto-compaction-…` say, or another program.
    Server,
}

/// A cluster, and how it is used.
pub(super) struct Settings {
    pub(super) cluster: Arc<Cluster>,
    pub(super) keys: Keys,
    /// The comparisons, and the operations, of one transaction.
    pub(super) max_ops: usize,
    /// The bytes of changes in one transaction.
    pub(super) max_bytes: usize,
    pub(super) compaction: Compaction,
    /// The URL without its password.
    shown: String,
}

impl Settings {
    pub(super) fn read(url: &ServerUrl) -> Result<Settings, EngineOpenError> {
        let shown = url.to_string();
        let wrong = |why: String| EngineOpenError::Server { server: shown.clone(), why };
        let cluster = Cluster::read(url, OURS).map_err(|Unusable(why)| wrong(why))?;
        let number = |name: &str, default: usize, sensible: RangeInclusive<usize>| match url.setting(name) {
            None => Ok(default),
            Some(text) => text.parse::<usize>().ok().filter(|number| sensible.contains(number)).ok_or_else(|| {
                wrong(format!("`{name}` must be a number from {} to {}", sensible.start(), sensible.end()))
            }),
        };
        let compaction = match url.setting("compaction") {
            None | Some("gateway") => Compaction::Gateway,
            Some("server") => Compaction::Server,
            Some(other) => return Err(wrong(format!("compaction=`{other}` is unknown; it is `gateway` or `server`"))),
        };
        Ok(Settings {
            cluster: Arc::new(cluster),
            keys: Keys::new(&prefix(&url.path).map_err(wrong)?),
            max_ops: number("max_ops", MAX_OPS, OPS)?,
            max_bytes: number("max_bytes", MAX_BYTES, BYTES)?,
            compaction,
            shown: shown.clone(),
        })
    }

    /// The bytes of the largest request.
    pub(super) fn max_request(&self) -> usize {
        self.max_bytes + RESERVE
    }

    pub(super) fn unusable(&self, why: impl Into<String>) -> EngineOpenError {
        EngineOpenError::Server { server: self.shown.clone(), why: why.into() }
    }
}

impl fmt::Display for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

/// The prefix of all keys, given the path of the URL. It ends with a slash.
fn prefix(path: &str) -> Result<String, String> {
    match path.trim_end_matches('/') {
        "" => Ok(format!("{PREFIX}/")),
        PREFIX_OF_LOCKS => Err(format!(
            "the prefix `{PREFIX_OF_LOCKS}` is that of locks in etcd, whose keys would be mixed with these; choose another one"
        )),
        long if long.len() > MAX_PREFIX => Err(format!("the prefix is longer than {MAX_PREFIX} bytes")),
        path => Ok(format!("{path}/")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(rest: &str) -> Result<Settings, String> {
        let url = ServerUrl::parse(&format!("etcd://bob:secret@a:1,b{rest}")).unwrap();
        Settings::read(&url).map_err(|error| error.to_string())
    }

    #[test]
    fn what_the_url_leaves_open() {
        let settings = read("").unwrap();
        assert_eq!((settings.max_ops, settings.max_bytes), (128, 1_468_006));
        assert_eq!(settings.compaction, Compaction::Gateway);
        assert_eq!(settings.keys, Keys::new("fencepost-store/"));
        assert!(settings.max_request() < 1_572_864 - 1024, "etcd adds a little");
        assert!(!settings.to_string().contains("secret"));
    }

    #[test]
    fn settings_of_the_engine() {
        let settings = read("/team/orders?max_ops=1000&max_bytes=9000000&compaction=server").unwrap();
        assert_eq!((settings.max_ops, settings.max_bytes), (1000, 9_000_000));
        assert_eq!(settings.compaction, Compaction::Server);
        assert_eq!(settings.keys, Keys::new("team/orders/"));
        assert_eq!(read("/team/orders/").unwrap().keys, settings.keys);
    }

    #[test]
    fn mistakes_are_named_and_the_password_is_not() {
        let long = format!("/{}", "p".repeat(300));
        for (rest, said) in [
            ("?max_ops=2", "from 16 to 16384"),
            ("?max_ops=many", "`max_ops`"),
            ("?max_bytes=1", "`max_bytes`"),
            ("?compaction=no", "`gateway` or `server`"),
            ("?maxops=128", "`max_ops`"),
            ("?ca=/etc/ca.pem", "etcds://"),
            ("/fencepost", "locks"),
            (long.as_str(), "longer"),
        ] {
            let error = read(rest).err().unwrap_or_default();
            assert!(error.contains(said) && !error.contains("secret"), "{rest}: {error}");
        }
    }
}
