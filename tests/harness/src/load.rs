//! Clients that write, claim, read and misbehave, each on a connection of its own, and record every answer.

use std::io::ErrorKind;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::http::{Answer, Client};
use crate::record::{Attempt, Checked, Held, KeyRecord, NEVER, Record, change_of, count, number, value_of};
use fencepost_conformance::random::Random;
use fencepost_conformance::wait;

/// When a client stops.
#[derive(Clone, Copy, Debug)]
pub enum Until {
    /// When its connection breaks.
    Broken,
    /// After this many requests, or when its connection breaks.
    Requests(u64),
    /// The same, for a gateway that may be killed at any moment, even before a client has connected.
    Killed(u64),
    /// This many requests after `meanwhile` has ended, during which the server behind the gateway goes away and comes back.
    /// The gateway stays, and may reject requests, fail to read, and not know outcomes.
    Outage(u64),
    /// When writes have stopped (G8), and [`AFTERWARDS`] more have been rejected. Rejections are allowed only then.
    Poisoned,
}

/// A running gateway answers within this time, whatever its answer is.
const PATIENCE: Duration = Duration::from_secs(20);

/// Requests after which a fault must have stopped writes.
const TOO_LONG: u64 = 5_000;

/// How often each client tries again after writes have stopped.
pub const AFTERWARDS: u64 = 20;

/// How long a client waits after a rejection, while the server behind the gateway is away.
const REJECTED: Duration = Duration::from_millis(20);

/// Runs `clients` clients against the gateway at `address`, and `meanwhile` beside them once all are connected. Returns
/// the number of requests sent. Panics at the first answer that breaks a promise.
pub fn run(
    address: &str,
    record: &Record,
    clients: usize,
    random: &Random,
    until: Until,
    meanwhile: impl FnOnce(),
) -> u64 {
    run_over(&[address], record, clients, random, until, meanwhile)
}

/// The same with several gateways of one store. Each client uses one of them, in turn.
pub fn run_over(
    addresses: &[&str],
    record: &Record,
    clients: usize,
    random: &Random,
    until: Until,
    meanwhile: impl FnOnce(),
) -> u64 {
    let connected = Barrier::new(clients + 1);
    let (poisoned, calm) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..clients)
            .map(|number| {
                let random = random.fork(number as u64);
                let (connected, poisoned, calm) = (&connected, &poisoned, &calm);
                let address = addresses[number % addresses.len()];
                scope.spawn(move || {
                    let connection = Client::try_connect(address);
                    connected.wait();
                    let client = match (connection, until) {
                        (Ok(client), _) => client,
                        (Err(_), Until::Killed(_)) => return Ok(0),
                        (Err(error), _) => return Err(format!("cannot connect: {error}")),
                    };
                    client.set_timeout(PATIENCE);
                    LoadClient { client, record, number, clients, random, until, poisoned, calm }.run()
                })
            })
            .collect();
        connected.wait();
        {
            // Also if it panics: clients that wait for the end would run forever.
            let _ended = SetAtEnd(&calm);
            meanwhile();
        }
        let mut requests = 0;
        for client in running {
            match client.join() {
                Ok(Ok(sent)) => requests += sent,
                Ok(Err(broken)) => panic!("{broken}"),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        requests
    })
}

/// Sets a flag when it is dropped.
struct SetAtEnd<'f>(&'f AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// One client. It owns every key whose index modulo `clients` is its number.
struct LoadClient<'r> {
    client: Client,
    record: &'r Record,
    number: usize,
    clients: usize,
    random: Random,
    until: Until,
    /// Some client got the answer that writes have stopped.
    poisoned: &'r AtomicBool,
    /// `meanwhile` has ended.
    calm: &'r AtomicBool,
}

/// The result of a request.
enum Sent {
    /// It has a final answer.
    Answered(Answer),
    /// The connection broke, or the gateway does not know the outcome.
    Unknown,
    /// Writes have stopped; the request was surely not applied.
    Rejected,
}

impl LoadClient<'_> {
    fn run(mut self) -> Checked<u64> {
        let (mut sent, mut afterwards) = (0, 0);
        while match self.until {
            Until::Broken => true,
            Until::Requests(limit) | Until::Killed(limit) => sent < limit,
            Until::Outage(limit) => afterwards < limit,
            Until::Poisoned => afterwards < AFTERWARDS,
        } {
            sent += 1;
            let after = if matches!(self.until, Until::Outage(_)) { self.calm } else { self.poisoned };
            afterwards += u64::from(after.load(Ordering::Relaxed));
            if matches!(self.until, Until::Poisoned) && sent > TOO_LONG {
                return Err(format!("writes have not stopped after {TOO_LONG} requests of one client"));
            }
            let goes_on = self.step()?;
            if !goes_on {
                break;
            }
        }
        Ok(sent)
    }

    /// Sends one request. `false`: the connection cannot be used any more.
    fn step(&mut self) -> Checked<bool> {
        let owned = (self.record.len() - self.number).div_ceil(self.clients) as u64;
        let mine = self.number + self.clients * usize::try_from(self.random.below(owned)).unwrap_or(0);
        let any = usize::try_from(self.random.below(self.record.len() as u64)).unwrap_or(0);
        match self.random.below(100) {
            0..40 => self.change(mine, Kind::Put),
            40..47 => self.change(mine, Kind::Delete),
            47..58 => self.change(mine, Kind::PutIfMatch),
            58..64 => self.change(mine, Kind::PutIfAbsent),
            64..70 => self.wrong_condition(mine),
            70..78 => self.read(mine),
            78..92 => self.claim(any),
            _ => self.stale(any),
        }
    }

    fn send(&mut self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Checked<Sent> {
        let stopped = self.poisoned.load(Ordering::SeqCst);
        let answer = match self.client.try_request(method, path, headers, body.as_bytes()) {
            Ok(answer) => answer,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                return Err(format!("{method} {path} has no answer after {PATIENCE:?}"));
            }
            Err(error) if matches!(self.until, Until::Outage(_)) => {
                return Err(format!("{method} {path} has no answer, and the gateway was not stopped: {error}"));
            }
            Err(_) => {
                count(&self.record.counts.unknown);
                return Ok(Sent::Unknown);
            }
        };
        let problem = if answer.status >= 500 { answer.problem() } else { String::new() };
        match (problem.as_str(), self.until) {
            ("outcome-unknown", Until::Poisoned) => {
                self.poisoned.store(true, Ordering::SeqCst);
                count(&self.record.counts.unknown);
                Ok(Sent::Unknown)
            }
            ("poisoned", Until::Poisoned) => {
                self.poisoned.store(true, Ordering::SeqCst);
                count(&self.record.counts.rejected);
                Ok(Sent::Rejected)
            }
            // A request in progress when writes stopped may be answered with "unavailable, not applied".
            ("unavailable", Until::Poisoned) if answer.json()["outcome"] == "not-applied" => {
                count(&self.record.counts.rejected);
                Ok(Sent::Rejected)
            }
            ("outcome-unknown", Until::Outage(_)) if answer.json()["outcome"] == "unknown" => {
                count(&self.record.counts.unknown);
                Ok(Sent::Unknown)
            }
            ("unavailable" | "overloaded", Until::Outage(_))
                if answer.json()["outcome"] == "not-applied" && answer.header("retry-after").is_some() =>
            {
                count(&self.record.counts.rejected);
                wait::pause(REJECTED);
                Ok(Sent::Rejected)
            }
            ("", _) if !stopped || method == "GET" => Ok(Sent::Answered(answer)),
            _ => Err(format!("{method} {path} was answered {answer:?}, writes had stopped before: {stopped}")),
        }
    }

    /// After an unknown outcome, a connection can be used only if the gateway itself reported that outcome.
    fn goes_on(&self) -> Checked<bool> {
        Ok(self.poisoned.load(Ordering::Relaxed) || matches!(self.until, Until::Outage(_)))
    }

    /// A change by the key's owner, whose result the owner can predict unless a newer token intervenes.
    fn change(&mut self, at: usize, kind: Kind) -> Checked<bool> {
        let step = 1 + self.random.below(3);
        let reuse = self.random.chance(60);
        let mut key = self.record.key(at);
        if key.pending.is_some() {
            drop(key);
            return self.claim(at);
        }
        let (token, fresh) = match key.own {
            Some(own) if reuse => (own, false),
            _ => (key.fresh_token(step), true),
        };
        key.own = Some(token);
        let (floor, number, before) = (key.floor, key.next_change(), key.held.clone());
        let holds = match kind {
            Kind::Put | Kind::Delete => true,
            Kind::PutIfMatch => before.etag().is_some(),
            Kind::PutIfAbsent => before.etag().is_none(),
        };
        let condition = match kind {
            Kind::PutIfMatch => Some(("if-match", before.etag().unwrap_or("*").to_owned())),
            Kind::PutIfAbsent => Some(("if-none-match", "*".to_owned())),
            Kind::Put | Kind::Delete => None,
        };
        let puts = !matches!(kind, Kind::Delete);
        if holds {
            key.pending = Some(Attempt { number, puts, token, telling: fresh && condition.is_none() });
        }
        let name = key.name.clone();
        drop(key);

        let text = token.to_string();
        let mut headers = vec![("fencing-token", text.as_str())];
        headers.extend(condition.as_ref().map(|(header, value)| (*header, value.as_str())));
        let body = if puts { value_of(&name, number) } else { String::new() };
        let method = if puts { "PUT" } else { "DELETE" };
        let sent = self.send(method, &format!("/v1/kv/{name}"), &headers, &body)?;
        if let Sent::Unknown = sent {
            return self.goes_on();
        }
        let mut key = self.record.key(at);
        key.pending = None;
        let Sent::Answered(answer) = sent else {
            return Ok(true);
        };
        match answer.status {
            204 if holds && token >= floor => {
                count(&self.record.counts.applied);
                key.saw_fence(fence_at_least(token, &answer)?)?;
                key.held = match answer.header("etag") {
                    Some(etag) if puts => {
                        self.record.saw_version(etag, &name, number)?;
                        Held::Value { number, token, etag: etag.to_owned() }
                    }
                    None if !puts => Held::Absent(number),
                    _ => return Err(format!("{name}: an ETag where none belongs, or none: {answer:?}")),
                };
            }
            412 if !holds && token >= floor => self.condition_failed(&mut key, token, &answer)?,
            // A newer token of another client came in between.
            409 => {
                count(&self.record.counts.refused);
                key.saw_refusal(token, &answer)?;
                key.own = None;
            }
            _ => return Err(format!("{kind:?} with token {token} over {floor} of {key:?} was answered {answer:?}")),
        }
        Ok(true)
    }

    /// A condition that cannot hold: the data does not change, but the token is admitted nevertheless.
    fn wrong_condition(&mut self, at: usize) -> Checked<bool> {
        let mut key = self.record.key(at);
        if key.pending.is_some() {
            // The version that the answer shows cannot be predicted.
            return Ok(true);
        }
        let (token, name) = (key.fresh_token(1), key.name.clone());
        drop(key);
        let headers = [("fencing-token", token.to_string()), ("if-match", "\"0\"".to_owned())];
        let headers = headers.each_ref().map(|(name, value)| (*name, value.as_str()));
        let answer = match self.send("PUT", &format!("/v1/kv/{name}"), &headers, NEVER)? {
            Sent::Answered(answer) => answer,
            Sent::Unknown => return self.goes_on(),
            Sent::Rejected => return Ok(true),
        };
        let mut key = self.record.key(at);
        match answer.status {
            412 => self.condition_failed(&mut key, token, &answer)?,
            409 => {
                count(&self.record.counts.refused);
                key.saw_refusal(token, &answer)?;
            }
            _ => return Err(format!("{name}: a condition that cannot hold was answered {answer:?}")),
        }
        Ok(true)
    }

    fn condition_failed(&self, key: &mut KeyRecord, token: u64, answer: &Answer) -> Checked<()> {
        count(&self.record.counts.conditions);
        key.saw_fence(fence_at_least(token, answer)?)?;
        match answer.json()["etag"].as_str() == key.held.etag() {
            true => Ok(()),
            false => Err(format!("{}: a failed condition shows another version: {answer:?}", key.name)),
        }
    }

    fn read(&mut self, at: usize) -> Checked<bool> {
        let key = self.record.key(at);
        if key.pending.is_some() {
            return Ok(true);
        }
        let (name, held, floor) = (key.name.clone(), key.held.clone(), key.floor);
        drop(key);
        let answer = match self.send("GET", &format!("/v1/kv/{name}"), &[], "")? {
            Sent::Answered(answer) => answer,
            Sent::Unknown => return self.goes_on(),
            Sent::Rejected => return Ok(true),
        };
        count(&self.record.counts.reads);
        let found = change_of(&name, &answer.body).filter(|_| answer.status == 200);
        let expected = held.etag().map(|_| held.number());
        let fence = number(answer.header("fence"));
        if found != expected || answer.header("etag") != held.etag() || fence.unwrap_or(0) < floor {
            return Err(format!("{name}: holds {held:?} over {floor}, but a read gave {answer:?}"));
        }
        Ok(true)
    }

    /// Raises any key's fence, which fences its owner out, and reads atomically.
    fn claim(&mut self, at: usize) -> Checked<bool> {
        let step = 1 + self.random.below(2);
        let mut key = self.record.key(at);
        let (token, name, before) = (key.fresh_token(step), key.name.clone(), key.held.number());
        drop(key);
        let headers = [("fencing-token", token.to_string())];
        let headers = headers.each_ref().map(|(name, value)| (*name, value.as_str()));
        let answer = match self.send("POST", &format!("/v1/claim/{name}"), &headers, "")? {
            Sent::Answered(answer) => answer,
            Sent::Unknown => return self.goes_on(),
            Sent::Rejected => return Ok(true),
        };
        let mut key = self.record.key(at);
        match answer.status {
            200 => {
                count(&self.record.counts.claimed);
                let json = answer.json();
                if number(json["fence"]["token"].as_str()) != Some(token) {
                    return Err(format!("{name}: claimed {token}, got {json}"));
                }
                key.saw_fence(token)?;
                let value = &json["values"][0];
                let seen = value["text"].as_str().map(|text| change_of(&name, text.as_bytes()));
                if seen.is_some_and(|change| change.is_none_or(|change| change < before)) {
                    return Err(format!("{name}: a claim read {value}, older than change {before}"));
                }
            }
            409 => {
                count(&self.record.counts.refused);
                key.saw_refusal(token, &answer)?;
            }
            _ => return Err(format!("{name}: claim {token} was answered {answer:?}")),
        }
        Ok(true)
    }

    /// A write below a fence that an answer has shown: it must be refused (G2).
    fn stale(&mut self, at: usize) -> Checked<bool> {
        let key = self.record.key(at);
        let (name, floor) = (key.name.clone(), key.floor);
        drop(key);
        if floor < 2 {
            return Ok(true);
        }
        let token = 1 + self.random.below(floor - 1);
        let headers = [("fencing-token", token.to_string())];
        let headers = headers.each_ref().map(|(name, value)| (*name, value.as_str()));
        let answer = match self.send("PUT", &format!("/v1/kv/{name}"), &headers, NEVER)? {
            Sent::Answered(answer) => answer,
            Sent::Unknown => return self.goes_on(),
            Sent::Rejected => return Ok(true),
        };
        count(&self.record.counts.refused);
        self.record.key(at).saw_refusal(token, &answer)?;
        Ok(true)
    }
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Put,
    Delete,
    PutIfMatch,
    PutIfAbsent,
}

/// The fence in an answer, which must not be below the token that was admitted.
fn fence_at_least(token: u64, answer: &Answer) -> Checked<u64> {
    number(answer.header("fence"))
        .filter(|fence| *fence >= token)
        .ok_or_else(|| format!("token {token} was admitted, but the answer's fence is lower: {answer:?}"))
}
