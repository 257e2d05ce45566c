//! Refuses requests that web pages send. A loopback listener keeps the network out, but not a browser on this machine.
//!
//! A page reaches a local port in two ways: it sends requests across origins, which browsers mark with `Origin` or
//! `Sec-Fetch-Site`, or its own name is rebound to this address, which shows in `Host`.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use fencepost_core::ProblemKind;
use hyper::HeaderMap;
use hyper::header::{HOST, HeaderName, ORIGIN};
use hyper::http::request::Parts;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use super::problem::Problem;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// The hosts that this gateway answers for.
#[derive(Clone, Debug)]
pub(crate) struct Hosts {
    /// From the configuration.
    configured: Vec<Host>,
    addresses: Addresses,
}

/// Which IP addresses are hosts of this gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Addresses {
    Loopback,
    /// Beyond loopback, callers may use the address of a router or a proxy. A literal address cannot be rebound, so
    /// each is accepted.
    Any,
}

impl Hosts {
    /// The hosts of a listener at this address.
    pub(crate) fn new(configured: &[Host], listens_on: IpAddr) -> Hosts {
        let addresses = if listens_on.is_loopback() { Addresses::Loopback } else { Addresses::Any };
        Hosts { configured: configured.to_vec(), addresses }
    }

    /// Refuses a request that a web page of another origin may have sent.
    pub(super) fn check(&self, head: &Parts) -> Result<(), Problem> {
        let host = requested(head)?;
        if let Some(host) = host
            && !Authority::parse(host).is_some_and(|host| self.knows(&host.host))
        {
            let detail = format!("this gateway does not answer for the host `{host}`");
            return Err(Problem::new(ProblemKind::WrongHost, detail)
                .advice("Use an address of the gateway, or have the operator add the name to `hosts`."));
        }
        same_origin(&head.headers, host)
    }

    fn knows(&self, host: &Host) -> bool {
        let by_itself = match host {
            Host::Address(address) => match self.addresses {
                Addresses::Loopback => address.to_canonical().is_loopback(),
                Addresses::Any => true,
            },
            Host::Name(name) => name == "localhost",
        };
        by_itself || self.configured.contains(host)
    }
}

/// The host that a request is for: the authority of its target, or `Host`. `None` only for protocols that need neither.
fn requested(head: &Parts) -> Result<Option<&str>, Problem> {
    let header = match head.headers.get(HOST) {
        Some(value) => Some(value.to_str().map_err(|_| Problem::header("host", "it is not ASCII"))?),
        None => None,
    };
    match (head.uri.authority().map(hyper::http::uri::Authority::as_str), header) {
        (Some(target), Some(header)) if !target.eq_ignore_ascii_case(header) => {
            Err(Problem::header("host", "it differs from the host of the request's target"))
        }
        (target, header) => Ok(target.or(header)),
    }
}

/// Browsers send the page's origin with every request that is not a plain read. To a loopback address they also send
/// how that origin relates to ours, with every request. Other programs send neither.
fn same_origin(headers: &HeaderMap, host: Option<&str>) -> Result<(), Problem> {
    let own = |origin: &[u8]| {
        let (Ok(origin), Some(host)) = (std::str::from_utf8(origin), host) else { return false };
        is_origin_of(origin, host)
    };
    let foreign_origin = headers.get_all(ORIGIN).iter().any(|origin| !own(origin.as_bytes()));
    let mut sites = headers.get_all(SEC_FETCH_SITE).iter();
    if foreign_origin || sites.any(|site| !matches!(site.as_bytes(), b"same-origin" | b"none")) {
        return Err(Problem::new(ProblemKind::CrossOrigin, "a web page of another origin sent this request")
            .advice("Nothing was done. Pages of other sites may not use the gateway; call it from a program."));
    }
    Ok(())
}

/// `http://localhost:3362` is the origin of pages at `localhost:3362`. TLS may end at a proxy, so the scheme may be `https`.
fn is_origin_of(origin: &str, host: &str) -> bool {
    let (authority, default) = match origin.split_once("://") {
        Some(("http", authority)) => (authority, 80),
        Some(("https", authority)) => (authority, 443),
        _ => return false,
    };
    let with_port = |text| Authority::parse(text).map(|found| (found.host, found.port.unwrap_or(default)));
    with_port(authority).is_some_and(|origin| Some(origin) == with_port(host))
}

/// `name`, `name:port`, `address:port`, `[address]:port`.
#[derive(Debug, PartialEq, Eq)]
struct Authority {
    host: Host,
    port: Option<u16>,
}

/// A host without its port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Host {
    /// A literal address.
    Address(IpAddr),
    /// A name in lower case, without a trailing dot.
    Name(String),
}

/// A text that is not a host.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is no host: write a name or an address, without a port")]
pub struct NotAHost(String);

impl FromStr for Host {
    type Err = NotAHost;

    fn from_str(text: &str) -> Result<Host, NotAHost> {
        match (text.parse().map(Host::Address), Authority::parse(text)) {
            (Ok(address), _) => Ok(address),
            (Err(_), Some(Authority { host, port: None })) if !text.ends_with(':') => Ok(host),
            _ => Err(NotAHost(text.to_owned())),
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Host::Address(address) => address.fmt(f),
            Host::Name(name) => f.write_str(name),
        }
    }
}

impl<'de> Deserialize<'de> for Host {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Host, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

impl Authority {
    fn parse(text: &str) -> Option<Authority> {
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (address, port) = rest.split_once(']')?;
                (Host::Address(address.parse::<Ipv6Addr>().ok()?.into()), port)
            }
            None => {
                let (name, port) = text.split_at(text.find(':').unwrap_or(text.len()));
                (Host::parse(name)?, port)
            }
        };
        let port = match port.strip_prefix(':') {
            None if port.is_empty() => None,
            None => return None,
            Some("") => None,
            Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => Some(digits.parse().ok()?),
            Some(_) => return None,
        };
        Some(Authority { host, port })
    }
}

impl Host {
    fn parse(name: &str) -> Option<Host> {
        if let Ok(address) = name.parse::<Ipv4Addr>() {
            return Some(Host::Address(address.into()));
        }
        let name = name.strip_suffix('.').unwrap_or(name);
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
        (!name.is_empty() && name.bytes().all(plain)).then(|| Host::Name(name.to_ascii_lowercase()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::Request;

    fn checked(listens_on: &str, headers: &[(&str, &str)]) -> Result<(), ProblemKind> {
        let mut request = Request::get("/healthz");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let hosts = Hosts::new(&["Files.example".parse().unwrap()], listens_on.parse().unwrap());
        hosts.check(&request.body(()).unwrap().into_parts().0).map_err(|problem| problem.kind())
    }

    #[test]
    fn s01_only_hosts_that_cannot_be_rebound() {
        for good in [
            "127.0.0.1:3362",
            "127.0.0.1",
            "127.9.9.9:1",
            "[::1]:3362",
            "[::1]",
            "[::ffff:127.0.0.1]:1",
            "localhost",
            "LOCALHOST:3362",
            "localhost.",
            "localhost:",
            "files.example:3362",
            "FILES.example.",
        ] {
            assert_eq!(checked("127.0.0.1", &[("host", good)]), Ok(()), "{good}");
        }
        for bad in [
            "evil.example:3362",
            "",
            ":3362",
            "x y",
            "169.254.169.254",
            "192.0.2.1:3362",
            "[2001:db8::1]",
            "0.0.0.0:3362",
            "localhost.evil.example",
            "evil.example.localhost",
            "user@localhost",
            "localhost@evil.example",
            "localhost:3362:80",
            "127.1",
            "2130706433",
            "0x7f.0.0.1",
            "[::1",
            "[::1]x",
            "localhost:99999",
            "localhost/",
            "files.example.evil",
            "lo\u{63}alhost\\",
            "127.0.0.1.evil.example",
        ] {
            assert_eq!(checked("127.0.0.1", &[("host", bad)]), Err(ProblemKind::WrongHost), "{bad}");
        }
        for good in ["192.0.2.1:3362", "10.0.0.7", "[2001:db8::1]:3362", "localhost", "files.example"] {
            assert_eq!(checked("0.0.0.0", &[("host", good)]), Ok(()), "{good}");
        }
        assert_eq!(checked("0.0.0.0", &[("host", "evil.example")]), Err(ProblemKind::WrongHost));
    }

    #[test]
    fn s01_only_pages_of_the_same_origin() {
        let from = |host: &str, origin: &str| checked("127.0.0.1", &[("host", host), ("origin", origin)]);
        for (host, origin) in [
            ("localhost:3362", "http://localhost:3362"),
            ("127.0.0.1:3362", "http://127.0.0.1:3362"),
            ("[::1]:3362", "http://[::1]:3362"),
            ("localhost", "http://localhost"),
            ("localhost:80", "http://localhost"),
            ("files.example", "https://files.example"),
            ("files.example:443", "https://FILES.example"),
        ] {
            assert_eq!(from(host, origin), Ok(()), "{origin} at {host}");
        }
        for origin in [
            "null",
            "",
            "http://localhost:3000",
            "http://localhost",
            "http://127.0.0.1:3362",
            "https://localhost",
            "http://evil.example",
            "localhost:3362",
            "file://localhost:3362",
            "http://localhost:3362.evil.example",
            "http://localhost:3362/",
            "http://x@localhost:3362",
        ] {
            assert_eq!(from("localhost:3362", origin), Err(ProblemKind::CrossOrigin), "{origin}");
        }
        let site = |site: &str| checked("127.0.0.1", &[("host", "localhost"), ("sec-fetch-site", site)]);
        assert_eq!((site("same-origin"), site("none")), (Ok(()), Ok(())));
        for other in ["cross-site", "same-site", "", "Same-Origin", "same-origin, cross-site"] {
            assert_eq!(site(other), Err(ProblemKind::CrossOrigin), "{other}");
        }
        let twice = [("host", "localhost"), ("sec-fetch-site", "none"), ("sec-fetch-site", "cross-site")];
        assert_eq!(checked("127.0.0.1", &twice), Err(ProblemKind::CrossOrigin));
        assert_eq!(checked("127.0.0.1", &[]), Ok(()), "HTTP/1.0 without a host is no browser");
        assert_eq!(checked("127.0.0.1", &[("origin", "http://localhost")]), Err(ProblemKind::CrossOrigin));
    }

    #[test]
    fn hosts_of_the_configuration() {
        let host = |text: &str| text.parse::<Host>().map(|host| host.to_string()).ok();
        assert_eq!(host("Files.Example").as_deref(), Some("files.example"));
        assert_eq!(host("10.0.0.7").as_deref(), Some("10.0.0.7"));
        assert_eq!(host("2001:db8::1"), host("[2001:db8::1]"));
        for bad in ["", "a b", "files.example:3362", "files.example:", "http://files.example", "*", "*.example", "a/b"]
        {
            assert_eq!(host(bad), None, "{bad}");
        }
    }

    #[test]
    fn s01_two_hosts_in_one_request_must_agree() {
        let both = |target: &str, host: &str| {
            let head =
                Request::get(format!("http://{target}/healthz")).header("host", host).body(()).unwrap().into_parts().0;
            Hosts::new(&[], IpAddr::V4(Ipv4Addr::LOCALHOST)).check(&head).map_err(|problem| problem.kind())
        };
        assert_eq!(both("localhost:1", "LOCALHOST:1"), Ok(()));
        assert_eq!(both("localhost:1", "localhost:2"), Err(ProblemKind::MalformedHeader));
        assert_eq!(both("localhost:1", "evil.example"), Err(ProblemKind::MalformedHeader));
        assert_eq!(both("evil.example", "evil.example"), Err(ProblemKind::WrongHost));
    }
}
