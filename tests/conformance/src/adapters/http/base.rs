//! The base address of a service: `http://127.0.0.1:{port}/prefix`.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};

use crate::subject::Broken;

/// Stands for a free port.
const PORT: &str = "{port}";

/// The address of one instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Base {
    /// Host and port, for the `Host` header.
    pub(super) host: String,
    /// The path prefix of every request.
    pub(super) prefix: String,
    pub(super) port: u16,
}

impl Base {
    /// Rejects an invalid base address.
    pub(super) fn check(text: &str) -> Result<(), String> {
        Base::parse(text, 1).map(drop)
    }

    /// Whether the address needs a free port.
    pub(super) fn wants_port(text: &str) -> bool {
        text.contains(PORT)
    }

    /// The base address with this port, if it needs one.
    pub(super) fn with_port(text: &str, port: u16) -> Result<Base, Broken> {
        Base::parse(text, port).map_err(Broken)
    }

    fn parse(written: &str, port: u16) -> Result<Base, String> {
        let wrong =
            |why: &str| format!("`{written}` is no base: {why}; write one such as \"http://127.0.0.1:{{port}}\"");
        let text = written.replace(PORT, &port.to_string());
        if text.starts_with("https://") {
            return Err(wrong(
                "the suite speaks http:// only, so that it can cut a request in the middle; test the service behind its TLS",
            ));
        }
        let rest = text.strip_prefix("http://").ok_or_else(|| wrong("http:// is missing at its beginning"))?;
        let (host, prefix) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        if host.is_empty() || host.contains(['@', ' ', '?', '#', '{', '}']) || prefix.contains(['?', '#', ' ', '{']) {
            return Err(wrong("it is a host, perhaps a port and a path"));
        }
        let after_bracket = host.rfind(']').map_or(0, |end| end + 1);
        let port = match host[after_bracket..].rsplit_once(':') {
            None => 80,
            Some((_, port)) => port
                .parse()
                .ok()
                .filter(|port| *port > 0)
                .ok_or_else(|| wrong("its port is no number from 1 to 65535"))?,
        };
        Ok(Base { host: host.to_owned(), prefix: prefix.trim_end_matches('/').to_owned(), port })
    }

    /// The socket address.
    pub(super) fn address(&self) -> Result<SocketAddr, Broken> {
        let after_bracket = self.host.rfind(']').map_or(0, |end| end + 1);
        let end = self.host[after_bracket..].rfind(':').map_or(self.host.len(), |colon| after_bracket + colon);
        let name = self.host[..end].trim_matches(['[', ']']);
        let found = (name, self.port).to_socket_addrs().map(|mut found| found.next());
        match found {
            Ok(Some(address)) => Ok(address),
            Ok(None) => Err(Broken(format!("`{name}` has no address"))),
            Err(error) => Err(Broken(format!("`{name}` has no address: {error}"))),
        }
    }
}

impl fmt::Display for Base {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}{}", self.host, self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::Base;

    #[test]
    fn bases_are_hosts_with_ports_and_prefixes() {
        let base = Base::with_port("http://127.0.0.1:{port}/api/", 81).unwrap();
        assert_eq!((base.host.as_str(), base.prefix.as_str(), base.port), ("127.0.0.1:81", "/api", 81));
        assert_eq!(base.to_string(), "http://127.0.0.1:81/api");
        assert_eq!(base.address().unwrap().to_string(), "127.0.0.1:81");
        let base = Base::with_port("http://[::1]", 1).unwrap();
        assert_eq!(base.address().unwrap().to_string(), "[::1]:80");
        for (text, wrong) in [
            ("https://localhost", "http:// only"),
            ("localhost:80", "http:// is missing at its beginning"),
            ("127.0.0.1:{port}", "`127.0.0.1:{port}` is no base: http:// is missing"),
            ("http://", "a host"),
            ("http://h:0", "its port"),
            ("http://h:99999", "its port"),
            ("http://h:{prt}", "a host"),
            ("http://h/?a=b", "a host"),
        ] {
            let error = Base::check(text).unwrap_err();
            assert!(error.contains(wrong), "{text}: {error}");
        }
    }
}
