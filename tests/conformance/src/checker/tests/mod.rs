//! The checker against brute force, and against histories that are correct by construction.

mod brute;
pub(crate) mod generate;
mod sentences;

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use self::generate::Shape;
use super::search::{Found, search};
use super::{Counterexample, Verdict, check, components, prepare};
use crate::answer::Answer;
use crate::history::{History, Operation};
use crate::manifest::Reads;
use crate::op::Verb;
use crate::random::Random;

/// The time limit of a check: that of a normal run, and more for a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

/// How many of the large histories may be given up; every run generates different ones.
const GIVEN_UP: u64 = 3;

/// The processor time of this thread, so that other load on the machine does not count.
fn thread_time() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime).try_into().unwrap()
}

fn tell(history: &History) -> String {
    let mut text = format!("{:?}\n", history.manifest);
    for operation in &history.operations {
        text += &format!("{operation:?}\n");
    }
    text
}

/// Few operations, so that brute force is feasible.
fn small(random: &mut Random) -> Shape {
    Shape {
        operations: 2 + random.below(6),
        clients: 1 + random.below(4),
        resources: 1 + random.below(2),
        unknown: [0, 20, 50][random.below(3) as usize],
        batches: [0, 30][random.below(2) as usize],
        spread: 1 + random.below(3),
        kill_every: [0, 3][random.below(2) as usize],
    }
}

/// The search alone, without the explainers.
fn ordered(history: &History) -> bool {
    components::components(history).iter().all(|component| {
        match search(&prepare::prepare(&history.manifest, component), Instant::now() + LIMIT) {
            Found::Order => true,
            Found::Nothing(_) => false,
            Found::GivenUp { .. } => panic!("too slow\n{}", tell(history)),
        }
    })
}

/// The history in which only these operations count: other reads and refusals are removed, other changes become
/// unknown.
fn only(history: &History, counterexample: &Counterexample) -> History {
    let mut less = history.clone();
    less.operations.retain_mut(|operation| {
        let reads = matches!(operation.op.verb(), Verb::Read | Verb::CheckedRead);
        if counterexample.operations.contains(&operation.id) {
            return true;
        }
        match operation.answer {
            Answer::Ok { .. } if !reads => {
                operation.answer = Answer::unknown("");
                operation.dead_by = Some(operation.returned);
                true
            }
            Answer::Mismatch { .. } if history.manifest.mismatch_raises => {
                operation.answer = Answer::error("");
                true
            }
            Answer::Ok { .. } | Answer::Stale { .. } | Answer::Mismatch { .. } | Answer::Unsupported => false,
            Answer::Error { .. } | Answer::Unknown { .. } => !reads,
        }
    });
    less
}

#[test]
fn agrees_with_brute_force() {
    let seeds = Random::from_environment();
    let (mut right, mut wrong) = (0, 0);
    for number in 0..40_000 {
        let mut random = seeds.fork(number);
        let shape = small(&mut random);
        let manifest = generate::manifest(&mut random);
        let mut history = generate::right(&mut random, shape, manifest);
        for _ in 0..random.below(4) {
            generate::spoil(&mut random, &mut history);
        }
        let explained = brute::explained(&history);
        match (check(&history, LIMIT), explained) {
            (Verdict::Explained, true) => right += 1,
            (Verdict::Violated(found), false) => {
                wrong += 1;
                let less = only(&history, &found);
                assert!(!brute::explained(&less), "{number}: {found:?} does not show it\n{}", tell(&history));
            }
            (verdict, explained) => {
                panic!("history {number}: brute force says {explained}, the checker {verdict:?}\n{}", tell(&history))
            }
        }
        let numbers = |operation: &Operation| operation.op.tokens().iter().all(|token| token.number().is_some());
        if history.manifest.reads == Reads::Linearizable && history.operations.iter().all(numbers) {
            assert_eq!(ordered(&history), explained, "the search alone, history {number}\n{}", tell(&history));
        }
    }
    println!("{right} explained, {wrong} not");
    assert!(right > 8_000 && wrong > 8_000, "a one-sided sample shows little: {right} explained, {wrong} not");
}

/// Many operations of many clients.
fn large(random: &mut Random) -> Shape {
    Shape {
        operations: 20 + random.below(200),
        clients: 1 + random.below(16),
        resources: 1 + random.below(3),
        unknown: [0, 5, 20, 40][random.below(4) as usize],
        batches: [0, 0, 10][random.below(3) as usize],
        spread: 1 + random.below(8),
        kill_every: [0, 0, 30][random.below(3) as usize],
    }
}

#[test]
fn never_convicts_a_right_resource_and_often_a_wrong_one() {
    let seeds = Random::from_environment();
    let (mut slowest, mut slowest_wrong) = (Duration::ZERO, Duration::ZERO);
    let (mut convicted, mut searched, mut most, mut given_up) = (0, 0, 0, 0);
    for number in 0..3_000 {
        let mut random = seeds.fork(number);
        let shape = large(&mut random);
        let manifest = generate::manifest(&mut random);
        let mut history = generate::right(&mut random, shape, manifest);
        let began = Instant::now();
        let verdict = check(&history, LIMIT);
        slowest = slowest.max(began.elapsed());
        match verdict {
            Verdict::Explained => {}
            Verdict::Violated(_) => panic!("history {number} of {shape:?}: {verdict:?}\n{}", tell(&history)),
            Verdict::Undecided(_) => given_up += 1,
        }
        (0..3).for_each(|_| generate::spoil(&mut random, &mut history));
        let began = Instant::now();
        match check(&history, LIMIT) {
            Verdict::Explained => {}
            Verdict::Violated(found) => {
                convicted += 1;
                if found.sentence.starts_with("no order") {
                    searched += 1;
                    most = most.max(found.operations.len());
                }
            }
            Verdict::Undecided(_) => given_up += 1,
        }
        slowest_wrong = slowest_wrong.max(began.elapsed());
    }
    println!("slowest: {slowest:?} right, {slowest_wrong:?} spoiled");
    println!("{convicted} of 3000 convicted, {searched} by the search, with {most} operations at most");
    assert!(given_up <= GIVEN_UP, "{given_up} of 6000 histories were too hard");
    assert!(convicted > 1_500, "only {convicted} of 3000 spoiled histories were convicted");
    assert!(searched > 0, "the search was never needed");
}

#[test]
fn two_hundred_operations_by_eight_clients_take_well_under_a_second() {
    let seeds = Random::from_seed(1);
    for (name, unknown, spread) in
        [("all known", 0, 6), ("a fifth unknown", 20, 6), ("one token, a fifth unknown", 20, 1)]
    {
        let (mut slowest, mut slowest_wrong) = (Duration::ZERO, Duration::ZERO);
        for number in 0..100 {
            let mut random = seeds.fork(number);
            let shape = Shape { operations: 200, clients: 8, resources: 1, unknown, batches: 0, spread, kill_every: 0 };
            let manifest = generate::manifest(&mut random);
            let mut history = generate::right(&mut random, shape, manifest);
            let began = thread_time();
            assert_eq!(check(&history, LIMIT), Verdict::Explained, "{}", tell(&history));
            slowest = slowest.max(thread_time() - began);
            generate::spoil(&mut random, &mut history);
            let began = thread_time();
            let _ = ordered(&history);
            slowest_wrong = slowest_wrong.max(thread_time() - began);
        }
        println!("{name}: at most {slowest:?}, spoiled {slowest_wrong:?}");
        assert!(slowest.max(slowest_wrong) < Duration::from_secs(1), "{name}: {slowest:?}, spoiled {slowest_wrong:?}");
    }
}

#[test]
fn twenty_thousand_operations_on_a_thousand_resources_take_seconds() {
    let mut random = Random::from_seed(2);
    for (name, batches) in [("no batches", 0), ("one of a hundred a batch", 1)] {
        let shape = Shape {
            operations: 20_000,
            clients: 16,
            resources: 1_000,
            unknown: 5,
            batches,
            spread: 4,
            kill_every: 5_000,
        };
        let manifest = generate::manifest(&mut random);
        let history = generate::right(&mut random, shape, manifest);
        let began = thread_time();
        assert_eq!(check(&history, LIMIT), Verdict::Explained, "{name}");
        let took = thread_time() - began;
        println!("{name}: {took:?}");
        assert!(took < Duration::from_secs(10), "{name}: {took:?}");
    }
}

#[test]
fn gives_up_in_time() {
    let mut random = Random::from_seed(3);
    let shape = Shape { operations: 5_000, clients: 8, resources: 1, unknown: 5, batches: 0, spread: 4, kill_every: 0 };
    let manifest = generate::manifest(&mut random);
    let history = generate::right(&mut random, shape, manifest);
    let Verdict::Undecided(why) = check(&history, Duration::ZERO) else { panic!("there was no time at all") };
    assert!(why.starts_with("no order of the ") && why.contains("the limits are 0 s"), "{why}");
}
