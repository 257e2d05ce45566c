//! The real process is killed at random moments under load; what was answered before the kill still holds after it
//! (G1–G4).
//!
//! One store, and with it the clients' record, goes through all kills.

use std::time::{Duration, Instant};

use fencepost_conformance::random::Random;
use fencepost_conformance::wait;
use fencepost_harness::budget;
use fencepost_harness::load::{self, Until};
use fencepost_harness::process::GatewayProcess;
use fencepost_harness::record::Record;
use rustix::process::Signal;

const CLIENTS: usize = 8;
const KEYS: usize = 40;

/// Small, so that logs are switched and tables written and compacted while the process dies.
const SETTINGS: &[&str] = &["--write-buffer", "1MiB", "--log", "warn"];

#[test]
fn every_answer_survives_sigkill_at_random_moments() {
    let (kills, started) = (budget::pick(50, 1_000), Instant::now());
    let mut random = Random::from_environment();
    let data = tempfile::tempdir().unwrap();
    let record = Record::new(KEYS);
    let (mut requests, mut under_load) = (0, Duration::ZERO);
    for kill in 0..kills {
        let gateway = GatewayProcess::start(data.path(), SETTINGS);
        record.check(&mut gateway.client());
        let address = gateway.address().to_owned();
        let life = Duration::from_micros(random.below(60_000));
        let loading = Instant::now();
        requests += load::run(&address, &record, CLIENTS, &random.fork(kill), Until::Broken, || {
            wait::pause(life);
            gateway.kill();
        });
        under_load += loading.elapsed();
    }

    // A clean stop under load keeps its answers too.
    let gateway = GatewayProcess::start(data.path(), SETTINGS);
    record.check(&mut gateway.client());
    let address = gateway.address().to_owned();
    requests += load::run(&address, &record, CLIENTS, &random.fork(kills), Until::Broken, || {
        wait::pause(Duration::from_millis(60));
        gateway.signal(Signal::TERM);
        assert!(gateway.wait(Duration::from_secs(30)).success());
    });
    let gateway = GatewayProcess::start(data.path(), SETTINGS);
    record.check(&mut gateway.client());
    let sent = load::run(gateway.address(), &record, CLIENTS, &random.fork(kills + 1), Until::Requests(100), || {});
    assert_eq!(sent, 100 * CLIENTS as u64, "nothing breaks without a kill");
    record.check(&mut gateway.client());

    let rate = requests as f64 / under_load.as_secs_f64();
    println!(
        "{kills} kills in {:.1} s, {requests} requests ({rate:.0}/s under load): {}",
        started.elapsed().as_secs_f64(),
        record.summary()
    );
}
