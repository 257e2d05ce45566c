//! One gateway has several commits under way: what is slow in the database holds up nothing else, and what was confirmed in any
//! lane is missed if it is gone.

use std::thread;

use fencepost_conformance::wait::{self, PATIENCE};
use fencepost_harness::http::Answer;
use fencepost_harness::servers::postgres::Postgres;

use crate::team::{Gateway, engine, own_server};

/// A session that holds a lock on the fence of a resource until it is ended.
struct Holder<'s> {
    server: &'s Postgres,
    mark: String,
}

impl<'s> Holder<'s> {
    /// Runs `work` while the lock is held, then ends the session.
    fn hold<T>(server: &'s Postgres, schema: &str, resource: &str, work: impl FnOnce(&Holder) -> T) -> T {
        let mark = format!("hold {schema}");
        let key = format!("convert_to('f{resource}', 'UTF8')");
        let statement = format!(
            "begin; select 1 from {schema}.records where key = {key} for update; select pg_sleep(60) /* {mark} */; commit"
        );
        let holder = Holder { server, mark };
        thread::scope(|scope| {
            let session = scope.spawn(|| server.try_sql(&statement));
            wait::until("the lock to be held", PATIENCE, || (holder.sleeping() == "1").then_some(()));
            let done = work(&holder);
            holder.end();
            assert!(session.join().unwrap().is_err(), "its session was ended");
            done
        })
    }

    fn sleeping(&self) -> String {
        let event = "wait_event = 'PgSleep'";
        self.server
            .sql(&format!("select count(*) from pg_stat_activity where {event} and query like '%/* {} */%'", self.mark))
    }

    fn wait_for_a_waiter(&self) {
        wait::until("a commit to wait for the lock", PATIENCE, || {
            let waiting = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and application_name = 'fencepost'";
            (self.server.sql(waiting) != "0").then_some(())
        });
    }

    fn end(&self) {
        let theirs = format!("wait_event = 'PgSleep' and query like '%/* {} */%'", self.mark);
        self.server.sql(&format!("select count(pg_terminate_backend(pid)) from pg_stat_activity where {theirs}"));
    }
}

fn put(gateway: &Gateway, key: &str, body: &str) -> Answer {
    gateway.client().put(key, "1", body)
}

/// One commit waits in the database, and others are answered meanwhile: they are in other lanes.
#[test]
fn t45_a_commit_that_waits_in_the_database_holds_up_no_other_resource() {
    let server = own_server();
    let gateway = Gateway::start(&engine(&server.url(), "schema=waits"));
    assert_eq!(put(&gateway, "slow", "first").status, 204);
    thread::scope(|scope| {
        let slow = Holder::hold(&server, "waits", "slow", |holder| {
            let slow = scope.spawn(|| put(&gateway, "slow", "second"));
            holder.wait_for_a_waiter();
            for n in 0..50 {
                assert_eq!(put(&gateway, &format!("quick{n}"), "x").status, 204);
            }
            assert!(!slow.is_finished());
            slow
        });
        assert_eq!(slow.join().unwrap().status, 204);
    });
    assert_eq!(gateway.client().get("slow").text(), "second");
}

/// A copy of the disk may have the last commit of one lane and lack that of another.
#[test]
fn t46_a_lost_commit_of_any_lane_is_noticed() {
    let server = own_server();
    let gateway = Gateway::start(&engine(&server.url(), "schema=any_lane"));
    assert_eq!(put(&gateway, "slow", "first").status, 204);
    thread::scope(|scope| {
        let slow = Holder::hold(&server, "any_lane", "slow", |holder| {
            let slow = scope.spawn(|| put(&gateway, "slow", "second"));
            holder.wait_for_a_waiter();
            assert_eq!(put(&gateway, "quick", "x").status, 204);
            slow
        });
        assert_eq!(slow.join().unwrap().status, 204);
    });
    let lanes = "any_lane.records where substring(key, 1, 1) = 'c'";
    assert_eq!(server.sql(&format!("select count(*) > 1 from {lanes}")), "t", "several lanes were used");
    // The one that was used last stays as it is.
    server.sql(&format!(
        "update any_lane.records set version = version - 65536, bytes = set_byte(bytes, 1, get_byte(bytes, 1) - 1) where key = (select key from {lanes} order by version limit 1)"
    ));
    server.sql("select count(pg_terminate_backend(pid)) from pg_stat_activity where query like '%any_lane%' and pid <> pg_backend_pid()");
    let refused = wait::until("a write to be refused", PATIENCE, || {
        let answer = put(&gateway, "quick", "y");
        (answer.status == 503 && answer.text().contains("is missing")).then_some(answer)
    });
    assert!(refused.text().contains("fencepost restored"), "{refused:?}");
    assert_eq!(gateway.readiness(), 503);
}
