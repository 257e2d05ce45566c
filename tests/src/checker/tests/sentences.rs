//! What a counterexample says.

use std::time::Duration;

use super::super::{Verdict, check};
use crate::answer::Answer;
use crate::history::{Event, History, Mark, Operation};
use crate::manifest::{Equal, Manifest, Policy, Reads};
use crate::op::Op;
use crate::token::Token;

const MS: u64 = 1_000_000;

fn done(value: Option<&str>, high: u64) -> Answer {
    Answer::Ok { value: Some(value.map(str::to_owned)), high: Some(high) }
}

fn stale() -> Answer {
    Answer::Stale { high: None }
}

fn write(token: u64) -> Op {
    Op::write("r1", token, "h1", &format!("v-{token}"))
}

/// One client after the other: operation n is called at n00 ms and answered 50 ms later.
fn one_by_one(manifest: Manifest, operations: Vec<(Op, Answer)>) -> History {
    let operations = operations.into_iter().enumerate().map(|(index, (op, answer))| {
        let called = (index as u64 + 1) * 100 * MS;
        let (id, returned) = (index as u64 + 1, called + 50 * MS);
        Operation { id, client: 0, op, called, returned, answer, dead_by: None, copy_of: None }
    });
    History { manifest, operations: operations.collect(), ..History::default() }
}

fn convicts(history: &History, operations: &[u64], sentence: &str) {
    match check(history, Duration::from_secs(5)) {
        Verdict::Violated(found) => {
            assert_eq!(found.sentence, sentence);
            assert_eq!(found.operations, operations, "{sentence}");
        }
        verdict => panic!("{verdict:?} instead of: {sentence}"),
    }
}

#[test]
fn accepted_below_a_fence_that_was_seen() {
    let lost = Answer::unknown("lost");
    let history = one_by_one(
        Manifest::default(),
        vec![(write(9), lost), (Op::read("r1"), done(Some("v-9"), 9)), (write(5), Answer::ok())],
    );
    convicts(
        &history,
        &[2, 3],
        "write #3 (token 5) was accepted at 0.350 s, but read #2 had returned fence 9 at 0.250 s: token 5 was already \
         fenced.",
    );
}

#[test]
fn accepted_after_a_crash_that_lost_the_fence() {
    let mut history = one_by_one(Manifest::default(), vec![(write(9), Answer::ok()), (write(5), Answer::ok())]);
    history.marks = vec![Mark { at: 170 * MS, event: Event::Killed }, Mark { at: 190 * MS, event: Event::Restarted }];
    convicts(
        &history,
        &[1, 2],
        "write #2 (token 5) was accepted at 0.250 s, but write #1 (token 9) had been accepted at 0.150 s: token 5 was \
         already fenced. The process was killed at 0.170 s, between the two.",
    );
}

#[test]
fn refused_for_nobody() {
    let history = one_by_one(Manifest::default(), vec![(write(5), Answer::ok()), (write(7), stale())]);
    convicts(
        &history,
        &[2],
        "write #2 (token 7) was refused as stale at 0.250 s, but no operation called by then could have raised the fence \
         above 7.",
    );
}

#[test]
fn a_fence_that_falls() {
    let answers = vec![
        (write(9), Answer::ok()),
        (write(5), Answer::Stale { high: Some(9) }),
        (Op::read("r1"), done(Some("v-9"), 5)),
    ];
    convicts(
        &one_by_one(Manifest::default(), answers),
        &[1, 3],
        "read #3 returned fence 5 at 0.350 s, but write #1 (token 9) had been accepted at 0.150 s: a fence never falls.",
    );
}

#[test]
fn values_that_must_not_be_seen() {
    let refused = vec![(write(9), Answer::ok()), (write(5), stale()), (Op::read("r1"), done(Some("v-5"), 9))];
    convicts(
        &one_by_one(Manifest::default(), refused.clone()),
        &[2, 3],
        "read #3 returned v-5 at 0.350 s, but write #2 (token 5) had been refused as stale at 0.250 s: what was refused must \
         never be seen.",
    );
    let stale_reads = Manifest { reads: Reads::StaleOk, ..Manifest::default() };
    let verdict = check(&one_by_one(stale_reads, refused), Duration::from_secs(1));
    assert!(matches!(verdict, Verdict::Violated(_)), "a stale read shows no refused value either: {verdict:?}");
    let unwritten = vec![(Op::read("r1"), Answer::Ok { value: Some(Some("x".into())), high: None })];
    convicts(
        &one_by_one(Manifest::default(), unwritten),
        &[1],
        "read #1 returned x at 0.150 s, but nobody ever wrote that.",
    );
    let old = vec![(write(5), Answer::ok()), (write(9), Answer::ok()), (Op::read("r1"), done(Some("v-5"), 9))];
    convicts(
        &one_by_one(Manifest::default(), old),
        &[1, 2, 3],
        "read #3 returned v-5 at 0.350 s, but write #2 (token 9) had replaced it: it was called at 0.200 s, after write #1 \
         (token 5) was accepted at 0.150 s, and accepted at 0.250 s.",
    );
    let lost = vec![(write(5), Answer::ok()), (Op::read("r1"), done(None, 5))];
    convicts(
        &one_by_one(Manifest::default(), lost),
        &[1, 2],
        "read #2 returned no value at 0.250 s, but write #1 (token 5) had been accepted at 0.150 s, and no delete can have \
         removed it.",
    );
}

#[test]
fn one_token_and_two_successes() {
    let gt = Manifest { policy: Policy::Gt, ..Manifest::default() };
    let twice = vec![(write(5), Answer::ok()), (Op::delete("r1", 5, "h1"), Answer::ok())];
    convicts(
        &one_by_one(gt, twice),
        &[1, 2],
        "write #1 (token 5) was accepted at 0.150 s and delete #2 (token 5) at 0.250 s, but each token writes once (policy gt).",
    );
    let holders = Manifest { equal: Equal::Holder, ..Manifest::default() };
    let two = vec![(write(5), Answer::ok()), (Op::claim("r1", 5, "h2"), Answer::ok())];
    convicts(
        &one_by_one(holders, two),
        &[1, 2],
        "write #1 (token 5) by h1 was accepted at 0.150 s and claim #2 (token 5) by h2 was accepted at 0.250 s, but a token \
         belongs to one holder (equal = holder).",
    );
}

#[test]
fn what_is_not_a_token() {
    let hex = Op::write("r1", Token::text("0x5"), "h1", "v-1");
    convicts(
        &one_by_one(Manifest::default(), vec![(hex, Answer::ok())]),
        &[1],
        "write #1 (token \"0x5\") was accepted at 0.150 s, but token \"0x5\" is not a number: nothing may be done with it.",
    );
    let small = Manifest { token_max: 99, ..Manifest::default() };
    convicts(
        &one_by_one(small, vec![(write(100), Answer::ok())]),
        &[1],
        "write #1 (token 100) was accepted at 0.150 s, but the resource says that its largest token is 99: a larger one must \
         be an error.",
    );
}

/// Two writes at once, and two readers who saw them in different orders: no explainer knows that.
#[test]
fn no_order_in_words() {
    let read = |value: &str| (Op::read("r1"), Answer::Ok { value: Some(Some(value.to_owned())), high: None });
    let write = |value: &str| (Op::write("r1", 5, "h1", value), Answer::ok());
    let mut history = one_by_one(
        Manifest::default(),
        vec![write("a"), write("b"), read("a"), read("b"), read("b"), read("a"), (Op::read("r1"), done(Some("a"), 5))],
    );
    for (index, (called, returned)) in
        [(0, 400), (0, 400), (10, 20), (30, 40), (10, 20), (30, 40)].into_iter().enumerate()
    {
        (history.operations[index].called, history.operations[index].returned) = (called * MS, returned * MS);
    }
    convicts(
        &history,
        &[3, 5, 4, 6],
        "no order explains these 4 answers: #3 the read of r1, 0.010 s to 0.020 s: accepted (value a); #5 the read of r1, \
         0.010 s to 0.020 s: accepted (value b); #4 the read of r1, 0.030 s to 0.040 s: accepted (value b); #6 the read \
         of r1, 0.030 s to 0.040 s: accepted (value a). After #3, r1 has fence 5 and value a, and #5 does not fit. The \
         other 3 operations on r1 do not help, whatever became of them.",
    );
}
