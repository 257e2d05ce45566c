//! Gateways and the database are killed under load; what was answered still holds, at every gateway (G1–G4).
//!
//! One store, and with it the clients' record, goes through all kills.

use std::time::{Duration, Instant};

use fencepost_conformance::random::Random;
use fencepost_conformance::wait::{self, PATIENCE};
use fencepost_harness::budget;
use fencepost_harness::load::{self, Until};
use fencepost_harness::record::Record;
use fencepost_harness::servers::postgres::Postgres;

use crate::team::{Gateway, engine, own_server, shared_server};

const CLIENTS: usize = 9;
const KEYS: usize = 60;

/// How many requests each client sends in one round.
const REQUESTS: u64 = 40;

/// Gateways that the database can tell apart.
fn gateways(server: &Postgres, schema: &str, count: usize) -> Vec<Gateway> {
    let settings = |at| format!("schema={schema}&application_name={}", name(schema, at));
    (0..count).map(|at| Gateway::with(&engine(&server.url(), &settings(at)), &["--log", "warn"])).collect()
}

fn name(schema: &str, at: usize) -> String {
    format!("{schema}_{at}")
}

/// Waits until the database has dropped the connections of a killed gateway. It may be at a commit that was sent before.
fn wait_for_the_last_commit(server: &Postgres, schema: &str, at: usize) {
    let open = format!("select count(*) from pg_stat_activity where application_name = '{}'", name(schema, at));
    wait::until("the connections of a dead gateway to end", PATIENCE, || (server.sql(&open) == "0").then_some(()));
}

fn killed(schema: &str, count: usize) {
    let (kills, started) = (budget::pick(8, 60), Instant::now());
    let mut random = Random::from_environment();
    let server = shared_server();
    let mut gateways = gateways(&server, schema, count);
    let record = Record::new(KEYS);
    let mut requests = 0;
    for kill in 0..kills {
        let victim = usize::try_from(random.below(count as u64)).unwrap();
        let addresses: Vec<String> = gateways.iter().map(|gateway| gateway.address().to_owned()).collect();
        let addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
        let life = Duration::from_micros(random.below(100_000));
        let until = Until::Requests(REQUESTS);
        requests += load::run_over(&addresses, &record, CLIENTS, &random.fork(kill), until, || {
            wait::pause(life);
            gateways[victim].kill();
        });
        wait_for_the_last_commit(&server, schema, victim);
        let survivor = (victim + 1) % count;
        record.check(&mut gateways[survivor].client());
        gateways[victim].restart();
        record.check(&mut gateways[victim].client());
    }
    let addresses: Vec<&str> = gateways.iter().map(|gateway| gateway.address()).collect();
    let sent = load::run_over(&addresses, &record, CLIENTS, &random.fork(kills), Until::Requests(REQUESTS), || {});
    assert_eq!(sent, REQUESTS * CLIENTS as u64, "nothing breaks without a kill");
    for gateway in &gateways {
        record.check(&mut gateway.client());
    }
    println!(
        "{kills} kills of {count} gateways in {:.1} s, {requests} requests: {}",
        started.elapsed().as_secs_f64(),
        record.summary()
    );
}

#[test]
fn every_answer_survives_the_death_of_one_of_two_gateways() {
    killed("two_gateways", 2);
}

#[test]
fn every_answer_survives_the_death_of_one_of_three_gateways() {
    killed("three_gateways", 3);
}

/// While the database is away: neither ready, nor a success.
pub(crate) fn check_outage(gateway: &Gateway) {
    wait::until("the gateway to say that it is not ready", PATIENCE, || (gateway.readiness() == 503).then_some(()));
    let read = gateway.client().get("during/the/outage");
    assert_eq!((read.status, read.problem().as_str()), (503, "unavailable"), "{read:?}");
    assert!(read.header("retry-after").is_some(), "{read:?}");
    let answer = gateway.client().put("during/the/outage", "1", "v");
    match answer.status {
        503 => assert!(answer.header("retry-after").is_some(), "{answer:?}"),
        500 => assert_eq!(answer.problem(), "outcome-unknown", "{answer:?}"),
        _ => panic!("a write without a database was answered {answer:?}"),
    }
}

#[test]
fn every_answer_survives_the_death_of_the_database_and_gateways_recover_by_themselves() {
    let (kills, started) = (budget::pick(3, 40), Instant::now());
    let mut random = Random::from_environment();
    let mut server = own_server();
    let gateways = gateways(&server, "outages", 2);
    let record = Record::new(KEYS);
    let addresses: Vec<&str> = gateways.iter().map(|gateway| gateway.address()).collect();
    let mut requests = 0;
    for kill in 0..kills {
        let life = Duration::from_micros(random.below(200_000));
        let until = Until::Outage(REQUESTS);
        requests += load::run_over(&addresses, &record, CLIENTS, &random.fork(kill), until, || {
            wait::pause(life);
            server.kill();
            gateways.iter().for_each(check_outage);
            server.restart();
            gateways.iter().for_each(Gateway::wait_until_ready);
        });
        for gateway in &gateways {
            record.check(&mut gateway.client());
        }
    }
    for gateway in &gateways {
        assert_eq!(gateway.client().put("after/the/outage", "1", "v").status, 204);
    }
    println!(
        "{kills} kills of the database in {:.1} s, {requests} requests: {}",
        started.elapsed().as_secs_f64(),
        record.summary()
    );
}
