//! The requirements on every lock service over TLS: one suite for all of them, on real servers.

use std::path::Path;
use std::time::Duration;

use fencepost_client::locks::{self, Acquired, LockError};
use fencepost_client::{Client, Gateway, LockOptions};
use fencepost_harness::fresh::Fresh;
use fencepost_harness::servers::certificates::{Certificates, Clients, Signed};

use crate::suite::{ask, connect, take};

const TTL: Duration = Duration::from_secs(5);

/// A server that speaks TLS.
pub(crate) trait Encrypted: Sized + Send {
    /// The names of the settings: root, client certificate, client key.
    const SETTINGS: [&'static str; 3] = ["ca", "cert", "key"];

    /// Starts an empty server.
    fn start_encrypted(certificates: &Certificates, clients: Clients) -> Self;

    /// Its URL without those settings, up to the point where they follow.
    fn encrypted_url(&self, clients: Clients) -> String;
}

/// All cases for one kind of service, each with a server of its own.
macro_rules! over_tls {
    ($service:path) => {
        mod over_tls {
            $crate::tls::each! { $service:
                the_lock_works_with_the_right_root
                another_name_is_refused
                a_client_says_who_it_is
                files_that_cannot_be_used
            }
        }
    };
}

macro_rules! each {
    ($service:path: $($case:ident)*) => {
        $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $case() {
            $crate::tls::$case::<$service>().await;
        })*
    };
}
pub(crate) use each;

/// A server with these certificates, and its URL with these settings.
struct Spoken<S> {
    _server: S,
    url: String,
}

impl<S: Encrypted> Spoken<S> {
    fn start(certificates: &Certificates, clients: Clients) -> Spoken<S> {
        let server = tokio::task::block_in_place(|| S::start_encrypted(certificates, clients));
        let url = server.encrypted_url(clients);
        Spoken { _server: server, url }
    }

    fn with(&self, settings: Settings<'_>) -> String {
        let named = |(which, file): &(usize, &Path)| format!("{}={}", S::SETTINGS[*which], file.display());
        let settings: Vec<_> = settings.iter().map(named).collect();
        format!("{}{}", self.url, settings.join("&"))
    }

    fn trusting(&self, certificates: &Certificates) -> String {
        self.with(&[(ROOT, &certificates.root())])
    }

    fn known_as(&self, certificates: &Certificates, client: &Signed) -> String {
        self.with(&[(ROOT, &certificates.root()), (CERTIFICATE, &client.certificate), (KEY, &client.key)])
    }
}

/// A setting, and the file it names.
type Settings<'a> = &'a [(usize, &'a Path)];

const ROOT: usize = 0;
const CERTIFICATE: usize = 1;
const KEY: usize = 2;

/// A setting as messages quote it.
fn quoted<S: Encrypted>(setting: usize) -> String {
    format!("`{}`", S::SETTINGS[setting])
}

async fn refused(url: &str) -> LockError {
    match locks::connect(url).await {
        Ok(_) => panic!("{url} was let in"),
        Err(error) => error,
    }
}

/// Acquires, writes with the token and releases; a waiter is notified.
async fn works(url: &str) {
    let at = tokio::task::block_in_place(|| Fresh::memory(&[]));
    let gateway = Gateway::new(at.url()).unwrap();
    let locks = Client::new(gateway, connect(url).await).with_lock_options(LockOptions::new().ttl(TTL));
    let guard = locks.acquire("orders/1").await.unwrap();
    let token = guard.token();
    guard.put("orders/1", "paid").await.unwrap();
    let next = connect(url).await;
    let waiting = tokio::spawn(async move {
        match ask(next.as_ref(), "orders/1", "next#1", TTL, Duration::from_secs(60)).await {
            Acquired::Held(lease) => (lease.number, next.release(lease).await),
            Acquired::Busy => panic!("the lock was released"),
        }
    });
    guard.release().await.unwrap();
    let (number, released) = waiting.await.unwrap();
    assert!(number > token.number(), "{number} after {token}");
    released.unwrap();
}

pub(crate) async fn the_lock_works_with_the_right_root<S: Encrypted>() {
    let (ours, others) = (Certificates::make("127.0.0.1"), Certificates::make("127.0.0.1"));
    let service = Spoken::<S>::start(&ours, Clients::Anybody);
    works(&service.trusting(&ours)).await;
    // The root of another authority, and the system roots, which do not include ours.
    for url in [service.trusting(&others), service.with(&[(ROOT, Path::new("system"))])] {
        let error = refused(&url).await;
        let said = error.to_string();
        assert!(matches!(error, LockError::Failed { .. }), "{url}: {error:?}");
        assert!(said.contains("certificate") && said.contains(&quoted::<S>(ROOT)), "{url}: {said}");
    }
}

pub(crate) async fn another_name_is_refused<S: Encrypted>() {
    let elsewhere = Certificates::make("127.0.0.2");
    let service = Spoken::<S>::start(&elsewhere, Clients::Anybody);
    let error = refused(&service.trusting(&elsewhere)).await;
    assert!(matches!(error, LockError::Failed { .. }), "{error:?}");
    assert!(error.to_string().contains("127.0.0.2"), "{error}");
}

pub(crate) async fn a_client_says_who_it_is<S: Encrypted>() {
    let (ours, others) = (Certificates::make("127.0.0.1"), Certificates::make("127.0.0.1"));
    let service = Spoken::<S>::start(&ours, Clients::Known);
    works(&service.known_as(&ours, &ours.client("/CN=worker"))).await;
    let nobody = refused(&service.trusting(&ours)).await.to_string();
    assert!(nobody.contains(&quoted::<S>(CERTIFICATE)) && nobody.contains(&quoted::<S>(KEY)), "{nobody}");
    refused(&service.known_as(&ours, &others.client("/CN=worker"))).await;
}

pub(crate) async fn files_that_cannot_be_used<S: Encrypted>() {
    let (ours, others) = (Certificates::make("127.0.0.1"), Certificates::make("127.0.0.1"));
    let service = Spoken::<S>::start(&ours, Clients::Anybody);
    let (root, mine, theirs) = (ours.root(), ours.client("/CN=worker"), others.client("/CN=worker"));
    let (nowhere, key) = (Path::new("/nowhere/at/all.pem"), std::fs::read_to_string(&mine.key).unwrap());
    let cases: [(Settings<'_>, usize, &Path); 9] = [
        (&[(ROOT, nowhere)], ROOT, nowhere),
        (&[(ROOT, &mine.key)], ROOT, &mine.key),
        (&[(ROOT, &root), (CERTIFICATE, nowhere), (KEY, &mine.key)], CERTIFICATE, nowhere),
        (&[(ROOT, &root), (CERTIFICATE, &mine.certificate), (KEY, nowhere)], KEY, nowhere),
        (&[(ROOT, &root), (CERTIFICATE, &mine.key), (KEY, &mine.key)], CERTIFICATE, &mine.key),
        (&[(ROOT, &root), (CERTIFICATE, &mine.certificate), (KEY, &root)], KEY, &root),
        (&[(ROOT, &root), (CERTIFICATE, &mine.certificate), (KEY, &theirs.key)], KEY, &theirs.key),
        (&[(ROOT, &root), (CERTIFICATE, &mine.certificate)], KEY, Path::new("")),
        (&[(ROOT, &root), (KEY, &mine.key)], CERTIFICATE, Path::new("")),
    ];
    for (settings, blamed, file) in cases {
        let error = refused(&service.with(settings)).await;
        let said = error.to_string();
        assert!(matches!(error, LockError::Invalid(_)), "{settings:?}: {error:?}");
        assert!(said.contains(&quoted::<S>(blamed)), "{settings:?}: {said}");
        assert!(said.contains(&file.display().to_string()), "{settings:?}: {said}");
        assert!(!key.lines().any(|line| said.contains(line)), "{settings:?} shows the key: {said}");
    }
    let backend = connect(&service.known_as(&ours, &mine)).await;
    let lease = take(backend.as_ref(), "orders/1", "a#1", TTL).await;
    backend.release(lease).await.unwrap();
}
