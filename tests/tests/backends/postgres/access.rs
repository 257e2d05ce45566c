//! Access: passwords, rights, TLS, proxies, and two modes that must not be mixed.

use std::time::Duration;

use fencepost_client::locks::{self, Kept, LockError};
use fencepost_harness::servers::certificates::{Certificates, Clients};
use fencepost_harness::servers::postgres::{Pool, Postgres};

use crate::suite::{RECOVERY, connect, take, take_within};

const TTL: Duration = Duration::from_secs(5);

fn start(settings: &[&str]) -> Postgres {
    tokio::task::block_in_place(|| Postgres::with(settings))
}

async fn refused(url: &str) -> LockError {
    match locks::connect(url).await {
        Ok(_) => panic!("{url} was let in"),
        Err(error) => error,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_password_is_said_and_never_shown() {
    let server = start(&[]);
    server.sql("create role locked login superuser password 'right-secret'");
    server.demand_password("locked");
    for mode in ["lease", "advisory"] {
        let at =
            |word: &str| format!("postgres://locked:{word}@{}/postgres?mode={mode}&table={mode}", server.address());
        let error = refused(&at("wrong-secret")).await;
        assert!(matches!(error, LockError::Failed { .. }), "{error:?}");
        let said = format!("{error} {error:?}");
        assert!(said.contains("password authentication failed") && said.contains("locked"), "{said}");
        assert!(!said.contains("secret"), "{said}");
        let without = format!("postgres://locked@{}/postgres?mode={mode}&table={mode}", server.address());
        let error = refused(&without).await;
        assert!(!error.is_transient() && error.to_string().contains("password missing"), "{error:?}");
        let backend = connect(&at("right-secret")).await;
        let lease = take(backend.as_ref(), "orders/1", "a#1", TTL).await;
        backend.release(lease).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_right_to_create_the_sql_is_said() {
    let server = start(&[]);
    server.sql("create role worker login");
    for mode in ["lease", "advisory"] {
        let url = format!("postgres://worker@{}/postgres?mode={mode}&table=public.{mode}", server.address());
        let error = refused(&url).await;
        assert!(matches!(error, LockError::Failed { .. }), "{error:?}");
        let said = error.to_string();
        let sql = said.split(" run: ").nth(1).unwrap_or_else(|| panic!("{said}"));
        assert!(sql.contains("create table") && sql.ends_with("to …"), "{said}");
        server.sql(&sql.replace('…', "worker"));
        let backend = connect(&url).await;
        let lease = take(backend.as_ref(), "orders/1", "a#1", TTL).await;
        backend.release(lease).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_at_once_make_one_table() {
    let server = start(&[]);
    let url = format!("postgres://postgres@{}/postgres", server.address());
    let connecting: Vec<_> = (0..16)
        .map(|who| {
            let url = url.clone();
            tokio::spawn(async move {
                let backend = connect(&url).await;
                take(backend.as_ref(), &format!("orders/{who}"), "a#1", TTL).await.issuer
            })
        })
        .collect();
    let mut issuers = Vec::new();
    for connected in connecting {
        issuers.push(connected.await.unwrap());
    }
    issuers.dedup();
    assert_eq!(issuers.len(), 1, "{issuers:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_modes_do_not_share_a_table() {
    let server = start(&[]);
    let url = |mode: &str| format!("postgres://postgres@{}/postgres?mode={mode}", server.address());
    let _lease = connect(&url("lease")).await;
    let said = refused(&url("advisory")).await.to_string();
    assert!(said.contains("mode=lease") && said.contains("table="), "{said}");
}

/// A stricter default isolation level of the user must not matter (T17).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t17_a_stricter_isolation_changes_nothing() {
    let server = start(&["default_transaction_isolation=serializable"]);
    let url = format!("postgres://postgres@{}/postgres", server.address());
    let mut contenders = Vec::new();
    for who in 0..4 {
        let backend = connect(&url).await;
        contenders.push(tokio::spawn(async move {
            let mut numbers = Vec::new();
            for round in 0..25 {
                let lease = take_within(backend.as_ref(), "orders/1", &format!("{who}#{round}"), TTL, RECOVERY).await;
                assert_eq!(backend.verify(&lease).await, Ok(Kept::Kept));
                numbers.push(lease.number.get());
                backend.release(lease).await.unwrap();
            }
            numbers
        }));
    }
    let mut all = Vec::new();
    for contender in contenders {
        let numbers = contender.await.unwrap();
        assert!(numbers.is_sorted(), "{numbers:?}");
        all.extend(numbers);
    }
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 100, "each number once");
}

/// A transaction pool would pass a session's lock to the next client.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_pool_is_refused_by_sessions_and_good_enough_for_leases() {
    let server = start(&[]);
    let pool = tokio::task::block_in_place(|| Pool::start(&server));
    let url = |mode: &str| format!("postgres://postgres@{}/postgres?mode={mode}&table={mode}", pool.address());
    let said = refused(&url("advisory")).await.to_string();
    assert!(said.contains("transaction pooling") && said.contains("mode=lease"), "{said}");
    let (a, b) = (connect(&url("lease")).await, connect(&url("lease")).await);
    let lease = take(a.as_ref(), "orders/1", "a#1", TTL).await;
    let number = lease.number;
    let waiting = tokio::spawn(async move { take_within(b.as_ref(), "orders/1", "b#1", TTL, RECOVERY).await.number });
    assert_eq!(a.renew(&lease).await, Ok(Kept::Kept));
    a.release(lease).await.unwrap();
    assert!(waiting.await.unwrap() > number);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sslmode_means_what_it_says() {
    let plain = start(&[]);
    let error = refused(&format!("postgres://postgres@{}/postgres?sslmode=require", plain.address())).await;
    assert!(!error.is_transient(), "{error:?}");
    assert!(error.to_string().contains("TLS"), "never in the clear by accident: {error}");

    let (ours, others) = (Certificates::make("127.0.0.1"), Certificates::make("127.0.0.1"));
    let elsewhere = Certificates::make("127.0.0.2");
    let [(good, root), (wrong, wrong_root)] = [&ours, &elsewhere].map(|certificates| {
        let server = tokio::task::block_in_place(|| Postgres::with_certificates(certificates, Clients::Anybody));
        (server, certificates.root().display().to_string())
    });
    let stranger = others.root().display().to_string();
    let at = |server: &Postgres, how: &str| format!("postgres://postgres@{}/postgres?{how}", server.address());
    for how in ["sslmode=require".to_owned(), format!("sslmode=verify-full&sslrootcert={root}")] {
        let backend = connect(&at(&good, &how)).await;
        let lease = take(backend.as_ref(), "orders/1", "a#1", TTL).await;
        let encrypted = "select bool_and(ssl) from pg_stat_ssl join pg_stat_activity using (pid) \
                         where application_name = 'fencepost'";
        assert_eq!(good.sql(encrypted), "t", "{how}");
        backend.release(lease).await.unwrap();
    }
    for mode in ["require", "verify-ca", "verify-full"] {
        let error = refused(&at(&good, &format!("sslmode={mode}&sslrootcert={stranger}"))).await;
        assert!(!error.is_transient(), "{error:?}");
        assert!(error.to_string().contains("certificate"), "{mode} with a stranger's root: {error}");
    }
    connect(&at(&wrong, &format!("sslmode=verify-ca&sslrootcert={wrong_root}"))).await;
    let error = refused(&at(&wrong, &format!("sslmode=verify-full&sslrootcert={wrong_root}"))).await;
    assert!(error.to_string().contains("certificate"), "another name: {error}");
}
