//! An older backup of the server is put back, and accepted as documented: no token of before gets in again (trap 27).

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use fencepost_conformance::wait;
use fencepost_harness::http::Client;
use fencepost_harness::process::run;
use fencepost_harness::servers::etcd::Etcd;
use fencepost_harness::servers::postgres::Postgres;

use crate::team::{Gateway, On, engine, on_each, own_server};

on_each! {
    t27_a_backup_that_was_put_back_lets_no_token_of_before_in,
}

/// The server of a store, and its backup.
enum Server {
    Etcd(Etcd, Option<PathBuf>),
    Postgres(Postgres),
}

impl Server {
    fn start(on: On) -> Server {
        match on {
            On::Etcd => Server::Etcd(Etcd::start(), None),
            On::Postgres => Server::Postgres(own_server()),
        }
    }

    fn engine(&self) -> String {
        match self {
            Server::Etcd(etcd, _) => format!("etcd://{}/backups", etcd.address()),
            Server::Postgres(postgres) => engine(&postgres.url(), "schema=backups"),
        }
    }

    /// Takes a backup, while gateways serve.
    fn back_up(&mut self) {
        match self {
            Server::Etcd(etcd, backup) => *backup = Some(etcd.snapshot("backup")),
            // As pg_dump does: the rows and the sequence, as of one instant.
            Server::Postgres(postgres) => {
                postgres.sql(
                    "begin isolation level repeatable read; create schema copy;
                     create table copy.records as table backups.records; create table copy.store as table backups.store;
                     create table copy.commits as select last_value, is_called from backups.commits; commit",
                );
            }
        }
    }

    /// Puts the backup back, while no gateway runs.
    fn restore(&mut self) {
        match self {
            Server::Etcd(etcd, backup) => etcd.restore(backup.as_ref().expect("there is a backup")),
            Server::Postgres(postgres) => {
                postgres.sql(
                    "begin; truncate backups.records, backups.store; insert into backups.records table copy.records;
                     insert into backups.store table copy.store;
                     select setval('backups.commits', last_value, is_called) from copy.commits; commit",
                );
            }
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the generation of a restore goes by the wall clock")]
fn unix_seconds() -> u64 {
    SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs()
}

/// Puts the backup back and accepts it, while no gateway runs. Returns the base generation since.
fn put_back(server: &mut Server, gateways: &mut [Gateway; 2]) -> u64 {
    gateways.iter_mut().for_each(Gateway::stop);
    server.restore();
    let (before, data) = (unix_seconds(), gateways[0].data());
    let done = run(&["restored", "--yes", "--engine", &server.engine(), "--data", data.to_str().unwrap()]);
    assert!(done.status.success(), "{done:?}");
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(said.contains("1 locks were freed"), "{said}");
    let base = said.split("base generation is now ").nth(1).and_then(|rest| rest.split(';').next());
    let base = base.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("no generation in {said}"));
    assert!(base >= before, "an earlier restore, or a rotation since the backup, may have used {base}");
    gateways.iter_mut().for_each(Gateway::restart);
    base
}

fn check_retired(client: &mut Client, key: &str, token: &str) {
    let refused = client.put(key, token, "zombie");
    assert_eq!((refused.status, refused.problem().as_str()), (409, "retired-generation"), "{key} under {token}");
}

fn t27_a_backup_that_was_put_back_lets_no_token_of_before_in(on: On) {
    let mut server = Server::start(on);
    let mut gateways = [Gateway::start(&server.engine()), Gateway::start(&server.engine())];
    let mut client = gateways[0].client();
    assert_eq!(client.put("orders/1", "33", "old").status, 204);
    let kept = client.acquire("jobs/1", "a#1", 600_000);
    assert_eq!(kept.status, 201, "{}", kept.text());
    server.back_up();
    // Each of these raises a fence that the backup does not know.
    assert_eq!(client.claim("orders/1", "34").status, 200);
    assert_eq!(client.put("orders/1", "34", "new").status, 204);
    assert_eq!(client.put("orders/2", "7", "first seen after the backup").status, 204);
    let rotated = gateways[1].admin("fence rotate orders/3 --from 0 --reason test");
    assert!(rotated.status.success(), "{rotated:?}");
    assert_eq!(client.put("orders/3", "1:1", "in a generation after the backup").status, 204);

    let first = put_back(&mut server, &mut gateways);
    for gateway in &gateways {
        let mut client = gateway.client();
        assert_eq!((client.get("orders/1").text().as_str(), client.get("orders/2").status), ("old", 404));
        for token in ["33", "34", "35", "1:1", "18446744073709551615"] {
            for key in ["orders/1", "orders/2", "orders/3", "never/seen", "jobs/1"] {
                check_retired(&mut client, key, token);
            }
        }
        let renewed = client.renew("jobs/1", kept.json()["lease"].as_str().unwrap(), 600_000);
        assert_eq!((renewed.status, renewed.problem().as_str()), (410, "lease-lost"), "{}", renewed.text());
    }
    let newest = format!("{first}:1");
    assert_eq!(gateways[0].client().put("orders/1", &newest, "after the restore").status, 204);
    check_retired(&mut gateways[1].client(), "orders/1", "34");
    let granted = gateways[1].client().acquire("jobs/1", "b#2", 600_000);
    assert_eq!((granted.status, granted.json()["token"].as_str()), (201, Some(newest.as_str())), "{}", granted.text());

    // The same backup once more. It knows nothing of the generation that was in use since, and the clock does.
    wait::until("the next second", Duration::from_secs(60), || (unix_seconds() > first).then_some(()));
    let second = put_back(&mut server, &mut gateways);
    assert!(second > first, "{second} was used before");
    for gateway in &gateways {
        for key in ["orders/1", "never/seen", "jobs/1"] {
            check_retired(&mut gateway.client(), key, &newest);
            check_retired(&mut gateway.client(), key, "34");
        }
        assert_eq!(gateway.client().put("orders/1", &format!("{second}:1"), "again").status, 204);
    }
}
