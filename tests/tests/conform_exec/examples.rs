//! The shipped adapters, against real servers: the right ones pass what they claim, the wrong one is convicted.

use std::path::{Path, PathBuf};
use std::time::Duration;

use fencepost_conformance::adapters::exec::Options;
use fencepost_conformance::adapters::hooks::Commands;
use fencepost_conformance::harness::budget;
use fencepost_conformance::harness::servers::postgres::Postgres;
use fencepost_conformance::harness::servers::redis::RedisServer;
use fencepost_conformance::run;
use fencepost_conformance::verdict::{Level, Results, Status};

use super::Marked;

pub(super) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn example(name: &str) -> String {
    let path = root().join("examples/conformance").join(name).join("adapter.py");
    path.to_str().expect("the path is text").to_owned()
}

/// The Python that has psycopg; it also starts sooner than one that first looks which version is wanted.
fn python() -> String {
    let cache = match std::env::var_os("XDG_CACHE_HOME").filter(|path| !path.is_empty()) {
        Some(cache) => PathBuf::from(cache),
        None => PathBuf::from(std::env::var_os("HOME").expect("there is a home directory")).join(".cache"),
    };
    let python = cache.join("fencepost/venv/bin/python");
    assert!(python.exists(), "{} is missing: run `scripts/setup test` first", python.display());
    python.to_str().expect("the path is text").to_owned()
}

fn on_postgres(server: &Postgres, name: &str) -> Marked {
    let port = format!("PGPORT={}", server.address().port());
    let settings = ["env", "PGHOST=127.0.0.1", "PGUSER=postgres", "PGDATABASE=postgres"];
    Marked::new(&[&settings[..], &[&port, &python(), &example(name)]].concat())
}

/// Runs the suite, prints what came of it, and looks for processes that were left.
pub(super) fn judge(adapter: &Marked, options: Options, asked: &run::Options) -> Results {
    let subject = adapter.open(options).unwrap_or_else(|broken| panic!("{broken}"));
    let results = run::run(&subject, asked, &mut ());
    for result in &results.cases {
        println!("{} {} {:?} {}", result.case.id, result.status.word(), result.took, result.reason);
    }
    drop(subject);
    adapter.left_nothing();
    results
}

#[track_caller]
fn passes(results: &Results, level: Level) {
    let bad = [Status::Fail, Status::Error, Status::Unknown, Status::Skip];
    let bad: Vec<_> = bad.into_iter().flat_map(|status| results.ids(status)).collect();
    assert!(bad.is_empty() && results.broken.is_none(), "{bad:?} {:?}", results.broken);
    assert_eq!(results.shown(), Some(level));
    assert_eq!(results.exit_code(), 0);
}

fn asked(level: Level) -> run::Options {
    run::Options { level, ..run::Options::default() }
}

fn two() -> Options {
    Options { instances: 2, timeout: Duration::from_secs(10), ..Options::default() }
}

#[test]
fn sqlite_is_safe_at_l3() {
    let adapter = Marked::new(&[&python(), &example("sqlite")]);
    passes(&judge(&adapter, two(), &asked(Level::L3)), Level::L3);
}

#[test]
fn postgres_is_safe() {
    let server = Postgres::start();
    let level = budget::pick(Level::L2, Level::L3);
    passes(&judge(&on_postgres(&server, "postgres"), two(), &asked(level)), level);
}

#[test]
fn redis_is_safe() {
    let level = budget::pick(Level::L2, Level::L3);
    let server = RedisServer::start(&[]);
    let address = format!("REDIS={}", server.address());
    let adapter = Marked::new(&["env", &address, &python(), &example("redis")]);
    passes(&judge(&adapter, two(), &asked(level)), level);
}

/// As its README says: the suite starts the server, and kills it together with the adapters.
#[test]
fn redis_is_safe_when_redis_itself_is_killed() {
    let readme = std::fs::read_to_string(root().join("examples/conformance/redis/README.md")).unwrap();
    let hook = |name: &str| {
        let flag = format!("--hook {name}='");
        readme.split(&flag).nth(1).and_then(|rest| rest.split('\'').next()).expect("the README has the hook").to_owned()
    };
    let hooks = Commands { start: Some(hook("start")), ready: Some(hook("ready")), ..Commands::default() };
    let adapter = Marked::new(&[&python(), &example("redis")]);
    let only = run::Options { only: vec!["R".to_owned()], ..asked(Level::L3) };
    let results = judge(&adapter, Options { hooks, ..two() }, &only);
    let passed = results.ids(Status::Pass);
    assert!(passed.len() >= 6 && passed.len() + results.ids(Status::NotApplicable).len() == results.cases.len());
}

#[test]
fn looking_first_and_writing_then_is_convicted() {
    let server = Postgres::start();
    let adapter = on_postgres(&server, "postgres-check-then-act");
    passes(&judge(&adapter, Options::default(), &asked(Level::L1)), Level::L1);
    for seed in 0..budget::pick(3, 100) {
        let only = vec!["C01".to_owned(), "C02".to_owned()];
        let results = judge(&adapter, Options::default(), &run::Options { only, seed, ..run::Options::default() });
        assert!(results.any(Status::Fail), "it passes with seed {seed}");
        assert_eq!(results.exit_code(), 1);
    }
}
