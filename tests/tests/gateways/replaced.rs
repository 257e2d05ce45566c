//! Gateways are replaced one after the other while clients work: no error that a retry does not cure.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fencepost_conformance::random::Random;
use fencepost_conformance::wait::{self, PATIENCE};
use fencepost_harness::budget;
use fencepost_harness::http::Client;
use parking_lot::RwLock;

use crate::team::{AtEnd, Gateway, add, engine, shared_server};

const GATEWAYS: usize = 3;
const WORKERS: usize = 6;

/// A client that knows all gateways, as one behind a load balancer does, and asks another one after an error.
struct Worker<'t> {
    addresses: &'t [RwLock<String>],
    client: Option<Client>,
    random: Random,
}

impl Worker<'_> {
    fn client(&mut self) -> Option<&mut Client> {
        if self.client.is_none() {
            let at = usize::try_from(self.random.below(GATEWAYS as u64)).unwrap();
            let address = self.addresses[at].read().clone();
            self.client = Client::try_connect(&address).ok();
        }
        self.client.as_mut()
    }

    /// Adds 1 under this key, as often as it takes. Returns how often it was sent.
    fn add(&mut self, once: &str) -> u64 {
        let (body, deadline) = (add("counter", 1).to_string(), Instant::now() + PATIENCE);
        for sent in 1.. {
            assert!(Instant::now() < deadline, "{once} was not applied after {sent} attempts");
            let headers = [("idempotency-key", once)];
            let Some(client) = self.client() else { continue };
            match client.try_request("POST", "/v1/txn", &headers, body.as_bytes()) {
                Ok(answer) if answer.status == 200 => return sent,
                Ok(answer) => {
                    let retried = ["unavailable", "overloaded", "draining", "outcome-unknown", "contended"];
                    assert!(retried.contains(&answer.problem().as_str()), "{once}: {answer:?}");
                    wait::pause(Duration::from_millis(5));
                }
                Err(_) => {}
            }
            self.client = None;
        }
        unreachable!("the loop ends by its deadline")
    }
}

#[test]
fn every_gateway_is_replaced_under_load_and_each_addition_counts_once() {
    let rounds = budget::pick(1, 10);
    let server = shared_server();
    let engine = engine(&server.url(), "schema=replaced");
    let mut gateways: Vec<Gateway> = (0..GATEWAYS).map(|_| Gateway::start(&engine)).collect();
    let addresses: Vec<RwLock<String>> =
        gateways.iter().map(|gateway| RwLock::new(gateway.address().to_owned())).collect();
    let random = Random::from_environment();
    let (done, added, sent) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS)
            .map(|number| {
                let mut worker = Worker { addresses: &addresses, client: None, random: random.fork(number as u64) };
                let (done, added, sent) = (&done, &added, &sent);
                scope.spawn(move || {
                    for round in 0.. {
                        if done.load(Ordering::SeqCst) {
                            return;
                        }
                        sent.fetch_add(worker.add(&format!("{number}-{round}")), Ordering::SeqCst);
                        added.fetch_add(1, Ordering::SeqCst);
                    }
                })
            })
            .collect();
        let _done = AtEnd(&done);
        for _ in 0..rounds {
            for (gateway, address) in gateways.iter_mut().zip(&addresses) {
                let before = added.load(Ordering::SeqCst);
                wait::until("some additions at these gateways", PATIENCE, || {
                    (added.load(Ordering::SeqCst) > before + 30).then_some(())
                });
                gateway.stop();
                gateway.restart();
                *address.write() = gateway.address().to_owned();
            }
        }
        done.store(true, Ordering::SeqCst);
        workers.into_iter().for_each(|worker| worker.join().unwrap());
    });
    let (added, sent) = (added.into_inner(), sent.into_inner());
    for gateway in &gateways {
        assert_eq!(gateway.client().get("counter").text(), added.to_string(), "each counts once");
    }
    println!("{added} additions, sent {sent} times, while {} gateways were replaced", rounds * GATEWAYS);
}
