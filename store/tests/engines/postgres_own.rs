//! What only the engine `postgres` has: servers, schemas and accounts that it refuses, and poolers.

use fencepost_harness::servers::postgres::{Pool, Postgres};
use fencepost_remote::ServerUrl;
use fencepost_store::engine::Commit;
use fencepost_store::engine_check::races::{additions, in_parallel};
use fencepost_store::engine_check::records::{Records, remove, write};
use fencepost_store::engines::postgres::{Migrated, migrate};
use fencepost_store::engines::{EngineOpenError, EngineOptions, Place, find};
use tokio::task::JoinSet;

use super::bench::Bench;
use super::servers;

type Opened = Result<Records, EngineOpenError>;

async fn open_with(url: &str, options: &EngineOptions) -> Opened {
    let place = Place::Server(ServerUrl::parse(url).unwrap());
    let engine = (find("postgres").unwrap().open)(&place, options).await?;
    Ok(Records::new(engine, ""))
}

pub(crate) async fn open(url: &str) -> Opened {
    open_with(url, &EngineOptions::default()).await
}

/// Why a place is refused.
async fn refusal(url: &str) -> EngineOpenError {
    open(url).await.err().unwrap_or_else(|| panic!("{url} was opened"))
}

fn assert_says(text: &str, said: &str) {
    assert!(text.contains(said), "`{said}` is missing in: {text}");
}

fn schema(bench: &Bench) -> &str {
    bench.url().setting("schema").unwrap()
}

/// The bench's schema, as seen by this account.
fn url_for(account: &str, bench: &Bench) -> String {
    format!("{}?schema={}", servers::postgres().url_for(account), schema(bench))
}

/// In both dialects: one makes it in a transaction, the other one statement after the other.
pub(crate) async fn many_gateways_make_one_schema(bench: Bench) {
    const GATEWAYS: usize = 8;
    let serializable = bench.url().with_setting("schema", &servers::new_name());
    for url in [bench.url().clone(), serializable.with_setting("dialect", "serializable")] {
        let mut opening = JoinSet::new();
        for _ in 0..GATEWAYS {
            let url = url.text.clone();
            opening.spawn(async move { open(&url).await });
        }
        let mut engines = Vec::new();
        while let Some(opened) = opening.join_next().await {
            engines.push(opened.unwrap().unwrap());
        }
        engines[0].commit(vec![write("a", "1")]).await.unwrap();
        for engine in &engines {
            assert_eq!(engine.text("a").await.unwrap().as_deref(), Some("1"));
        }
        let count = format!("select count(*) from {}.store", url.setting("schema").unwrap());
        assert_eq!(servers::postgres().sql(&count), "1");
    }
}

/// Locks do not hold up serializable transactions, and those do not see what is locked.
pub(crate) async fn a_schema_of_the_other_dialect_is_refused(bench: Bench) {
    let other = bench.url().with_setting("schema", &servers::new_name());
    for (first, second) in [("locking", "serializable"), ("serializable", "locking")] {
        let url = if first == "locking" { bench.url() } else { &other };
        drop(open(&url.with_setting("dialect", first).text).await.unwrap());
        assert_says(&refusal(&url.with_setting("dialect", second).text).await.to_string(), "the other dialect");
    }
    assert_says(&refusal(&other.text).await.to_string(), "the other dialect");
}

pub(crate) async fn a_server_that_may_lose_commits_or_cannot_write_is_refused(_: Bench) {
    // A server of the harness does not sync, unless it is told to.
    let unsynced = Postgres::start();
    assert_says(&refusal(&unsynced.url()).await.to_string(), "fsync=off");
    let standby = unsynced.standby();
    assert_says(&refusal(&standby.url()).await.to_string(), "does not allow writes");
    let asked_for = format!("{}?target_session_attrs=read-only", standby.url());
    assert_says(&refusal(&asked_for).await.to_string(), "it is a standby");
}

pub(crate) async fn settings_that_cannot_be_met_are_refused(bench: Bench) {
    let server = servers::postgres();
    let synchronous = format!("schema={}&durability=standby", schema(&bench));
    for (settings, said) in [
        ("schema=Orders", "lower-case"),
        ("schema=pg_orders", "`schema`"),
        ("durability=disk", "`primary` or `standby`"),
        (synchronous.as_str(), "synchronous_standby_names"),
        ("durable=standby", "durable"),
        ("dialect=snapshot", "`locking` or `serializable`"),
    ] {
        assert_says(&refusal(&format!("{}?{settings}", server.url())).await.to_string(), said);
    }
    let made = server.sql(&format!("select count(*) from pg_namespace where nspname = '{}'", schema(&bench)));
    assert_eq!(made, "0", "a start that is refused makes nothing");
}

pub(crate) async fn a_schema_that_cannot_be_used_is_refused(bench: Bench) {
    let (server, schema) = (servers::postgres(), schema(&bench));
    drop(bench.open().await);
    server.sql(&format!("update {schema}.store set format = 99"));
    let newer = refusal(&bench.url().text).await;
    assert!(matches!(newer, EngineOpenError::NewerFormat { found: 99, known: 1, .. }), "{newer}");
    assert_eq!(migrate(bench.url()).await, Err(newer));
    server.sql(&format!("delete from {schema}.store"));
    assert_says(&refusal(&bench.url().text).await.to_string(), "is empty");
}

/// A promoted standby that lagged, or an older copy: fences may have fallen.
pub(crate) async fn another_history_is_refused_until_it_is_accepted(bench: Bench) {
    let (server, schema) = (servers::postgres(), schema(&bench));
    let engine = bench.open().await;
    let first = engine.commit(vec![write("a", "1")]).await.unwrap();
    drop(engine);
    for (change, said) in
        [("timeline = '000000FF'", "a standby was promoted"), ("cluster = cluster + 1", "copied to another cluster")]
    {
        server.sql(&format!("update {schema}.store set {change}"));
        let why = refusal(&bench.url().text).await.to_string();
        assert_says(&why, said);
        assert_says(&why, "fencepost restored --yes");
        let accepting = EngineOptions { accept_history: true, ..EngineOptions::default() };
        let engine = open_with(&bench.url().text, &accepting).await.unwrap();
        engine.engine().accept_history().await.unwrap();
        drop(engine);
        let engine = bench.open().await;
        assert_eq!(engine.text("a").await.unwrap().as_deref(), Some("1"));
        let next = engine.commit(vec![write("b", change)]).await.unwrap();
        assert!(next.0 > first.0 + (1 << 40), "versions that were lost may have been given out: {next:?}");
    }
}

pub(crate) async fn a_schema_that_was_removed_is_named(bench: Bench) {
    let engine = bench.open().await;
    let loaded = engine.load(&["a"]).await.unwrap();
    servers::postgres().sql(&format!("drop schema {} cascade", schema(&bench)));
    assert_says(&engine.load(&["a"]).await.unwrap_err().to_string(), "fencepost migrate");
    let commit = engine.commit_after(&loaded, &["a"], vec![write("a", "1")]).await.unwrap();
    let Commit::Unavailable(why) = commit else { panic!("nothing can be written") };
    assert_says(&why, "fencepost migrate");
}

pub(crate) async fn other_isolations_are_refused(bench: Bench) {
    let server = servers::postgres();
    let own = bench.open().await;
    for isolation in ["repeatable read", "serializable"] {
        let account = servers::new_name();
        server.sql(&format!("create role {account} superuser login"));
        server.sql(&format!("alter role {account} set default_transaction_isolation to '{isolation}'"));
        let engine = open(&url_for(&account, &bench)).await.unwrap();
        let nothing = engine.load(&[]).await.unwrap();
        let commit = engine.commit_after(&nothing, &[], vec![write("a", "1")]).await.unwrap();
        let Commit::Unavailable(why) = commit else { panic!("{isolation} is refused") };
        assert_says(&why, "READ COMMITTED");
        assert_says(&why, "default_transaction_isolation");
        assert_eq!(own.text("a").await.unwrap(), None);
    }
}

pub(crate) async fn e4_a_commit_is_synchronous_whatever_the_role_asks_for(bench: Bench) {
    let (server, schema) = (servers::postgres(), schema(&bench));
    drop(bench.open().await);
    // The trigger runs at the end of the transaction, so it sees what the commit sees.
    server.sql(&format!(
        "create table {schema}.seen (setting text);
         create function {schema}.note() returns trigger language plpgsql as $$ begin
           insert into {schema}.seen values (current_setting('synchronous_commit'));
           return null;
         end $$;
         create constraint trigger noted after insert or update on {schema}.records
           deferrable initially deferred for each row execute function {schema}.note()"
    ));
    for (setting, seen) in [("off", "on"), ("local", "on"), ("remote_write", "on"), ("remote_apply", "remote_apply")] {
        let account = servers::new_name();
        server.sql(&format!("create role {account} superuser login"));
        server.sql(&format!("alter role {account} set synchronous_commit to {setting}"));
        let engine = open(&url_for(&account, &bench)).await.unwrap();
        server.sql(&format!("delete from {schema}.seen"));
        engine.commit(vec![write("a", setting), write("b", setting)]).await.unwrap();
        assert_eq!(server.sql(&format!("select distinct setting from {schema}.seen")), seen, "{setting}");
    }
}

/// What a gateway does with its account. Otherwise why not.
async fn serve(url: &str) -> Result<(), String> {
    let engine = open(url).await.map_err(|why| why.to_string())?;
    // Made, changed and removed; the first is a blind write.
    for (compared, change) in [(&[][..], write("a", "1")), (&["a"][..], write("a", "2")), (&["a"][..], remove("a"))] {
        let loaded = engine.load(compared).await.map_err(|why| why.to_string())?;
        match engine.commit_after(&loaded, compared, vec![change]).await.map_err(|why| why.to_string())? {
            Commit::Done { .. } => {}
            other => return Err(format!("{other:?}")),
        }
    }
    engine.all_names("").await.map(|_| ()).map_err(|why| why.to_string())
}

/// The rights of an account that serves, as `docs/postgres.md` lists them: what, and on what.
fn rights(schema: &str) -> Vec<(&'static str, String)> {
    let (records, store, commits) =
        (format!("{schema}.records"), format!("{schema}.store"), format!("sequence {schema}.commits"));
    let mut rights = vec![("usage", format!("schema {schema}"))];
    rights.extend(["select", "insert", "update", "delete"].map(|right| (right, records.clone())));
    rights.extend(["select", "update"].map(|right| (right, store.clone())));
    rights.extend(["usage", "select"].map(|right| (right, commits.clone())));
    rights
}

pub(crate) async fn an_account_needs_these_rights_and_no_others(bench: Bench) {
    let (server, schema, account) = (servers::postgres(), schema(&bench), servers::new_name());
    drop(bench.open().await);
    server.sql(&format!("create role {account} login"));
    let url = url_for(&account, &bench);
    assert_says(&refusal(&url).await.to_string(), "lacks a right");
    for (right, on) in rights(schema) {
        server.sql(&format!("grant {right} on {on} to {account}"));
    }
    assert_eq!(serve(&url).await, Ok(()));
    for (right, on) in rights(schema) {
        server.sql(&format!("revoke {right} on {on} from {account}"));
        let Err(why) = serve(&url).await else { panic!("{right} on {on} is not needed") };
        assert!(why.contains("lacks a right"), "without {right} on {on}: {why}");
        server.sql(&format!("grant {right} on {on} to {account}"));
    }
    assert_eq!(serve(&url).await, Ok(()));
}

pub(crate) async fn an_account_that_may_not_make_the_schema_uses_one_that_is_there(bench: Bench) {
    let (server, schema, account) = (servers::postgres(), schema(&bench), servers::new_name());
    server.sql(&format!("create role {account} login"));
    let url = url_for(&account, &bench);
    assert_says(&refusal(&url).await.to_string(), "permission denied for database");
    assert_eq!(migrate(bench.url()).await, Ok(Migrated::Created));
    assert_eq!(migrate(bench.url()).await, Ok(Migrated::Current));
    for (right, on) in rights(schema) {
        server.sql(&format!("grant {right} on {on} to {account}"));
    }
    assert_eq!(serve(&url).await, Ok(()));
}

/// More calls at once than the pool has connections to the server.
pub(crate) async fn a_pool_of_transactions_may_be_in_between(bench: Bench) {
    const GATEWAYS: usize = 6;
    const EACH: usize = 20;
    let pool = Pool::start(&servers::postgres());
    let url = format!("{}?schema={}", pool.url(), schema(&bench));
    let mut engines = Vec::new();
    for _ in 0..GATEWAYS {
        engines.push(open(&url).await.unwrap());
    }
    let tasks = engines.iter().enumerate().flat_map(|(gateway, engine)| {
        (0..4).map(move |task| {
            let (engine, name) = (engine.clone(), format!("{gateway}/{task}"));
            async move {
                for round in 0..EACH {
                    engine.commit(vec![write(&name, round.to_string())]).await.unwrap();
                    assert_eq!(engine.text(&name).await.unwrap(), Some(round.to_string()));
                }
                Ok(EACH)
            }
        })
    });
    assert_eq!(in_parallel(tasks).await, Ok(GATEWAYS * 4 * EACH));
    assert_eq!(engines[0].all_names("").await.unwrap().len(), GATEWAYS * 4);
    additions([engines[0].clone(), engines[1].clone()], 10).await.unwrap();
}
