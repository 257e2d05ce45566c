//! Connections to the database are cut before and after the commit: what the client is told is what happened (G7, trap 4).

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fencepost_conformance::proxy::{Direction, Proxy, Rule};
use fencepost_conformance::random::Random;
use fencepost_conformance::wait::{self, PATIENCE};
use fencepost_harness::budget;

use crate::held::Held;
use crate::team::{AtEnd, Gateway, On, add, is_replayed, on_each, txn};

on_each! {
    t04_a_commit_whose_answer_is_lost_is_answered_as_applied,
    t04_a_commit_that_never_arrives_is_tried_again,
    t04_without_the_database_the_outcome_is_unknown_and_a_retry_tells,
    t04_additions_under_random_cuts_are_counted_exactly,
}

fn t04_a_commit_whose_answer_is_lost_is_answered_as_applied(on: On) {
    let cut = Held::start(on, "lost_answers");
    let mut direct = cut.direct.client();
    // The fence is known from now on, so a put is one commit and nothing else.
    assert_eq!(cut.put("k", "0").join().unwrap().status, 204);
    for round in 1..=5 {
        let body = round.to_string();
        cut.proxy.set(Direction::Down, Rule::Drop);
        let sent = cut.put("k", &body);
        wait::until("the commit in the database", PATIENCE, || {
            assert!(!sent.is_finished(), "answered although every answer of the database was lost");
            (direct.get("k").text() == body).then_some(())
        });
        cut.proxy.pass();
        cut.proxy.cut();
        let answer = sent.join().unwrap();
        assert_eq!(answer.status, 204, "it is settled as applied: {}", answer.text());
        assert_eq!(answer.header("etag"), direct.get("k").header("etag"), "with the version that it got");
    }
}

fn t04_a_commit_that_never_arrives_is_tried_again(on: On) {
    let cut = Held::start(on, "lost_commits");
    let mut direct = cut.direct.client();
    assert_eq!(cut.put("k", "0").join().unwrap().status, 204);
    for round in 1..=5 {
        let body = round.to_string();
        let before = cut.proxy.count(Direction::Up).bytes;
        cut.proxy.set(Direction::Up, Rule::Hold);
        let sent = cut.put("k", &body);
        wait::until("the commit to be on its way", PATIENCE, || {
            (cut.proxy.count(Direction::Up).bytes > before).then_some(())
        });
        // What was held is lost with its connection.
        cut.proxy.cut();
        cut.proxy.pass();
        let answer = sent.join().unwrap();
        assert_eq!(answer.status, 204, "{}", answer.text());
        assert_eq!(direct.get("k").text(), body);
        assert_eq!(answer.header("etag"), direct.get("k").header("etag"));
    }
}

fn t04_without_the_database_the_outcome_is_unknown_and_a_retry_tells(on: On) {
    let cut = Held::start(on, "away");
    let mut direct = cut.direct.client();
    assert_eq!(cut.put("k", "0").join().unwrap().status, 204);
    cut.proxy.set(Direction::Down, Rule::Drop);
    let once = |gateway: &Gateway| {
        let headers = [("fencing-token", "1"), ("idempotency-key", "w-1")];
        gateway.client().request("PUT", "/v1/kv/k", &headers, b"1")
    };
    let answer = thread::scope(|scope| {
        let sent = scope.spawn(|| once(&cut.through));
        wait::until("the commit in the database", PATIENCE, || (direct.get("k").text() == "1").then_some(()));
        cut.proxy.shut();
        sent.join().unwrap()
    });
    assert_eq!((answer.status, answer.problem().as_str()), (500, "outcome-unknown"), "{}", answer.text());
    let away = cut.put("other", "v").join().unwrap();
    assert_eq!((away.status, away.problem().as_str()), (503, "unavailable"), "{}", away.text());
    assert!(away.header("retry-after").is_some(), "{away:?}");
    let elsewhere = once(&cut.direct);
    assert_eq!((elsewhere.status, is_replayed(&elsewhere)), (204, true), "{}", elsewhere.text());
    cut.proxy.pass();
    cut.through.wait_until_ready();
    let here = once(&cut.through);
    assert_eq!((here.status, is_replayed(&here)), (204, true), "{}", here.text());
    assert_eq!(cut.direct.client().get("other").status, 404, "what was rejected was not applied");
}

/// Cuts connections at random until the flag is set.
fn cut_at_random(proxy: &Proxy, random: &mut Random, done: &AtomicBool) -> u64 {
    let mut cuts = 0;
    while !done.load(Ordering::SeqCst) {
        wait::pause(Duration::from_millis(20 + random.below(200)));
        match random.below(3) {
            0 => {}
            1 => proxy.set(Direction::Up, Rule::Hold),
            _ => proxy.set(Direction::Down, Rule::Drop),
        }
        wait::pause(Duration::from_millis(random.below(20)));
        proxy.cut();
        proxy.pass();
        cuts += 1;
    }
    cuts
}

fn t04_additions_under_random_cuts_are_counted_exactly(on: On) {
    let cut = Held::start(on, "random_cuts");
    let (additions, mut random) = (budget::pick(25, 300), Random::from_environment());
    let done = AtomicBool::new(false);
    let (applied, unknown, cuts) = thread::scope(|scope| {
        let cutter = scope.spawn(|| cut_at_random(&cut.proxy, &mut random, &done));
        let _done = AtEnd(&done);
        let gateways = [&cut.through, &cut.direct, &cut.through];
        let keyed: Vec<_> = gateways
            .iter()
            .enumerate()
            .map(|(worker, &gateway)| {
                scope.spawn(move || {
                    for round in 0..additions {
                        add_once(gateway, &format!("w{worker}-{round}"));
                    }
                })
            })
            .collect();
        let counted = scope.spawn(|| add_without_a_key(&cut.through, additions));
        keyed.into_iter().for_each(|worker| worker.join().unwrap());
        let (applied, unknown) = counted.join().unwrap();
        done.store(true, Ordering::SeqCst);
        (applied, unknown, cutter.join().unwrap())
    });
    cut.through.wait_until_ready();
    let mut direct = cut.direct.client();
    let number = |text: String| text.parse::<u64>().unwrap();
    assert_eq!(number(direct.get("keyed").text()), 3 * additions, "each applied once");
    let sum = number(direct.get("plain").text());
    assert!((applied..=applied + unknown).contains(&sum), "{sum} of {applied} applied and {unknown} unknown");
    println!("{cuts} cuts: {applied} applied and {unknown} unknown without a key; the sum is {sum}");
    assert!(cuts > 0, "nothing was proven");
}

/// Adds 1 with an idempotency key, as often as it takes.
fn add_once(gateway: &Gateway, once: &str) {
    let (body, deadline) = (add("keyed", 1).to_string(), Instant::now() + PATIENCE);
    loop {
        let answer = gateway.client().request("POST", "/v1/txn", &[("idempotency-key", once)], body.as_bytes());
        match answer.status {
            200 => return,
            500 | 503 => {}
            _ => panic!("{answer:?}"),
        }
        assert!(Instant::now() < deadline, "{once} is not applied: {answer:?}");
        wait::pause(Duration::from_millis(10));
    }
}

/// Adds 1 that many times without a key, and counts what was applied, and what is not known.
fn add_without_a_key(gateway: &Gateway, additions: u64) -> (u64, u64) {
    let (mut applied, mut unknown) = (0, 0);
    for _ in 0..additions {
        let answer = txn(&mut gateway.client(), &add("plain", 1));
        match answer.status {
            200 => applied += 1,
            500 => unknown += 1,
            503 => assert_eq!(answer.json()["outcome"], "not-applied", "{answer:?}"),
            _ => panic!("{answer:?}"),
        }
    }
    (applied, unknown)
}
