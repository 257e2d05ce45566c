//! The SQL of the engine `postgres` with one mistake at a time. A race that does not find its mistake proves nothing
//! about the engine, so that is a failure, too.

use std::time::{Duration, Instant};

use fencepost_conformance::wait;
use fencepost_remote::ServerUrl;
use fencepost_remote::postgres::{Server, Session};
use fencepost_store::engine_check::crossing::{Crossing, cross};
use fencepost_store::engine_check::races::{Pair, additions, either_or, on_call};
use fencepost_store::engine_check::{Check, Checked, Failure, all};
use fencepost_store::engines::postgres::SCHEMA;

use super::bench::Bench;
use super::postgres_own::open;
use super::servers;

/// The time in which a mistake must be found; most are in the first rounds.
const PATIENCE: Duration = Duration::from_secs(60);

/// The time for stress of a check that is to find a mistake.
const STRESS: Duration = Duration::from_secs(10);

/// PostgreSQL looks for deadlocks when a lock was waited for this long.
const DEADLOCK_TIMEOUT: Duration = Duration::from_secs(1);

/// How a part of `apply_1` is written, and how it is written by mistake.
type Mistake = [(&'static str, &'static str)];

const NO_PLACEHOLDER: &Mistake = &[
    (r"UNION ALL SELECT a.key, 0, '\x'::bytea FROM unnest(absent) AS a(key)", ""),
    (
        "IF hits <> cardinality(absent) + cardinality(fresh) THEN",
        "IF hits <> cardinality(fresh) OR EXISTS (SELECT FROM fencepost.records r WHERE r.key = ANY (absent)) THEN",
    ),
    ("DELETE FROM fencepost.records WHERE key = ANY (absent);", ""),
];

const NO_LOCK: &Mistake = &[("FOR NO KEY UPDATE OF r", "")];

/// PostgreSQL moves the condition below the lock, so a record that is only locked is not locked.
const FILTER_BELOW_THE_LOCK: &Mistake = &[
    ("count(*) FILTER (WHERE l.version = l.want)", "count(*)"),
    ("FOR NO KEY UPDATE OF r) l;", "FOR NO KEY UPDATE OF r) l WHERE l.version = l.want;"),
];

/// Replaces `apply_1` of a schema that the engine has made.
async fn plant(mistake: &Mistake, url: &ServerUrl) {
    drop(open(&url.text).await.unwrap());
    let start = SCHEMA.find("CREATE FUNCTION fencepost.apply_1(").expect("the schema has the function");
    let end = start + SCHEMA[start..].find("END $$;").expect("the function ends") + "END $$;".len();
    let mut function = SCHEMA[start..end].replacen("CREATE", "CREATE OR REPLACE", 1);
    for (right, wrong) in mistake {
        assert_eq!(function.matches(right).count(), 1, "`{right}` is in the function once");
        function = function.replace(right, wrong);
    }
    let schema = url.setting("schema").unwrap();
    let function = function.replace("fencepost.", &format!("{schema}.")).replace("@LOCK@", "1");
    let session = Session::open(&Server::read(url, &["schema"]).unwrap()).await.unwrap();
    session.batch(&function).await.unwrap();
}

/// Races until the mistake is found.
async fn assert_found<F: Future<Output = Checked<usize>>>(race: impl Fn() -> F) {
    let racing = async {
        loop {
            if let Err(failure) = race().await {
                return failure;
            }
        }
    };
    let found = tokio::time::timeout(PATIENCE, racing).await.expect("the race finds the mistake");
    assert!(matches!(found, Failure::Broken(_)), "{found}");
    println!("found: {found}");
}

/// Runs a case of the check until it finds the mistake.
pub(crate) async fn assert_check_finds(check: &Check, name: &str) {
    let case = all().find(|case| case.name == name).expect("there is a case of this name");
    let deadline = Instant::now() + PATIENCE;
    for round in 0.. {
        match check.run_case(case, round).await.result {
            Err(Failure::Broken(why)) => return println!("found by {name}: {why}"),
            Err(Failure::Unusable(why)) => panic!("{name} could not run: {why}"),
            Ok(_) => assert!(Instant::now() < deadline, "{name} does not find the mistake"),
        }
    }
}

pub(crate) async fn a_missing_placeholder_is_found(bench: Bench) {
    plant(NO_PLACEHOLDER, bench.url()).await;
    let engines = bench.pair().await;
    assert_found(|| either_or(engines.clone(), 20)).await;
    let check = bench.check(STRESS).await;
    assert_check_finds(&check, "e2_absent_records_stay_absent_until_the_commit").await;
}

pub(crate) async fn a_missing_lock_is_found(bench: Bench) {
    plant(NO_LOCK, bench.url()).await;
    let engines = bench.pair().await;
    assert_found(|| on_call(engines.clone(), 20)).await;
    assert_found(|| additions(engines.clone(), 5)).await;
    assert_check_finds(&bench.check(STRESS).await, "commits_have_one_order").await;
}

/// A database of its own, because the server counts deadlocks per database.
struct Counted {
    name: String,
    url: ServerUrl,
}

impl Counted {
    fn new() -> Counted {
        let (server, name) = (servers::postgres(), servers::new_name());
        server.sql(&format!("create database {name}"));
        let url = format!("postgres://postgres@{}/{name}?schema=crossing", server.address());
        Counted { name, url: ServerUrl::parse(&url).unwrap() }
    }

    async fn pair(&self) -> Pair {
        [open(&self.url.text).await.unwrap(), open(&self.url.text).await.unwrap()]
    }

    /// The deadlocks of all sessions so far. A session reports them when it ends, so there must be none.
    fn deadlocks(&self) -> u64 {
        let (server, name) = (servers::postgres(), &self.name);
        let sessions = format!(
            "select count(*) from pg_stat_activity where datname = '{name}' and backend_type = 'client backend'"
        );
        wait::until("sessions to end", wait::PATIENCE, || (server.sql(&sessions) == "0").then_some(()));
        server.sql(&format!("select deadlocks from pg_stat_database where datname = '{name}'")).parse().unwrap()
    }
}

pub(crate) async fn commits_lock_records_in_the_order_of_keys(_: Bench) {
    let database = Counted::new();
    for crossing in Crossing::ALL {
        let engines = database.pair().await;
        for _ in 0..40 {
            let crossed = cross(&engines, crossing, true).await.unwrap();
            assert!(crossed.done > 0, "neither of two commits was done");
        }
        drop(engines);
        assert_eq!(database.deadlocks(), 0, "{crossing:?}");
    }
}

pub(crate) async fn a_filter_below_the_lock_is_found(bench: Bench) {
    let database = Counted::new();
    plant(FILTER_BELOW_THE_LOCK, &database.url).await;
    let deadline = Instant::now() + PATIENCE;
    loop {
        let engines = database.pair().await;
        while cross(&engines, Crossing::CompareAndWrite, true).await.unwrap().took < DEADLOCK_TIMEOUT {
            assert!(Instant::now() < deadline, "no deadlock was met");
        }
        drop(engines);
        // The machine may have stalled instead.
        if database.deadlocks() > 0 {
            break;
        }
    }
    plant(FILTER_BELOW_THE_LOCK, bench.url()).await;
    assert_check_finds(&bench.check(STRESS).await, "commits_that_cross_do_not_hold_each_other_up").await;
}
