//! `fencepost lock … --lock URL`: a lock that one process acquires and another releases, where the service allows that.

use fencepost_harness::command_line::run;
use fencepost_harness::fresh::Fresh;
use fencepost_harness::servers::etcd::Etcd;
use fencepost_harness::servers::postgres::Postgres;
use fencepost_harness::servers::redis::RedisServer;
use fencepost_harness::servers::zk::ZooKeeper;

/// Acquires, renews and releases, each in a process of its own.
fn one_process_after_another(lock: &str) {
    let gateway = Fresh::memory(&[]);
    let go = |line: &str| run(&gateway, &format!("lock {line} --lock {lock}"));
    let taken = go("acquire orders/1 --ttl 60s --json").json();
    let (lease, token) = (taken["lease"].as_str().unwrap(), taken["token"].as_str().unwrap());
    assert_eq!(gateway.client().fence("orders/1").as_deref(), Some(token), "claimed before anybody sees it");
    go("acquire orders/1").assert_failed(8, &["`orders/1`"]);
    let renewed = go(&format!("renew orders/1 --lease {lease}"));
    assert_eq!((renewed.code, renewed.text().as_str()), (0, "renewed orders/1\n"), "{renewed:?}");
    let released = go(&format!("release orders/1 --lease {lease}"));
    assert_eq!((released.code, released.text().as_str()), (0, "released orders/1\n"), "{released:?}");
    assert_eq!(go(&format!("release orders/1 --lease {lease}")).code, 0, "late is harmless");
    go(&format!("renew orders/1 --lease {lease}")).assert_failed(3, &["is lost"]);
    // Free at once, not after the ttl.
    let next = go("acquire orders/1 --ttl 60s --json").json();
    let number = |token: &str| token.parse::<u64>().unwrap();
    assert!(number(next["token"].as_str().unwrap()) > number(token), "{next} after {token}");
    assert_eq!(next["issuer"], taken["issuer"]);
}

/// Locks of this service end with the process that acquired them: nothing is acquired, and the error names the
/// alternative.
fn refused(lock: &str) {
    let gateway = Fresh::memory(&[]);
    for line in ["acquire orders/1", "renew orders/1 --lease x", "release orders/1 --lease x"] {
        let said = run(&gateway, &format!("lock {line} --lock {lock}"));
        said.assert_failed(2, &["ends with the process that took it", "`fencepost run`"]);
    }
    assert_eq!(gateway.client().fence("orders/1"), None);
}

#[test]
fn locks_of_redis() {
    let server = RedisServer::start(&[]);
    one_process_after_another(&format!("redis://{}", server.address()));
}

#[test]
fn locks_of_etcd() {
    let server = Etcd::start();
    one_process_after_another(&format!("etcd://{}", server.address()));
}

#[test]
fn locks_of_postgres() {
    let server = Postgres::start();
    let url = format!("postgres://postgres@{}/postgres", server.address());
    one_process_after_another(&url);
    refused(&format!("{url}?mode=advisory&table=sessions"));
}

#[test]
fn locks_of_zookeeper() {
    let server = ZooKeeper::start();
    refused(&format!("zk://{}", server.address()));
}
