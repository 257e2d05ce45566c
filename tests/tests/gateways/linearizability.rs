//! One order explains what three gateways of one store have answered, also while one is killed and another one stands still.
//!
//! The conformance suite's checker judges. It knows G1–G3: a fence that only rises, and moves together with the data.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fencepost_conformance::adapters::http::HttpSubject;
use fencepost_conformance::checker::{self, Verdict};
use fencepost_conformance::history::{History, Operation, Time};
use fencepost_conformance::random::Random;
use fencepost_conformance::subject::{Request, Route, Subject};
use fencepost_conformance::wait::{self, PATIENCE};
use fencepost_conformance::{Answer, Op, Verb, Write};
use fencepost_harness::budget;
use parking_lot::Mutex;

use crate::balanced::Balanced;
use crate::team::{AtEnd, On, on_each};

on_each! {
    one_order_explains_three_gateways_of_which_one_is_killed_and_one_stands_still,
    no_order_explains_gateways_of_two_stores,
}

const GATEWAYS: usize = 3;
const CLIENTS: u32 = 9;
const RESOURCES: u64 = 4;

/// How many requests a gateway has in hand while it stands still. The other clients go on.
const STUCK: usize = 3;

/// The checker's limit for one history.
const LIMIT: Duration = Duration::from_secs(60);

/// What clients do and see, in one round.
struct Observed<'s> {
    http: &'s HttpSubject,
    began: Instant,
    operations: Mutex<Vec<Operation>>,
    next: AtomicU64,
    /// The highest token that was drawn for each resource.
    tokens: Vec<AtomicU64>,
    round: u64,
}

impl<'s> Observed<'s> {
    fn new(http: &'s HttpSubject, round: u64) -> Observed<'s> {
        let tokens = (0..RESOURCES).map(|_| AtomicU64::new(1)).collect();
        Observed { http, began: Instant::now(), operations: Mutex::default(), next: AtomicU64::new(1), tokens, round }
    }

    fn now(&self) -> Time {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap()
    }

    fn name(&self, resource: u64) -> String {
        format!("round-{}/{resource}", self.round)
    }

    /// Makes one request, and notes it with its answer.
    fn call(&self, client: u32, op: Op) -> Answer {
        let id = self.next.fetch_add(1, Ordering::SeqCst);
        let called = self.now();
        let request = Request { case: "gateways", seed: self.round, id, client, route: Route::Direct, op: &op };
        let answer = self.http.call(&request).unwrap();
        let (returned, noted) = (self.now(), answer.clone());
        let operation = Operation { id, client, op, called, returned, answer: noted, dead_by: None, copy_of: None };
        self.operations.lock().push(operation);
        answer
    }

    /// How many operations are complete.
    fn complete(&self) -> usize {
        self.operations.lock().len()
    }

    /// Draws a token: the highest one, a new one, or one that was overtaken.
    fn token(&self, resource: u64, random: &mut Random) -> u64 {
        let highest = &self.tokens[usize::try_from(resource).unwrap()];
        match random.below(10) {
            0..3 => highest.fetch_add(1, Ordering::SeqCst) + 1,
            3..5 => highest.load(Ordering::SeqCst).saturating_sub(1 + random.below(2)).max(1),
            _ => highest.load(Ordering::SeqCst),
        }
    }

    /// Works until the flag is set.
    fn work(&self, client: u32, random: &mut Random, done: &AtomicBool) {
        // The last value that this client has seen of each resource.
        let mut seen: Vec<Option<String>> = vec![None; self.tokens.len()];
        while !done.load(Ordering::SeqCst) {
            let resource = random.below(RESOURCES);
            let (name, token) = (self.name(resource), self.token(resource, random));
            // Mostly the holder of that token, and sometimes one that was given the same number.
            let holder = if random.chance(95) { format!("holder#{token}") } else { format!("client#{client}") };
            let value = format!("{client}-{}", random.draw());
            let last = &mut seen[usize::try_from(resource).unwrap()];
            let op = match random.below(100) {
                0..30 => Op::write(&name, token, &holder, &value),
                30..45 => Op::claim(&name, token, &holder),
                45..60 => Op::cas(&name, token, &holder, last.as_deref(), &value),
                60..70 => Op::delete(&name, token, &holder),
                70..75 => self.batch(resource, token, &holder, &value, random),
                75..82 => Op::checked_read(&name, token),
                _ => Op::read(&name),
            };
            let shown = self.call(client, op);
            if let Some(found) = shown.value() {
                *last = found.map(str::to_owned);
            }
        }
    }

    /// A transaction that writes under two resources.
    fn batch(&self, resource: u64, token: u64, holder: &str, value: &str, random: &mut Random) -> Op {
        let other = (resource + 1) % RESOURCES;
        let second = self.token(other, random);
        let writes = vec![
            Write::new(&self.name(resource), token, holder, value),
            Write::new(&self.name(other), second, &format!("holder#{second}"), &format!("{value}-too")),
        ];
        Op::Batch { writes }
    }

    /// What was in flight when its gateway was killed has taken effect by now, or never will. Returns how many requests
    /// that were.
    fn bury(&self) -> usize {
        let (now, mut buried) = (self.now(), 0);
        for operation in self.operations.lock().iter_mut() {
            if let Answer::Unknown { why } = &operation.answer {
                let lost = !why.starts_with("status") && why != "no answer in time";
                assert!(lost, "a gateway that was not killed leaves an outcome open: {operation:?}");
                operation.dead_by = Some(now);
                buried += 1;
            }
        }
        buried
    }

    /// The history, after a look at every resource by way of each gateway, more or less.
    fn history(self) -> History {
        for resource in 0..RESOURCES {
            for client in 0..CLIENTS {
                assert!(self.call(client, Op::read(&self.name(resource))).is_ok());
            }
        }
        let mut operations = self.operations.into_inner();
        operations.sort_by_key(|operation| operation.id);
        let manifest = self.http.manifest().clone();
        History { case: "gateways".to_owned(), seed: self.round, manifest, operations, ..History::default() }
    }
}

/// Waits until the clients have completed this many operations more.
fn wait_for_more(observed: &Observed<'_>, more: usize) {
    let enough = observed.complete() + more;
    wait::until("operations of clients", PATIENCE, || (observed.complete() >= enough).then_some(()));
}

/// Lets clients work while something is done to the gateways.
fn work_while(observed: &Observed<'_>, random: &Random, disturb: impl FnOnce()) {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let _done = AtEnd(&done);
        for client in 0..CLIENTS {
            let (mut random, done) = (random.fork(u64::from(client)), &done);
            scope.spawn(move || observed.work(client, &mut random, done));
        }
        disturb();
    });
}

/// One gateway stands still with requests in hand while the others go on, another one is killed with requests in hand,
/// and the first one goes on.
fn disturb(balanced: &mut Balanced, observed: &Observed<'_>, still: usize, victim: usize) {
    wait_for_more(observed, 40);
    balanced.balancer.limit(still, STUCK);
    let in_hand = |at: usize| balanced.balancer.in_hand(at);
    wait::until("few requests at the gateway to stop", PATIENCE, || (in_hand(still) <= STUCK).then_some(()));
    balanced.gateways[still].pause();
    wait::until("requests at the gateway that stands still", PATIENCE, || (in_hand(still) == STUCK).then_some(()));
    wait_for_more(observed, 60);
    wait::until("requests at the gateway to kill", PATIENCE, || (in_hand(victim) >= 2).then_some(()));
    balanced.kill(&[victim]);
    wait_for_more(observed, 20);
    balanced.gateways[still].resume();
    balanced.balancer.limit(still, usize::MAX);
    wait_for_more(observed, 60);
}

fn judge(history: &History) -> Verdict {
    checker::check(history, LIMIT)
}

/// What gives the verdict its weight.
#[derive(Debug, Default)]
struct Evidence {
    operations: usize,
    accepted: usize,
    refused: usize,
    mismatches: usize,
    buried: usize,
}

impl Evidence {
    fn add(&mut self, history: &History, buried: usize) {
        let count = |what: fn(&Answer) -> bool| history.operations.iter().filter(|seen| what(&seen.answer)).count();
        self.operations += history.operations.len();
        self.accepted += count(Answer::is_ok);
        self.refused += count(Answer::is_stale);
        self.mismatches += count(|answer| matches!(answer, Answer::Mismatch { .. }));
        self.buried += buried;
    }
}

/// The same history with one more operation, which is complete after all others.
fn with(history: &History, op: Op, answer: Answer) -> History {
    let mut longer = history.clone();
    let after = history.operations.iter().map(|operation| operation.latest()).max().unwrap() + 1;
    let id = history.operations.len() as u64 + 1;
    let (called, returned) = (after, after + 1);
    longer.operations.push(Operation { id, client: 0, op, called, returned, answer, dead_by: None, copy_of: None });
    longer
}

/// The checker convicts this very history if it gets one wrong answer more.
fn check_the_checker(history: &History) {
    let overwritten = history.operations.iter().find_map(|operation| match &operation.op {
        Op::Write(write) if operation.answer.is_ok() => Some(write.clone()),
        _ => None,
    });
    let Write { res, value, .. } = overwritten.expect("something was written");
    let zombie = with(history, Op::write(&res, 1, "zombie", "late"), Answer::ok());
    assert!(matches!(judge(&zombie), Verdict::Violated(_)), "a write with the oldest token at the end is explained");
    let newest = history.operations.iter().rev().find(|operation| operation.op == Op::read(&res)).unwrap();
    assert_ne!(newest.answer.value(), Some(Some(value.as_str())), "the first value is still there");
    let old = Answer::Ok { value: Some(Some(value)), high: newest.answer.high() };
    let older = with(history, Op::read(&res), old);
    assert!(matches!(judge(&older), Verdict::Violated(_)), "the first value after all others is explained");
}

fn one_order_explains_three_gateways_of_which_one_is_killed_and_one_stands_still(on: On) {
    let (rounds, started) = (budget::pick(4, 40), Instant::now());
    let mut random = Random::from_environment();
    let mut balanced = Balanced::start(on, GATEWAYS, random.fork(u64::MAX));
    let http = balanced.open();
    let mut evidence = Evidence::default();
    for round in 0..rounds {
        let still = usize::try_from(random.below(GATEWAYS as u64)).unwrap();
        let victim = (still + 1 + usize::try_from(random.below(GATEWAYS as u64 - 1)).unwrap()) % GATEWAYS;
        let observed = Observed::new(&http, round);
        work_while(&observed, &random.fork(round), || disturb(&mut balanced, &observed, still, victim));
        balanced.wait_for_dead(&[victim]);
        let buried = observed.bury();
        balanced.restart();
        let history = observed.history();
        assert_eq!(judge(&history), Verdict::Explained, "round {round}");
        evidence.add(&history, buried);
        if round == 0 {
            check_the_checker(&history);
        }
    }
    let answered = balanced.balancer.answered();
    println!("{rounds} rounds in {:.1} s: {evidence:?}, answered {answered:?}", started.elapsed().as_secs_f64());
    let each = usize::try_from(rounds).unwrap();
    assert!(evidence.accepted > 50 * each && evidence.refused > 20 * each, "little was seen: {evidence:?}");
    assert!(evidence.mismatches > 0, "no condition has failed: {evidence:?}");
    assert!(evidence.buried > 0, "nothing was in flight when a gateway was killed: {evidence:?}");
    assert!(http.manifest().caps.len() == Verb::ALL.len(), "a verb is not in the map");
}

/// The test would notice gateways that do not share what they know.
fn no_order_explains_gateways_of_two_stores(on: On) {
    let random = Random::from_environment();
    let balanced = Balanced::torn(on, random.fork(u64::MAX));
    let http = balanced.open();
    let observed = Observed::new(&http, 0);
    work_while(&observed, &random, || wait_for_more(&observed, 200));
    let verdict = judge(&observed.history());
    let Verdict::Violated(found) = verdict else { panic!("it is explained, or nearly: {verdict:?}") };
    println!("{}", found.sentence);
}
