//! The sentences of counterexamples.

use std::time::Duration;

use super::super::{Verdict, check};
use crate::answer::Answer;
use crate::history::{Event, History, Mark, Operation};
use crate::manifest::{Equal, Manifest, Policy, Reads};
use crate::op::Op;
use crate::subject::Shift;
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
    history.marks = vec![Mark::new(170 * MS, Event::Killed), Mark::new(190 * MS, Event::Restarted)];
    convicts(
        &history,
        &[1, 2],
        "write #2 (token 5) was accepted at 0.250 s, but write #1 (token 9) had been accepted at 0.150 s: token 5 was \
         already fenced. The process was killed at 0.170 s, between the two.",
    );
}

#[test]
fn a_value_without_its_fence() {
    let seen = |high| Answer::Ok { value: Some(Some("v-9".into())), high };
    let lost = || (write(9), Answer::unknown("lost"));
    convicts(
        &one_by_one(Manifest::default(), vec![lost(), (Op::read("r1"), seen(None)), (write(5), Answer::ok())]),
        &[1, 2, 3],
        "write #3 (token 5) was accepted at 0.350 s, but read #2 had returned v-9, which only write #1 (token 9) can have \
         written, at 0.250 s: token 5 was already fenced.",
    );
    convicts(
        &one_by_one(Manifest::default(), vec![(write(5), Answer::ok()), lost(), (Op::read("r1"), seen(Some(5)))]),
        &[2, 3],
        "read #3 returned fence 5 at 0.350 s, and with it v-9, which only write #2 (token 9) can have written: a value is \
         never there without its fence.",
    );
    let found = (Op::cas("r1", 5, "h", Some("v-9"), "v-10"), Answer::ok());
    convicts(
        &one_by_one(Manifest::default(), vec![lost(), found, (write(5), Answer::ok())]),
        &[1, 2, 3],
        "write #3 (token 5) was accepted at 0.350 s, but cas #2 (token 5) had been accepted because it found v-9, which only write \
         #1 (token 9) can have written, at 0.250 s: token 5 was already fenced.",
    );
}

#[test]
fn the_step_at_which_it_was_killed() {
    let killed =
        |at: u64| Mark { before: Some("fsync(3<CONFORM_DIR/log>)".into()), ..Mark::new(at * MS, Event::Killed) };
    let mut history = one_by_one(Manifest::default(), vec![(write(9), Answer::ok()), (write(5), Answer::ok())]);
    history.marks = vec![killed(170)];
    convicts(
        &history,
        &[1, 2],
        "write #2 (token 5) was accepted at 0.250 s, but write #1 (token 9) had been accepted at 0.150 s: token 5 was \
         already fenced. The process was killed at 0.170 s, between the two, just before fsync(3<CONFORM_DIR/log>).",
    );
    let torn = Answer::Ok { value: Some(Some("v-9".into())), high: Some(5) };
    let lost = (write(9), Answer::unknown("lost"));
    let mut history = one_by_one(Manifest::default(), vec![(write(5), Answer::ok()), lost, (Op::read("r1"), torn)]);
    history.marks = vec![killed(20), killed(225)];
    convicts(
        &history,
        &[2, 3],
        "read #3 returned fence 5 at 0.350 s, and with it v-9, which only write #2 (token 9) can have written: a value is \
         never there without its fence. The process was killed at 0.225 s, with write #2 (token 9) in flight, just before \
         fsync(3<CONFORM_DIR/log>).",
    );
}

#[test]
fn one_value_replaced_twice() {
    let cas = |token, value| Op::cas("r1", token, "h", Some("v-5"), value);
    convicts(
        &one_by_one(
            Manifest::default(),
            vec![(write(5), Answer::ok()), (cas(6, "x"), Answer::ok()), (cas(6, "y"), Answer::ok())],
        ),
        &[1, 2, 3],
        "cas #2 (token 6) was accepted at 0.250 s and cas #3 (token 6) at 0.350 s, both on the condition that v-5 was there, \
         which only write #1 (token 5) can have written: after the first of them it was there no more.",
    );
}

#[test]
fn a_value_that_is_older_than_what_was_accepted() {
    let mut history = one_by_one(
        Manifest::default(),
        vec![
            (write(5), Answer::ok()),
            (write(6), Answer::ok()),
            (Op::read("r1"), Answer::Ok { value: Some(Some("v-5".into())), high: None }),
        ],
    );
    // At the same time.
    history.operations[1].called = history.operations[0].called;
    convicts(
        &history,
        &[1, 2, 3],
        "read #3 found v-5 at 0.350 s, which only write #1 (token 5) can have written, but write #2 (token 6) had been \
         accepted at 0.250 s: a lower token is admitted only before it, so that value had been replaced.",
    );
}

#[test]
fn accepted_after_the_clock_was_set() {
    let mut history = one_by_one(Manifest::default(), vec![(write(9), Answer::ok()), (write(5), Answer::ok())]);
    let set = |at, shift| Mark::new(at * MS, Event::Clock(shift));
    history.marks = vec![set(50, Shift::NONE), set(160, Shift::AHEAD), set(170, Shift::BEHIND), set(400, Shift::NONE)];
    // A restart as well, which explains less than the kill.
    history.marks.push(Mark::new(180 * MS, Event::Stopped));
    convicts(
        &history,
        &[1, 2],
        "write #2 (token 5) was accepted at 0.250 s, but write #1 (token 9) had been accepted at 0.150 s: token 5 was \
         already fenced. Its clock was set to -86400 s at 0.170 s, between the two.",
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
fn who_may_have_been_taken_for_a_reason_is_named() {
    let nobody =
        "was refused as stale at 0.350 s, but no operation called by then could have raised the fence above 7.";
    let cas = (Op::cas("r1", 9, "h", Some("x"), "y"), Answer::Mismatch { current: Some(Some("v-5".into())) });
    convicts(
        &one_by_one(Manifest::default(), vec![(write(5), Answer::ok()), cas, (write(7), stale())]),
        &[3],
        &format!(
            "write #3 (token 7) {nobody} Cas #2 (token 9) did not match; if that raises the fence of yours, say \
             `mismatch_raises`."
        ),
    );
    let other = (Op::write("r\u{e9}", 9, "h", "x"), Answer::ok());
    convicts(
        &one_by_one(Manifest::default(), vec![(write(5), Answer::ok()), other, (write(7), stale())]),
        &[3],
        &format!(
            "write #3 (token 7) {nobody} Write #2 (token 9) to r\\u{{e9}} had been accepted just before: are that and r1 one \
             resource to it?"
        ),
    );
    let mut history = one_by_one(Manifest::default(), vec![(write(9), stale()), (write(8), stale())]);
    // At the same time: neither justifies the other, and the first is found first.
    history.operations[1].called = history.operations[0].called;
    history.operations[1].returned = history.operations[0].returned - 1;
    convicts(
        &history,
        &[2],
        "write #2 (token 8) was refused as stale at 0.149 s, but no operation called by then could have raised the fence above \
         8. Write #1 (token 9) was refused itself.",
    );
}

#[test]
fn a_reason_that_cannot_be_one_is_not_named() {
    let nobody =
        "returned fence 7 at 0.350 s, but no operation called by then could have raised the fence with token 7.";
    let cas =
        |token| (Op::cas("r1", token, "h", Some("x"), "y"), Answer::Mismatch { current: Some(Some("v-5".into())) });
    let read = || (Op::read("r1"), done(Some("v-5"), 7));
    let raises = Manifest { mismatch_raises: true, ..Manifest::default() };
    let history = |manifest, cas| one_by_one(manifest, vec![(write(5), Answer::ok()), cas, read()]);
    let says_already = "read #3 returned fence 7 at 0.350 s, but cas #2 (token 9) had been answered with a mismatch at 0.250 s: a \
                        fence never falls.";
    convicts(&history(raises, cas(9)), &[2, 3], says_already);
    convicts(&history(Manifest::default(), cas(9)), &[3], &format!("read #3 {nobody}"));
    convicts(
        &history(Manifest::default(), cas(7)),
        &[3],
        &format!(
            "read #3 {nobody} Cas #2 (token 7) did not match; if that raises the fence of yours, say `mismatch_raises`."
        ),
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

/// Two writes at once, and two readers that saw them in different orders: no explainer finds that.
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
