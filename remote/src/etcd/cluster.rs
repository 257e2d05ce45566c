//! What a URL says: the members, TLS, and the user.

use std::fmt;
use std::sync::Arc;

use rustls::ClientConfig;

use crate::tls::{self, Certificates, Names, Terms};
use crate::{ServerUrl, Unusable};

const PORT: u16 = 2379;

/// The members of a cluster, and how to connect to them. `Display` omits the password.
pub struct Cluster {
    pub(super) members: Vec<Member>,
    pub(super) tls: Option<Encryption>,
    /// Name and password.
    pub(super) user: Option<(String, String)>,
    shown: String,
}

/// TLS to every member.
pub(super) struct Encryption {
    pub(super) config: Arc<ClientConfig>,
    pub(super) terms: Terms,
}

/// One member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Member {
    /// The name or address, without brackets.
    pub(super) host: String,
    pub(super) port: u16,
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

impl Cluster {
    /// Reads a URL and the certificates that it names, without connecting. `ours` are the settings that the caller reads
    /// itself.
    pub fn read(url: &ServerUrl, ours: &[&str]) -> Result<Cluster, Unusable> {
        let shown = url.to_string();
        let Names { roots, certificate, key } = Names::USUAL;
        let known: Vec<&str> = ours.iter().copied().chain([roots, certificate, key]).collect();
        let mut others = url.clone();
        others.query.retain(|(name, _)| !ours.contains(&name.as_str()));
        if others.setting("tls").is_none() {
            url.only(&known)?;
        }
        let certificates = tls::by_scheme(&others, "etcds")?;
        let tls = certificates.as_ref().map(Encryption::of).transpose()?;
        if url.hosts.is_empty() {
            return Err(Unusable::url(&shown, "it names one host and port, or several with commas between"));
        }
        let members = url.hosts.iter().map(|host| {
            Member::read(host).ok_or_else(|| Unusable::url(&shown, &format!("`{host}` is not a host and port")))
        });
        let members = members.collect::<Result<Vec<_>, Unusable>>()?;
        let user = url.user.clone().map(|(user, password)| (user, password.unwrap_or_default()));
        Ok(Cluster { members, tls, user, shown })
    }

    /// What a member is called in a request.
    pub(super) fn origin(&self, member: &Member) -> String {
        let protocol = if self.tls.is_some() { "https" } else { "http" };
        format!("{protocol}://{member}")
    }
}

impl fmt::Display for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

impl Encryption {
    fn of(certificates: &Certificates) -> Result<Encryption, Unusable> {
        let mut config = certificates.config()?;
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(Encryption { config: Arc::new(config), terms: certificates.terms() })
    }
}

impl Member {
    fn read(text: &str) -> Option<Member> {
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (host, port) = rest.split_once(']')?;
                (host, if port.is_empty() { None } else { Some(port.strip_prefix(':')?) })
            }
            None => text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
        };
        let port = port.map_or(Some(PORT), |port| port.parse().ok())?;
        (!host.is_empty()).then(|| Member { host: host.to_owned(), port })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Cluster, String> {
        Cluster::read(&ServerUrl::parse(text).unwrap(), &["max_ops"]).map_err(|error| error.to_string())
    }

    #[test]
    fn a_member_has_a_port() {
        for (text, shown) in [
            ("a", "a:2379"),
            ("a:1", "a:1"),
            ("[::1]", "[::1]:2379"),
            ("[::1]:1", "[::1]:1"),
            ("1.2.3.4", "1.2.3.4:2379"),
        ] {
            assert_eq!(Member::read(text).unwrap().to_string(), shown);
        }
        for text in ["", ":1", "a:x", "a:99999", "[::1", "[::1]1", "::1"] {
            assert_eq!(Member::read(text), None, "{text}");
        }
    }

    #[test]
    fn settings_go_with_the_scheme() {
        let cluster = read("etcd://bob:secret@a:1,b/x?max_ops=3").unwrap();
        assert_eq!((cluster.members.len(), cluster.tls.is_none()), (2, true));
        assert_eq!(cluster.origin(&cluster.members[0]), "http://a:1");
        assert!(!cluster.to_string().contains("secret"));
        for (text, said) in [
            ("etcd://a?ca=x", "etcds://"),
            ("etcd://a?tls=true", "etcds://"),
            ("etcd://a?maxops=3", "`max_ops`"),
            ("etcd:///x", "host"),
            ("etcd://a:x", "`a:x`"),
        ] {
            let error = read(text).err().unwrap_or_default();
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
