//! Which of several servers is used: the primary, and not one that was a primary (trap 46).

use fencepost_conformance::wait::{self, PATIENCE};
use fencepost_harness::process::run;
use fencepost_harness::servers::postgres::Postgres;

use crate::team::{Frozen, Gateway, either, engine, own_server};

const FSYNC: &[&str] = &["fsync=on"];

/// Waits until a write through this gateway succeeds.
fn wait_for_a_write(gateway: &Gateway, token: &str, body: &str) {
    wait::until("the gateway to write on the new primary", PATIENCE, || {
        (gateway.client().put("orders/1", token, body).status == 204).then_some(())
    });
}

#[test]
fn t46_an_old_primary_that_comes_back_is_not_used() {
    let mut old = own_server();
    let new = old.standby_with(FSYNC);
    let engine = either(&old, &new, "schema=returned");
    let mut running = Gateway::start(&engine);
    assert_eq!(running.client().put("orders/1", "33", "before").status, 204);
    old.wait_for(&new);
    old.kill();
    new.promote();
    let data = running.data();
    running.stop();
    let restored = run(&["restored", "--yes", "--engine", &engine, "--data", data.to_str().unwrap()]);
    assert!(restored.status.success(), "{restored:?}");
    running.restart();
    let generation = running.client().request("GET", "/v1/fences/orders/1", &[], b"").json()["generation"].to_string();
    assert_eq!(running.client().put("orders/1", &format!("{generation}:1"), "after").status, 204);

    // It takes writes, and knows nothing of the promotion. It is the first one in the URL.
    old.restart();
    let fresh = Gateway::start(&engine);
    for gateway in [&fresh, &running] {
        // The connections that it has break; the next ones may lead to either server.
        new.sql("select count(pg_terminate_backend(pid)) from pg_stat_activity where application_name = 'fencepost'");
        wait::until("the gateway to answer again", PATIENCE, || (gateway.readiness() == 200).then_some(()));
        assert_eq!(gateway.client().get("orders/1").text(), "after");
        assert_eq!(gateway.client().put("orders/1", "33", "zombie").problem(), "retired-generation");
    }
    assert_eq!(old.sql("select count(*) from returned.records where encode(bytes, 'escape') like '%after%'"), "0");
}

#[test]
fn t46_reads_follow_commits_to_the_new_primary() {
    let old = own_server();
    let new = old.standby_with(FSYNC);
    old.demand_standby();
    let gateway = Gateway::start(&either(&old, &new, "durability=standby&schema=switched"));
    assert_eq!(gateway.client().put("orders/1", "33", "before").status, 204);
    assert_eq!(gateway.client().get("orders/1").text(), "before");
    // A planned switch: the old server goes on answering reads.
    old.sql("alter system set default_transaction_read_only = on");
    old.sql("select pg_reload_conf()");
    new.promote();
    let third = new.standby_with(FSYNC);
    new.demand_standby();
    wait_for_a_write(&gateway, "34", "after");
    for _ in 0..20 {
        let read = gateway.client().get("orders/1");
        assert_eq!((read.text().as_str(), read.header("fence")), ("after", Some("34")), "{read:?}");
    }
    // A conflict makes the gateway look at the record of its own commits.
    let other = Gateway::start(&engine(&new.url(), "durability=standby&schema=switched"));
    assert_eq!(other.client().claim("orders/1", "35").status, 200);
    assert_eq!(gateway.client().put("orders/1", "34", "zombie").problem(), "stale");
    assert_eq!(gateway.client().put("orders/1", "36", "newest").status, 204, "its writes have not stopped");
    drop(third);
}

#[test]
fn t46_a_standby_that_lacks_a_commit_is_refused_although_a_standby_was_demanded() {
    let mut old = own_server();
    // One standby is synchronous; the one that is promoted is another.
    let synchronous = old.standby_with(FSYNC);
    let mut lagging = old.standby_with(FSYNC);
    old.demand_standby();
    let engine = either(&old, &lagging, "durability=standby&schema=wrong_standby");
    let gateway = Gateway::start(&engine);
    assert_eq!(gateway.client().put("orders/1", "33", "old").status, 204);
    old.wait_for(&lagging);
    lagging.kill();
    assert_eq!(gateway.client().claim("orders/1", "34").status, 200);
    old.kill();
    lagging.restart();
    lagging.promote();
    let follower = lagging.standby_with(FSYNC);
    lagging.demand_standby();
    let refused = wait::until("the gateway to find the promoted server", PATIENCE, || {
        let answer = gateway.client().put("orders/1", "34", "newer");
        assert!(answer.status >= 500, "a write on another history was answered {answer:?}");
        answer.text().contains("is missing").then_some(answer)
    });
    assert_eq!((refused.status, refused.problem().as_str()), (503, "unavailable"), "{}", refused.text());
    assert!(refused.text().contains("fencepost restored"), "{}", refused.text());
    let read = gateway.client().get("orders/1");
    assert_eq!(read.status, 503, "{read:?}");
    let said = Gateway::refused(&engine, &[]);
    assert!(said.contains("was promoted") && said.contains("fencepost restored --yes"), "{said}");
    drop((synchronous, follower));
}

#[test]
fn g4_a_server_whose_standby_is_no_longer_demanded_commits_nothing() {
    let server = own_server();
    let standby = server.standby_with(FSYNC);
    server.demand_standby();
    let gateway = Gateway::start(&engine(&server.url(), "durability=standby"));
    assert_eq!(gateway.client().put("orders/1", "33", "on two").status, 204);
    server.sql("alter system set synchronous_standby_names = ''");
    server.sql("select pg_reload_conf()");
    let refused = wait::until("the gateway to notice", PATIENCE, || {
        let answer = gateway.client().put("orders/2", "1", "on one");
        (answer.status == 503).then_some(answer)
    });
    assert!(refused.text().contains("no standby is synchronous"), "{}", refused.text());
    server.demand_standby();
    wait_for_a_write(&gateway, "34", "on two again");
    drop(standby);
}

#[test]
fn a_server_that_hangs_does_not_hide_the_new_primary() {
    let old = own_server();
    let new = old.standby_with(FSYNC);
    old.demand_standby();
    let gateway = Gateway::start(&either(&old, &new, "durability=standby&schema=hanging"));
    assert_eq!(gateway.client().put("orders/1", "33", "before").status, 204);
    // It still takes connections, and answers none.
    let frozen = Frozen::freeze(&old);
    new.promote();
    let third = new.standby_with(FSYNC);
    new.demand_standby();
    wait_for_a_write(&gateway, "34", "after");
    assert_eq!(gateway.client().get("orders/1").text(), "after");
    drop((frozen, third));
}

#[test]
fn restored_and_remap_make_no_store_in_a_database_that_has_none() {
    let server: Postgres = own_server();
    let engine = engine(&server.url(), "schema=mistyped");
    for command in ["restored", "remap"] {
        let refused = run(&[command, "--yes", "--engine", &engine]);
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success() && said.contains("no store in the schema mistyped"), "{command}: {said}");
    }
    assert_eq!(server.sql("select count(*) from pg_namespace where nspname = 'mistyped'"), "0");
}
