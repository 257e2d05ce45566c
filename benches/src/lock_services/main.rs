//! The cost of fencing for each lock service: a lock acquired and released without the gateway, compared with the same
//! plus a claimed token and a value written under it.
//!
//! `lock-services [ROUNDS SECONDS]` starts every service and a gateway on loopback, measures them in turn over several
//! rounds, prints a table and writes `docs/locks/benchmarks.md`.

use std::fmt::Write as _;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fencepost_client::locks::{self, Acquired, LockBackend, Wanted};
use fencepost_client::{Client, Gateway, GatewayOptions, LockOptions};
use fencepost_core::{Holder, Resource};
use fencepost_harness::process::GatewayProcess;
use fencepost_harness::servers::etcd::Etcd;
use fencepost_harness::servers::postgres::Postgres;
use fencepost_harness::servers::redis::RedisServer;
use fencepost_harness::servers::zk::ZooKeeper;

/// Concurrent clients, each with a lock of its own.
const CLIENTS: u64 = 8;

const TTL: Duration = Duration::from_secs(10);

const DOCUMENT: &str = "docs/locks/benchmarks.md";

/// A service, and its results per round: locks per second without and with the gateway.
struct Row {
    name: &'static str,
    url: String,
    alone: Vec<f64>,
    fenced: Vec<f64>,
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let numbers: Vec<u64> = arguments.iter().filter_map(|argument| argument.parse().ok()).collect();
    let (rounds, seconds) = match (arguments.len(), numbers.as_slice()) {
        (0, _) => (3, 3),
        (2, [rounds, seconds]) if *rounds > 0 && *seconds > 0 => (*rounds, *seconds),
        _ => {
            eprintln!("usage: lock-services [ROUNDS SECONDS]");
            std::process::exit(2);
        }
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let measured = runtime.map_err(|error| error.to_string()).and_then(|runtime| {
        let _entered = runtime.enter();
        measure(&runtime, rounds, Duration::from_secs(seconds))
    });
    if let Err(error) = measured {
        eprintln!("lock-services: {error}");
        std::process::exit(1);
    }
}

fn measure(runtime: &tokio::runtime::Runtime, rounds: u64, time: Duration) -> Result<(), String> {
    let home = tempfile::tempdir().map_err(|error| error.to_string())?;
    let program = std::env::current_exe().map_err(|error| error.to_string())?.with_file_name("fencepost");
    let mut command = Command::new(program);
    command.args(["serve", "--log", "warn", "--listen", "127.0.0.1:0", "--data"]).arg(home.path().join("data"));
    let gateway = GatewayProcess::spawn(command)?;
    // The harness disables etcd's syncs; enable them.
    let etcd = Etcd::with(&["--unsafe-no-fsync=false"]);
    let (redis, zk, postgres) =
        (RedisServer::start(&["--appendfsync", "always"]), ZooKeeper::start(), Postgres::start());
    let row = |name, url| Row { name, url, alone: Vec::new(), fenced: Vec::new() };
    let mut rows = [
        row("built in", format!("fencepost://{}", gateway.address())),
        row("Redis", format!("redis://{}", redis.address())),
        row("etcd", format!("etcd://{}", etcd.address())),
        row("ZooKeeper", format!("zk://{}/fencepost", zk.address())),
        row("PostgreSQL, leases", format!("postgres://postgres@{}/postgres", postgres.address())),
        row(
            "PostgreSQL, sessions",
            format!("postgres://postgres@{}/postgres?mode=advisory&table=fencepost_sessions", postgres.address()),
        ),
    ];
    for round in 1..=rounds {
        for row in &mut rows {
            eprintln!("round {round} of {rounds}: {}", row.name);
            let (url, at) = (row.url.clone(), gateway.url().to_owned());
            row.alone.push(runtime.block_on(rate(row.name, &url, None, time))?);
            row.fenced.push(runtime.block_on(rate(row.name, &url, Some(&at), time))?);
        }
    }
    let text = report(&rows, rounds, time);
    println!("{text}");
    if std::path::Path::new("docs/locks").is_dir() {
        std::fs::write(DOCUMENT, text).map_err(|error| format!("{DOCUMENT}: {error}"))?;
    }
    Ok(())
}

/// Locks per second. Each service uses its own resources, because a fence is bound to one service.
async fn rate(service: &'static str, url: &str, gateway: Option<&str>, time: Duration) -> Result<f64, String> {
    let backend = locks::connect(url).await.map_err(|error| error.to_string())?;
    let gateway = gateway.map(at).transpose().map_err(|error| error.to_string())?;
    let (done, end) = (Arc::new(AtomicU64::new(0)), Instant::now() + time);
    let mut clients = tokio::task::JoinSet::new();
    for client in 0..CLIENTS {
        let (backend, gateway, done) = (backend.clone(), gateway.clone(), done.clone());
        clients.spawn(async move {
            let name = format!("bench/{service}/{client}");
            while Instant::now() < end {
                match &gateway {
                    None => alone(backend.as_ref(), &name).await?,
                    Some(gateway) => fenced(gateway, &backend, &name).await?,
                }
                done.fetch_add(1, Ordering::Relaxed);
            }
            Ok::<(), String>(())
        });
    }
    while let Some(ended) = clients.join_next().await {
        ended.map_err(|error| error.to_string())??;
    }
    Ok(done.load(Ordering::Relaxed) as f64 / time.as_secs_f64())
}

fn at(url: &str) -> Result<Gateway, fencepost_client::Error> {
    Gateway::with_options(url, GatewayOptions::new().timeout(TTL).connect_timeout(TTL))
}

/// Acquires and releases a lock.
async fn alone(backend: &dyn LockBackend, name: &str) -> Result<(), String> {
    // A holder is unique per acquisition.
    static TURN: AtomicU64 = AtomicU64::new(0);
    let turn = TURN.fetch_add(1, Ordering::Relaxed);
    let name = Resource::new(name).map_err(|error| error.to_string())?;
    let holder = Holder::new(&format!("{name}#{:x}-{turn}", std::process::id())).map_err(|error| error.to_string())?;
    let wanted = Wanted { name: &name, holder: &holder, ttl: TTL, wait: TTL, floor: 0, generation: 0 };
    match backend.acquire(&wanted).await.map_err(|error| error.to_string())? {
        Acquired::Held(lease) => backend.release(lease).await.map_err(|error| error.to_string()),
        Acquired::Busy => Err(format!("{name} was busy")),
    }
}

/// Acquires a lock, claims its token, writes a value under it, and releases it.
async fn fenced(gateway: &Gateway, backend: &Arc<dyn LockBackend>, name: &str) -> Result<(), String> {
    let client = Client::new(gateway.clone(), backend.clone()).with_lock_options(LockOptions::new().ttl(TTL));
    let guard = client.acquire(name).await.map_err(|error| error.to_string())?;
    guard.put(name, "written").await.map_err(|error| error.to_string())?;
    guard.release().await.map_err(|error| error.to_string())
}

fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn report(rows: &[Row], rounds: u64, time: Duration) -> String {
    let mut text = format!(
        "# Lock services, with and without the gateway\n\n<!-- Generated by `make bench-locks`. Edit nothing here: the next run \
         overwrites it. -->\n\nMade by `make bench-locks`, on {} cores: every service, the gateway and {CLIENTS} clients on one machine, medians of \
         {rounds} rounds of {} s. *Alone*: a lock taken and given back through this client, without a gateway. *Fenced*: the fence read, the lock taken and checked, \
         its token claimed, a value written durably, the lock given back. A durable claim and a durable write are what the difference buys.\n\n\
         | service | alone, locks/s | fenced, locks/s | fenced ÷ alone |\n| --- | --: | --: | --: |\n",
        std::thread::available_parallelism().map_or(0, usize::from),
        time.as_secs()
    );
    for Row { name, alone, fenced, .. } in rows {
        let (alone, fenced) = (median(alone), median(fenced));
        // Writing to a String cannot fail.
        let _ = writeln!(text, "| {name} | {alone:.0} | {fenced:.0} | {:.2} |", fenced / alone);
    }
    text
}
