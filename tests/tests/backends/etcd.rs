//! etcd: the shared suite, and failures of its own.

mod access;
mod backwards;
mod line;

use std::net::SocketAddr;
use std::time::Duration;

use fencepost_conformance::wait;
use fencepost_harness::servers::certificates::{Certificates, Clients};
use fencepost_harness::servers::etcd::{Etcd, EtcdKey, keys};

use crate::suite::Service;
use crate::tls::Encrypted;

impl Service for Etcd {
    const TTL: Duration = Duration::from_secs(2);

    fn start() -> Etcd {
        Etcd::start()
    }

    fn address(&self) -> SocketAddr {
        self.address()
    }

    fn url_at(&self, address: SocketAddr) -> String {
        format!("etcd://{address}")
    }

    fn restart(&mut self) {
        self.restart();
    }

    fn waiting(&self, name: &str) -> Option<usize> {
        // All but the holder.
        let contenders = self.keys(&format!("fencepost/lock:{}/", name.replace('/', "%2F"))).len();
        Some(contenders.saturating_sub(1))
    }
}

suite!(super::Etcd);

impl Encrypted for Etcd {
    fn start_encrypted(certificates: &Certificates, clients: Clients) -> Etcd {
        Etcd::with_certificates(certificates, clients)
    }

    fn encrypted_url(&self, _clients: Clients) -> String {
        format!("etcds://{}?", self.address())
    }
}

over_tls!(super::Etcd);

const TTL: Duration = <Etcd as Service>::TTL;

/// Long enough for a busy machine.
const LONG: Duration = Duration::from_secs(60);

/// The keys of the holder and all waiters of this lock, once there are this many.
fn contenders(etcd: SocketAddr, lock: &str, count: usize) -> Vec<EtcdKey> {
    tokio::task::block_in_place(|| {
        wait::until(&format!("{count} keys of {lock}"), LONG, || {
            let keys = keys(etcd, &format!("fencepost/lock:{lock}/"));
            (keys.len() == count).then_some(keys)
        })
    })
}
