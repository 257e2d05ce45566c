//! The process dies while it opens its directory, at the n-th system call of one kind: at the first start, when it
//! creates the store, and later, when it recovers the log. The next start succeeds as usual.

use std::time::{Duration, Instant};

use fencepost_conformance::random::Random;
use fencepost_conformance::wait;
use fencepost_harness::budget;
use fencepost_harness::load::{self, Until};
use fencepost_harness::process::GatewayProcess;
use fencepost_harness::record::Record;
use fencepost_harness::strace::start_to_die_at;

/// The calls that change what is on disk.
const CALLS: &[&str] =
    &["mkdir", "openat", "write", "pwrite64", "fallocate", "fdatasync", "fsync", "rename", "ftruncate", "unlink"];

/// Every n, or with the CI budget only some of many.
fn next(n: u64) -> u64 {
    n + budget::pick(1 + n / 6, 1)
}

/// A kill may leave names that were made and never synced, and a power cut would take them, with all that is under them.
#[test]
fn names_are_synced_at_every_start() {
    let data = tempfile::tempdir().unwrap();
    drop(GatewayProcess::start(data.path(), &[]));
    let calls = tempfile::NamedTempFile::new().unwrap();
    let mut command = std::process::Command::new("strace");
    command.args(["-D", "-f", "-y", "-e", "trace=fsync", "-o"]).arg(calls.path());
    command.arg(fencepost_harness::process::binary());
    command.args(["serve", "--debuggable", "--listen", "127.0.0.1:0", "--data"]).arg(data.path());
    let gateway = GatewayProcess::spawn(command).unwrap_or_else(|said| panic!("the gateway did not start:\n{said}"));
    let calls = std::fs::read_to_string(calls.path()).unwrap();
    for directory in [data.path().to_owned(), data.path().join("journal")] {
        let synced = format!("<{}>", directory.display());
        assert!(calls.contains(&synced), "{synced} was not synced:\n{calls}");
    }
    drop(gateway);
}

#[test]
fn a_store_half_made_is_made_at_the_next_start() {
    let started = Instant::now();
    let mut deaths = 0;
    for call in CALLS {
        let mut n = 1;
        loop {
            let data = tempfile::tempdir().unwrap();
            let path = data.path().join("data");
            if start_to_die_at(call, n, &path, &[]).is_ok() {
                break;
            }
            deaths += 1;
            let gateway = GatewayProcess::start(&path, &[]);
            let mut client = gateway.client();
            assert_eq!(client.put("orders/1", "34", "paid").status, 204, "after death at {call} {n}");
            gateway.kill();
            let gateway = GatewayProcess::start(&path, &[]);
            assert_eq!(gateway.client().put("orders/1", "33", "too late").status, 409, "after death at {call} {n}");
            assert_eq!(gateway.client().get("orders/1").text(), "paid", "after death at {call} {n}");
            n = next(n);
        }
    }
    println!("died {deaths} times while making a store, in {:.1} s", started.elapsed().as_secs_f64());
}

#[test]
fn a_recovery_that_dies_is_done_again() {
    let (mut random, started) = (Random::from_environment(), Instant::now());
    let data = tempfile::tempdir().unwrap();
    let (record, settings) = (Record::new(16), &["--write-buffer", "1MiB"]);
    let mut deaths = 0;
    for call in CALLS {
        let mut n = 1;
        loop {
            // Writes something to recover.
            let gateway = GatewayProcess::start(data.path(), settings);
            record.check(&mut gateway.client());
            let address = gateway.address().to_owned();
            let life = Duration::from_micros(random.below(20_000));
            load::run(&address, &record, 4, &random.fork(n), Until::Broken, || {
                wait::pause(life);
                gateway.kill();
            });
            if let Ok(gateway) = start_to_die_at(call, n, data.path(), settings) {
                gateway.kill();
                break;
            }
            deaths += 1;
            n = next(n);
        }
    }
    let gateway = GatewayProcess::start(data.path(), settings);
    record.check(&mut gateway.client());
    println!(
        "died {deaths} times while opening a store, in {:.1} s: {}",
        started.elapsed().as_secs_f64(),
        record.summary()
    );
}
