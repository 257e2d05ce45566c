//! The real process is killed while leases are acquired, renewed and released. Tokens only rise, an acknowledged lease
//! still belongs to its holder after the restart, and no other client gets the lock meanwhile.
use std::time::{Duration, Instant};

use fencepost_conformance::random::Random;
use fencepost_conformance::wait;
use fencepost_harness::budget;
use fencepost_harness::http::{Answer, Client};
use fencepost_harness::process::GatewayProcess;
use fencepost_harness::record::number;
use serde_json::json;

/// Long enough that no lease of this test expires.
const TTL_MS: u64 = 3_600_000;

/// A lock, and the one client that works under it.
#[derive(Debug)]
struct Worker {
    name: String,
    /// Distinguishes its acquisitions.
    round: u64,
    state: State,
    /// The highest token it ever received.
    highest: u64,
    grants: u64,
}

#[derive(Clone, Debug)]
enum State {
    Free,
    /// Sent, without an answer yet.
    Acquiring,
    Held {
        lease: String,
        token: u64,
    },
    /// Sent, without an answer yet.
    Releasing {
        lease: String,
    },
}

impl Worker {
    fn acquire(&self, client: &mut Client) -> std::io::Result<Answer> {
        let key = format!("{}-{}", self.name, self.round);
        let body = json!({"holder": format!("worker#{}", self.round), "ttl_ms": TTL_MS}).to_string();
        client.try_request("POST", &format!("/v1/locks/{}", self.name), &[("idempotency-key", &key)], body.as_bytes())
    }

    fn granted(&mut self, answer: &Answer) {
        assert_eq!(answer.status, 201, "{self:?}: {answer:?}");
        let json = answer.json();
        let (lease, token) = (json["lease"].as_str().unwrap().to_owned(), number(json["token"].as_str()).unwrap());
        assert!(token > self.highest, "{self:?}: token {token} is not new");
        self.highest = token;
        self.grants += 1;
        self.state = State::Held { lease, token };
    }

    /// One request. `None`: the connection broke.
    fn step(&mut self, client: &mut Client, random: &mut Random) -> Option<()> {
        match self.state.clone() {
            State::Free => {
                self.round += 1;
                self.state = State::Acquiring;
                let answer = self.acquire(client).ok()?;
                self.granted(&answer);
            }
            State::Acquiring => {
                let answer = self.acquire(client).ok()?;
                self.granted(&answer);
            }
            State::Held { lease, token } => match random.below(3) {
                0 => {
                    let headers = [("fencing-token", token.to_string())];
                    let headers = headers.each_ref().map(|(name, value)| (*name, value.as_str()));
                    let put = client.try_request("PUT", &format!("/v1/kv/{}", self.name), &headers, b"x").ok()?;
                    assert_eq!(put.status, 204, "{self:?}: its own write was refused: {put:?}");
                }
                1 => {
                    let body = json!({"lease": lease, "ttl_ms": TTL_MS}).to_string();
                    let path = format!("/v1/locks/{}/renew", self.name);
                    let renewed = client.try_request("POST", &path, &[], body.as_bytes()).ok()?;
                    assert_eq!(renewed.status, 200, "{self:?}: {renewed:?}");
                    assert_eq!(number(renewed.json()["token"].as_str()), Some(token), "a renewal keeps the token");
                }
                _ => {
                    self.state = State::Releasing { lease: lease.clone() };
                    return self.release(client, &lease, &[204]);
                }
            },
            // The unanswered request may have released it.
            State::Releasing { lease } => return self.release(client, &lease, &[204, 410]),
        }
        Some(())
    }

    fn release(&mut self, client: &mut Client, lease: &str, expected: &[u16]) -> Option<()> {
        let path = format!("/v1/locks/{}?lease={lease}", self.name);
        let answer = client.try_request("DELETE", &path, &[], b"").ok()?;
        assert!(expected.contains(&answer.status), "{self:?}: {answer:?}");
        self.state = State::Free;
        Some(())
    }

    /// What was answered before the kill holds after it.
    fn check(&self, client: &mut Client) {
        let name = &self.name;
        let fence = number(client.fence(name).as_deref()).unwrap_or(0);
        assert!(fence >= self.highest, "{self:?}: the fence is {fence} (G1, G3)");
        if let State::Held { token, .. } = &self.state {
            let rival = json!({"holder": "rival#1", "ttl_ms": 1000}).to_string();
            let answer = client.request("POST", &format!("/v1/locks/{name}"), &[], rival.as_bytes());
            assert_eq!(answer.status, 423, "{self:?}: somebody else got it: {answer:?}");
            assert_eq!(fence, *token, "{self:?}: its token is not the fence");
            let shown = client.request("GET", &format!("/v1/locks/{name}"), &[], b"").json();
            assert_eq!(shown["holder"], format!("worker#{}", self.round), "{self:?}");
        }
        if self.highest > 1 {
            let stale = client.put(name, &(self.highest - 1).to_string(), "late");
            assert_eq!(stale.status, 409, "{self:?}: an earlier grant's token passes: {stale:?}");
        }
    }
}

#[test]
fn leases_and_tokens_survive_sigkill() {
    let (kills, started) = (budget::pick(100, 1_000), Instant::now());
    let mut random = Random::from_environment();
    let data = tempfile::tempdir().unwrap();
    let mut workers: Vec<_> = (0..6)
        .map(|n| Worker { name: format!("lock/{n}"), round: 0, state: State::Free, highest: 0, grants: 0 })
        .collect();
    let (mut unknown_acquires, mut unknown_releases) = (0, 0);
    for kill in 0..=kills {
        let gateway = GatewayProcess::start(data.path(), &["--write-buffer", "1MiB", "--log", "warn"]);
        let mut client = gateway.client();
        workers.iter().for_each(|worker| worker.check(&mut client));
        let address = gateway.address().to_owned();
        let life = Duration::from_micros(random.below(50_000));
        std::thread::scope(|scope| {
            for (at, worker) in workers.iter_mut().enumerate() {
                let (address, mut random) = (&address, random.fork(kill * 100 + at as u64));
                scope.spawn(move || {
                    let Ok(mut client) = Client::try_connect(address) else { return };
                    client.set_timeout(Duration::from_secs(20));
                    while worker.step(&mut client, &mut random).is_some() {}
                });
            }
            wait::pause(life);
            gateway.kill();
        });
        unknown_acquires += workers.iter().filter(|worker| matches!(worker.state, State::Acquiring)).count();
        unknown_releases += workers.iter().filter(|worker| matches!(worker.state, State::Releasing { .. })).count();
    }
    let grants: u64 = workers.iter().map(|worker| worker.grants).sum();
    println!(
        "{kills} kills in {:.1} s: {grants} grants, {unknown_acquires} acquires and {unknown_releases} releases without an answer",
        started.elapsed().as_secs_f64()
    );
    assert!(grants > 0 && unknown_acquires > 0, "nothing was proven");
}
