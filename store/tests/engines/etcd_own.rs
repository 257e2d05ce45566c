//! What only the engine `etcd` has: limits of a transaction, compaction, users, a full database, restored snapshots.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fencepost_harness::servers::certificates::{Certificates, Clients};
use fencepost_harness::servers::etcd::Etcd;
use fencepost_harness::servers::free_port;
use fencepost_remote::ServerUrl;
use fencepost_remote::etcd::messages::CompactionRequest;
use fencepost_remote::etcd::{Channel, Cluster, Refusal};
use fencepost_store::engine::{AsOf, Commit, EngineError, Loaded};
use fencepost_store::engine_check::records::{Records, is_done, number, remove, write};
use fencepost_store::engines::{EngineOpenError, EngineOptions, Place, find};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::bench::Bench;
use super::servers;

type Opened = Result<Records, EngineOpenError>;

async fn open_with(url: &str, options: &EngineOptions) -> Opened {
    let place = Place::Server(ServerUrl::parse(url).unwrap());
    let engine = (find("etcd").unwrap().open)(&place, options).await?;
    Ok(Records::new(engine, ""))
}

async fn open(url: &str) -> Opened {
    open_with(url, &EngineOptions::default()).await
}

/// Why a place is refused.
async fn refusal(url: &str) -> String {
    open(url).await.err().unwrap_or_else(|| panic!("{url} was opened")).to_string()
}

fn assert_says(text: &str, said: &str) {
    assert!(text.contains(said), "`{said}` is missing in: {text}");
}

/// The bench's store with these settings.
async fn with_settings(bench: &Bench, settings: &str) -> Records {
    open(&format!("{}?{settings}", bench.url().text)).await.unwrap()
}

/// Commits, comparing this record with what it is now.
async fn commit_over(records: &Records, name: &str, body: &[u8]) -> Result<Commit, EngineError> {
    let loaded = records.load(&[name]).await.unwrap();
    records.engine().commit(records.batch(&loaded, &[name], vec![write(name, body)])).await
}

/// Why a batch is too large.
fn too_large(commit: Commit) -> String {
    match commit {
        Commit::TooLarge(why) => why,
        other => panic!("expected it to be too large: {other:?}"),
    }
}

pub(crate) async fn many_gateways_make_one_note(bench: Bench) {
    const GATEWAYS: usize = 8;
    let mut opening = JoinSet::new();
    for _ in 0..GATEWAYS {
        let url = bench.url().text.clone();
        opening.spawn(async move { open(&url).await });
    }
    let mut engines = Vec::new();
    while let Some(opened) = opening.join_next().await {
        engines.push(opened.unwrap().unwrap());
    }
    for (n, engine) in engines.iter().enumerate() {
        engine.commit(vec![write("a", n.to_string())]).await.unwrap();
        assert_eq!(engines[0].text("a").await.unwrap(), Some(n.to_string()));
    }
    let keys = servers::etcd().keys(&format!("{}/", bench.url().path));
    assert_eq!(keys.len(), 2, "the note and the record: {keys:?}");
}

pub(crate) async fn comparisons_and_changes_are_limited(bench: Bench) {
    let engine = bench.open().await;
    let all: Vec<String> = (0..129).map(|n| format!("n/{n:03}")).collect();
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    let absent = engine.load(&all).await.unwrap();
    assert_eq!(absent.records.len(), 129);
    // The note about the history is compared, too.
    for (compared, changed, is_too_large) in [(127, 127, false), (127, 128, false), (128, 1, true), (1, 129, true)] {
        let changes = all[..changed].iter().map(|name| write(name, "made")).collect();
        let ended = engine.commit_after(&absent, &all[..compared], changes).await.unwrap();
        if is_too_large {
            assert_says(&too_large(ended), "etcd takes 128 of each at once (max_ops)");
            assert_eq!(engine.names(engine.under("n/")).await.unwrap().0.len(), 0, "{compared} and {changed}");
        } else {
            assert!(is_done(&ended).unwrap(), "{compared} and {changed}: {ended:?}");
            let (there, _) = engine.names(engine.under("n/")).await.unwrap();
            assert_eq!(there.len(), changed);
            for part in there.chunks(64) {
                engine.commit(part.iter().map(|name| remove(name)).collect()).await.unwrap();
            }
        }
    }
}

pub(crate) async fn bytes_are_limited(bench: Bench) {
    let engine = bench.open().await;
    let limit = engine.engine().limits().bytes;
    assert!((1_400_000..1_500_000).contains(&limit), "{limit}");
    assert!(is_done(&commit_over(&engine, "a", &vec![7; limit]).await.unwrap()).unwrap());
    for size in [1_572_864, 5 << 20] {
        let why = too_large(commit_over(&engine, "a", &vec![8; size]).await.unwrap());
        assert_says(&why, "(max_bytes)");
    }
    assert_eq!(engine.one("a").await.unwrap().unwrap().size, limit);
    // Others are read beside it, in more than one request.
    for n in 0..8 {
        assert!(is_done(&commit_over(&engine, &format!("b{n}"), &vec![n; limit]).await.unwrap()).unwrap());
    }
    let all = ["a", "b0", "b1", "b2", "b3", "b4", "b5", "b6", "b7"];
    let loaded = engine.load(&all).await.unwrap();
    assert!(loaded.records.iter().all(|record| record.as_ref().is_some_and(|found| found.bytes.len() == limit)));
    assert_eq!(engine.names(engine.under("")).await.unwrap(), (all.map(str::to_owned).to_vec(), false));
}

/// The URL allows more than the server does.
pub(crate) async fn the_limits_of_the_server_count(bench: Bench) {
    let engine = with_settings(&bench, "max_ops=1000&max_bytes=4000000").await;
    let changes = (0..129).map(|n| write(&format!("n/{n}"), "")).collect();
    let nothing = engine.load(&[]).await.unwrap();
    let why = too_large(engine.commit_after(&nothing, &[], changes).await.unwrap());
    assert_says(&why, "max_ops");
    // etcd refuses the first by its own limit, and the second by that of gRPC.
    for size in [1_600_000, 3_000_000] {
        let why = too_large(commit_over(&engine, "a", &vec![8; size]).await.unwrap());
        assert_says(&why, "max_bytes");
    }
    assert_eq!(engine.names(engine.under("")).await.unwrap().0, Vec::<String>::new());
    assert!(is_done(&commit_over(&engine, "a", b"small").await.unwrap()).unwrap());
}

/// Compacts up to the latest revision, again and again. Returns how often it was done.
async fn compact(url: ServerUrl, engine: Records, stop: Arc<AtomicBool>) -> usize {
    let channel = Channel::new(Arc::new(Cluster::read(&url, &["max_ops"]).unwrap()));
    let mut done = 0;
    while !stop.load(Ordering::Acquire) {
        let revision = i64::try_from(engine.engine().position().unwrap()).unwrap();
        match channel.call(&CompactionRequest { revision }, Duration::from_secs(5), 1 << 20).await {
            Ok(_) => done += 1,
            Err(trouble) => assert!(trouble.is(Refusal::Revision), "{trouble}"),
        }
        tokio::time::sleep(Duration::from_millis(60)).await;
    }
    done
}

pub(crate) async fn e1_a_load_of_several_requests_is_of_one_revision_although_etcd_is_compacted(_: Bench) {
    const RECORDS: usize = 200;
    const LOADS: usize = 40;
    // Other cases would be compacted, too.
    let etcd = Etcd::start();
    let url = format!("etcd://{}/compacted?max_ops=16", etcd.address());
    let engine = open(&url).await.unwrap();
    let all: Vec<String> = (0..RECORDS).map(|n| format!("n/{n:03}")).collect();
    for part in all.chunks(10) {
        engine.commit(part.iter().map(|name| write(name, "0")).collect()).await.unwrap();
    }
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    let (first, last) = (all[0], all[RECORDS - 1]);
    let stop = Arc::new(AtomicBool::new(false));
    let compacting = tokio::spawn(compact(ServerUrl::parse(&url).unwrap(), engine.clone(), stop.clone()));
    let writing = tokio::spawn({
        let (engine, stop, first, last) = (engine.clone(), stop.clone(), first.to_owned(), last.to_owned());
        async move {
            for round in (1..).take_while(|_| !stop.load(Ordering::Acquire)) {
                let round: u64 = round;
                engine.commit(vec![write(&first, round.to_string()), write(&last, round.to_string())]).await.unwrap();
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    });
    let mut seen = 0;
    for _ in 0..LOADS {
        let loaded = engine.load(&all).await.unwrap();
        let found = number(loaded.records[0].as_ref()).unwrap();
        assert_eq!(found, number(loaded.records[RECORDS - 1].as_ref()).unwrap(), "two revisions were mixed");
        assert!(found >= seen, "a load went back");
        let scanned = engine.engine().scan(engine.under("n/")).await.unwrap().records;
        assert_eq!(scanned.len(), RECORDS);
        let ends = [&scanned[0].1, &scanned[RECORDS - 1].1].map(|record| number(Some(record)).unwrap());
        assert_eq!(ends[0], ends[1], "two revisions were mixed");
        seen = ends[0];
    }
    stop.store(true, Ordering::Release);
    writing.await.unwrap();
    let compacted = compacting.await.unwrap();
    assert!(seen > 0 && compacted > 0, "nothing was proven: {seen} commits, {compacted} compactions");
}

/// A server that speaks HTTP/1 only.
async fn web_server() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n").await;
        }
    });
    address
}

pub(crate) async fn a_place_that_is_no_cluster_is_named(bench: Bench) {
    let (closed, other) = (free_port(), web_server().await);
    let refused = refusal(&format!("etcd://127.0.0.1:{closed}/x")).await;
    assert_says(&refused, &format!("127.0.0.1:{closed}"));
    assert_says(&refused, "refused");
    assert_says(&refusal(&format!("etcd://{other}/x")).await, "Is it the client port of etcd?");
    // The next member is asked.
    let address = servers::etcd().address();
    let prefix = &bench.url().path;
    let engine = open(&format!("etcd://127.0.0.1:{closed},{other},{address}/{prefix}")).await.unwrap();
    engine.commit(vec![write("a", "1")]).await.unwrap();
    assert_eq!(engine.text("a").await.unwrap().as_deref(), Some("1"));
}

pub(crate) async fn a_full_database_takes_no_commits_until_there_is_room(_: Bench) {
    const ROUNDS: usize = 200;
    let etcd = Etcd::with(&["--quota-backend-bytes=8388608"]);
    let engine = open(&format!("etcd://{}/full", etcd.address())).await.unwrap();
    let body = |round: usize| vec![u8::try_from(round % 251).unwrap(); 500_000];
    let mut last = 0;
    let refused = 'full: {
        for round in 1..=ROUNDS {
            match commit_over(&engine, "a", &body(round)).await {
                Ok(Commit::Done { .. }) => last = round,
                Ok(Commit::Unavailable(why)) => break 'full why,
                Ok(other) => panic!("{other:?}"),
                // The one that reached the quota was done, and etcd says that it was not.
                Err(_) => last = round,
            }
            assert_eq!(engine.one("a").await.unwrap().unwrap().bytes, body(last));
        }
        panic!("the quota was not reached");
    };
    assert_says(&refused, "database space exceeded");
    assert_says(&refused, "alarm disarm");
    for _ in 0..3 {
        let again = commit_over(&engine, "b", b"small").await;
        assert!(matches!(&again, Ok(Commit::Unavailable(_))), "nothing was written, and that is known: {again:?}");
    }
    assert_eq!(engine.one("a").await.unwrap().unwrap().bytes, body(last), "reads go on");
    assert_eq!(engine.one("b").await.unwrap(), None);

    etcd.etcdctl(&["compact", "--physical", &engine.engine().position().unwrap().to_string()]);
    etcd.etcdctl(&["defrag"]);
    etcd.etcdctl(&["alarm", "disarm"]);
    assert!(is_done(&commit_over(&engine, "b", b"small").await.unwrap()).unwrap());
    assert_eq!(engine.text("b").await.unwrap().as_deref(), Some("small"));
}

pub(crate) async fn users_and_their_rights(_: Bench) {
    let mut etcd = Etcd::start();
    let host = etcd.address();
    // A password is accepted where none is needed.
    let early = open(&format!("etcd://app:right@{host}/orders")).await.unwrap();
    early.commit(vec![write("a", "0")]).await.unwrap();
    for line in [
        "user add root:top",
        "user grant-role root root",
        "role add orders",
        "role grant-permission --prefix=true orders readwrite orders/",
        "user add app:right",
        "user grant-role app orders",
        "user add nobody:right",
        "auth enable",
    ] {
        etcd.etcdctl(&line.split(' ').collect::<Vec<_>>());
    }
    let engine = open(&format!("etcd://app:right@{host}/orders")).await.unwrap();
    for engine in [&early, &engine] {
        engine.commit(vec![write("a", "1")]).await.unwrap();
        assert_eq!(engine.names(engine.under("")).await.unwrap().0, ["a"]);
    }
    for (url, said) in [
        (format!("etcd://app:secret-word@{host}/orders"), "`app`"),
        (format!("etcd://{host}/orders"), "etcd://user:password@"),
        (format!("etcd://nobody:right@{host}/orders"), "the right to read and write the prefix"),
        (format!("etcd://app:right@{host}/elsewhere"), "permission denied"),
    ] {
        let refused = refusal(&url).await;
        assert_says(&refused, said);
        assert!(!refused.contains("secret-word"), "{refused}");
    }
    // Tokens end with a restart, with every change of roles, and when authentication is switched off.
    etcd.restart();
    engine.commit(vec![write("a", "2")]).await.unwrap();
    etcd.etcdctl(&["--user", "root:top", "role", "add", "another"]);
    engine.commit(vec![write("a", "3")]).await.unwrap();
    etcd.etcdctl(&["--user", "root:top", "auth", "disable"]);
    etcd.etcdctl(&["auth", "enable"]);
    engine.commit(vec![write("a", "4")]).await.unwrap();
    assert_eq!(early.text("a").await.unwrap().as_deref(), Some("4"));
    // A right that is taken away.
    etcd.etcdctl(&["--user", "root:top", "user", "revoke-role", "app", "orders"]);
    let Ok(Commit::Unavailable(why)) =
        engine.engine().commit(engine.batch(&engine.load(&[]).await.unwrap(), &[], vec![write("a", "5")])).await
    else {
        panic!("the user has no rights any more")
    };
    assert_says(&why, "permission denied");
}

pub(crate) async fn certificates(_: Bench) {
    let certificates = Certificates::make("127.0.0.1");
    let etcd = Etcd::with_certificates(&certificates, Clients::Known);
    let host = etcd.address();
    let root = certificates.root();
    let url = |subject: &str| {
        let client = certificates.client(subject);
        let [root, certificate, key] = [&root, &client.certificate, &client.key].map(|file| file.display());
        format!("etcds://{host}/orders?ca={root}&cert={certificate}&key={key}")
    };
    let engine = open(&url("/O=workers")).await.unwrap();
    engine.commit(vec![write("a", "1")]).await.unwrap();
    assert_eq!(engine.text("a").await.unwrap().as_deref(), Some("1"));
    assert_says(&refusal(&format!("etcds://{host}/orders")).await, "`ca");
    let refused = refusal(&format!("etcds://{host}/orders?ca={}", root.display())).await;
    assert_says(&refused, "`cert` and `key`");
    assert_says(&refusal(&format!("etcd://{host}/orders")).await, "etcds://");

    // The common name of a certificate is the name of the user.
    for line in [
        "user add root:top",
        "user grant-role root root",
        "role add orders",
        "role grant-permission --prefix=true orders readwrite orders/",
        "user add worker --no-password",
        "user grant-role worker orders",
        "auth enable",
    ] {
        etcd.etcdctl(&line.split(' ').collect::<Vec<_>>());
    }
    let worker = open(&url("/CN=worker")).await.unwrap();
    worker.commit(vec![write("a", "2")]).await.unwrap();
    assert_eq!(worker.text("a").await.unwrap().as_deref(), Some("2"));
    assert_says(&refusal(&url("/CN=stranger")).await, "permission denied");
}

pub(crate) async fn keys_that_were_removed_stop_commits(bench: Bench) {
    let engine = bench.open().await;
    engine.commit(vec![write("a", "1")]).await.unwrap();
    servers::etcd().etcdctl(&["del", "--prefix", &format!("{}/", bench.url().path)]);
    let Ok(Commit::Unavailable(why)) = commit_over(&engine, "a", b"2").await else { panic!("the note is gone") };
    assert_says(&why, "removed keys");
    assert_says(&engine.engine().fault().unwrap(), "removed keys");
    assert_eq!(engine.text("a").await.unwrap(), None);
}

/// A snapshot that was restored in its own cluster. The id of the cluster stays the same (trap 36).
pub(crate) async fn t46_a_restored_snapshot_is_noticed_and_its_versions_are_new_once_it_is_accepted(_: Bench) {
    let mut etcd = Etcd::start();
    let url = format!("etcd://{}/orders", etcd.address());
    let engine = open(&url).await.unwrap();
    engine.commit(vec![write("a", "kept")]).await.unwrap();
    let snapshot = etcd.snapshot("snapshot");
    let mut lost = Vec::new();
    for round in 0..20 {
        lost.push(engine.commit(vec![write("a", format!("lost {round}"))]).await.unwrap());
    }
    let before = engine.engine().position().unwrap();
    etcd.restore(&snapshot);

    let said = engine.engine().load(&[engine.at("a")]).await.unwrap_err().to_string();
    assert_says(&said, "lost writes that it had confirmed");
    assert_says(&said, "fencepost restored --yes");
    assert_says(&engine.engine().fault().unwrap(), "lost writes");
    let again = commit_over_absent(&engine).await;
    assert!(matches!(&again, Ok(Commit::Unavailable(why)) if why.contains("lost writes")), "{again:?}");

    // One that starts now has a lower position than was noted.
    let fresh = open(&url).await.unwrap();
    assert!(fresh.engine().position().unwrap() < before, "{:?}", fresh.engine().position());
    let accepting = open_with(&url, &EngineOptions { accept_history: true, ..EngineOptions::default() }).await.unwrap();
    accepting.engine().accept_history().await.unwrap();
    assert!(accepting.engine().position().unwrap() > before);
    let next = accepting.commit(vec![write("b", "new")]).await.unwrap();
    assert!(lost.iter().all(|version| *version < next), "a version came again: {next:?}");
    let accepted = open(&url).await.unwrap();
    assert_eq!(accepted.text("a").await.unwrap().as_deref(), Some("kept"));
    assert!(accepted.one("a").await.unwrap().unwrap().version > lost[lost.len() - 1]);
    assert_eq!(accepted.one("b").await.unwrap().unwrap().version, next);
    assert!(is_done(&commit_over(&accepted, "a", b"newer").await.unwrap()).unwrap());
    // It was not restarted, as it should have been.
    let Ok(Commit::Unavailable(why)) = commit_over(&fresh, "a", b"old").await else {
        panic!("it knows the history of before")
    };
    assert_says(&why, "fencepost restored");
}

/// Commits to a record without reading it first.
async fn commit_over_absent(records: &Records) -> Result<Commit, EngineError> {
    let nothing = Loaded { records: Vec::new(), as_of: AsOf(0) };
    let mut batch = records.batch(&nothing, &[], vec![write("c", "1")]);
    batch.compare.push((records.at("c"), None));
    records.engine().commit(batch).await
}

pub(crate) async fn t46_records_in_another_cluster_are_refused_until_they_are_accepted(_: Bench) {
    let (old, mut new) = (Etcd::start(), Etcd::start());
    let engine = open(&format!("etcd://{}/orders", old.address())).await.unwrap();
    let first = engine.commit(vec![write("a", "1")]).await.unwrap();
    new.restore(&old.snapshot("snapshot"));
    let url = format!("etcd://{}/orders", new.address());
    let refused = refusal(&url).await;
    assert_says(&refused, "the records are from cluster");
    assert_says(&refused, "fencepost restored --yes");
    let accepting = open_with(&url, &EngineOptions { accept_history: true, ..EngineOptions::default() }).await.unwrap();
    accepting.engine().accept_history().await.unwrap();
    drop(accepting);
    let engine = open(&url).await.unwrap();
    assert_eq!(engine.text("a").await.unwrap().as_deref(), Some("1"));
    assert!(engine.commit(vec![write("b", "1")]).await.unwrap() > first);
}
