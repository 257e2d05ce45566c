//! TLS to a server: trusted roots, client certificate, and explanations of failed handshakes.
//!
//! The certificates of all servers are read here; only the names of the settings differ.

mod certificates;
mod terms;

use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::{ClientConfig, ConfigBuilder, WantsVerifier, WantsVersions};

pub use certificates::Certificates;
pub use terms::{Terms, ended};

use crate::{ServerUrl, Unusable};

/// The names of the TLS settings in a URL.
#[derive(Clone, Copy, Debug)]
pub struct Names {
    /// The file of trusted roots.
    pub roots: &'static str,
    /// The file of the client certificate.
    pub certificate: &'static str,
    /// The file of the key of the client certificate.
    pub key: &'static str,
}

impl Names {
    /// For servers whose own clients have no established URL settings.
    pub const USUAL: Names = Names { roots: "ca", certificate: "cert", key: "key" };

    fn all(self) -> [&'static str; 3] {
        [self.roots, self.certificate, self.key]
    }
}

/// Reads the TLS settings of a server that selects TLS by its scheme, and rejects all other settings.
///
/// With a scheme that does not select TLS, such a setting is an error: ignoring it would leave the traffic unencrypted.
pub fn by_scheme(url: &ServerUrl, encrypted: &str) -> Result<Option<Certificates>, Unusable> {
    let names = Names::USUAL.all();
    if url.scheme == encrypted {
        url.only(&names)?;
        return Certificates::read(url, Names::USUAL).map(Some);
    }
    if let Some(name) = names.into_iter().chain(["tls"]).find(|name| url.setting(name).is_some()) {
        let why = format!("`{name}` is for TLS, which is asked for by writing {encrypted}://");
        return Err(Unusable::url(&url.to_string(), &why));
    }
    url.only(&[])?;
    Ok(None)
}

/// The cryptography provider of TLS.
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// A configuration builder with safe defaults.
pub fn builder() -> Result<ConfigBuilder<ClientConfig, WantsVerifier>, Unusable> {
    let builder: ConfigBuilder<ClientConfig, WantsVersions> = ClientConfig::builder_with_provider(provider());
    let builder = builder.with_safe_default_protocol_versions();
    builder.map_err(|error| Unusable(format!("TLS cannot be used: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_go_with_the_scheme() {
        let asked = |text: &str| by_scheme(&ServerUrl::parse(text).unwrap(), "zks").map(|read| read.is_some());
        assert_eq!(asked("zk://a:1"), Ok(false));
        assert_eq!(asked("zks://a:1"), Ok(true));
        for text in ["zk://a:1?ca=x", "zk://a:1?cert=x&key=y", "zk://a:1?tls=true"] {
            let error = asked(text).unwrap_err().to_string();
            assert!(error.contains("zks://"), "{text}: {error}");
        }
        for text in ["zk://a:1?timeout=3", "zks://a:1?timeout=3"] {
            let error = asked(text).unwrap_err().to_string();
            assert!(error.contains("`timeout`"), "{text}: {error}");
        }
    }
}
