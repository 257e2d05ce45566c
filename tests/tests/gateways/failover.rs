//! The primary is lost, and a standby takes over: with everything that was confirmed, or without (trap 46).

use std::thread;
use std::time::Duration;

use fencepost_conformance::random::Random;
use fencepost_conformance::wait::{self, PATIENCE};
use fencepost_harness::load::{self, Until};
use fencepost_harness::process::run;
use fencepost_harness::record::Record;
use fencepost_harness::servers::postgres::Postgres;

use crate::team::{Frozen, Gateway, either, engine, own_server};

const FSYNC: &[&str] = &["fsync=on"];

#[test]
fn t46_with_a_synchronous_standby_nothing_that_was_answered_is_lost() {
    let mut primary = own_server();
    let standby = primary.standby_with(FSYNC);
    primary.demand_standby();
    let engine = either(&primary, &standby, "durability=standby");
    let gateways = [Gateway::start(&engine), Gateway::start(&engine)];
    let addresses = gateways.each_ref().map(|gateway| gateway.address());
    let (record, mut random) = (Record::new(40), Random::from_environment());
    let life = Duration::from_millis(100 + random.below(400));
    let mut third = None;
    load::run_over(&addresses, &record, 8, &random, Until::Outage(40), || {
        wait::pause(life);
        primary.kill();
        standby.promote();
        // It has no standby of its own yet, so a commit there would be on one machine only.
        for gateway in &gateways {
            wait::until("the gateway to find the new primary", PATIENCE, || {
                let answer = gateway.client().put("after/the/failover", "1", "v");
                assert!(answer.status >= 500, "a commit on one machine was answered {answer:?}");
                answer.text().contains("no standby is synchronous").then_some(())
            });
        }
        third = Some(standby.standby_with(FSYNC));
        standby.demand_standby();
        gateways.iter().for_each(Gateway::wait_until_ready);
    });
    for gateway in &gateways {
        record.check(&mut gateway.client());
        assert_eq!(gateway.client().put("after/the/failover", "1", "v").status, 204);
    }
    // A gateway that is started now finds nothing wrong either.
    record.check(&mut Gateway::start(&engine).client());
    println!("{}", record.summary());
    drop(third);
}

/// A server that was promoted without the last commits of the old primary.
struct Promoted {
    server: Postgres,
    engine: String,
    /// It wrote to the old primary, and is still running.
    gateway: Gateway,
    _gone: Postgres,
}

impl Promoted {
    /// `orders/1` had the fence 34 on the old primary, and has 33 on this one.
    fn start() -> Promoted {
        let mut primary = own_server();
        let mut standby = primary.standby_with(FSYNC);
        let engine = either(&primary, &standby, "schema=lagging");
        let gateway = Gateway::start(&engine);
        assert_eq!(gateway.client().put("orders/1", "33", "old").status, 204);
        primary.wait_for(&standby);
        standby.kill();
        assert_eq!(gateway.client().claim("orders/1", "34").status, 200);
        assert_eq!(gateway.client().put("orders/1", "34", "new").status, 204);
        primary.kill();
        standby.restart();
        standby.promote();
        Promoted { server: standby, engine, gateway, _gone: primary }
    }

    fn restored(&self, more: &[&str]) -> std::process::Output {
        let data = self.gateway.data();
        run(&[&["restored", "--engine", self.engine.as_str(), "--data", data.to_str().unwrap()], more].concat())
    }
}

#[test]
fn t46_a_standby_that_lacks_commits_is_refused_until_an_operator_accepts_it() {
    let mut promoted = Promoted::start();
    let missing =
        promoted.server.sql("select count(*) from lagging.records where encode(bytes, 'escape') like '%new%'");
    assert_eq!(missing, "0", "the standby has everything, so nothing is proven");

    // The gateway that was running.
    let refused = wait::until("the gateway to find the promoted server", PATIENCE, || {
        let answer = promoted.gateway.client().put("orders/1", "35", "zombie");
        assert!(answer.status >= 500, "a write on another history was answered {answer:?}");
        (answer.status == 503 && answer.text().contains("was promoted")).then_some(answer)
    });
    assert_eq!(refused.problem(), "unavailable");
    assert!(refused.text().contains("fencepost restored"), "it says what to do: {}", refused.text());
    assert_eq!(promoted.gateway.readiness(), 503);
    // One that is started now.
    let said = Gateway::refused(&promoted.engine, &[]);
    assert!(said.contains("was promoted") && said.contains("fencepost restored --yes"), "{said}");

    let asked = promoted.restored(&[]);
    assert_eq!(asked.status.code(), Some(2), "{asked:?}");
    let said = Gateway::refused(&promoted.engine, &[]);
    assert!(said.contains("was promoted"), "without --yes nothing was accepted: {said}");

    let accepted = promoted.restored(&["--yes"]);
    let said = String::from_utf8_lossy(&accepted.stdout).into_owned();
    assert!(accepted.status.success(), "{accepted:?}");
    let base = said.split("base generation is now ").nth(1).unwrap().split(';').next().unwrap().trim().to_owned();

    let fresh = Gateway::start(&promoted.engine);
    let mut client = fresh.client();
    assert_eq!(client.get("orders/1").text(), "old", "what was lost is lost");
    for token in ["33", "34", "35", "1:1", "18446744073709551615"] {
        let refused = client.put("orders/1", token, "zombie");
        assert_eq!((refused.status, refused.problem().as_str()), (409, "retired-generation"), "{token}");
        // The other one was not stopped as it should have been.
        let refused = promoted.gateway.client().put("orders/1", token, "zombie");
        assert!(matches!(refused.status, 409 | 503), "the gateway of before admits {token}: {refused:?}");
    }
    assert_eq!(client.put("never/seen", "1", "zombie").problem(), "retired-generation");
    assert_eq!(client.put("orders/1", &format!("{base}:1"), "newest").status, 204);
    // Started again, the gateway of before serves as well.
    promoted.gateway.kill();
    promoted.gateway.restart();
    let read = promoted.gateway.client().get("orders/1");
    assert_eq!((read.text(), read.header("fence")), ("newest".to_owned(), Some(format!("{base}:1").as_str())));
}

#[test]
fn g4_a_cancelled_wait_for_the_standby_is_not_answered_as_success() {
    let primary = own_server();
    let standby = primary.standby_with(FSYNC);
    primary.demand_standby();
    let gateway = Gateway::start(&engine(&primary.url(), "durability=standby"));
    assert_eq!(gateway.client().put("orders/1", "33", "old").status, 204);
    let frozen = Frozen::freeze(&standby);
    let mut client = gateway.client();
    let sent = thread::spawn(move || client.put("orders/1", "33", "new"));
    let cancel =
        "select count(*) filter (where pg_cancel_backend(pid)) from pg_stat_activity where wait_event = 'SyncRep'";
    wait::until("the commit to wait for the standby", PATIENCE, || (primary.sql(cancel) != "0").then_some(()));
    // As the first one, so every further wait.
    wait::until("an answer", PATIENCE, || {
        primary.sql(cancel);
        sent.is_finished().then_some(())
    });
    let answer = sent.join().unwrap();
    assert_eq!((answer.status, answer.problem().as_str()), (500, "outcome-unknown"), "{}", answer.text());
    let there = primary.sql("select count(*) from fencepost.records where encode(bytes, 'escape') like '%new%'");
    assert_eq!(there, "1", "committed on the primary alone: PostgreSQL said so to everybody else");
    drop(frozen);
    wait::until("the gateway to write again", PATIENCE, || {
        (gateway.client().put("orders/1", "33", "newer").status == 204).then_some(())
    });
    primary.wait_for(&standby);
}
