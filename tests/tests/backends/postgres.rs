//! PostgreSQL, in both modes.

mod access;
mod backwards;

use std::net::SocketAddr;
use std::time::Duration;

use fencepost_harness::servers::certificates::{Certificates, Clients};
use fencepost_harness::servers::postgres::Postgres;

use fencepost_client::locks::{Acquired, Wanted};

use crate::suite::{Service, connect, holder, resource};
use crate::tls::Encrypted;

mod lease {
    use super::*;

    struct Leases(Postgres);

    impl Service for Leases {
        const TTL: Duration = Duration::from_secs(1);

        fn start() -> Leases {
            Leases(Postgres::start())
        }

        fn address(&self) -> SocketAddr {
            self.0.address()
        }

        fn url_at(&self, address: SocketAddr) -> String {
            format!("postgres://postgres@{address}/postgres")
        }

        fn restart(&mut self) {
            self.0.restart();
        }
    }

    suite!(super::Leases);
}

mod advisory {
    use super::*;

    struct Sessions(Postgres);

    impl Service for Sessions {
        const TTL: Duration = Duration::from_secs(1);
        const OUTLIVES_CONNECTION: bool = false;

        fn start() -> Sessions {
            Sessions(Postgres::start())
        }

        fn address(&self) -> SocketAddr {
            self.0.address()
        }

        fn url_at(&self, address: SocketAddr) -> String {
            format!("postgres://postgres@{address}/postgres?mode=advisory")
        }

        fn restart(&mut self) {
            self.0.restart();
        }

        fn waiting(&self, _name: &str) -> Option<usize> {
            let waiting = "select count(*) from pg_locks where locktype = 'advisory' and not granted";
            Some(self.0.sql(waiting).parse().unwrap())
        }
    }

    suite!(super::Sessions);
}

/// Such a deadline is beyond the range of the clock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c12_a_wait_without_end_is_no_panic() {
    let postgres = Postgres::start();
    for mode in ["lease", "advisory"] {
        let backend =
            connect(&format!("postgres://postgres@{}/postgres?mode={mode}&table={mode}", postgres.address())).await;
        let (name, who) = (resource("orders/1"), holder("a#1"));
        let (ttl, wait) = (Duration::from_secs(30), Duration::MAX);
        let wanted = Wanted { name: &name, holder: &who, ttl, wait, floor: 0, generation: 0 };
        let acquired = backend.acquire(&wanted).await.unwrap();
        let Acquired::Held(lease) = acquired else { panic!("{mode}: nobody else has it") };
        backend.release(lease).await.unwrap();
    }
}

impl Encrypted for Postgres {
    const SETTINGS: [&'static str; 3] = ["sslrootcert", "sslcert", "sslkey"];

    fn start_encrypted(certificates: &Certificates, clients: Clients) -> Postgres {
        Postgres::with_certificates(certificates, clients)
    }

    fn encrypted_url(&self, clients: Clients) -> String {
        let user = if clients == Clients::Known { "worker" } else { "postgres" };
        format!("postgres://{user}@{}/postgres?sslmode=verify-full&", self.address())
    }
}

over_tls!(super::Postgres);
