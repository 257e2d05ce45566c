//! The SQL of the engine `postgres` with one mistake at a time. A race that does not find its mistake proves nothing
//! about the engine, so that is a failure, too.

use std::time::{Duration, Instant};

use fencepost_conformance::wait;
use fencepost_remote::ServerUrl;
use fencepost_remote::postgres::{Server, Session};
use fencepost_store::engine::{Change, Loaded};
use fencepost_store::engines::postgres::SCHEMA;
use fencepost_store::record::RecordKey;

use super::bench::{Bench, commit, commit_after, load, remove, write};
use super::postgres_own::open;
use super::races::{Pair, Raced, additions, either_or, is_done, on_call};
use super::servers;

/// The time in which a mistake must be found; most are in the first rounds.
const PATIENCE: Duration = Duration::from_secs(30);

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
async fn assert_found<F: Future<Output = Raced>>(race: impl Fn() -> F) {
    let racing = async {
        loop {
            if let Err(violation) = race().await {
                return violation;
            }
        }
    };
    let violation = tokio::time::timeout(PATIENCE, racing).await.expect("the race finds the mistake");
    println!("found: {violation}");
}

pub(crate) async fn a_missing_placeholder_is_found(bench: Bench) {
    plant(NO_PLACEHOLDER, bench.url()).await;
    let engines = bench.pair().await;
    assert_found(|| either_or(engines.clone(), 20)).await;
}

pub(crate) async fn a_missing_lock_is_found(bench: Bench) {
    plant(NO_LOCK, bench.url()).await;
    let engines = bench.pair().await;
    assert_found(|| on_call(engines.clone(), 20)).await;
    assert_found(|| additions(engines.clone(), 5)).await;
}

/// What two gateways commit at the same time. Each needs the records of both groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Crossing {
    /// Each compares one group and writes the other, so one of them writes before what it compares.
    CompareAndWrite,
    /// Each writes one group and removes the other, and compares nothing.
    WriteAndRemove,
    /// One removes both groups, the other writes them.
    WriteOrRemove,
}

/// What was loaded, which of it is compared, and the changes.
type Part<'a> = (Loaded, &'a [&'a str], Vec<(RecordKey, Change)>);

/// Commits both, several times. Returns the duration of the slowest.
async fn cross(engines: &Pair, crossing: Crossing, rounds: usize) -> Duration {
    const RECORDS: usize = 100;
    let [ours, theirs] = engines;
    let group = |letter: &str| (0..RECORDS).map(|n| format!("{letter}/{n:03}")).collect::<Vec<_>>();
    let (low, high) = (group("a"), group("z"));
    let (low, high): (Vec<&str>, Vec<&str>) =
        (low.iter().map(String::as_str).collect(), high.iter().map(String::as_str).collect());
    let written = |names: &[&str]| names.iter().map(|name| write(name, "written")).collect::<Vec<_>>();
    let removed = |names: &[&str]| names.iter().map(|name| remove(name)).collect::<Vec<_>>();
    let mut slowest = Duration::ZERO;
    for _ in 0..rounds {
        commit(&**ours, [written(&high), written(&low)].concat()).await;
        let nothing = load(&**ours, &[]).await;
        let (our, their): (Part<'_>, Part<'_>) = match crossing {
            Crossing::CompareAndWrite => {
                let (lows, highs) = (load(&**ours, &low).await, load(&**ours, &high).await);
                ((highs, &high[..], written(&low)), (lows, &low[..], written(&high)))
            }
            Crossing::WriteAndRemove => {
                let (our, their) = ([written(&high), removed(&low)].concat(), [written(&low), removed(&high)].concat());
                ((nothing.clone(), &[][..], our), (nothing, &[][..], their))
            }
            Crossing::WriteOrRemove => {
                let (our, their) = ([removed(&high), removed(&low)].concat(), [written(&low), written(&high)].concat());
                ((nothing.clone(), &[][..], our), (nothing, &[][..], their))
            }
        };
        let started = Instant::now();
        let (our, their) = tokio::join!(
            commit_after(&**ours, &our.0, our.1, our.2),
            commit_after(&**theirs, &their.0, their.1, their.2),
        );
        slowest = slowest.max(started.elapsed());
        assert!(is_done(&our) || is_done(&their), "neither of two commits was done");
    }
    slowest
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
    for crossing in [Crossing::CompareAndWrite, Crossing::WriteAndRemove, Crossing::WriteOrRemove] {
        let engines = database.pair().await;
        cross(&engines, crossing, 40).await;
        drop(engines);
        assert_eq!(database.deadlocks(), 0, "{crossing:?}");
    }
}

pub(crate) async fn a_filter_below_the_lock_is_found(_: Bench) {
    let database = Counted::new();
    plant(FILTER_BELOW_THE_LOCK, &database.url).await;
    let deadline = Instant::now() + PATIENCE;
    loop {
        let engines = database.pair().await;
        while cross(&engines, Crossing::CompareAndWrite, 1).await < DEADLOCK_TIMEOUT {
            assert!(Instant::now() < deadline, "no deadlock was met");
        }
        drop(engines);
        // The machine may have stalled instead.
        if database.deadlocks() > 0 {
            return;
        }
    }
}
