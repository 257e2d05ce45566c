//! TLS to ZooKeeper, through a tunnel whose local end is on loopback, in this process.
//!
//! The client library's own TLS requires a second cryptographic library. So the library connects without TLS, and only
//! to this tunnel. No other user gets in: a connection is forwarded only if this process's own user made it, and that
//! user could read the key of our certificate as well.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use fencepost_remote::tls::{Certificates, Terms, ended};
use parking_lot::Mutex;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf, copy};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::session::PATIENCE;
use crate::locks::url::wrong;
use crate::locks::{LockError, LockUrl};

/// How long the server may still send after the client side has finished sending; its last message closes the session.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// The pause between two attempts to accept a connection, or to find its owner.
const PAUSE: Duration = Duration::from_millis(10);

/// How often the owner of a connection is looked up: the table may change while it is read.
const LOOKS: usize = 3;

/// The kernel's table of connections and their owners.
const CONNECTIONS: &str = "/proc/self/net/tcp";

/// One local end for each server. Dropping it stops new connections; existing ones end with their sessions.
pub(super) struct Tunnel {
    /// The addresses that the client library connects to.
    pub(super) hosts: String,
    trouble: Arc<Mutex<Option<Trouble>>>,
    entrances: Vec<AbortHandle>,
}

/// Why the last connection was not forwarded.
#[derive(Clone, Debug)]
pub(super) struct Trouble {
    pub(super) why: String,
    /// A retry will not help.
    pub(super) lasting: bool,
}

impl Tunnel {
    pub(super) async fn dig(url: &LockUrl, certificates: &Certificates) -> Result<Tunnel, LockError> {
        let connector = TlsConnector::from(Arc::new(certificates.config()?));
        let trouble = Arc::new(Mutex::new(None));
        let mut tunnel = Tunnel { hosts: String::new(), trouble: trouble.clone(), entrances: Vec::new() };
        let local = |error: io::Error| LockError::Invalid(format!("{url}: no port on loopback for its TLS: {error}"));
        for host in &url.hosts {
            let far = Far::at(host).ok_or_else(|| {
                wrong(&url.to_string(), &format!("`{host}` is not `host:port`, with the servers' secureClientPort"))
            })?;
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.map_err(local)?;
            let near = listener.local_addr().map_err(local)?;
            let separator = if tunnel.hosts.is_empty() { "" } else { "," };
            tunnel.hosts = format!("{}{separator}{near}", tunnel.hosts);
            let carrier = Carrier {
                far,
                near,
                user: rustix::process::geteuid().as_raw(),
                connector: connector.clone(),
                terms: certificates.terms(),
                trouble: trouble.clone(),
            };
            tunnel.entrances.push(tokio::spawn(Arc::new(carrier).accept(listener)).abort_handle());
        }
        Ok(tunnel)
    }

    /// Why no connection succeeds, if that is so.
    pub(super) fn trouble(&self) -> Option<Trouble> {
        self.trouble.lock().clone()
    }
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        self.entrances.iter().for_each(AbortHandle::abort);
    }
}

/// A ZooKeeper server.
struct Far {
    host: String,
    port: u16,
    name: ServerName<'static>,
}

impl Far {
    fn at(host: &str) -> Option<Far> {
        let (host, port) = host.rsplit_once(':')?;
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host).to_owned();
        let name = ServerName::try_from(host.clone()).ok()?;
        Some(Far { host, port: port.parse().ok()?, name })
    }
}

/// Forwards the connections to one local end.
struct Carrier {
    far: Far,
    near: SocketAddr,
    /// The user that may connect.
    user: u32,
    connector: TlsConnector,
    terms: Terms,
    trouble: Arc<Mutex<Option<Trouble>>>,
}

impl Carrier {
    async fn accept(self: Arc<Carrier>, listener: TcpListener) {
        loop {
            match listener.accept().await {
                Ok((near, from)) => {
                    let carrier = self.clone();
                    tokio::spawn(async move {
                        let carried = carrier.carry(near, from).await;
                        carried.unwrap_or_else(|error| carrier.failed(&error));
                    });
                }
                Err(error) => {
                    self.failed(&error);
                    sleep(PAUSE).await;
                }
            }
        }
    }

    async fn carry(&self, near: TcpStream, from: SocketAddr) -> io::Result<()> {
        let user = maker(from, self.near).await?;
        if user != self.user {
            tracing::warn!(user, at = %self.near, "another user's connection to a tunnel to ZooKeeper was not carried");
            return Ok(());
        }
        let far = timeout(PATIENCE, self.connect()).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))?;
        near.set_nodelay(true)?;
        let (near_reads, near_writes) = near.into_split();
        let (far_reads, far_writes) = tokio::io::split(far);
        let (there, back) = (forth(near_reads, far_writes), self.back(far_reads, near_writes));
        tokio::pin!(there, back);
        tokio::select! {
            carried = &mut back => carried,
            // The server may have sent the reason for closing; read it.
            () = &mut there => timeout(LAST_WORDS, back).await.unwrap_or(Ok(())),
        }
    }

    async fn connect(&self) -> io::Result<TlsStream<TcpStream>> {
        let stream = TcpStream::connect((self.far.host.as_str(), self.far.port)).await?;
        stream.set_nodelay(true)?;
        self.connector.connect(self.far.name.clone(), stream).await
    }

    /// Copies from the server to the client. With TLS 1.3, only its first bytes prove that it accepts our certificate.
    async fn back(&self, mut far: ReadHalf<TlsStream<TcpStream>>, mut near: OwnedWriteHalf) -> io::Result<()> {
        let mut first = [0; 4096];
        let count = far.read(&mut first).await?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.note(None);
        near.write_all(&first[..count]).await?;
        // The connection ends with the session, cleanly or not.
        let _ = copy(&mut far, &mut near).await;
        Ok(())
    }

    fn failed(&self, error: &io::Error) {
        let Far { host, port, .. } = &self.far;
        let refusal = self.terms.refusal(error);
        let lasting = refusal.is_some() || error.kind() == io::ErrorKind::Unsupported;
        let why = refusal.unwrap_or_else(|| match ended(error) {
            true => format!("it ended the connection at once{}", self.terms.suspicion()),
            false => error.to_string(),
        });
        self.note(Some(Trouble { why: format!("{host}:{port}: {why}"), lasting }));
    }

    fn note(&self, trouble: Option<Trouble>) {
        *self.trouble.lock() = trouble;
    }
}

/// Copies from the client to the server.
async fn forth(mut near: OwnedReadHalf, mut far: WriteHalf<TlsStream<TcpStream>>) {
    // If writing fails, the reading side reports why.
    if copy(&mut near, &mut far).await.is_ok() {
        let _ = far.shutdown().await;
    }
}

/// The user who made a connection. Ports on loopback are open to every user on the machine.
async fn maker(from: SocketAddr, to: SocketAddr) -> io::Result<u32> {
    for _ in 0..LOOKS {
        let table = tokio::task::spawn_blocking(|| std::fs::read_to_string(CONNECTIONS)).await?;
        let table = table.map_err(|error| {
            let why = format!("{CONNECTIONS} cannot be read, so no connection is let into the tunnel: {error}");
            io::Error::new(io::ErrorKind::Unsupported, why)
        })?;
        match owner(&table, from, to) {
            Some(user) => return Ok(user),
            None => sleep(PAUSE).await,
        }
    }
    Err(io::Error::other(format!("{CONNECTIONS} does not say whose a connection is; it may have ended")))
}

/// The owner of the established connection. One that is closed already has no owner.
fn owner(table: &str, from: SocketAddr, to: SocketAddr) -> Option<u32> {
    const ESTABLISHED: &str = "01";
    let wanted = [kernels(from)?, kernels(to)?];
    table.lines().find_map(|line| {
        let mut columns = line.split_whitespace().skip(1);
        let found = columns.next()? == wanted[0] && columns.next()? == wanted[1] && columns.next()? == ESTABLISHED;
        found.then(|| columns.nth(3)?.parse().ok())?
    })
}

/// An address in the kernel's notation.
fn kernels(address: SocketAddr) -> Option<String> {
    let SocketAddr::V4(address) = address else { return None };
    Some(format!("{:08X}:{:04X}", u32::from_ne_bytes(address.ip().octets()), address.port()))
}

#[cfg(test)]
mod tests {
    use fencepost_remote::tls;
    use rustls::RootCertStore;

    use super::*;

    #[test]
    fn whose_a_connection_is() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
             \x20  0: 0100007F:0885 00000000:0000 0A 00000000:00000000 00:00000000 00000000     7        0 1 1 0 100\n\
             \x20  1: 0100007F:A001 0100007F:0885 01 00000000:00000000 00:00000000 00000000  1000        0 2 1 0 20\n\
             \x20  2: 0100007F:A002 0100007F:0885 05 00000000:00000000 00:00000000 00000000     0        0 0 1 0 20\n";
        let at = |port| SocketAddr::from(([127, 0, 0, 1], port));
        if cfg!(target_endian = "little") {
            assert_eq!(owner(table, at(0xA001), at(0x0885)), Some(1000));
        }
        assert_eq!(owner(table, at(0xA002), at(0x0885)), None, "closed, so nobody's");
        assert_eq!(owner(table, at(0xA003), at(0x0885)), None);
        assert_eq!(owner("", at(1), at(2)), None);
    }

    #[tokio::test]
    async fn our_own_connection_is_found_in_the_kernels_table() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let to = listener.local_addr().unwrap();
        let ours = TcpStream::connect(to).await.unwrap();
        let (_accepted, from) = listener.accept().await.unwrap();
        assert_eq!(maker(from, to).await.unwrap(), rustix::process::geteuid().as_raw());
        drop(ours);
        maker(from, to).await.expect_err("it is nobody's any more");
    }

    #[tokio::test]
    async fn another_users_connection_is_not_carried() {
        let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let url = LockUrl::parse(&format!("zks://{}", server.local_addr().unwrap())).unwrap();
        let certificates = tls::by_scheme(&url, "zks").unwrap().unwrap();
        let config = tls::builder().unwrap().with_root_certificates(RootCertStore::empty()).with_no_client_auth();
        let (us, connector) = (rustix::process::geteuid().as_raw(), TlsConnector::from(Arc::new(config)));
        for (user, is_carried) in [(us, true), (us + 1, false)] {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
            let (far, near) = (Far::at(&url.hosts[0]).unwrap(), listener.local_addr().unwrap());
            let (terms, connector) = (certificates.terms(), connector.clone());
            let carrier = Carrier { far, near, user, connector, terms, trouble: Arc::default() };
            let accepting = tokio::spawn(Arc::new(carrier).accept(listener));
            let mut ours = TcpStream::connect(near).await.unwrap();
            let mut said = [0];
            tokio::select! {
                _ = server.accept() => assert!(is_carried, "carried for user {user}"),
                _ = ours.read(&mut said) => assert!(!is_carried, "not carried for user {user}"),
            }
            accepting.abort();
        }
    }

    #[test]
    fn servers() {
        let far = Far::at("[::1]:2281").unwrap();
        assert_eq!((far.host.as_str(), far.port), ("::1", 2281));
        assert_eq!(Far::at("zk.example:2281").unwrap().host, "zk.example");
        for wrong in ["zk.example", "zk.example:x", ":2281", "[::1]"] {
            assert!(Far::at(wrong).is_none(), "{wrong}");
        }
    }
}
