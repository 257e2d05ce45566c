//! The other end of a connection, by which limits per peer are counted.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// The other end of a connection, as far as limits per peer distinguish it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum PeerAddress {
    /// An IPv4 address, or the /64 network of an IPv6 address: one caller usually has all of a /64.
    Ip(IpAddr),
    /// A process on this machine, over a Unix socket.
    Unix,
}

impl PeerAddress {
    /// The peer of a TCP connection.
    pub(crate) fn of(address: SocketAddr) -> PeerAddress {
        PeerAddress::Ip(match address.ip().to_canonical() {
            IpAddr::V4(address) => IpAddr::V4(address),
            IpAddr::V6(address) if address.is_loopback() => IpAddr::V6(address),
            IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX))),
        })
    }

    /// Whether the peer is on this machine, where all callers share one address.
    pub(crate) fn is_local(self) -> bool {
        match self {
            PeerAddress::Ip(address) => address.is_loopback(),
            PeerAddress::Unix => true,
        }
    }
}

impl fmt::Display for PeerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PeerAddress::Ip(address) => address.fmt(f),
            PeerAddress::Unix => f.write_str("unix"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipv6_peer_is_its_network() {
        let peer = |text: &str| PeerAddress::of(text.parse().unwrap());
        assert_eq!(peer("[2001:db8::1]:1"), peer("[2001:db8::ffff:2]:9"));
        assert_ne!(peer("[2001:db8::1]:1"), peer("[2001:db8:0:1::1]:1"));
        assert_eq!(peer("[::ffff:192.0.2.1]:1"), peer("192.0.2.1:2"));
        assert_ne!(peer("192.0.2.1:1"), peer("192.0.2.2:1"));
        assert!(peer("[::1]:1").is_local() && peer("[::ffff:127.0.0.1]:1").is_local() && PeerAddress::Unix.is_local());
        assert!(!peer("[2001:db8::1]:1").is_local());
    }
}
