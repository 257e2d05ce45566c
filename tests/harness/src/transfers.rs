//! Clients that move money between accounts in transactions with idempotency keys, through crashes and takeovers, and
//! the check that every transfer was applied completely, and exactly once.
//!
//! Each transaction takes from one account, gives to another, and adds 1 to its client's counter. So the sum over all
//! accounts never changes, and a counter shows how many transfers of its client were applied.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use serde_json::{Value, json};

use crate::http::{Answer, Client};
use crate::record::Checked;
use fencepost_conformance::random::Random;

/// The initial balance of every account.
const START: i64 = 100;

/// What the clients of one store know.
#[derive(Debug)]
pub struct Transfers {
    accounts: usize,
    clients: Vec<Mutex<Progress>>,
    /// The token of each account's current holder. Any client may use it: the clients share tokens, and raise them now
    /// and then.
    tokens: Vec<AtomicU64>,
    /// Retries that were answered from the record.
    pub replayed: AtomicU64,
    /// Transfers that applied.
    pub applied: AtomicU64,
    /// Requests refused because a newer token was claimed in between.
    pub refused: AtomicU64,
}

/// The progress of one client.
#[derive(Debug, Default)]
struct Progress {
    next: u64,
    applied: u64,
    /// A transfer that was sent and not answered.
    pending: Option<Transfer>,
}

#[derive(Clone, Debug)]
struct Transfer {
    number: u64,
    from: usize,
    to: usize,
    amount: i64,
    tokens: [u64; 3],
}

impl Transfers {
    /// A record of accounts that do not exist yet.
    pub fn new(accounts: usize, clients: usize) -> Transfers {
        Transfers {
            accounts,
            clients: (0..clients).map(|_| Mutex::default()).collect(),
            tokens: (0..accounts + clients).map(|_| AtomicU64::new(1)).collect(),
            replayed: AtomicU64::new(0),
            applied: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        }
    }

    /// Creates the accounts in one transaction.
    pub fn begin(&self, client: &mut Client) {
        let accounts = || (0..self.accounts).map(account);
        let tokens: Value = accounts().map(|name| (name, json!("1"))).collect::<serde_json::Map<_, _>>().into();
        let puts: Vec<_> = accounts().map(|name| json!({"put": name, "text": START.to_string()})).collect();
        let answer = send(client, &json!({"tokens": tokens, "then": puts}), None);
        assert!(answer.is_ok_and(|answer| answer.status == 200), "the accounts cannot be made");
    }

    fn progress(&self, client: usize) -> MutexGuard<'_, Progress> {
        self.clients[client].lock()
    }

    fn current(&self, resource: usize) -> u64 {
        self.tokens[resource].load(Ordering::SeqCst)
    }

    /// The resource of a client's counter comes after the accounts.
    fn names(&self, client: usize, transfer: &Transfer) -> [(String, usize); 3] {
        [
            (account(transfer.from), transfer.from),
            (account(transfer.to), transfer.to),
            (counter(client), self.accounts + client),
        ]
    }

    fn body(&self, client: usize, transfer: &Transfer) -> Value {
        let names = self.names(client, transfer);
        let tokens =
            names.iter().zip(transfer.tokens).map(|((name, _), token)| (name.clone(), json!(token.to_string())));
        let Transfer { amount, .. } = transfer;
        json!({
            "tokens": tokens.collect::<serde_json::Map<_, _>>(),
            "then": [
                {"add": names[0].0, "by": -amount, "min": 0},
                {"add": names[1].0, "by": amount},
                {"add": names[2].0, "by": 1},
            ],
        })
    }

    /// Works as one client until its connection breaks, or `limit` transfers are done. Returns the number of requests
    /// sent.
    pub fn work(&self, address: &str, client: usize, mut random: Random, limit: u64) -> Checked<u64> {
        let Ok(mut connection) = Client::try_connect(address) else { return Ok(0) };
        connection.set_timeout(Duration::from_secs(20));
        let mut sent = 0;
        while sent < limit {
            sent += 1;
            if random.chance(10) && !self.take_over(&mut connection, &mut random)? {
                return Ok(sent);
            }
            if !self.step(&mut connection, client, &mut random)? {
                return Ok(sent);
            }
        }
        Ok(sent)
    }

    /// Raises a fence, so that requests in progress with the old token are refused.
    fn take_over(&self, connection: &mut Client, random: &mut Random) -> Checked<bool> {
        let resource = usize::try_from(random.below(self.accounts as u64)).unwrap_or(0);
        let token = self.tokens[resource].fetch_add(1, Ordering::SeqCst) + 1;
        let headers = [("fencing-token", token.to_string())];
        let headers = headers.each_ref().map(|(name, value)| (*name, value.as_str()));
        match connection.try_request("POST", &format!("/v1/claim/{}", account(resource)), &headers, b"") {
            Err(_) => Ok(false),
            Ok(answer) if matches!(answer.status, 200 | 409) => Ok(true),
            Ok(answer) => Err(format!("a claim with {token} was answered {answer:?}")),
        }
    }

    /// Sends one transfer: a new one, or again the one without an answer. `false`: the connection broke.
    fn step(&self, connection: &mut Client, client: usize, random: &mut Random) -> Checked<bool> {
        let mut progress = self.progress(client);
        let (transfer, again) = match progress.pending.clone() {
            Some(transfer) => (transfer, true),
            None => (self.new_transfer(&mut progress, client, random), false),
        };
        progress.pending = Some(transfer.clone());
        let key = format!("transfer-{client}-{}", transfer.number);
        // Repeat it unchanged, with its original token: an applied request must not be reported as refused (T4).
        let Ok(answer) = send(connection, &self.body(client, &transfer), Some(&key)) else { return Ok(false) };
        let replayed = answer.header("idempotent-replayed").is_some();
        if replayed && !again {
            return Err(format!("{key} was never sent, and is replayed: {answer:?}"));
        }
        match answer.status {
            200 => {
                progress.applied += 1;
                progress.pending = None;
                self.applied.fetch_add(1, Ordering::Relaxed);
                self.replayed.fetch_add(u64::from(replayed), Ordering::Relaxed);
                let counted = answer.json()["results"][2]["value"].as_str().and_then(|value| value.parse().ok());
                if counted != Some(progress.applied) {
                    return Err(format!("{key} is transfer {} of its client, but: {answer:?}", progress.applied));
                }
            }
            // Too little money: nothing was applied, and nothing is recorded unless a fence was raised.
            422 if answer.problem() == "add-impossible" => progress.pending = None,
            409 => {
                self.refused.fetch_add(1, Ordering::Relaxed);
                let outcome = connection.try_request("GET", &format!("/v1/outcomes/{key}"), &[], b"");
                let Ok(outcome) = outcome else { return Ok(false) };
                if outcome.json()["outcome"] != "not-recorded" {
                    return Err(format!("{key} was refused as {answer:?}, but its outcome is {outcome:?}"));
                }
                // With the token of the new holder and the same key it is still the same request.
                let tokens = self.names(client, &transfer).map(|(_, resource)| self.current(resource));
                progress.pending = Some(Transfer { tokens, ..transfer });
            }
            _ => return Err(format!("{key} was answered {answer:?}")),
        }
        Ok(true)
    }

    fn new_transfer(&self, progress: &mut Progress, client: usize, random: &mut Random) -> Transfer {
        progress.next += 1;
        let accounts = self.accounts as u64;
        let from = random.below(accounts);
        let to = (from + 1 + random.below(accounts - 1)) % accounts;
        let place = |number| usize::try_from(number).unwrap_or(0);
        let amount = i64::try_from(1 + random.below(40)).unwrap_or(1);
        let transfer = Transfer { number: progress.next, from: place(from), to: place(to), amount, tokens: [1; 3] };
        let tokens = self.names(client, &transfer).map(|(_, resource)| self.current(resource));
        Transfer { tokens, ..transfer }
    }

    /// Checks that no money was created or lost, and that every client's counter is right. Panics otherwise.
    pub fn check(&self, client: &mut Client) {
        let names = (0..self.accounts).map(account).chain((0..self.clients.len()).map(counter));
        let gets: Vec<_> = names.map(|name| json!({"get": name})).collect();
        let answer = send(client, &json!({"then": gets}), None).expect("a running gateway answers");
        let results = answer.json()["results"].clone();
        let number = |at: usize| -> i64 {
            let result = &results[at];
            match result["text"].as_str() {
                Some(text) => text.parse().unwrap_or_else(|_| panic!("no number: {result}")),
                None => 0,
            }
        };
        let sum: i64 = (0..self.accounts).map(number).sum();
        assert_eq!(sum, START * self.accounts as i64, "a transfer was torn: {results}");
        assert!((0..self.accounts).all(|at| number(at) >= 0), "an account is below its minimum: {results}");
        for client in 0..self.clients.len() {
            let progress = self.progress(client);
            let counted = u64::try_from(number(self.accounts + client)).unwrap_or(0);
            let possible = progress.applied..=progress.applied + u64::from(progress.pending.is_some());
            assert!(possible.contains(&counted), "client {client} counts {counted}, but knows {progress:?}");
        }
    }

    /// One line about what happened.
    pub fn summary(&self) -> String {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        format!(
            "{} applied, {} of them learned by a retry, {} refused",
            of(&self.applied),
            of(&self.replayed),
            of(&self.refused)
        )
    }
}

fn account(number: usize) -> String {
    format!("account/{number}")
}

fn counter(client: usize) -> String {
    format!("counter/{client}")
}

fn send(client: &mut Client, body: &Value, key: Option<&str>) -> std::io::Result<Answer> {
    let headers: Vec<_> = key.map(|key| ("idempotency-key", key)).into_iter().collect();
    client.try_request("POST", "/v1/txn", &headers, body.to_string().as_bytes())
}
