//! The one list of lock services.

use std::pin::Pin;
use std::sync::Arc;

use super::url::wrong;
use super::{LockBackend, LockError, LockUrl, fencepost};

/// A kind of lock service: its URLs, how to connect, and its properties.
#[derive(Clone, Copy)]
pub struct Backend {
    /// The scheme of its URLs.
    pub scheme: &'static str,
    /// Other accepted schemes.
    pub aliases: &'static [&'static str],
    /// An example of a complete URL.
    pub example: &'static str,
    /// An example of a complete URL with TLS, with every file setting.
    pub encrypted: Option<&'static str>,
    /// The number of the service that serves as the token.
    pub number: &'static str,
    /// How waiters are notified that it is their turn.
    pub waiting: &'static str,
    /// What makes its numbers go backwards, and how the client reacts.
    pub breaks: &'static str,
    /// Opens a connection.
    pub(super) connect: fn(LockUrl) -> Connecting,
}

/// The future of a connection.
pub(super) type Connecting = Pin<Box<dyn Future<Output = Result<Arc<dyn LockBackend>, LockError>> + Send>>;

/// Every kind that this build includes.
pub const BACKENDS: &[Backend] = &[
    fencepost::BACKEND,
    #[cfg(feature = "redis")]
    super::redis::BACKEND,
    #[cfg(feature = "etcd")]
    super::etcd::BACKEND,
    #[cfg(feature = "zk")]
    super::zk::BACKEND,
    #[cfg(feature = "postgres")]
    super::postgres::BACKEND,
    #[cfg(feature = "token")]
    super::token::BACKEND,
    #[cfg(feature = "exec")]
    super::exec::BACKEND,
];

/// Kinds that may have been left out of this build: their features have the same names.
const OPTIONAL: &[&str] = &["redis", "rediss", "etcd", "etcds", "zk", "zks", "postgres", "postgresql", "token", "exec"];

/// Connects to the lock service at a URL.
pub async fn connect(url: &str) -> Result<Arc<dyn LockBackend>, LockError> {
    let url = LockUrl::parse(url)?;
    let is_meant = |backend: &&Backend| backend.scheme == url.scheme || backend.aliases.contains(&url.scheme.as_str());
    match BACKENDS.iter().find(is_meant) {
        Some(backend) => (backend.connect)(url).await,
        None if OPTIONAL.contains(&url.scheme.as_str()) => {
            Err(wrong(&url.to_string(), "this build was made without the feature of that name"))
        }
        None => {
            let known: Vec<_> = BACKENDS.iter().map(|backend| backend.example).collect();
            Err(wrong(&url.to_string(), &format!("its kind is unknown. Known are {}", known.join(", "))))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_service_with_tls_is_in_the_table() {
        let client = include_str!("../../../docs/client.md");
        for Backend { scheme, aliases, encrypted, .. } in BACKENDS {
            let Some(example) = encrypted else { continue };
            assert!(client.contains(&format!("| `{example}` |")), "docs/client.md lacks {example}");
            let asked = LockUrl::parse(example).unwrap().scheme;
            assert!(asked == *scheme || aliases.contains(&asked.as_str()), "{example}");
        }
    }
}
