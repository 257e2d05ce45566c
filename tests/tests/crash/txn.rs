//! The real process is killed in the middle of transactions, at random moments and at chosen system calls. Every
//! transfer is atomic, and with its idempotency key it happens exactly once, as the values show (G3, G4, G7, T4).
use std::time::{Duration, Instant};

use fencepost_conformance::random::Random;
use fencepost_conformance::wait;
use fencepost_harness::budget;
use fencepost_harness::process::GatewayProcess;
use fencepost_harness::strace::{self, COMMITTER, Strace};
use fencepost_harness::transfers::Transfers;

const CLIENTS: usize = 6;
const ACCOUNTS: usize = 5;

/// Runs all clients, and `meanwhile` beside them. Panics at the first broken guarantee.
fn work(transfers: &Transfers, address: &str, random: &Random, limit: u64, meanwhile: impl FnOnce()) {
    std::thread::scope(|scope| {
        let working: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let random = random.fork(client as u64);
                scope.spawn(move || transfers.work(address, client, random, limit))
            })
            .collect();
        meanwhile();
        for client in working {
            if let Err(broken) = client.join().unwrap() {
                panic!("{broken}");
            }
        }
    });
}

#[test]
fn t04_transfers_are_whole_and_applied_exactly_once_through_sigkill() {
    let (kills, started) = (budget::pick(100, 1_000), Instant::now());
    let mut random = Random::from_environment();
    let data = tempfile::tempdir().unwrap();
    let transfers = Transfers::new(ACCOUNTS, CLIENTS);
    let settings = &["--write-buffer", "1MiB", "--log", "warn"];
    transfers.begin(&mut GatewayProcess::start(data.path(), settings).client());
    for kill in 0..kills {
        let gateway = GatewayProcess::start(data.path(), settings);
        transfers.check(&mut gateway.client());
        let address = gateway.address().to_owned();
        let life = Duration::from_micros(random.below(60_000));
        work(&transfers, &address, &random.fork(kill), u64::MAX, || {
            wait::pause(life);
            gateway.kill();
        });
    }
    let gateway = GatewayProcess::start(data.path(), settings);
    work(&transfers, gateway.address(), &random.fork(kills), 100, || {});
    transfers.check(&mut gateway.client());
    println!("{kills} kills in {:.1} s: {}", started.elapsed().as_secs_f64(), transfers.summary());
    assert!(transfers.replayed.into_inner() > 0, "no retry ever found its record: nothing was proven");
}

#[test]
fn transfers_are_whole_wherever_the_committer_dies() {
    let limit = budget::pick(12, 150);
    let random = Random::from_environment();
    for (call, path) in [
        ("pwrite64", strace::current_journal as fn(&std::path::Path) -> std::path::PathBuf),
        ("fdatasync", strace::current_journal),
        ("pwrite64", strace::committed_mark),
    ] {
        let data = tempfile::tempdir().unwrap();
        let transfers = Transfers::new(ACCOUNTS, CLIENTS);
        transfers.begin(&mut GatewayProcess::start(data.path(), &[]).client());
        for n in 1..=limit {
            let mut gateway = strace::start_traceable(data.path(), &[]);
            transfers.check(&mut gateway.client());
            let rule = format!("{call}:signal=KILL:when={n}");
            let tracer = Strace::attach(strace::thread(&gateway, COMMITTER), Some(&path(data.path())), &[&rule]);
            work(&transfers, gateway.address(), &random.fork(n), 100 + 20 * n, || {});
            wait::until("the process to be killed", Duration::from_secs(30), || gateway.has_ended());
            assert!(tracer.wait().contains("killed by SIGKILL"), "{call} {n} was not reached");
        }
        let gateway = GatewayProcess::start(data.path(), &[]);
        work(&transfers, gateway.address(), &random.fork(0), 20, || {});
        transfers.check(&mut gateway.client());
        println!("killed at {call} 1 to {limit}: {}", transfers.summary());
    }
}
