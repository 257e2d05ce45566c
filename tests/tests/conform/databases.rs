//! The shipped adapters against real servers of PostgreSQL and Redis: the correct ones pass what they claim, the wrong
//! one fails.

use fencepost_conformance::adapters::exec::Options;
use fencepost_conformance::adapters::hooks::Commands;
use fencepost_conformance::run;
use fencepost_conformance::verdict::{Level, Status};
use fencepost_harness::budget;
use fencepost_harness::servers::postgres::Postgres;
use fencepost_harness::servers::redis::RedisServer;

use crate::committed::Committed;
use crate::marked::{Marked, asked, example, judge, passes, patient, python, root, two};

fn on_postgres(server: &Postgres, name: &str) -> Marked {
    let port = format!("PGPORT={}", server.address().port());
    let settings = ["env", "PGHOST=127.0.0.1", "PGUSER=postgres", "PGDATABASE=postgres"];
    Marked::new(&[&settings[..], &[&port, &python(), &example(name)]].concat())
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

/// As its README describes: the suite starts the server, and kills it together with the adapters.
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
    let [passed, others, told] = [Status::Pass, Status::NotApplicable, Status::Info].map(|status| results.ids(status));
    assert!(passed.len() >= 6 && passed.len() + others.len() + told.len() == results.cases.len());
    assert_eq!(told, ["R11"], "its directory goes back, and everything since is forgotten");
}

#[test]
fn looking_first_and_writing_then_is_convicted() {
    let server = Postgres::start();
    let adapter = on_postgres(&server, "postgres-check-then-act");
    passes(&judge(&adapter, patient(), &asked(Level::L1)), Level::L1);
    let committed = Committed::of("postgres-check-then-act");
    committed.agrees_with(&judge(&adapter, patient(), &committed.asked()));
    for seed in 0..budget::pick(3, 100) {
        let only = vec!["C01".to_owned(), "C02".to_owned()];
        let results = judge(&adapter, patient(), &run::Options { only, seed, ..run::Options::default() });
        assert!(results.any(Status::Fail), "it passes with seed {seed}");
        assert_eq!(results.exit_code(), 1);
    }
}
