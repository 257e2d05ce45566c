//! Several gateways over etcd: gateways and members are killed and stopped under load, and a snapshot is put back.

use std::time::{Duration, Instant};

use fencepost_conformance::random::Random;
use fencepost_conformance::wait::{self, PATIENCE};
use fencepost_harness::budget;
use fencepost_harness::load::{self, Until};
use fencepost_harness::networks::in_own_network;
use fencepost_harness::process::run;
use fencepost_harness::record::Record;
use fencepost_harness::servers::etcd::Etcd;
use fencepost_harness::servers::etcd_cluster::EtcdCluster;
use serde_json::json;
use tempfile::TempDir;

use crate::crash::check_outage;
use crate::team::{Gateway, On, Pair, txn};

const CLIENTS: usize = 9;
const KEYS: usize = 60;

/// How many requests each client sends in one round.
const REQUESTS: u64 = 40;

fn gateways(engine: &str, count: usize) -> Vec<Gateway> {
    (0..count).map(|_| Gateway::with(engine, &["--log", "warn"])).collect()
}

#[test]
fn every_answer_survives_the_death_of_one_of_three_gateways_over_etcd() {
    const GATEWAYS: usize = 3;
    let (kills, started) = (budget::pick(8, 60), Instant::now());
    let mut random = Random::from_environment();
    let etcd = Etcd::start();
    let mut gateways = gateways(&format!("etcd://{}/killed", etcd.address()), GATEWAYS);
    let record = Record::new(KEYS);
    let mut requests = 0;
    for kill in 0..kills {
        let victim = usize::try_from(random.below(GATEWAYS as u64)).unwrap();
        let addresses: Vec<String> = gateways.iter().map(|gateway| gateway.address().to_owned()).collect();
        let addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
        let life = Duration::from_micros(random.below(100_000));
        let until = Until::Requests(REQUESTS);
        requests += load::run_over(&addresses, &record, CLIENTS, &random.fork(kill), until, || {
            wait::pause(life);
            gateways[victim].kill();
        });
        // It may be at a commit that was sent before.
        etcd.wait_for_dead_clients();
        record.check(&mut gateways[(victim + 1) % GATEWAYS].client());
        gateways[victim].restart();
        record.check(&mut gateways[victim].client());
    }
    println!(
        "{kills} kills of {GATEWAYS} gateways in {:.1} s, {requests} requests: {}",
        started.elapsed().as_secs_f64(),
        record.summary()
    );
}

#[test]
fn every_answer_survives_the_death_of_etcd_and_gateways_recover_by_themselves() {
    let mut random = Random::from_environment();
    let mut etcd = Etcd::start();
    let gateways = gateways(&format!("etcd://{}/outages", etcd.address()), 2);
    let record = Record::new(KEYS);
    let addresses: Vec<&str> = gateways.iter().map(|gateway| gateway.address()).collect();
    for kill in 0..budget::pick(3, 40) {
        let life = Duration::from_micros(random.below(200_000));
        let until = Until::Outage(REQUESTS);
        load::run_over(&addresses, &record, CLIENTS, &random.fork(kill), until, || {
            wait::pause(life);
            etcd.kill();
            gateways.iter().for_each(check_outage);
            etcd.restart();
            gateways.iter().for_each(Gateway::wait_until_ready);
        });
        for gateway in &gateways {
            record.check(&mut gateway.client());
        }
    }
    println!("{}", record.summary());
}

/// What happens to a member, the leader, and what ends it.
type Fault = fn(&mut EtcdCluster, usize);

/// Nothing that was answered is lost whatever happens to the leader.
fn survive(name: &str, mut cluster: EtcdCluster, fault: Fault, end: Fault) {
    let mut random = Random::from_environment();
    let gateways = gateways(&format!("etcd://{}/{name}", cluster.hosts()), 2);
    let record = Record::new(KEYS);
    let addresses: Vec<&str> = gateways.iter().map(|gateway| gateway.address()).collect();
    for round in 0..budget::pick(2, 20) {
        let life = Duration::from_micros(random.below(200_000));
        let until = Until::Outage(REQUESTS);
        load::run_over(&addresses, &record, CLIENTS, &random.fork(round), until, || {
            wait::pause(life);
            let leader = cluster.leader();
            fault(&mut cluster, leader);
            // The other members go on without it.
            for gateway in &gateways {
                wait::until("a write to succeed", PATIENCE, || {
                    (gateway.client().put("during/the/fault", "1", "v").status == 204).then_some(())
                });
            }
            end(&mut cluster, leader);
            gateways.iter().for_each(Gateway::wait_until_ready);
        });
        for gateway in &gateways {
            record.check(&mut gateway.client());
        }
    }
    println!("{}", record.summary());
}

#[test]
fn every_answer_survives_the_death_of_the_leader_of_three_members() {
    survive("leader_killed", EtcdCluster::with(&[]), EtcdCluster::kill, EtcdCluster::restart);
}

#[test]
fn t16_every_answer_survives_a_leader_that_was_stopped_and_goes_on() {
    let (stop, go_on): (Fault, Fault) =
        (|cluster, leader| cluster.stop(leader), |cluster, leader| cluster.go_on(leader));
    survive("leader_stopped", EtcdCluster::with(&[]), stop, go_on);
}

/// The gateways still reach it, and it believes for a while that it leads.
#[test]
fn t16_every_answer_survives_a_leader_that_is_cut_off_from_the_others() {
    if in_own_network("etcd::t16_every_answer_survives_a_leader_that_is_cut_off_from_the_others") {
        let (cut_off, join): (Fault, Fault) =
            (|cluster, leader| cluster.cut_off(leader), |cluster, leader| cluster.join(leader));
        survive("leader_cut_off", EtcdCluster::on_machines(), cut_off, join);
    }
}

#[test]
fn a_request_that_etcd_cannot_hold_is_refused_with_the_limit() {
    let pair = Pair::start(On::Etcd, "too_large");
    let mut client = pair.a.client();
    let large = client.put("large", "1", &"x".repeat(2 << 20));
    assert_eq!((large.status, large.problem().as_str()), (413, "too-large"), "{}", large.text());
    assert!(large.text().contains("max_bytes"), "{}", large.text());
    assert_eq!(large.json()["outcome"], "not-applied");
    assert_eq!(client.put("large", "1", &"x".repeat(1_400_000)).status, 204);

    let names: Vec<String> = (0..128).map(|n| format!("k{n}")).collect();
    let tokens: serde_json::Map<String, serde_json::Value> =
        names.iter().map(|name| (name.clone(), "1".into())).collect();
    let puts: Vec<_> = names.iter().map(|name| json!({"put": name, "text": "x"})).collect();
    let wide = txn(&mut client, &json!({"tokens": tokens, "then": puts}));
    assert_eq!((wide.status, wide.problem().as_str()), (413, "too-large"), "{}", wide.text());
    assert!(wide.text().contains("max_ops"), "{}", wide.text());
    assert_eq!((client.get("k0").status, client.fence("k0")), (404, None), "nothing of it was applied");
    // Each takes a fence and a value.
    let tokens: serde_json::Map<String, serde_json::Value> =
        names[..60].iter().map(|name| (name.clone(), "1".into())).collect();
    let fits = txn(&mut client, &json!({"tokens": tokens, "then": &puts[..60]}));
    assert_eq!(fits.status, 200, "{}", fits.text());
}

#[test]
fn t46_a_snapshot_that_was_put_back_is_refused_until_an_operator_accepts_it() {
    let mut etcd = Etcd::start();
    let engine = format!("etcd://{}/restored", etcd.address());
    let state = TempDir::new().unwrap();
    let state = ["--state-dir", state.path().to_str().unwrap()];
    let mut gateway = Gateway::with(&engine, &state);
    assert_eq!(gateway.client().put("orders/1", "33", "old").status, 204);
    let snapshot = etcd.snapshot("snapshot");
    for _ in 0..10 {
        assert_eq!(gateway.client().claim("orders/1", "34").status, 200);
        assert_eq!(gateway.client().put("orders/1", "34", "new").status, 204);
    }
    // It notes the position when it stops.
    gateway.stop();
    gateway.restart();
    etcd.restore(&snapshot);

    // The gateway that was running.
    let refused = wait::until("the gateway to find the snapshot", PATIENCE, || {
        let answer = gateway.client().put("orders/1", "35", "zombie");
        assert!(answer.status >= 409, "a write on another history was answered {answer:?}");
        (answer.status == 503 && answer.text().contains("lost writes")).then_some(answer)
    });
    assert!(refused.text().contains("fencepost restored"), "it says what to do: {}", refused.text());
    gateway.kill();
    // One that is started now.
    let said = Gateway::refused(&engine, &state);
    assert!(said.contains("is behind") && said.contains("fencepost restored --yes"), "{said}");

    let data = gateway.data();
    let restore = ["restored", "--yes", "--engine", &engine, "--data", data.to_str().unwrap(), state[0], state[1]];
    let accepted = run(&restore);
    assert!(accepted.status.success(), "{accepted:?}");
    gateway.restart();
    let mut client = gateway.client();
    assert_eq!(client.get("orders/1").text(), "old", "what was lost is lost");
    for token in ["33", "34", "35", "18446744073709551615"] {
        let refused = client.put("orders/1", token, "zombie");
        assert_eq!((refused.status, refused.problem().as_str()), (409, "retired-generation"), "{token}");
    }
}
